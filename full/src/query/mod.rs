//! `query`: runs SQL over logs. `sluice_query` plans and executes queries.

mod args;
mod arguments;
mod cache;
mod diagnostic;
mod execute;
mod interrupt;
mod logs;
mod out;
mod prompt;
mod script;
mod user_folder;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use sluice::extension::{CommandResult, Failure, Shell, Verb};

use args::QueryArgs;

inventory::submit! {
    Verb { name: "query", define, run }
}

fn define(command: Command) -> Command {
    QueryArgs::augment_args(command).about("Query logs in SQL")
}

fn run(matches: &ArgMatches, shell: &Shell) -> CommandResult {
    let args = QueryArgs::from_arg_matches(matches);
    script::run(&args.map_err(|e| Failure::Usage(e.to_string()))?, shell)
}
