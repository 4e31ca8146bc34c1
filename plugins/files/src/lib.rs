//! Sink `files`: writes payloads and fields of events as separate files, such as the images of a
//! camera.
//!
//! Decodes neither payloads nor images.

mod byte_values;
mod file_name;
mod index;
mod sink;
mod skip_report;

pub use sink::FilesSink;
