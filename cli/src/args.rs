//! What can be typed: verbs, options and their help. Judges single values, and acts on none.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_core::Pattern;
use sluice_core::options::ByteSize;
use sluice_core::time::{Length, When};
use sluice_pipeline::batch::Shard;

pub(crate) use crate::commands::cluster::{self, ClusterArgs};
pub(crate) use crate::commands::hub::HubArgs;
pub(crate) use crate::commands::merge_manifests::MergeManifestsArgs;
pub(crate) use crate::commands::new::NewArgs;
pub(crate) use crate::commands::play::PlayArgs;
pub(crate) use crate::commands::query::QueryArgs;
pub(crate) use crate::commands::record::RecordArgs;
pub(crate) use crate::commands::spy::SpyArgs;

/// Converts robot sensor logs.
///
/// Reads any log format it has a plugin for, passes the events through stages and writes them in any
/// other format. What is damaged is stepped over and reported, and outputs appear whole or not at all.
///
/// Standard output carries data, standard error carries talk.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Say nothing but errors.
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

    /// Say more: what is planned, each input that is begun and done, each output, and how long it took.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// How to write what is said on standard error: text for people, or a JSON object per line.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        hide_default_value = true
    )]
    pub(crate) log_format: LogFormat,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  sluice info drive.lcm                          what is in a log
  sluice cat drive.lcm --channel POSE --limit 5  its events, one a line
  sluice convert drive.lcm --to drive.lcm.zst    the same log, compressed
  sluice run quickstart                          a first pipeline, without any input

Exit codes: 0 done, nothing lost; 1 failed, nothing published; 2 wrong use or wrong pipeline file;
3 done, but input was damaged or events could not be carried, all of it reported;
130, 143, 129 given up on SIGINT, SIGTERM or SIGHUP, with nothing half done: see the README.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a pipeline
    Run(RunArgs),
    /// Convert logs, without a pipeline file
    Convert(Box<ConvertArgs>),
    /// Ask questions of logs in SQL
    Query(Box<QueryArgs>),
    /// Record live LCM
    Record(Box<RecordArgs>),
    /// Play logs as live LCM
    Play(Box<PlayArgs>),
    /// Show what is on a live network: channels, rates, losses, messages
    Spy(Box<SpyArgs>),
    /// Hand live messages on between programs over TCP
    Hub(HubArgs),
    /// Show every mistake in pipeline files
    Check(CheckArgs),
    /// Show what a pipeline would read and write
    Plan(PlanArgs),
    /// Draw a pipeline
    Graph(GraphArgs),
    /// List plugins, or tell of one
    Plugins(PluginsArgs),
    /// Print the JSON Schema of pipeline files
    Schema,
    /// Tell what is in logs: channels, counts, rates, gaps, damage
    Info(InfoArgs),
    /// Print events as text or JSON lines
    Cat(CatArgs),
    /// List the types that files declare, with their fingerprints
    Types(TypesArgs),
    /// Check outputs against their manifest, and logs for damage
    Verify(VerifyArgs),
    /// Be a part of a cluster
    Cluster(ClusterArgs),
    /// Put together the records of a batch that was run in parts
    MergeManifests(MergeManifestsArgs),
    /// Begin a plugin of your own: a crate that builds
    New(NewArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// How what is said on standard error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice run quickstart
  sluice run drive.toml --set INPUT=drive.lcm --jobs 8 --report report.json
  sluice run drive.toml --dry-run                what it would read and write
  sluice run tables.toml --resume                what an interrupted run has left to do")]
pub(crate) struct RunArgs {
    /// A pipeline file, or the name of a built-in pipeline such as `quickstart`.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Values for the variables of a pipeline file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SetArgs {
    /// Give `${NAME}` in the pipeline file a value. What is not given is looked up in the environment.
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<Assignment>,
}

/// How to run a pipeline.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) running: RunningArgs,

    /// Replace outputs that exist, once the run has succeeded.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) overwrite: bool,

    /// Go on where an earlier run was interrupted: what it made of the same inputs with the same
    /// pipeline is checked and kept, what else is there is replaced.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Where outputs are named after inputs: when one input fails, go on with the others.
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Show what would be read and written, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Where to run: on this machine, or on a cluster.
    #[arg(long, value_name = "ENGINE", default_value = "local")]
    pub(crate) engine: Engine,

    #[command(flatten)]
    pub(crate) cluster: cluster::ReachArgs,

    /// Where outputs are named after inputs: run the I-th of N parts of the inputs (the I-th, the I+N-th, and so
    /// on), of which others may be run elsewhere at the same time. `merge-manifests` puts their records together.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(crate) shard: Option<Shard>,
}

