//! Point clouds, through the public API and with independent readers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clouds;
mod kit;
mod peers;
