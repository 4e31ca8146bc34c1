//! The codec for Ice messages: its contract, cases as files, and the Ice runtime beside it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod codec;
mod peer;