/// With what to run, and how to tell of it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunningArgs {
    /// How many threads to use; one a core if left out. Does not change the output.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// How much memory to use, such as 512MiB; goes before what the pipeline says.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub(crate) memory: Option<ByteSize>,

    /// Write a report of the run as JSON: counts by channel, damage, files with hashes. `-` is
    /// standard output.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) report: Option<PathBuf>,

    /// Let the pipeline run programs. They may do whatever you may: look at what `sluice check` says of
    /// a pipeline that is not yours.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Fail with exit code 2 where a channel or field that is named was nowhere in the input, instead of
    /// warning of it. Nothing is published then, but for inputs of a batch, and what is live.
    #[arg(long)]
    pub(crate) strict: bool,

    /// How to show progress: auto is a bar on a terminal and a line now and then elsewhere.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressForm,
}

/// What to receive through, and for how long.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Receiving")]
pub(crate) struct ListenArgs {
    /// End after this long: seconds, or 200ms, 1m30s, 2h.
    #[arg(long, value_name = "T", value_parser = length)]
    pub(crate) duration: Option<String>,

    /// End when nothing has come for this long.
    #[arg(long, value_name = "T", value_parser = length)]
    pub(crate) idle_timeout: Option<String>,

    /// End after N messages.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// The network interface to listen on, by name or address; the one the group is routed to if left
    /// out.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
}

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// On this machine.
    #[default]
    Local,
    /// On a cluster, by Apache Ballista.
    Ballista,
}

/// How to show progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A bar on a terminal, a line every five seconds elsewhere.
    #[default]
    Auto,
    /// A bar.
    Bar,
    /// A line every five seconds.
    Plain,
    /// A JSON object twice a second.
    Json,
    /// Nothing.
    None,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The format of the input is told by its first bytes, that of the output by the extension of OUT.
A path that ends in .zst is read and written compressed.

Placeholders in OUT make an output for each input: {stem} is its name without extensions, {name} its whole
name, {ext} its extension, {parent} the name of its folder, {index} its number. {{ and }} are braces.

