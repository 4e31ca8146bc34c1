//! Archives: source and sink `archive`, and the byte format `arrow`.
//!
//! An archive is a zstd file of independent frames with whole events, followed by an index in a
//! skippable frame and a seek table. `zstd -d` restores the plain log. `footer` reads index and
//! seek table, and `index` is the content of the former. `sink` and `source` are the plugins. The
//! source reads with `reader` if the footer is intact, with `scan` if not, and leaves other files
//! to the source that recognises them, through `fallback`.

pub mod arrow;
pub mod fallback;
pub mod footer;
pub mod format;
pub mod index;
pub mod sink;
pub mod source;

mod frame;
mod reader;
mod scan;
