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
    hide_panics_of_queries();
    script::run(&args.map_err(|e| Failure::Usage(e.to_string()))?, shell)
}

/// Panics in a query become its error, so their own message says nothing more, except to those who
/// look for their place.
fn hide_panics_of_queries() {
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !sluice_query::session::is_query_thread() {
            hook(panic);
        }
    }));
}
