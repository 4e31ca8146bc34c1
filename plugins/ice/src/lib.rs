//! Records in Ice encoding 1.0, as Arrow columns and back, by the types that `.ice` files declare: codec `ice`.
//!
//! [`mod@slice`] is the language of `.ice` files; a private `plan` is a type made ready for its records; [`wire`]
//! and a private `record` are their bytes; [`codec`] is the plugin. Which files of a log hold such records is
//! not known here.

pub mod codec;
pub mod slice;
pub mod wire;

mod plan;
mod record;
