//! Tests of the sink and the source `lerobot`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod appending;
mod episodes;
mod features;
mod hostile;
mod kit;
mod peers;
mod reading;
