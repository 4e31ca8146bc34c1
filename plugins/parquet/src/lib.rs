//! Parquet tables: source and sink `parquet`.
//!
//! [`sink`] sorts events into tables and cuts row groups; `taking` takes lists apart and chooses fields; `shape`
//! says which columns a table has;
//! `group` encodes one row group, on any thread; `file` writes row groups and the footer.
//! [`source`] turns tables back into events: `table` reads one file, `merge` puts the files of a
//! folder together. `meta` is what both know of the footer's key-value metadata.

mod bytes;
mod encoding;
mod file;
mod group;
mod merge;
mod meta;
mod shape;
pub mod sink;
pub mod source;
mod table;
mod taking;
