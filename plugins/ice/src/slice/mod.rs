//! The Slice language, as far as records need it: what `.ice` files declare. Decodes nothing.
//!
//! A [`parser`] makes [`syntax`] of text; files of it become a [`Library`] in which names are resolved.
//! Modules, structs, classes, sequences, dictionaries and enums are read. Interfaces, exceptions, constants,
//! operations and default values are stepped over: they leave nothing in a record.

pub mod library;
pub mod parser;
pub mod syntax;

mod text;
mod token;

pub use library::{Library, TypeFile, TypeId};
