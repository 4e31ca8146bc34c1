//! Archives: source and sink `archive`, and the byte format `arrow`.
//!
//! An archive is a zstd file of independent frames with whole events, followed by an index in a
//! skippable frame and a seek table. `zstd -d` restores the plain log. `footer` reads index and
//! seek table, and `index` is the content of the former. `sink` and `source` are the plugins. The
//! source reads with `reader` if the footer is intact, with `scan` if not, and leaves other files
//! to the source that recognises them, through `fallback`.

mod arrow;
mod fallback;
mod footer;
mod format;
mod frame;
mod index;
mod reader;
mod scan;
mod sink;
mod source;
mod table;

/// What fuzz targets and tests of this crate use. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::arrow::Arrow;
    pub use crate::format::find_format;
    pub use crate::source::Archive;
}
