//! Arguments of `convert`, and what other verbs share: the format of logs, and the selection of
//! events.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::running::EngineArgs;
use super::values::{Assignment, InputParser, assignment, channel_pattern, channel_type, time};

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The input format is detected from the first bytes, the output format from the extension of OUT.
A path that ends in .zst is read and written compressed.

With placeholders in OUT, each input gets its own output: {stem} is the name of the input without
.zst and then without its last extension, {name} its full name, {ext} that extension, {parent} the
name of its folder, {index} its number. {{ and }} are literal braces.

Examples:
  sluice convert drive.lcm --to drive.jsonl
  sluice convert logs/*.lcm --to 'out/{stem}.lcm.zst' --resume
  sluice convert 'logs/lcmlog-*' --to 'out/{name}.parquet'
  sluice convert a.lcm b.lcm --to both.lcm --channel 'CAM_*' --exclude CAM_TEST
  sluice convert logs/*.lcm --to all/ --source-name '{name}'
  sluice convert logs/*.lcm --to 'runs/log={name}/'
  sluice convert drive.lcm --types 'lcmtypes/*.lcm' --to tables/
  sluice convert drive.lcm --types lcmtypes/ --channel POSE -f utime -f 'pos[0]' --to pose.csv
  sluice convert drive.lcm --types lcmtypes/ --where 'vel[0] > 3' --to fast.lcm
  sluice convert drive.lcm --to first.lcm --start +10 --end +1m30s
  sluice convert drive.lcm --align 50Hz -f POSE.vel -f scan=BROOM_C.ranges --to rows/
  sluice convert drive.lcm --align 9Hz -f v=POSE.vel --episodes gap=5s --to set/ --as lerobot
  zcat drive.lcm.gz | sluice convert - --from lcm-log --to drive.lcm
  sluice convert drive.lcm --to drive.jsonl --print-pipeline > drive.toml

Exit codes: 0 success; 1 failed, nothing published; 2 invalid command line; 3 success, but input was
damaged or events could not be converted; 4 an expectation is not met.")]
pub(crate) struct ConvertArgs {
    /// The logs: files or globs, read in this order; `-` is standard input.
    #[arg(required = true, value_name = "IN", value_parser = InputParser)]
    pub(crate) inputs: Vec<OsString>,

    /// The file to write; `-` is standard output.
    #[arg(
        long,
        short_alias = 'o',
        alias = "output",
        value_name = "OUT",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: String,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// The name of the source of the events in the output, such as '{name}' or '{path}', which
    /// keeps several logs apart; also {stem}, {ext}, {parent}, and {source} for the default.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) source_name: Option<String>,

    /// The format of the output: the name of a sink. Chosen by the extension of OUT by default.
    #[arg(long = "as", value_name = "FORMAT")]
    pub(crate) sink: Option<String>,

    /// Write only this field of decoded messages, such as pos[0]; for CSV and JSON lines. May be
    /// repeated. With --align, a field of a channel, such as POSE.vel or v=POSE.vel.
    #[arg(short, long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) field: Vec<String>,

    #[command(flatten)]
    pub(crate) alignment: AlignArgs,

    /// Set any option of the sink; VALUE is TOML or plain text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) sink_option: Vec<Assignment>,

    /// Print the equivalent pipeline file and exit.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Rows on one time base.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Rows on one time base")]
pub(crate) struct AlignArgs {
    /// Write rows with the last values of each --field: at this rate, such as 50Hz, or at the
    /// events of this channel. Fields with the same name become one vector.
    #[arg(
        long,
        value_name = "RATE|CHANNEL",
        requires = "field",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) align: Option<String>,

    /// How old a value may be. Rows without a value for some field are left out. Default: 100ms.
    #[arg(long, value_name = "DURATION", requires = "align")]
    pub(crate) tolerance: Option<String>,

    /// Cut the rows into episodes, numbered in a field `episode`: gap=5s, where='vel[0] > 0.1',
    /// change=FIELD, table=FILE, min_rows=10. May be repeated: rows have to meet all.
    #[arg(long, value_name = "KEY=VALUE", requires = "align", value_parser = assignment)]
    pub(crate) episodes: Vec<Assignment>,
}

/// The format of logs.
#[derive(Clone, Debug, Default, Args)]
pub struct FormatArgs {
    /// The format of the logs: the name of a source. Detected from the first bytes by default.
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,

    /// A file that describes the format: the options of a source such as `records`, or a pipeline
    /// file.
    #[arg(long, value_name = "FILE.toml")]
    pub describe: Option<PathBuf>,

    /// Set any option of the source; VALUE is TOML or plain text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub source_option: Vec<Assignment>,
}

/// Selects channels by their names.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChannelPatternArgs {
    /// Only channels that match: a name, a glob, or `re:` and a regular expression. May be
    /// repeated.
    #[arg(short, long, value_name = "GLOB", value_parser = channel_pattern)]
    pub(crate) channel: Vec<String>,

    /// No channels that match. May be repeated.
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = channel_pattern)]
    pub(crate) exclude: Vec<String>,
}

/// The declared types that payloads are decoded with.
#[derive(Clone, Debug, Default, Args)]
pub struct DecodingArgs {
    /// Decode payloads with the types declared in these files: files, globs, folders, or the name
    /// of a built-in set such as mit-dgc. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new())]
    pub types: Vec<String>,

    /// The type of a channel, if its payloads fit several types: a channel or channel pattern, and
    /// the full name of the type. May be repeated.
    #[arg(long = "type", value_name = "CHANNEL=TYPE", value_parser = channel_type)]
    pub channel_types: Vec<(String, String)>,
}

/// Selects events.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which events")]
pub(crate) struct SelectionArgs {
    #[command(flatten)]
    pub(crate) patterns: ChannelPatternArgs,

    /// Only events from this time on: 2007-11-03T14:00:00Z, seconds since 1970, or +SECONDS after
    /// the first event.
    #[arg(long, value_name = "T", value_parser = time, allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// Only events before this time.
    #[arg(long, value_name = "T", value_parser = time, allow_hyphen_values = true)]
    pub(crate) end: Option<String>,

    #[command(flatten)]
    pub(crate) decoding: DecodingArgs,

    /// Only events whose decoded fields meet a condition, such as "vel[0] > 3 and quality != 0".
    #[arg(
        long = "where",
        value_name = "CONDITION",
        value_parser = NonEmptyStringValueParser::new(),
        allow_hyphen_values = true
    )]
    pub(crate) condition: Option<String>,
}
