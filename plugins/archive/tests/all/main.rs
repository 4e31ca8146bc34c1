//! Archives as files: what the sink writes, what the source reads, and what damage costs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use sluice_archive as _;

mod damage;
mod foot;
mod kit;
mod reading;
mod toy;
mod writing;
