//! `completions`: a script that completes our arguments in a shell.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::ending::{Ending, Outcome};

pub(crate) fn run(args: &CompletionsArgs) -> Outcome {
    // The generator panics where it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sluice", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Ending::Done)
}
