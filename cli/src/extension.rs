//! What other crates add to the command line: verbs, and an engine that carries the units of a run to other
//! machines. A crate registers them, and a program has what is linked into it, as it is with plugins:
//!
//! ```text
//! inventory::submit! {
//!     Verb { name: "count", define, run }
//! }
//!
//! fn define(command: Command) -> Command {
//!     command.about("Count files").arg(Arg::new("files").num_args(1..))
//! }
//!
//! fn run(matches: &ArgMatches, shell: &Shell) -> Outcome {
//!     shell.say(&many(matches.get_many::<String>("files").unwrap_or_default().len() as u64, "file"));
//!     Ok(Ending::Done)
//! }
//! ```
//!
//! What such a crate needs of the command line is re-exported here: how commands end, how they speak, how
//! they hear signals, and how logs that were named become a source.

use clap::{ArgMatches, Command};
use sluice_pipeline::dispatch::Carrier;

pub use crate::args::{Assignment, assignment, channel_type, length};
pub use crate::commands::convert::{LogArgs, open_logs};
pub use crate::commands::execute::tell_flag_losses;
pub use crate::commands::types::print as print_types;
pub use crate::ending::{Ending, Failure, Outcome};
pub use crate::inputs::{SOURCE, expand, extension, path_of_url};
pub use crate::log::{Level, is_json, record_text, tell};
pub use crate::shell::Shell;
pub use crate::signals::{Listening, SignalMessages, end_by};
pub use crate::terminal::{clipped, width};
pub use crate::units::{count, many};

/// A verb of the command line.
#[derive(Debug)]
pub struct Verb {
    /// What is typed: `sluice NAME`.
    pub name: &'static str,
    /// Adds what the verb is about, its arguments and its help to an empty command.
    pub define: fn(Command) -> Command,
    /// Runs it with the arguments that were typed.
    pub run: fn(&ArgMatches, &Shell) -> Outcome,
}

inventory::collect!(Verb);

/// The machines that a run is to use, and what it may do there.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// `--scheduler`: the address of the scheduler.
    pub scheduler: Option<String>,
    /// `--local-cluster`: how many executors to start on this machine.
    pub local_cluster: Option<usize>,
    /// `--cluster-patience`: when to give up work of which nothing is heard.
    pub patience: String,
    /// `--jobs`.
    pub jobs: Option<usize>,
    /// `--allow-exec`.
    pub allow_exec: bool,
}

/// What carries the units of a run to other machines: `--engine ballista`.
#[derive(Debug)]
pub struct Engine {
    /// Connects to the machines. Nothing has been sent when it returns.
    pub connect: Connect,
}

/// How a run connects to other machines.
pub type Connect = fn(&Reach, &Shell) -> Result<Box<dyn Carrier>, Failure>;

inventory::collect!(Engine);

/// The verbs that are linked into this program beside those that every program has.
pub(crate) fn verbs() -> impl Iterator<Item = &'static Verb> {
    inventory::iter::<Verb>.into_iter()
}

/// The engine that is linked into this program, if one is.
pub(crate) fn engine() -> Option<&'static Engine> {
    inventory::iter::<Engine>.into_iter().next()
}
