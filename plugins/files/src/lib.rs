//! Sink `files`: writes payloads and fields of events as separate files, such as the images of a
//! camera.
//!
//! Decodes neither payloads nor images.

mod byte_values;
mod file_name;
mod index;
mod jpeg;
mod sink;
mod skip_report;

pub use sink::FilesSink;

/// What fuzz targets need. Not part of the public API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::jpeg::{JpegFault, check as check_jpeg};
}