Examples:
  sluice convert drive.lcm --to drive.jsonl
  sluice convert logs/*.lcm --to 'out/{stem}.lcm.zst' --resume
  sluice convert 'logs/lcmlog-*' --to 'out/{name}.parquet'
  sluice convert a.lcm b.lcm --to both.lcm --channel 'CAM_*' --exclude CAM_TEST
  sluice convert drive.lcm --types 'lcmtypes/*.lcm' --to tables/
  sluice convert drive.lcm --types lcmtypes/ --channel POSE --field utime --field 'pos[0]' --to pose.csv
  sluice convert drive.lcm --types lcmtypes/ --where 'vel[0] > 3' --to fast.lcm
  sluice convert drive.lcm --to first.lcm --start +10 --end +1m30s
  zcat drive.lcm.gz | sluice convert - --from lcm-log --to drive.lcm
  sluice convert drive.lcm --to drive.jsonl --print-pipeline > drive.toml")]
pub(crate) struct ConvertArgs {
    /// The logs: files or globs, read one after another; `-` is standard input.
    #[arg(required = true, value_name = "IN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) inputs: Vec<String>,

    /// The file to write; `-` is standard output.
    #[arg(long, value_name = "OUT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// The format of the input, by the name of a source; told by its first bytes if left out.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,

    /// The format, as this file describes it: the options of a source such as `records`, or a pipeline file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) describe: Option<PathBuf>,

    /// The format of the output, by the name of a sink; told by the extension of OUT if left out.
    #[arg(long = "as", value_name = "FORMAT")]
    pub(crate) sink: Option<String>,

    /// Only this field of decoded messages, such as pos[0]; for CSV and JSON lines. May be repeated.
    #[arg(short, long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) field: Vec<String>,

    /// Set any option of the source; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) source_option: Vec<Assignment>,

    /// Set any option of the sink; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) sink_option: Vec<Assignment>,

    /// Print the pipeline file that does this, and do nothing.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which events")]
pub(crate) struct SelectionArgs {
    /// Only channels that match: a name, a glob, or `re:` and a regular expression. May be repeated.
    #[arg(short, long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) channel: Vec<String>,

    /// No channels that match. May be repeated.
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) exclude: Vec<String>,

    /// Only events from this time on: 2007-11-03T14:00:00Z, seconds since 1970, or +SECONDS after the
    /// first event.
    #[arg(long, value_name = "T", value_parser = time, allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// Only events before this time.
    #[arg(long, value_name = "T", value_parser = time, allow_hyphen_values = true)]
    pub(crate) end: Option<String>,

    /// Decode payloads by the types that these files declare: files, globs, folders, or the name of a
    /// built-in set such as mit-dgc. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) types: Vec<String>,

    /// Which type a channel has, where types share a fingerprint or fields: a channel or a pattern of
    /// channels, and the type's full name. May be repeated.
    #[arg(long = "type", value_name = "CHANNEL=TYPE", value_parser = channel_type, requires = "types")]
    pub(crate) channel_types: Vec<(String, String)>,

    /// Only events whose decoded fields meet a condition, such as "vel[0] > 3 and quality != 0".
    #[arg(long = "where", value_name = "CONDITION", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) condition: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Pipeline files, or names of built-in pipelines.
    #[arg(required = true)]
    pub(crate) files: Vec<String>,

    #[command(flatten)]
    pub(crate) variables: SetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A pipeline file, or the name of a built-in pipeline.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// A pipeline file, or the name of a built-in pipeline.
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) variables: SetArgs,

    /// The language to draw in.
    #[arg(long, value_name = "FORMAT", default_value = "mermaid")]
    pub(crate) format: GraphFormat,
}

/// The language of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// A Mermaid flowchart, as Markdown pages show it.
    Mermaid,
    /// Graphviz' language.
    Dot,
}

#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    /// The name of a plugin; all are listed if left out.
    pub(crate) name: Option<String>,

    /// Print a JSON array with options and schemas.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice info drive.lcm
  sluice info drive.lcm --types lcmtypes/
  sluice info logs/*.lcm --json | jq '[.path, .events]'")]
pub(crate) struct InfoArgs {
    /// The logs: files or globs; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,

    /// The format, by the name of a source; told by the first bytes if left out.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,

    /// The format, as this file describes it: the options of a source such as `records`, or a pipeline file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) describe: Option<PathBuf>,

    /// Set any option of the source; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) source_option: Vec<Assignment>,

    /// Name the types of channels by what these files declare: files, globs, folders, or names of
    /// built-in sets, which are known in any case. May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub(crate) types: Vec<PathBuf>,

    /// Print a JSON object a file, one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice cat drive.lcm --channel POSE --limit 10
  sluice cat drive.lcm --start +5 --end +6 --json | jq .channel | sort | uniq -c")]
pub(crate) struct CatArgs {
    /// The log; `-` is standard input.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) file: String,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// Only the first N events of those.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Print a JSON object an event.
    #[arg(long)]
    pub(crate) json: bool,

    /// With --json: also the payload, in base64.
    #[arg(long, requires = "json")]
    pub(crate) payload: bool,

    /// With --json: only this field of decoded messages, such as pos[0]. May be repeated.
    #[arg(short, long, value_name = "PATH", requires = "json", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) field: Vec<String>,

    /// The format, by the name of a source; told by the first bytes if left out.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,

    /// The format, as this file describes it: the options of a source such as `records`, or a pipeline file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) describe: Option<PathBuf>,

    /// Set any option of the source; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) source_option: Vec<Assignment>,

    /// Let the source run a program, which may do whatever you may.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// End with exit code 2 where a channel or field that is named was nowhere in the input.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice types lcmtypes/
  sluice types mit-dgc --json

Exit codes: 0 all files are right; 2 a file is wrong, and what is said of it is on standard error.")]
pub(crate) struct TypesArgs {
    /// Files that declare types, folders of them, globs, or names of built-in sets. All built-in sets if
    /// left out.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Print a JSON object a type, one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Outputs are compared with what was recorded of them: length, hash, and rows where the format counts them.
Logs are read through, and so is their index where they have one.

Exit codes, the first that applies:
  1  a file is missing, or has another length, hash or number of rows than was recorded, or nobody recorded it
  1  the run failed, or stopped before the end of a pipe
  1  a batch is not over: inputs failed, were interrupted or not started, it was killed or is still
     going on, or its parts have not been put together
  1  nothing can be said: no manifest names the file, and no source reads it
  3  a log is damaged inside, or its index is wrong
  0  all is as it should be")]
pub(crate) struct VerifyArgs {
    /// Folders with a manifest, reports of `--report`, or files.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for the program and one for each verb into this folder, instead of printing the
    /// program's.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// A name with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Reads a name, `=` and a value.
pub(crate) fn assignment(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err("expected a name, `=` and a value".to_owned());
    }
    Ok(Assignment { name: name.to_owned(), value: value.to_owned() })
}

/// Reads a channel, `=` and a type.
pub(crate) fn channel_type(text: &str) -> Result<(String, String), String> {
    let (channel, name) = text.rsplit_once('=').ok_or("expected a channel, `=` and a type")?;
    Ok((pattern(channel)?, name.to_owned()))
}

/// Judges a pattern of channels.
pub(crate) fn pattern(text: &str) -> Result<String, String> {
    Pattern::parse(text).map(|_| text.to_owned())
}

fn time(text: &str) -> Result<String, String> {
    When::parse_chosen(text).map(|_| text.trim().to_owned())
}

/// A regular expression for whole names, as the pattern that it is.
pub(crate) fn regex(text: &str) -> Result<String, String> {
    pattern(&format!("re:{text}"))
}

/// A length of time; the text is what a plugin gets.
pub(crate) fn length(text: &str) -> Result<String, String> {
    match Length::parse(text)? {
        Length(1..) => Ok(text.trim().to_owned()),
        Length(_) => Err("expected a length of time above 0".to_owned()),
    }
}

pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let above = number(text).ok().filter(|number| *number > 0.0);
    above.ok_or_else(|| "expected a number above 0".to_owned())
}
