//! The Slice language, as far as records need it: the declarations of `.ice` files. Decodes
//! nothing.
//!
//! [`parser`] turns text into [`syntax`], and [`SliceLibrary`] resolves the names in the syntax of
//! several files. Modules, structs, classes, sequences, dictionaries and enums are parsed.
//! Interfaces, exceptions, constants, operations and default values are skipped: they do not
//! affect records.

pub(crate) mod library;
pub(crate) mod parser;
pub(crate) mod syntax;

mod text;
mod token;

pub(crate) use library::{SliceLibrary, TypeFile, TypeId};
