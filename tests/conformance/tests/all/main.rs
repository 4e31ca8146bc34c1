//! The kit finds plugins that break their contract, and passes those that keep it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod codecs;
mod found;
mod options;
mod sinks;
mod sources;
mod stages;
mod units;
