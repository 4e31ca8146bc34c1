//! Logs as tables: of any source, a table of all its events, and one of each channel with the fields of
//! its messages. Plans no query and chooses no format.
//!
//! A log called `drive` is the table `drive`:
//!
//! | column | type | |
//! |---|---|---|
//! | `timestamp` | `Timestamp(ns, UTC)` | |
//! | `source` | `Utf8View` | |
//! | `channel` | `Utf8View` | the text form of its name |
//! | `sequence` | `Int64` | |
//! | `payload` | `BinaryView`, nullable | not copied; null where only fields are there that cannot be encoded |
//!
//! The table `drive."POSE"` has the events of one channel: `timestamp`, `source`, `sequence`, and the fields
//! of the message, named as in tables that are written (`timestamp_` for a field `timestamp`). Its type is
//! that of the channel's first event that can be decoded. Events of other types, and such as cannot be
//! decoded, are left out and counted: see [`Findings`]. If none can be decoded, it has the `payload`
//! instead of fields.
//!
//! Rows come in the order of the log. What a query wants of times, channels and sources is told to the log's
//! source, so that it may read less; all conditions are tried where events are read, on all cores. The
//! number of rows a file says it has is only an estimate here: what is damaged does not count.

mod catalog;
mod channels;
mod columns;
mod discovery;
mod findings;
mod log;
mod provider;
mod pushdown;
mod read_ahead;
mod resources;
mod scan;
mod scan_task;

pub(crate) use catalog::Catalog;
pub use findings::Findings;
pub use log::LogTables;
pub(crate) use resources::ReadResources;
