//! Parquet tables: source and sink `parquet`.
//!
//! [`sink`] partitions events into tables and cuts row groups, `projection` unnests lists and
//! selects fields, `columns` defines the columns of a table and `column_types` their types, `group`
//! encodes one row group on any thread by the `writers` of its columns, and `file` writes row
//! groups and the footer, with its `footer_checksum`; until then, `written_groups` keeps their
//! metadata. [`source`] turns tables back into events: [`input`] reads a file, `table` makes its
//! rows events, `folder` finds the files of a folder, `merge` merges them, and `manifest` tells
//! which are missing. `meta` is the key-value metadata of the footer that both share, with the
//! lengths of `fixed_lists`.

mod column_types;
mod columns;
mod encoding;
mod file;
mod fixed_lists;
mod folder;
mod footer_checksum;
mod group;
pub mod input;
mod manifest;
mod merge;
mod meta;
mod projection;
pub mod sink;
pub mod source;
mod table;
mod writers;
mod written_groups;
