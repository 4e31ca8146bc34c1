//! Extension points of the command line: other crates can add verbs, and an engine that runs the
//! units of a batch on other machines. A crate registers them, and a program has those that are
//! linked into it, as with plugins:
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
//! fn run(matches: &ArgMatches, shell: &Shell) -> CommandResult {
//!     let count = matches.get_many::<String>("files").unwrap_or_default().len();
//!     shell.info(&pluralize(count as u64, "file"));
//!     Ok(ExitStatus::Done)
//! }
//! ```
//!
//! Also re-exports the parts of the command line that such a crate needs: exit codes, messages,
//! signals, and how to open logs named in arguments.

use clap::{ArgMatches, Command};
use sluice_pipeline::dispatch::Carrier;

pub use crate::args::{Assignment, CredentialArgs, DecodingArgs, FormatArgs, duration};
pub use crate::commands::convert::{LogArgs, open_logs};
pub use crate::commands::execute::report_flag_losses;
pub use crate::commands::types::print as print_types;
pub use crate::conversion::own_types;
pub use crate::exit::{CommandResult, ExitStatus, Failure};
pub use crate::inputs::{expand, path_of_url};
pub use crate::log::{Level, is_json, log_json_message, log_message};
pub use crate::node_names::{SOURCE_NAME, TYPED_NAME};
pub use crate::plugin_lookup::extension;
pub use crate::shell::Shell;
pub use crate::signals::{SignalListener, SignalMessages, terminate_by_signal};
pub use crate::table::{Align, Column, line_width, push_line};
pub use crate::terminal::{clipped, stdout_width, width};
pub use sluice_model::units::{count, pluralize};

/// A verb of the command line.
#[derive(Debug)]
pub struct Verb {
    /// The name: `sluice NAME`.
    pub name: &'static str,
    /// Adds description, arguments and help to an empty command.
    pub define: fn(Command) -> Command,
    /// Runs the verb with parsed arguments.
    pub run: fn(&ArgMatches, &Shell) -> CommandResult,
}

inventory::collect!(Verb);

/// The cluster that a run uses, and what the run may do there.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// `--scheduler`: the address of the scheduler.
    pub scheduler: Option<String>,
    /// `--local-cluster`: how many executors to start on this machine.
    pub local_cluster: Option<usize>,
    /// `--secret-file`, `--tls`, `--insecure`: what proves to the scheduler that the run may use
    /// the cluster.
    pub credentials: CredentialArgs,
    /// `--cluster-patience`: how long a unit may go without a sign of life before it is given to
    /// another executor.
    pub patience: Option<String>,
    /// `--jobs`.
    pub jobs: Option<usize>,
    /// `--allow-exec`.
    pub allow_exec: bool,
}

/// An engine that runs units on other machines: `--engine ballista`.
#[derive(Debug)]
pub struct Engine {
    /// Connects to the cluster. Sends no work yet.
    pub connect: Connect,
}

/// Connects a run to a cluster.
pub type Connect = fn(&ClusterOptions, &Shell) -> Result<Box<dyn Carrier>, Failure>;

inventory::collect!(Engine);

/// The verbs that other crates add to this program.
pub(crate) fn verbs() -> impl Iterator<Item = &'static Verb> {
    inventory::iter::<Verb>.into_iter()
}

/// The engine linked into this program, if there is one.
pub(crate) fn engine() -> Option<&'static Engine> {
    inventory::iter::<Engine>.into_iter().next()
}
