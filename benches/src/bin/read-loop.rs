//! The minimal cost of reading a log: counts its events, or copies some channels, without Sluice.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use sluice_benches::bare;

#[derive(Parser)]
#[command(about)]
struct ReadLoopArgs {
    /// The log to read
    log: PathBuf,
    /// Copies events there instead of counting them
    #[arg(long)]
    out: Option<PathBuf>,
    /// Copies all events of a block at once, instead of one by one
    #[arg(long, requires = "out", conflicts_with_all = ["keep", "drop"])]
    runs: bool,
    /// Copies only channels that begin like this
    #[arg(long, default_value = "", requires = "out")]
    keep: String,
    /// Copies no channels that begin like this
    #[arg(long, requires = "out")]
    drop: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let ReadLoopArgs { log, out, runs, keep, drop } = ReadLoopArgs::parse();
    let input = File::open(&log).with_context(|| format!("open {}", log.display()))?;
    let Some(out) = out else {
        write!(io::stdout(), "{}", bare::count(input)?)?;
        return Ok(());
    };
    let output = File::create(&out).with_context(|| format!("create {}", out.display()))?;
    if runs {
        return Ok(bare::copy(input, output)?);
    }
    let dropped = |channel: &[u8]| drop.as_ref().is_some_and(|d| channel.starts_with(d.as_bytes()));
    bare::filter(input, output, |channel| {
        channel.starts_with(keep.as_bytes()) && !dropped(channel)
    })?;
    Ok(())
}
