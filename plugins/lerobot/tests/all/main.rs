//! Tests of the sink and the source `lerobot`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod appending;
mod episodes;
mod features;
mod hostile;
mod kit;
mod merging;
#[path = "../../../parquet/tests/all/kit/nested.rs"]
mod nested;
mod peers;
mod reading;
