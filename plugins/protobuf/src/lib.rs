//! Protobuf: codec `protobuf`, which converts messages to Arrow columns and back by the descriptors
//! that logs embed, and the stages `to-protobuf` and `from-protobuf`, which carry decoded messages
//! of any other codec as protobuf.
//!
//! `wire` is the encoding, `descriptor` what types declare themselves with. `plan` is what both say
//! of columns; `decode` and `encode` carry it out. Which file holds such messages is the sources'
//! and sinks' business.

mod codec;
mod columns;
mod decode;
mod descriptor;
mod encode;
mod plan;
mod stages;
mod wire;

/// What fuzz targets and tests of this crate use. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::codec::ProtobufCodec;
    pub use crate::stages::{ENCODING, TypedLayer};
}
