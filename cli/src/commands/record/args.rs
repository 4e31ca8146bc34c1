//! Arguments of `record`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sluice_model::options::ByteSize;

use crate::args::{
    Assignment, ChannelPatternArgs, DecodingArgs, ListenArgs, RunningArgs, assignment,
    positive_number, regex_pattern,
};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Ctrl-C or kill ends a recording. SIGHUP starts a new file: with the next number, or with the same
name if the file was moved away.

Logs and archives grow under their final names, and are readable at any moment. A table is readable
only when it is complete. A folder (with a trailing slash) therefore gets tables in pieces,
piece=00000/ and so on, which are one dataset: a new piece every 60 seconds, or as --split-seconds
and --split-mb say.

LCM logs are numbered at the end of the name, as by lcm-logger (drive.lcm.00), other files before
the extension (drive.00.parquet). Event numbers start at 0 in each log.

Examples:
  sluice record                                    everything, into lcmlog-2026-05-17.00
  sluice record --to drive.lcm.zst                 compressed
  sluice record udpm://239.255.76.67:7667 --to drive.lcm --channel 'CAM_*' --exclude CAM_TEST
  sluice record --to log-%H.lcm -s -i --split-mb 500
  sluice record --to ring.lcm --rotate 10 --split-seconds 60
  sluice record --to tables/ --types lcmtypes/

Exit codes: 0 everything received was recorded; 1 failed; 2 invalid command line; 3 messages were
lost, or the disk was full: the files written are intact (a table that is not complete is lost); 4
an expectation (--expect) is not met: the files are intact, too.")]
pub(crate) struct RecordArgs {
    /// What to listen to: udpm://GROUP:PORT, tcpq://HOST:PORT or file://PATH. By default
    /// LCM_DEFAULT_URL, or udpm://239.255.76.67:7667.
    #[arg(value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: Option<String>,

    /// The file to write; an LCM log unless its extension says otherwise. By default
    /// lcmlog-%Y-%m-%d with a number.
    #[arg(
        long,
        short_alias = 'o',
        alias = "output",
        value_name = "OUT",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: Option<String>,

    /// The format: the name of a sink. Chosen by the extension of OUT by default.
    #[arg(long = "as", value_name = "FORMAT")]
    pub(crate) sink: Option<String>,

    /// Expand %Y, %m, %d, %H, %M and other strftime specifiers with the local time, for each file.
    #[arg(short, long)]
    pub(crate) strftime: bool,

    /// Append to an existing file. If files are numbered, to the newest.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) append: bool,

    /// Replace an existing file.
    #[arg(short, long, visible_alias = "overwrite")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) pieces: PieceArgs,

    #[command(flatten)]
    pub(crate) channels: ChannelArgs,

    #[command(flatten)]
    pub(crate) receiving: ReceiveArgs,

    /// Compare what is received with the expectations in this file: the result is printed at the
    /// end, and the exit code is 4 if one is not met. Rules about decoded fields need --types. See
    /// `sluice check-log`.
    #[arg(long, value_name = "FILE.toml", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) expect: Option<String>,

    /// Print the equivalent pipeline file and exit. That pipeline writes one file, which appears at
    /// the end.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) running: RunningArgs,
}

/// Splitting into several files.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Several files")]
pub(crate) struct PieceArgs {
    /// Number the files: OUT.00, OUT.01 and so on, from the first free number.
    #[arg(short, long, conflicts_with = "rotate")]
    pub(crate) increment: bool,

    /// Start a new file after N MiB (for tables, of payloads, which are smaller in the file); a
    /// file may be longer by one batch, an archive by the frames that are being compressed: 1 MiB
    /// each, up to two per core. Numbers the files.
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub(crate) split_mb: Option<f64>,

    /// Start a new file after N seconds, if the current one has events. Numbers the files.
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub(crate) split_seconds: Option<f64>,

    /// Keep N files, with OUT.0 the newest: for each new file, the others move up by one and the
    /// oldest is deleted. This includes files of earlier recordings; --append continues OUT.0
    /// instead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rotate: Option<u32>,
}

/// Selects messages.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Which messages")]
pub(crate) struct ChannelArgs {
    #[command(flatten)]
    pub(crate) patterns: ChannelPatternArgs,

    /// Only channels whose whole name matches this regular expression: --channel 're:REGEX'.
    #[arg(long, value_name = "REGEX", value_parser = regex_pattern)]
    pub(crate) regex: Option<String>,

    /// Print details: the plan, each output, and how long it took. Has no short form here.
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Only channels that do not match --regex.
    #[arg(short = 'v', long, requires = "regex")]
    pub(crate) invert_channels: bool,

    #[command(flatten)]
    pub(crate) decoding: DecodingArgs,

    /// Only events whose decoded fields meet a condition, such as "vel[0] > 3 and quality != 0".
    #[arg(
        long = "where",
        value_name = "CONDITION",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) condition: Option<String>,
}

/// How to receive, and for how long.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Receiving")]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) listening: ListenArgs,

    /// How many MiB to buffer for a slow disk before messages are dropped; 128 by default.
    #[arg(short, long, value_name = "MB", value_parser = positive_number)]
    pub(crate) max_unwritten_mb: Option<f64>,

    /// Write messages to disk after at most this many milliseconds. By default 100, or 1000 for
    /// compressed output, which compresses worse the more often it is flushed.
    #[arg(long, value_name = "MS")]
    pub(crate) flush_interval: Option<u64>,

    /// Stop when the disk has less free space than this, such as 500MB or 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub(crate) disk_quota: Option<ByteSize>,

    /// Set any option of the source; VALUE is TOML or plain text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) source_option: Vec<Assignment>,

    /// Set any option of the sink; VALUE is TOML or plain text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) sink_option: Vec<Assignment>,
}

/// Converts mebibytes to bytes: at least one, and no more than options can be.
pub(super) fn bytes(mb: f64) -> u64 {
    ((mb * f64::from(1 << 20)) as u64).clamp(1, i64::MAX as u64)
}
