//! Arguments of `play`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sluice_model::options::ByteSize;

use crate::args::{
    FormatArgs, RunningArgs, SelectionArgs, channel_pattern, duration, finite_number,
    positive_number, regex_pattern,
};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
On a terminal there are keys:
  space             pause or resume              left, right   10 seconds back, ahead
  . or n or s       one event, then pause        [ and ]       60 seconds back, ahead
  + and - (up,down) double, halve the speed      0 or Home     back to the start
  ? or h            these keys                   q             quit

Examples:
  sluice play drive.lcm
  sluice play drive.lcm --speed 2 --channel 'CAM_*' --to tcpq://127.0.0.1:7700
  sluice play drive.lcm --start +60 --end +90 --loop
  sluice play drive.lcm --rename POSE=POSE_OLD --max-gap 2s
  sluice play drive.lcm.zst --speed 0 --max-bandwidth 20MB

Exit codes: 0 played to the end, or stopped by q or Ctrl-C; 1 failed; 2 invalid command line;
3 the log was damaged, or events could not be sent.")]
pub(crate) struct PlayArgs {
    /// The logs: files or globs of one format, played in this order, with the time between them as
    /// a gap; `-` is standard input.
    #[arg(required = true, value_name = "LOG", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) inputs: Vec<String>,

    /// Where to send: udpm://GROUP:PORT or tcpq://HOST:PORT. By default LCM_DEFAULT_URL, or
    /// udpm://239.255.76.67:7667.
    #[arg(short = 'l', long, visible_alias = "lcm-url", value_name = "URL",
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) to: Option<String>,

    /// The speed: 1, the default, is as recorded, 2 is twice as fast, 0 or less is as fast as
    /// possible.
    #[arg(short, long, value_name = "X", value_parser = finite_number, allow_hyphen_values = true)]
    pub(crate) speed: Option<f64>,

    /// Play N times, or forever without N. Put it after LOG, or write --loop=N.
    #[arg(long = "loop", value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) rounds: Option<u64>,

    /// Shorten longer gaps to this: seconds, or 200ms, 1m30s.
    #[arg(long, value_name = "T", value_parser = duration)]
    pub(crate) max_gap: Option<String>,

    /// Send at most N messages per second.
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub(crate) max_rate: Option<f64>,

    /// Send at most this many bytes per second, such as 20MB.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse_positive)]
    pub(crate) max_bandwidth: Option<ByteSize>,

    /// The network interface to send through, by name or address. By default the one the group is
    /// routed to.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,

    /// Wait for a key before the first event. Needs a terminal.
    #[arg(long)]
    pub(crate) paused: bool,

    /// Send events of a channel under another name. FROM may be a glob, or `re:` and a regular
    /// expression for the whole name, whose groups are $1 and so on in TO. The first match applies.
    /// May be repeated.
    #[arg(long, value_name = "FROM=TO", value_parser = renaming)]
    pub(crate) rename: Vec<(String, String)>,

    /// Only channels whose whole name matches this regular expression: --channel 're:REGEX'.
    #[arg(
        short = 'e',
        long,
        visible_alias = "regexp",
        value_name = "REGEX",
        value_parser = regex_pattern
    )]
    pub(crate) regex: Option<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Print the equivalent pipeline file and exit.
    #[arg(long)]
    pub(crate) print_pipeline: bool,

    #[command(flatten)]
    pub(crate) running: RunningArgs,
}

fn renaming(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.rsplit_once('=').ok_or("expected a channel, `=` and its new name")?;
    if to.is_empty() {
        return Err("expected a new name after `=`".to_owned());
    }
    Ok((channel_pattern(from)?, to.to_owned()))
}
