//! The command line of Sluice: parses arguments, runs pipelines, and reports the result.
//!
//! Knows no plugin. A program is this library together with the plugin crates it names:
//!
//! ```text
//! use my_plugin as _;
//! use sluice_all as _;
//!
//! fn main() -> std::process::ExitCode {
//!     sluice::main()
//! }
//! ```
//!
//! Data goes to standard output, messages go to standard error. Exit codes: 0 success without
//! losses, 1 failed and nothing published, 2 invalid command line or pipeline file, 3 success with
//! losses that were reported, 4 an expectation is not met, 130, 143 or 129 stopped by a signal.

mod args;
mod commands;
mod conversion;
mod damage;
mod description;
pub mod embedded;
mod embedding;
mod engine;
mod exit;
pub mod extension;
mod features;
mod file_url;
mod flags;
mod input_format;
mod inputs;
mod inspection;
mod log;
mod node_names;
mod notes;
mod plugin_lookup;
mod progress;
mod python;
mod recipe;
mod shell;
mod signals;
mod sniffing;
mod stdout;
mod table;
mod terminal;
mod usage;
mod verb;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::{ArgMatches, FromArgMatches};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use sluice_model::{Registry, programs};

use args::{BuiltInVerb, GlobalArgs};
use exit::CommandResult;
use shell::{Color, Shell};

/// Runs the program with the arguments of the process and every linked plugin.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let code = match Registry::try_linked() {
        Ok(registry) => embedded::program(arguments, registry),
        Err(error) => {
            log::set_format(usage::log_format(&arguments));
            let shell = Shell::new(Registry::default(), false, Color::Auto);
            report_outcome(Err(error.into()), &shell)
        }
    };
    ExitCode::from(code)
}

/// Raises the limit of open files to the maximum, as a log of thousands of channels becomes as many
/// files. On failure the usual limit stays. Child programs get the usual limit.
fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let (Ok(()), Some(usual)) = (raised, limit.current) {
        programs::limit_open_files(usual);
    }
}

/// Runs the program with these arguments and plugins. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>, registry: Registry) -> ExitCode {
    ExitCode::from(exit_code(arguments, registry))
}

fn exit_code(arguments: impl IntoIterator<Item = OsString>, registry: Registry) -> u8 {
    let begun = Instant::now();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Usage errors also respect `--log-format`.
    log::set_format(usage::log_format(&arguments));
    let (global, typed) =
        match args::command().try_get_matches_from(&arguments).and_then(parse_matches) {
            Ok(parsed) => parsed,
            Err(error) => return usage::report(error, &arguments),
        };
    log::set_format(global.log_format);
    let mut shell = Shell::new(registry, global.quiet, global.color);
    shell.verbose = global.verbose;
    let outcome = match typed {
        ParsedVerb::BuiltIn(verb) if python::has_to_run(&verb, &shell) => {
            python::run_instead(arguments.get(1..).unwrap_or_default())
        }
        ParsedVerb::BuiltIn(verb) => dispatch(*verb, &shell),
        ParsedVerb::Linked(verb, arguments) => (verb.run)(&arguments, &shell),
    };
    // What is still to be written may be impossible to write.
    let outcome = outcome.and_then(|status| Ok(io::stdout().flush().map(|()| status)?));
    let code = report_outcome(outcome, &shell);
    let seconds = begun.elapsed().as_secs_f64();
    let text = format!("exit code {code} after {seconds:.3} s");
    shell.detail("exit", &text, json!({ "exit": code, "seconds": seconds }));
    code
}

/// A verb with its arguments.
enum ParsedVerb {
    /// A built-in verb.
    BuiltIn(Box<BuiltInVerb>),
    /// A verb that another crate adds.
    Linked(&'static verb::Verb, ArgMatches),
}

/// Turns matches into global options and a verb.
fn parse_matches(mut matches: ArgMatches) -> Result<(GlobalArgs, ParsedVerb), clap::Error> {
    let global = GlobalArgs::from_arg_matches(&matches)?;
    let name = matches.subcommand_name();
    let linked = verb::verbs().find(|verb| Some(verb.name) == name);
    if let Some(verb) = linked
        && let Some((_, arguments)) = matches.remove_subcommand()
    {
        return Ok((global, ParsedVerb::Linked(verb, arguments)));
    }
    let verb = BuiltInVerb::from_arg_matches(&matches)?;
    Ok((global, ParsedVerb::BuiltIn(Box::new(verb))))
}

/// Prints the failure, if there is one, and returns the exit code.
fn report_outcome(outcome: CommandResult, shell: &Shell) -> u8 {
    // Threads still waiting for a child program cannot end it themselves.
    programs::kill_all();
    match outcome {
        Ok(ending) => ending.code(),
        Err(failure) => {
            failure.report(shell);
            failure.code()
        }
    }
}

fn dispatch(verb: BuiltInVerb, shell: &Shell) -> CommandResult {
    match verb {
        BuiltInVerb::Run(args) => commands::run::run(&args, shell),
        BuiltInVerb::Convert(args) => commands::convert::run(&args, shell),
        BuiltInVerb::Record(args) => commands::record::run(&args, shell),
        BuiltInVerb::Play(args) => commands::play::run(&args, shell),
        BuiltInVerb::Spy(args) => commands::spy::run(&args, shell),
        BuiltInVerb::Hub(args) => commands::hub::run(&args, shell),
        BuiltInVerb::Check(args) => commands::check::run(&args, shell),
        BuiltInVerb::Plan(args) => commands::plan::run(&args, shell),
        BuiltInVerb::Graph(args) => commands::graph::run(&args, shell),
        BuiltInVerb::Plugins(args) => commands::plugins::run(&args, shell),
        BuiltInVerb::Schema => commands::schema::run(shell),
        BuiltInVerb::Info(args) => commands::info::run(&args, shell),
        BuiltInVerb::Report(args) => commands::report::run(&args, shell),
        BuiltInVerb::Cat(args) => commands::cat::run(&args, shell),
        BuiltInVerb::CheckLog(args) => commands::check_log::run(&args, shell),
        BuiltInVerb::Types(args) => commands::types::run(&args, shell),
        BuiltInVerb::MergeManifests(args) => commands::merge_manifests::run(&args, shell),
        BuiltInVerb::New(args) => commands::new::run(&args, shell),
        BuiltInVerb::Verify(args) => commands::verify::run(&args, shell),
        BuiltInVerb::Completions(args) => commands::completions::run(&args, shell),
        BuiltInVerb::Man(args) => commands::man::run(&args, shell),
    }
}

#[cfg(test)]
mod tests;
