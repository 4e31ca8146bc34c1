//! The command line: verbs and global options. Options of single verbs are in the modules below and
//! beside the verbs. Checks single values, and acts on none.

mod convert;
mod inspection;
mod pipelines;
mod program;
mod running;
mod values;

use clap::{Args, Command, CommandFactory, Parser, Subcommand};

pub(crate) use convert::{AlignArgs, ChannelPatternArgs, ConvertArgs, SelectionArgs};
pub use convert::{DecodingArgs, FormatArgs};
pub(crate) use inspection::{
    CatArgs, InfoArgs, MergeManifestsArgs, ReportArgs, TypesArgs, VerifyArgs,
};
pub(crate) use pipelines::{CheckArgs, GraphArgs, GraphFormat, PlanArgs, RunArgs, SetArgs};
pub(crate) use program::{CompletionsArgs, ManArgs, PluginsArgs};
pub use running::CredentialArgs;
pub(crate) use running::{
    EngineArgs, EngineKind, ListenArgs, ProgressFormat, RunningArgs, default_url,
    refuse_interface_of_hub,
};
pub use values::{Assignment, duration};
pub(crate) use values::{
    assignment, channel_pattern, finite_number, positive_number, regex_pattern,
};

use crate::log::LogFormat;
use crate::shell::Color;
use crate::{features, verb};

pub(crate) use crate::commands::check_log::CheckLogArgs;
pub(crate) use crate::commands::hub::HubArgs;
pub(crate) use crate::commands::new::NewArgs;
pub(crate) use crate::commands::play::PlayArgs;
pub(crate) use crate::commands::record::RecordArgs;
pub(crate) use crate::commands::spy::SpyArgs;

/// Converts robot sensor logs.
///
/// Reads any log format it has a plugin for, passes the events through stages, and writes them in
/// any other format. Damage is skipped and reported, and outputs appear complete or not at all.
///
/// Data goes to standard output, messages go to standard error.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true, after_help = after_help())]
pub(crate) struct Cli {
    #[command(flatten)]
    global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) verb: BuiltInVerb,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Print only errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// When to use colors on standard error.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: Color,

    /// Print details: the plan, each input as it starts and ends, each output, and how long it
    /// took.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// The format of messages on standard error: text for people, or one JSON object per line.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        hide_default_value = true
    )]
    pub(crate) log_format: LogFormat,
}

/// The command line of this program, including the verbs linked into it.
pub(crate) fn command() -> Command {
    verb::verbs().fold(Cli::command(), |program, verb| {
        program.subcommand((verb.define)(Command::new(verb.name)))
    })
}

/// The help below the options.
fn after_help() -> String {
    format!("{EXAMPLES}{}", features::help())
}

const EXAMPLES: &str = "\
Examples:
  sluice info drive.lcm                          what is in a log
  sluice cat drive.lcm --channel POSE --limit 5  its events, one per line
  sluice convert drive.lcm --to drive.lcm.zst    the same log, compressed
  sluice run quickstart                          a first pipeline, without any input

Exit codes: 0 success; 1 failed, nothing published; 2 invalid command line or pipeline file;
3 success, but input was damaged or events could not be converted, as reported;
4 an expectation about a log is not met;
130, 143, 129 stopped by SIGINT, SIGTERM or SIGHUP, without partial outputs: see the README.";

#[derive(Debug, Subcommand)]
pub(crate) enum BuiltInVerb {
    /// Run a pipeline
    Run(RunArgs),
    /// Convert logs, without a pipeline file
    Convert(Box<ConvertArgs>),
    /// Record live LCM
    Record(Box<RecordArgs>),
    /// Play logs as live LCM
    Play(Box<PlayArgs>),
    /// Show what is on a live network: channels, rates, losses, messages
    Spy(Box<SpyArgs>),
    /// Relay live messages between programs over TCP
    Hub(HubArgs),
    /// Show every mistake in pipeline files
    Check(CheckArgs),
    /// Show what a pipeline would read and write
    Plan(PlanArgs),
    /// Draw a pipeline
    Graph(GraphArgs),
    /// List plugins, or describe one
    Plugins(PluginsArgs),
    /// Print the JSON Schema of pipeline files
    Schema,
    /// Show what is in logs: channels, counts, rates, gaps, damage
    Info(InfoArgs),
    /// Show a log on a page, or all its figures as JSON
    Report(Box<ReportArgs>),
    /// Check logs against expectations: rates, gaps, types, damage
    CheckLog(Box<CheckLogArgs>),
    /// Print events as text or JSON lines
    Cat(CatArgs),
    /// List the types that files declare, with their fingerprints
    Types(TypesArgs),
    /// Check outputs against their manifest, and logs for damage
    Verify(VerifyArgs),
    /// Merge the records of a batch that was run in parts
    MergeManifests(MergeManifestsArgs),
    /// Create a plugin of your own: a crate that builds
    New(NewArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}
