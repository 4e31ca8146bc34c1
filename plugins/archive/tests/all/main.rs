//! Archives as files: writing, reading, and damage.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use sluice_archive as _;

mod damage;
mod footer;
mod kit;
mod reading;
mod toy;
mod writing;
