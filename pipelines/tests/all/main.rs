//! Pipeline files and runs, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batch;
mod engine;
mod mistakes;
mod spec;
mod toys;
