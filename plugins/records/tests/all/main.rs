//! Records described by types files, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod misfits;
mod mistakes;
mod reading;
mod rows;
