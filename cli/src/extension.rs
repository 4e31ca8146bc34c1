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

pub use crate::args::{Assignment, CredentialArgs, DecodingArgs, FormatArgs, duration};
pub use crate::commands::convert::{LogArgs, open_logs};
pub use crate::commands::execute::report_flag_losses;
pub use crate::commands::types::print as print_types;
pub use crate::conversion::own_types;
pub use crate::engine::{ClusterOptions, Connect, Engine};
pub use crate::exit::{CommandResult, ExitStatus, Failure};
pub use crate::inputs::{expand, path_of_url};
pub use crate::log::{Level, is_json, log_json_message, log_message};
pub use crate::node_names::{SOURCE_NAME, TYPED_NAME};
pub use crate::plugin_lookup::extension;
pub use crate::shell::Shell;
pub use crate::signals::{SignalListener, SignalMessages, terminate_by_signal};
pub use crate::table::{Align, Column, line_width, push_line};
pub use crate::terminal::{clipped, stdout_width, width};
pub use crate::verb::Verb;
pub use sluice_model::units::{count, pluralize};
