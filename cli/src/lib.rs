//! The command line of Sluice: reads arguments, calls the engine, and says how it went.
//!
//! Knows no plugin. A program is this library and the plugin crates it names:
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
//! Standard output carries data, standard error carries talk. Exit codes: 0 done and nothing lost, 1
//! failed and nothing published, 2 wrong use or a wrong pipeline file, 3 done with losses that were
//! reported, 130, 143 or 129 given up on a signal.

mod args;
mod commands;
mod damage;
mod description;
mod ending;
pub mod extension;
mod features;
mod file_url;
mod flags;
mod inputs;
mod log;
mod out;
mod progress;
mod recipe;
mod shell;
mod signals;
mod terminal;
mod units;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::{ArgMatches, FromArgMatches};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use sluice_core::{Registry, programs};

use args::{GlobalArgs, Verb};
use ending::Outcome;
use shell::Shell;

/// Runs the program with its own arguments and every plugin that is linked into it.
pub fn main() -> ExitCode {
    keep_freed_memory();
    allow_open_files();
    let code = run(std::env::args_os(), Registry::linked());
    // Threads that still wait for a program end with this process, and would not end it.
    programs::close();
    code
}

/// Has the system's allocator keep some megabytes that were freed, instead of giving them back at once.
///
/// Encoders ask for a page or frame of a megabyte a thousand times in a gigabyte. glibc takes each anew from
/// the system, whose page faults are a tenth of the time, until a longer block was freed: it then
/// takes blocks up to that length for usual. Other allocators only see a block come and go.
fn keep_freed_memory() {
    const USUAL: usize = 16 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(USUAL)));
}

/// Lets the program open as many files as the system allows it to ask for: logs of thousands of channels become
/// as many files. Where that is refused, what is usual has to do. Programs of others get what is usual.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let (Ok(()), Some(usual)) = (raised, limit.current) {
        programs::limit_open_files(usual);
    }
}

/// Runs the program with these arguments, of which the first is its name, and these plugins.
pub fn run(arguments: impl IntoIterator<Item = OsString>, registry: Registry) -> ExitCode {
    ExitCode::from(exit_code(arguments, registry))
}

fn exit_code(arguments: impl IntoIterator<Item = OsString>, registry: Registry) -> u8 {
    let begun = Instant::now();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Wrong use is told in the format that was asked for, too.
    log::set_format(usage::log_format(&arguments));
    let (global, typed) = match args::command().try_get_matches_from(&arguments).and_then(parsed) {
        Ok(parsed) => parsed,
        Err(error) => return usage::tell(error, &arguments),
    };
    log::set_format(global.log_format);
    let mut shell = Shell::new(registry, global.quiet, global.color);
    shell.verbose = global.verbose;
    let outcome = match typed {
        Typed::Own(verb) => dispatch(*verb, &shell),
        Typed::Linked(verb, arguments) => (verb.run)(&arguments, &shell),
    };
    let code = code_of(outcome, &shell);
    let seconds = begun.elapsed().as_secs_f64();
    let text = format!("exit code {code} after {seconds:.3} s");
    shell.detail("exit", &text, json!({ "exit": code, "seconds": seconds }));
    code
}

/// A verb with its arguments.
enum Typed {
    /// One that every program has.
    Own(Box<Verb>),
    /// One that another crate adds.
    Linked(&'static extension::Verb, ArgMatches),
}

/// What was typed, once it is known to be right.
fn parsed(mut matches: ArgMatches) -> Result<(GlobalArgs, Typed), clap::Error> {
    let global = GlobalArgs::from_arg_matches(&matches)?;
    let name = matches.subcommand_name();
    let linked = extension::verbs().find(|verb| Some(verb.name) == name);
    if let Some(verb) = linked
        && let Some((_, arguments)) = matches.remove_subcommand()
    {
        return Ok((global, Typed::Linked(verb, arguments)));
    }
    let verb = Verb::from_arg_matches(&matches)?;
    Ok((global, Typed::Own(Box::new(verb))))
}

/// The exit code of a command that came to this. Says what is wrong, if something is.
fn code_of(outcome: Outcome, shell: &Shell) -> u8 {
    // Threads that still wait for a program do not come to ending it.
    programs::end_all();
    match outcome {
        Ok(ending) => ending.code(),
        Err(failure) => {
            failure.tell(shell);
            failure.code()
        }
    }
}

fn dispatch(verb: Verb, shell: &Shell) -> Outcome {
    match verb {
        Verb::Run(args) => commands::run::run(&args, shell),
        Verb::Convert(args) => commands::convert::run(&args, shell),
        Verb::Record(args) => commands::record::run(&args, shell),
        Verb::Play(args) => commands::play::run(&args, shell),
        Verb::Spy(args) => commands::spy::run(&args, shell),
        Verb::Hub(args) => commands::hub::run(&args, shell),
        Verb::Check(args) => commands::check::run(&args, shell),
        Verb::Plan(args) => commands::plan::run(&args, shell),
        Verb::Graph(args) => commands::graph::run(&args, shell),
        Verb::Plugins(args) => commands::plugins::run(&args, shell),
        Verb::Schema => commands::schema::run(shell),
        Verb::Info(args) => commands::info::run(&args, shell),
        Verb::Cat(args) => commands::cat::run(&args, shell),
        Verb::Types(args) => commands::types::run(&args, shell),
        Verb::MergeManifests(args) => commands::merge_manifests::run(&args, shell),
        Verb::New(args) => commands::new::run(&args, shell),
        Verb::Verify(args) => commands::verify::run(&args, shell),
        Verb::Completions(args) => commands::completions::run(&args, shell),
        Verb::Man(args) => commands::man::run(&args, shell),
    }
}

#[cfg(test)]
mod tests;
