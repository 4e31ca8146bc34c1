//! Source `lines`: each line of a text file is an event, as `TIME CHANNEL TEXT`.
//!
//! Copy it to start a source of your own. A source for a binary format is as short: `sluice new
//! source NAME` shows how.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::{DelimitedSource, LineContent, TextLines};
use sluice_model::options::InPaths;
use sluice_model::register;
use sluice_model::time::TimePoint;

/// Reads text files whose lines are a time, a channel and a text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinesSource {
    /// The files: one, a glob, a list of them, or `-` for standard input.
    path: InPaths,
}

register! {
    source "lines": DelimitedSource<LinesSource>,
    about: "reads text files, one event per line",
    sample: include_str!("../samples/lines.toml"),
    extensions: &["txt"],
}

impl TextLines for LinesSource {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn line<'b>(&self, line: &'b [u8]) -> LineContent<'b> {
        let Some((time, channel, text)) = words(line) else {
            return LineContent::Damaged("expected a time, a channel and a text");
        };
        LineContent::event(time, channel.as_bytes(), line.len() - text.len()..line.len())
    }
}

/// The time in nanoseconds, the channel and the text of a line. `None` if one is missing.
fn words(line: &[u8]) -> Option<(i64, &str, &str)> {
    let (time, rest) = str::from_utf8(line).ok()?.split_once(' ')?;
    let (channel, text) = rest.split_once(' ')?;
    match TimePoint::parse(time).ok()? {
        TimePoint::At(nanos) => Some((nanos, channel, text)),
        TimePoint::After(_) => None,
    }
}
