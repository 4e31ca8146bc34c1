//! Arguments of the verbs that only inspect: `info`, `cat`, `types` and `verify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::convert::{FormatArgs, SelectionArgs};
use super::running::EngineArgs;
use super::values::InputParser;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice info drive.lcm
  sluice info drive.lcm --types lcmtypes/
  sluice info logs/*.lcm --brief                 one line per log
  sluice info logs/*.lcm --json | jq '[.path, .events]'

Exit codes: 0 success; 1 a log cannot be read; 2 invalid command line; 3 a log is damaged.")]
pub(crate) struct InfoArgs {
    /// The logs: files or globs; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Allow the source to run a program, with all your permissions.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Name the types of channels by these declarations: files, globs, folders, or names of
    /// built-in sets, which are always known. May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub(crate) types: Vec<PathBuf>,

    /// Print only the overview of all logs: one line per log, and a total.
    #[arg(long, conflicts_with = "json")]
    pub(crate) brief: bool,

    /// Print one JSON object per file, one per line. `error` says why a file cannot be read.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Events are decoded with the types that their format or log declares, with those of --types, or else
with the built-in ones.

Examples:
  sluice report drive.lcm                        drive.html
  sluice report logs/*.lcm --to 'pages/{name}.html' --keep-going
  sluice report drive.lcm --types lcmtypes/ --to drive.html --overwrite
  sluice report drive.lcm --json | jq '.channels[] | [.name, .rate.median]'

Exit codes: 0 success; 1 failed, nothing published; 2 invalid command line; 3 a log is damaged;
4 an expectation (--expect) is not met.")]
pub(crate) struct ReportArgs {
    /// The logs: files or globs; `-` is standard input.
    #[arg(required = true, value_name = "LOG", value_parser = InputParser)]
    pub(crate) inputs: Vec<OsString>,

    /// The page to write, or JSON if the path ends in .json. With placeholders such as {stem} or
    /// {name}, one for each log. Default: {stem}.html.
    #[arg(
        long,
        value_name = "OUT",
        conflicts_with = "json",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: Option<String>,

    /// Print all figures as one JSON object per log, one per line.
    #[arg(long)]
    pub(crate) json: bool,

    /// The title of the page. Default: the name of the log.
    #[arg(long, value_name = "TEXT", conflicts_with = "json")]
    pub(crate) title: Option<String>,

    /// A file of expectations: those that are not met are findings, and the exit code is 4. See
    /// `sluice check-log`.
    #[arg(long, value_name = "FILE.toml", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) expect: Option<String>,

    /// Plot this numeric field, such as pos[0]. May be repeated. Default: up to 60 that vary.
    #[arg(short, long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) field: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Print the equivalent pipeline file and exit.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice cat drive.lcm --channel POSE --limit 10
  sluice cat monday.lcm tuesday.vel --start 2007-11-03T14:00:00Z --full
  sluice cat drive.lcm --start +5 --end +6 --json | jq .channel | sort | uniq -c

Exit codes: 0 success; 1 a log cannot be read; 2 invalid command line; 3 a log is damaged.")]
pub(crate) struct CatArgs {
    /// The logs: files or globs, printed in this order; `-` is standard input.
    #[arg(required = true, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) files: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// Only the first N of the selected events.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,

    /// Show long lists, strings and texts in full. JSON always has them in full.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print one JSON object per event.
    #[arg(long)]
    pub(crate) json: bool,

    /// With --json: also the payload, in base64.
    #[arg(long, requires = "json")]
    pub(crate) payload: bool,

    /// With --json: only this field of decoded messages, such as pos[0]. May be repeated.
    #[arg(
        short,
        long,
        value_name = "PATH",
        requires = "json",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) field: Vec<String>,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Allow the source to run a program, with all your permissions.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// Exit with code 2 if a channel or field named in an option is not in the input, or no event
    /// is in the time window.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sluice types lcmtypes/
  sluice types mit-dgc --json

Exit codes: 0 all files are valid; 2 a file has mistakes, which are printed on standard error.")]
pub(crate) struct TypesArgs {
    /// Files that declare types, folders of them, globs, or names of built-in sets. All built-in
    /// sets by default.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Print one JSON object per type, one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Compares outputs with their manifest: length, hash, and number of rows if the format counts them.
Reads logs and their indexes in full.

Exit codes, the first that applies:
  1  a file is missing, has no record, or differs from it in length, hash or number of rows
  1  the run failed, or stopped before the end of a pipe
  1  a batch is incomplete: inputs failed, were interrupted or not started, it was killed or is
     still running, or its parts have not been merged
  1  no manifest names the file, and no source reads it
  1  a log does not take a --source-option that others take
  2  invalid command line
  3  a log is damaged, or its index is wrong
  0  no differences and no damage")]
pub(crate) struct VerifyArgs {
    /// Folders with a manifest, reports of `--report`, files, or globs.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Print one JSON object per path, one per line.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Allow the source to run a program, with all your permissions.
    #[arg(long)]
    pub(crate) allow_exec: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
After all parts of a batch have run with `--shard I/N`, merges their records into the one that a run
of the whole batch would have written. Changes nothing if a part is missing or incomplete. Warns of
names in options that matched nothing in any part.

Examples:
  sluice convert 'logs/*.lcm' --to 'out/{stem}.parquet' --shard 1/2
  sluice convert 'logs/*.lcm' --to 'out/{stem}.parquet' --shard 2/2
  sluice merge-manifests out

Exit codes: 0 the records are merged; 1 something is missing or differs, as printed on standard
error; 2 with --strict, a name matched nothing in any part.")]
pub(crate) struct MergeManifestsArgs {
    /// The output folders, which have the records of the parts.
    #[arg(required = true, value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,

    /// Also compare the contents of outputs with their recorded hashes, which reads them in full.
    #[arg(long)]
    pub(crate) verify: bool,

    /// Fail with exit code 2 if a name in an option matched nothing in any part, or no event is in
    /// the time window, instead of printing a warning. The records are merged nevertheless.
    #[arg(long)]
    pub(crate) strict: bool,
}
