//! Source, stage and sink `exec`: programs in any language that speak Arrow IPC streams on standard
//! input and output.
//!
//! A program runs with the rights of the user who starts the run. Whether it may run is not decided
//! here.

mod activity;
mod answers;
mod child_stderr;
mod columns;
mod dictionaries;
mod events;
mod in_flight;
mod launch;
mod process;
mod sent_rows;
mod sink;
mod source;
mod stage;
mod stdin;
mod stdout;
mod stream;
mod wire;

/// What tests and fuzz targets need. Not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::answers::{ReturnedEvents, read_answers};
    pub use crate::events::write_stream;
    pub use crate::stream::read_events;
}
