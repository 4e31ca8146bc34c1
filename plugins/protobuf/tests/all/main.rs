//! Tests of the codec `protobuf` and its stages.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod codec;
mod layer;
mod random;
