//! The `.lcm` language: the types that files declare, and their fingerprints. Decodes nothing.
//!
//! The [`parser`] turns text into [`syntax`]; a [`Library`] resolves the names of several files.

pub(crate) mod fingerprint;
pub(crate) mod library;
pub(crate) mod parser;
pub(crate) mod syntax;

mod description;
mod graph;
mod literal;
mod token;

pub use library::{Library, TypeId};
