//! Koblenz VEL DataLog files (source and sink `vel`) and their messages (codec `vel`).
//!
//! `wire` reads and writes the bytes of the file head and of one message; `layout` measures
//! payloads of known types; `hash` turns message names into type numbers; `time` converts
//! milliseconds. `start` examines how a file starts, `scan` tells messages from damage, and
//! `reader` reads a log block by block. `index` is the table of seconds before the messages.
//! `source` and `sink` are the plugins, `format` is the log as a byte format for archives, `codec`
//! turns messages into columns and back.

mod channels;
mod codec;
mod format;
mod front;
mod hash;
mod index;
mod layout;
mod mapping;
mod original;
mod reader;
mod rules;
mod scan;
mod sink;
mod sink_options;
mod source;
mod start;
mod time;
mod wire;

pub use codec::VelTypes;
pub use sink::VelSink;
pub use source::Vel;

/// Internals for tests and fuzz targets; not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::hash::{IMU_STATE, LASER_CONFIG, LASER_DATA, MessageNames, simple_hash};
    pub use crate::index::{IndexBuilder, IndexReport, WrongEntry, check_index, inspect, narrow};
    pub use crate::rules::{AfterDamage, DeletedMessages, Rules};
    pub use crate::scan::{MessageDamage, MessageScan, classify, find, plausible_end};
    pub use crate::start::{FileStart, messages_start, read_start};
    pub use crate::wire::{FileHead, MARKER, MessageHeader, TooLong, UNUSED, append_message};
}
