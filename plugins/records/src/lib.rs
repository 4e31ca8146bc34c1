//! Binary logs of made-up formats, described in a pipeline file: source `records`.
//!
//! [`options`] is a description as it is written, [`compile`] finds its mistakes and makes a
//! [`Format`](format::Format) of it. [`wire`] is numbers, [`checksum`] sums over bytes, [`walk`] goes through
//! fields of which some say how long others are. [`look`] says what bytes are, [`scan`] what is to be believed,
//! and where reading goes on after damage; [`time`] and [`channels`] say when an event was and where it belongs,
//! [`columns`] makes rows of records, and [`source`] is the plugin.

pub mod channels;
pub mod checksum;
pub mod classify;
pub mod columns;
pub mod compile;
pub mod format;
pub mod options;
pub mod scan;
pub mod source;
pub mod time;
pub mod walk;
pub mod wire;

mod literal;
