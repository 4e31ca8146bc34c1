//! LCM event logs (source and sink `lcm-log`) and LCM messages (codec `lcm`).
//!
//! `wire` reads and writes the bytes of one event, `scan` tells events from damage, and `reader`
//! reads a log block by block. `source` and `sink` are the plugins, `format` is the log as a byte
//! format for archives. `types` parses the `.lcm` language, `codec` turns messages into columns
//! and back.

mod codec;
mod format;
mod reader;
mod runs;
mod scan;
mod sink;
mod source;
mod types;
mod wire;

pub use codec::{LcmCodec, LcmTypes};
pub use sink::LcmLogSink;
pub use source::LcmLog;

/// Internals for tests, benches and fuzz targets; not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::codec::fingerprint_of;
    pub use crate::scan::{EventDamage, EventScan, ScanLimits, classify, next_event};
    pub use crate::types::fingerprint::fingerprints;
    pub use crate::types::parser::parse;
    pub use crate::types::syntax::{
        Constant, Declaration, Dimension, Primitive, StructMember, TypeBody, TypeName,
    };
    pub use crate::types::{Library, TypeId};
    pub use crate::wire::{HEADER_LEN, LcmHeader, SYNC, TooLong, append_event};
}
