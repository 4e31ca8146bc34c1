//! Tests of the stage `foxglove` on rows made by hand, made by name as in a pipeline.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod kit;
mod nulls;
mod views;
