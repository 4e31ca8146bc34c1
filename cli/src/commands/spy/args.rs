//! Arguments of `spy`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::args::{ListenArgs, channel_pattern, channel_type, duration};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
On a terminal, shows a live table with keys:
  n, h, b           sort by name, rate, bandwidth     up, down      select a channel
  r                 reset the counts                  Enter, right  show its last message
  q                 quit                              left, Escape  back to the table

Otherwise prints a table every --interval, or with --json one object per line.

Hz is the message rate between the first and the last message of the last five seconds (or
--interval, if that is longer); jitter is the standard deviation of the gaps between messages.

Examples:
  sluice spy
  sluice spy tcpq://127.0.0.1:7700 --channel 'CAM_*'
  sluice spy --types lcmtypes/ --json --duration 10s | jq -c '.channels[] | [.name, .hz]'

Exit codes: 0 nothing was lost; 1 failed; 2 invalid command line; 3 messages were lost.")]
pub(crate) struct SpyArgs {
    /// What to listen to: udpm://GROUP:PORT or tcpq://HOST:PORT. By default LCM_DEFAULT_URL, or
    /// udpm://239.255.76.67:7667.
    #[arg(value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: Option<String>,

    /// Only channels that match: a name, a glob, or `re:` and a regular expression. May be
    /// repeated.
    #[arg(short, long, value_name = "GLOB", value_parser = channel_pattern)]
    pub(crate) channel: Vec<String>,

    /// No channels that match. May be repeated.
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = channel_pattern)]
    pub(crate) exclude: Vec<String>,

    /// Decode messages with the types declared in these files: files, globs, folders, or the name
    /// of a built-in set such as mit-dgc. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) types: Vec<String>,

    /// The type of a channel, if its messages fit several types: a channel or channel pattern, and
    /// the full name of the type. May be repeated.
    #[arg(
        long = "type",
        value_name = "CHANNEL=TYPE",
        value_parser = channel_type,
        requires = "types"
    )]
    pub(crate) channel_types: Vec<(String, String)>,

    /// Exit with code 2 if a channel named in an option was not received, instead of printing a
    /// warning.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print a JSON object every --interval, and a last one at the end.
    #[arg(long)]
    pub(crate) json: bool,

    /// How often to print without a terminal or with --json: seconds, or 200ms, 1m30s.
    #[arg(long, value_name = "T", value_parser = duration, default_value = "1s")]
    pub(crate) interval: String,

    #[command(flatten)]
    pub(crate) listening: ListenArgs,
}
