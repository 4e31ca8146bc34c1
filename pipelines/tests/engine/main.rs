//! The engine with made-up plugins: what stages of several parts do, what is read for them, how streams
//! are merged, and how much memory a run takes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chains;
mod kit;
mod memory;
mod merges;
