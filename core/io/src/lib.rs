//! The one place that opens files, objects and outputs.
//!
//! Modules build on each other in this order: [`store`] (object stores and their addresses),
//! [`files`] (inputs), [`frames`] (seekable zstd; [`level`] chooses how hard to try), [`output`]
//! (temporary files, and publishing them together). [`ReadBuffer`] and [`LogWindow`] hold what
//! readers of logs have read. Knows no events, no plugin and no async runtime.

pub mod error;
pub mod escape;
pub mod files;
pub mod frames;
pub mod level;
pub mod output;
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
