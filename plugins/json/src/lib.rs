//! JSON messages as columns and back.
//!
//! Types come from the log: the codec `json` makes them from the JSON Schema that a channel stores
//! (`schema`), and turns payloads into columns (`columns`) and columns into payloads (`values`).

mod codec;
mod columns;
mod form;
mod schema;
mod values;

/// What fuzz targets need. Not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::codec::message_type;
}
