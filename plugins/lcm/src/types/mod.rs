//! The `.lcm` language: what types files declare, and the fingerprints of their messages. Decodes nothing.
//!
//! A [`parser`] makes [`syntax`] of text; files of it become a [`Library`] in which names are resolved.

pub mod fingerprint;
pub mod library;
pub mod parser;
pub mod syntax;

mod graph;
mod literal;
mod text;
mod token;

pub use library::{Library, TypeId};
