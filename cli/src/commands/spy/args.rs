//! Arguments of `spy`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::args::{ChannelPatternArgs, DecodingArgs, ListenArgs, duration};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
On a terminal, shows a live table with keys:
  n, h, b           sort by name, rate, bandwidth     up, down      select a channel
  r                 reset the counts                  Enter, right  show its last message
  q                 quit                              left, Escape  back to the table

Otherwise prints a table every --interval, or with --json one object per line.

Hz is the message rate between the first and the last message of the last five seconds (or
--interval, if that is longer), or until now for a channel that is silent for longer than usual;
jitter is the standard deviation of the gaps between messages.

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

    #[command(flatten)]
    pub(crate) patterns: ChannelPatternArgs,

    #[command(flatten)]
    pub(crate) decoding: DecodingArgs,

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
