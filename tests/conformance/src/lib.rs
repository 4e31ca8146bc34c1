//! The conformance kit: checks any plugin against what the engine and its users rely on.
//!
//! One line per plugin, in a test of the plugin's crate:
//!
//! ```no_run
//! # const LOG: &[u8] = b"";
//! #[test]
//! fn lines_conforms() {
//!     sluice_conformance::source("lines").sample("notes.txt", LOG).check();
//! }
//! ```
//!
//! The kit knows no plugin: it finds them in the registry of the test program and runs them with
//! the real engine. What a format means is up to the plugin's own tests.

mod byte_format;
mod cases;
mod codec;
mod damage_checker;
mod damage_trial;
mod engine_run;
mod events;
mod extents;
mod finding;
mod heads;
mod hostile;
mod isolation;
mod kit_plugins;
mod limits;
mod options;
mod pipe;
mod reading;
mod reading_trial;
mod sink;
mod skipped_lines;
mod sniffing;
mod source;
mod stage;
mod subject;

pub use byte_format::byte_format;
pub use cases::cases;
pub use codec::{CodecTrial, codec};
pub use finding::{Finding, Promise};
pub use sink::{EventOrder, FormatFidelity, SinkTrial, TimeRounding, sink};
pub use source::source;
pub use stage::{StageTrial, stage};
pub use subject::{Integrity, SourceTrial};
