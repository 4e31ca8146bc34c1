//! Source `records`: binary logs of any format, described in a pipeline file.
//!
//! - `options`: the description as written. `compile` checks it and turns it into a `RecordFormat`.
//! - `wire`: binary numbers. `checksum`: checksum algorithms. `walk`: fields whose length other
//!   fields declare.
//! - `classify`: whether bytes are a record. `scan`: which records are trusted, and where reading
//!   resumes after damage.
//! - `time`, `channels`, `columns`: an event's time, channel and columns.
//! - `source`: the plugin.

mod channels;
mod checksum;
mod classify;
mod column;
mod columns;
mod compile;
mod format;
mod literal;
mod naming;
mod offset;
mod options;
mod scan;
mod source;
mod time;
mod walk;
mod wire;

/// What tests and fuzz targets need. Not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checksum::Algorithm;
    pub use crate::source::{RecordsSource, Tile, tile_at, tiles};
}
