//! The conformance kit: holds any plugin to what the engine and its users rely on.
//!
//! A line a plugin, in a test of the plugin's crate:
//!
//! ```no_run
//! # const LOG: &[u8] = b"";
//! #[test]
//! fn lines_conforms() {
//!     sluice_conformance::source("lines").sample("notes.txt", LOG).check();
//! }
//! ```
//!
//! The kit knows no plugin: it finds them in the registry of the program that runs it, and runs them by the
//! real engine. It does not judge what a format means, which is what a plugin's own tests are for.

mod codec;
mod damage_trial;
mod events;
mod extents;
mod finding;
mod heads;
mod hostile;
mod isolation;
mod judge;
mod limits;
mod options;
mod pipe;
mod private;
mod reading;
mod reading_trial;
mod running;
mod sink;
mod sniffing;
mod source;
mod stage;

pub use codec::{CodecTrial, codec};
pub use finding::{Finding, Promise};
pub use sink::{EventOrder, FormatFidelity, SinkTrial, TimeRounding, sink};
pub use source::{Integrity, SourceTrial, source};
pub use stage::{StageTrial, stage};
