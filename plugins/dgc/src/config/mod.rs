//! The language of the vehicle's configuration files (`lr3.cfg`) and libbot2's parameter files:
//! parses a text into a document and formats it back.
//!
//! Knows no keys: the meaning of settings is up to the reader.

mod document;
mod number;
mod parser;

pub(crate) use document::first_value;
pub use document::{ConfigEntry, ConfigValue, Document, Scalar};
