//! Programs in any language as sources, stages and sinks, which speak Arrow IPC streams on their standard
//! input and output.
//!
//! Judges no program: one runs with the rights of whoever started the run, who has to allow it.

mod child_stderr;
mod columns;
mod dictionaries;
mod events;
mod in_flight;
mod launch;
mod process;
mod sink;
mod source;
mod stage;
mod stdin;
mod stdout;
mod stream;
mod wire;

pub use events::stream_of;
pub use sink::ExecSink;
pub use source::ExecSource;
pub use stage::{ExecStage, ReturnedEvents, answers_of};
pub use stream::events_of;
