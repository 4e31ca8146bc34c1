//! Codec `ice`: converts records in Ice encoding 1.0 to Arrow columns and back, by the types that
//! `.ice` files declare.
//!
//! `slice` parses `.ice` files, `plan` compiles a type for its records, `wire` and `record` are
//! their bytes, and `codec` is the plugin. Which files of a log hold such records is the source's
//! business.

mod codec;
mod plan;
mod record;
mod slice;
mod wire;

/// What fuzz targets and tests of this crate use. Not part of the public interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::codec::IceCodec;
    pub use crate::slice::library::{SliceLibrary, type_names};
    pub use crate::slice::syntax::{
        Builtin, Declaration, DeclarationBody, SliceMember, TypeName, TypeRef,
    };
}
