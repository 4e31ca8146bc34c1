//! The one place that opens files, objects and outputs.
//!
//! Modules build on each other in this order: [`store`] (object stores and their addresses),
//! [`frames`] (pieces of zstd files; [`level`] chooses how hard to try), [`files`] (inputs),
//! [`seek_table`] (where the frames of a file are), [`output`] (temporary files, and publishing
//! them together). [`ReadBuffer`] and [`LogWindow`] hold what readers of logs have read. Knows no
//! events, no plugin and no async runtime.

pub mod error;
pub mod escape;
pub mod files;
pub mod frames;
pub mod level;
pub mod output;
pub mod seek_table;
pub mod store;
pub mod tasks;

mod buffer;
mod globs;
mod path_order;

pub use buffer::{LogWindow, ReadBuffer};
pub use error::{Error, ErrorKind, OptionsError};
pub use files::Input;
pub use output::{OutputFile, Outputs, Overwrite};
pub use store::FULL_PROGRAM;
pub use tasks::Job;
