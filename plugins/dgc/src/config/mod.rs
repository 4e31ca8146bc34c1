//! The language of configuration files of the vehicle (`lr3.cfg`) and of libbot2's parameter files: text to a
//! document and back. Knows no key: what settings mean is up to whoever reads them.

mod document;
mod number;
mod parser;

pub(crate) use document::first;
pub use document::{Document, Entry, Value, Word};
pub use parser::LONGEST_TOKEN;
