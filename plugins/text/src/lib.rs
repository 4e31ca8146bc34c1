//! Events as text: JSON lines for programs, CSV for tables, and lines for people.
//!
//! Sinks write one line per event, in the order of the events. JSON lines with payloads and CSV
//! tables are also read. No payload is decoded here: sinks show the fields that an earlier stage
//! decoded.

mod abbreviation;
mod cells;
mod csv;
mod fields;
mod file;
mod jsonl;
mod leading_columns;
mod line;
mod payload;
mod seek_table;
mod table;
mod templates;
mod text;
mod write;

#[cfg(test)]
mod testing;

/// The text of a file without the byte order mark that some programs put in front of UTF-8.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// What fuzz targets need. Not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::jsonl::source::JsonlSource;
    pub use crate::line::{JsonLines, JsonParts};
    pub use crate::payload::JsonPayload;
}
