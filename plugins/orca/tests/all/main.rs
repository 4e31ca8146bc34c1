//! The contract of the `orca` plugins, for valid and damaged logs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod configuration;
mod damage;
mod framing;
mod gaps;
mod killed;
mod kit;
mod reading;
mod writing;
