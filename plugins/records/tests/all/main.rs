//! Source `records`, through its public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod ends;
mod gaps;
mod misfits;
mod mistakes;
mod reading;
mod rows;
