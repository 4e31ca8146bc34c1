//! What `spy` takes.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::args::{ListenArgs, channel_type, length, pattern};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
On a terminal it is a table that changes, with keys:
  n, h, b           order by name, rate, bandwidth    up, down      choose a channel
  r                 count from here                   Enter, right  its last message
  q                 end                               left, Escape  back to the table

Elsewhere it prints a table every --interval, or with --json an object a line.

Hz is how many messages came for each second between the first and the last of them, over the last five
seconds (or --interval, if that is longer); jitter is the standard deviation of the times between them.

Examples:
  sluice spy
  sluice spy tcpq://127.0.0.1:7700 --channel 'CAM_*'
  sluice spy --types lcmtypes/ --json --duration 10s | jq -c '.channels[] | [.name, .hz]'

Exit codes: 0 nothing was lost; 1 failed; 2 wrong use; 3 messages were lost on the way here.")]
pub(crate) struct SpyArgs {
    /// What to listen to: udpm://GROUP:PORT or tcpq://HOST:PORT. LCM_DEFAULT_URL if left out, or else
    /// udpm://239.255.76.67:7667.
    #[arg(value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) url: Option<String>,

    /// Only channels that match: a name, a glob, or `re:` and a regular expression. May be repeated.
    #[arg(short, long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) channel: Vec<String>,

    /// No channels that match. May be repeated.
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = pattern)]
    pub(crate) exclude: Vec<String>,

    /// Decode messages by the types that these files declare: files, globs, folders, or the name of a
    /// built-in set such as mit-dgc. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) types: Vec<String>,

    /// Which type a channel has, where types share a fingerprint or fields: a channel or a pattern of
    /// channels, and the type's full name. May be repeated.
    #[arg(long = "type", value_name = "CHANNEL=TYPE", value_parser = channel_type, requires = "types")]
    pub(crate) channel_types: Vec<(String, String)>,

    /// End with exit code 2 where a channel that is named was not heard, instead of warning of it.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print a JSON object every --interval, and a last one at the end.
    #[arg(long)]
    pub(crate) json: bool,

    /// How often to print without a terminal, or with --json: seconds, or 200ms, 1m30s.
    #[arg(long, value_name = "T", value_parser = length, default_value = "1s")]
    pub(crate) interval: String,

    #[command(flatten)]
    pub(crate) listening: ListenArgs,
}
