//! Events as text, written only: JSON lines for programs, CSV for tables, and lines for people.
//!
//! One line an event, in the order of the events. Nothing here reads text back, and no payload is
//! decoded: fields are shown where a stage before has decoded them.

pub mod csv;
pub mod fields;
pub mod file;
pub mod jsonl;
pub mod line;
pub mod selection;
pub mod table;
pub mod text;

mod write;

#[cfg(test)]
mod testing;
