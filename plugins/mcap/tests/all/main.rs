//! MCAP files, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod changed;
mod cut;
mod doctor;
mod gaps;
mod joined;
mod kit;
mod lost_declarations;
mod memory;
mod nested;
mod random_changes;
mod reading;
mod shifted;
mod slow;
mod summaries;
mod unverified;
mod variants;
mod writing;
