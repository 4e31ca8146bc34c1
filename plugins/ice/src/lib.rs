//! Codec `ice`: converts records in Ice encoding 1.0 to Arrow columns and back, by the types that
//! `.ice` files declare.
//!
//! `slice` parses `.ice` files, `plan` compiles a type for its records, `wire` and `record` are
//! their bytes, and `codec` is the plugin. Which files of a log hold such records is the source's
//! business.

pub mod codec;
pub mod slice;
pub mod wire;

mod plan;
mod record;
