//! Source `{{name}}`: reads logs that are events one behind another.
//!
//! The format is made up. Put yours in its place: `MARK`, `SENSORS` and `event` are all that knows it.
//!
//! | bytes | what |
//! |---|---|
//! | 2 | `5a a5`, with which every event begins |
//! | 1 | which sensor it is of: its place in `SENSORS` |
//! | 1 | how many bytes the payload has |
//! | 8 | when it happened: microseconds since 1970, little-endian |
//! | 0 to 255 | the payload |
//! | 1 | the sum of all bytes before it |

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::options::InPaths;
use sluice_core::{Delimited, EventMarker, ParseOutcome, SniffResult, register};

/// Reads {{name}} logs.
// The options: what a pipeline file may say. Their comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The logs: a file, a glob, a list of them, or `-` for standard input.
    path: InPaths,
}

register! {
    source "{{name}}": Log,
    about: "reads {{name}} logs",
    sample: include_str!("../samples/{{name}}.toml"),
    extensions: &["{{name}}"],
    sniff: sniff,
}

/// Every event begins with this. It is how the next event is found behind damage.
const MARK: &[u8] = &[0x5a, 0xa5];
/// The channels, by the number that events have for them.
const SENSORS: [&[u8]; 3] = [b"IMU", b"GPS", b"ODOMETRY"];
/// How many bytes stand in front of the payload.
const HEAD: usize = 12;

impl Delimited for Log {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn mark(&self) -> EventMarker<'_> {
        EventMarker::Begins(MARK)
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        event(bytes)
    }
}

/// The event that these bytes begin with.
///
/// Nothing but its own bytes may decide that: Sluice reads a log in pieces, on all cores, and asks wherever a
/// mark is found. What is damaged is stepped over and reported.
fn event(bytes: &[u8]) -> ParseOutcome<'_> {
    let Some([_, _, sensor, len, time @ ..]) = bytes.first_chunk::<HEAD>() else {
        return ParseOutcome::More;
    };
    let end = HEAD + usize::from(*len);
    let Some((event, [sum, ..])) = bytes.split_at_checked(end) else {
        return ParseOutcome::More;
    };
    let damaged = |reason| ParseOutcome::Damaged {
        len: end + 1,
        reason,
    };
    if *sum != event.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) {
        return damaged("its sum is wrong");
    }
    let Some(channel) = SENSORS.get(usize::from(*sensor)) else {
        return damaged("no sensor has this number");
    };
    let Some(nanos) = i64::from_le_bytes(*time).checked_mul(1_000) else {
        return damaged("its time is beyond those that can be held");
    };
    ParseOutcome::event(end + 1, nanos, *channel, HEAD..end)
}

/// Whether a file is of this format, by its first bytes: then nobody has to name it.
///
/// A log is known although its first event is damaged: by a head that hardly anything else has, or by a whole
/// event that comes later.
fn sniff(head: &[u8]) -> SniffResult {
    if is_head(head) {
        return SniffResult::Yes;
    }
    let mut places = (1..head.len()).filter_map(|at| head.get(at..));
    let has_event = places.any(|bytes| is_head(bytes) && matches!(event(bytes), ParseOutcome::Event(_)));
    if has_event { SniffResult::Maybe } else { SniffResult::No }
}

/// Whether an event may begin like this, whatever its sum is.
fn is_head(bytes: &[u8]) -> bool {
    let sensor = bytes.strip_prefix(MARK).and_then(<[u8]>::first);
    sensor.is_some_and(|sensor| usize::from(*sensor) < SENSORS.len())
}
