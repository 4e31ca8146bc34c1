//! VEL DataLogs, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod contract;
mod kit;
mod scan;
mod windows;
mod writing;
