//! Parquet tables: source and sink `parquet`.
//!
//! [`sink`] partitions events into tables and cuts row groups, `projection` unnests lists and
//! selects fields, `columns` defines the columns of a table, `group` encodes one row group on any
//! thread by the `writers` of its columns, and `file` writes row groups and the footer. [`source`]
//! turns tables back into events: `table` reads one file, `merge` merges the files of a folder.
//! `meta` is the key-value metadata of the footer that both share.

mod bytes;
mod columns;
mod encoding;
mod file;
mod group;
mod merge;
mod meta;
mod projection;
pub mod sink;
pub mod source;
mod table;
mod writers;
