//! Tables, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod channels;
mod fields;
mod fixed_lists;
mod folders;
mod footer;
mod foreign;
mod hostile;
mod kit;
mod manifest;
mod merging;
mod rows_layout;
mod tables;
mod twelve_bytes;
mod types;
