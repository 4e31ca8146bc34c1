//! Verbs that other crates add to the command line.

use clap::{ArgMatches, Command};

use crate::exit::CommandResult;
use crate::shell::Shell;

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

/// The verbs that other crates add to this program.
pub(crate) fn verbs() -> impl Iterator<Item = &'static Verb> {
    inventory::iter::<Verb>.into_iter()
}
