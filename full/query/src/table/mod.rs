//! Logs as DataFusion tables: one table of all events, and one per channel with the fields of its
//! messages.
//!
//! A log called `drive` is the table `drive`:
//!
//! | column | type | |
//! |---|---|---|
//! | `timestamp` | `Timestamp(ns, UTC)` | |
//! | `source` | `Utf8View` | |
//! | `channel` | `Utf8View` | the text form of its name |
//! | `sequence` | `Int64` | |
//! | `payload` | `BinaryView`, nullable | not copied; null if the event has only fields that cannot be encoded |
//!
//! The table `drive."POSE"` has the events of one channel: `timestamp`, `source`, `sequence`, and
//! the fields of the message, named as in written tables (`timestamp_` for a field `timestamp`).
//! Its type is that of the channel's first event that can be decoded. Events of other types and
//! events that cannot be decoded are left out and counted: see [`Findings`]. If none can be
//! decoded, the table has the `payload` instead of fields.
//!
//! Rows come in log order. Conditions on times, channels and sources are pushed down to the source
//! of the log; all other conditions are evaluated where events are read, on all cores. Row counts
//! in files are only estimates here: damage may remove rows.
//!
//! With a [`TableCache`](crate::cache::TableCache), a query that reads a whole table stores the
//! columns that it reads, and later queries take them from there. That changes no row and no
//! finding: queries that would find only a part of what is damaged or missing read the log.

mod cache_key;
mod cached_rows;
mod catalog;
mod channels;
mod collector;
mod discovery;
mod findings;
mod log;
mod provider;
mod pushdown;
mod resources;
mod scan;
mod scan_rows;
mod scan_task;
mod stored_rows;

pub(crate) use catalog::{Catalog, ROOT_SCHEMA};
pub use findings::Findings;
pub(crate) use findings::TableFindings;
pub use log::LogTables;
pub(crate) use resources::ReadResources;
