//! Events as text: JSON lines for programs, CSV for tables, and lines for people.
//!
//! One line an event, in the order of the events. Only JSON lines with payloads are read back. No payload
//! is decoded: fields are shown where a stage before has decoded them, and left alone where lines are read.

pub mod cells;
pub mod csv;
pub mod fields;
pub mod file;
pub mod jsonl;
pub mod line;
pub mod table;
pub mod text;

mod abbreviation;
mod templates;
mod write;

#[cfg(test)]
mod testing;
