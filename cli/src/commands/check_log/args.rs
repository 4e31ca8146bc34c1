//! Arguments of `check-log`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sluice_model::options::ByteSize;

use crate::args::{DecodingArgs, FormatArgs, ProgressFormat, RunningArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
A file of expectations is TOML: which channels must exist, their rates, longest gaps, types and
ranges of fields, and how much damage there may be. `sluice plugins expect` lists what it can say.

Examples:
  sluice check-log --expect-from good.lcm --to expect.toml
  sluice check-log drive.lcm --expect expect.toml
  sluice check-log 'logs/*.lcm' --expect expect.toml --junit result.xml
  sluice check-log drive.lcm --expect expect.toml --types lcmtypes/ --json | jq .unmet

Exit codes, the first that applies:
  1  a log is missing or cannot be read; the others are still checked
  2  invalid command line or file of expectations
  4  an expectation is not met
  3  expectations are met, but a log is damaged
  0  all expectations of all logs are met")]
pub(crate) struct CheckLogArgs {
    /// The logs: files or globs, each checked on its own; `-` is standard input.
    #[arg(
        required_unless_present = "expect_from",
        value_name = "LOG",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) logs: Vec<String>,

    /// The file of expectations.
    #[arg(long, value_name = "FILE.toml", required_unless_present = "expect_from")]
    pub(crate) expect: Option<PathBuf>,

    /// Write a first file of expectations from a good log, which this log meets.
    #[arg(
        long,
        value_name = "LOG",
        conflicts_with_all = ["expect", "logs", "json", "junit"],
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) expect_from: Option<String>,

    /// With --expect-from: the file to write; standard output by default.
    #[arg(
        long,
        value_name = "FILE.toml",
        requires = "expect_from",
        conflicts_with_all = ["expect", "logs"],
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: Option<String>,

    /// With --to: replace an existing file.
    #[arg(long, requires = "to", conflicts_with_all = ["expect", "logs"])]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) decoding: DecodingArgs,

    /// Print one JSON object per log, one per line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the results as JUnit XML, as CI systems read it. `-` prints it instead of text.
    #[arg(long, value_name = "FILE.xml")]
    pub(crate) junit: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// The number of threads; by default, or with 0, one per core.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// How much memory to use, such as 1GiB; 512MiB by default.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse_positive)]
    pub(crate) memory: Option<ByteSize>,

    /// Allow the source to run a program, with all your permissions.
    #[arg(long)]
    pub(crate) allow_exec: bool,

    /// How to show progress: auto is a bar on a terminal, and a line every few seconds elsewhere.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressFormat,
}

impl CheckLogArgs {
    /// Resources and progress, as of runs.
    pub(super) fn running(&self) -> RunningArgs {
        let Self { jobs, memory, allow_exec, progress, .. } = self;
        let (jobs, memory, allow_exec, progress) = (*jobs, *memory, *allow_exec, *progress);
        RunningArgs { jobs, memory, allow_exec, progress, ..RunningArgs::default() }
    }
}
