//! What `record` takes.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sluice_core::options::ByteSize;

use crate::args::{
    Assignment, ListenArgs, RunningArgs, above_zero, assignment, channel_type, pattern, regex,
};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Ctrl-C ends a recording. So does kill; and SIGHUP begins a new file: the next number, or the same name if the
file was moved away.

A log or an archive grows under its final name, and is readable at any moment, whatever happens. A table can
be read only when it is complete: a folder (with a slash at its end) takes tables in pieces, piece=00000/ and
so on, a new one every 60 seconds unless --split-seconds or --split-mb say otherwise, which are one dataset.

Numbers come last in names of LCM logs, as lcm-logger has them (drive.lcm.00), and before the extension in
others (drive.00.parquet). Numbers of events begin at 0 in each log.

Examples:
  sluice record                                    everything, into lcmlog-2026-05-17.00
  sluice record --to drive.lcm.zst                 compressed
  sluice record udpm://239.255.76.67:7667 --to drive.lcm --channel 'CAM_*' --exclude CAM_TEST
  sluice record --to log-%H.lcm -s -i --split-mb 500
  sluice record --to ring.lcm --rotate 10 --split-seconds 60
  sluice record --to tables/ --types lcmtypes/

Exit codes: 0 all that came was recorded; 1 failed; 2 wrong use; 3 messages were lost, or the disk was full:
what is there is whole.")]
pub(crate) struct RecordArgs {
    /// What to listen to: udpm://GROUP:PORT, tcpq://HOST:PORT or file://PATH. LCM_DEFAULT_URL if left
    /// out, or else udpm://239.255.76.67:7667.
    #[arg(value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: Option<String>,

    /// The file to write; an LCM log if its extension tells nothing else. lcmlog-%Y-%m-%d with a number
    /// if left out.
    #[arg(
        long,
        short_alias = 'o',
        alias = "output",
        value_name = "OUT",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: Option<String>,

    /// The format, by the name of a sink; told by the extension of OUT if left out.
    #[arg(long = "as", value_name = "FORMAT")]
    pub(crate) sink: Option<String>,

    /// Fill in the local date and time: %Y, %m, %d, %H, %M and what else strftime knows, for each file
    /// anew.
    #[arg(short, long)]
    pub(crate) strftime: bool,

    /// Continue what is there. Where files are numbered, the newest one is continued.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) append: bool,

    /// Replace what is there.
    #[arg(short, long, visible_alias = "overwrite")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) pieces: PieceArgs,

    #[command(flatten)]
    pub(crate) channels: ChannelArgs,

    #[command(flatten)]
    pub(crate) receiving: ReceiveArgs,

    /// Print the pipeline file that does this, and do nothing. Run by itself, it writes one file, which
    /// appears at the end.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) running: RunningArgs,
}

/// How what comes is cut into files.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Several files")]
pub(crate) struct PieceArgs {
    /// Number the files: OUT.00, OUT.01 and so on, from the first number that is free.
    #[arg(short, long, conflicts_with = "rotate")]
    pub(crate) increment: bool,

    /// Begin a new file when this one has N MiB; it may be longer by what came at once. Numbers the files.
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub(crate) split_mb: Option<f64>,

    /// Begin a new file when this one is N seconds old and has events. Numbers the files.
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub(crate) split_seconds: Option<f64>,

    /// Keep N files: OUT.0 is the newest one. With each new file the others move up by one, and the
    /// oldest is deleted. The files of an earlier recording move up, too; --append continues OUT.0
    /// instead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rotate: Option<u32>,
}

/// Which messages are wanted.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Which messages")]
pub(crate) struct ChannelArgs {
    /// Only channels that match: a name, a glob, or `re:` and a regular expression. May be repeated.
    #[arg(short, long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) channel: Vec<String>,

    /// No channels that match. May be repeated.
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) exclude: Vec<String>,

    /// Only channels whose whole name matches this regular expression: --channel 're:REGEX'.
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    pub(crate) regex: Option<String>,

    /// Say more: what is planned, each output, and how long it took. Its short form is taken.
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Only channels that do not match --regex.
    #[arg(short = 'v', long, requires = "regex")]
    pub(crate) invert_channels: bool,

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

/// How to receive, and for how long.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Receiving")]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) listening: ListenArgs,

    /// How many MiB may wait for the disk before messages are lost.
    #[arg(short, long, value_name = "MB", value_parser = above_zero)]
    pub(crate) max_unwritten_mb: Option<f64>,

    /// How many milliseconds old a message may get before it is on the disk; 100 if left out, and 1000
    /// where the output is compressed, which takes more room the more often it is cut.
    #[arg(long, value_name = "MS")]
    pub(crate) flush_interval: Option<u64>,

    /// End when the disk has less free than this, such as 500MB or 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub(crate) disk_quota: Option<ByteSize>,

    /// Set any option of the source; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) source_option: Vec<Assignment>,

    /// Set any option of the sink; VALUE is TOML, or else taken as text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) sink_option: Vec<Assignment>,
}
