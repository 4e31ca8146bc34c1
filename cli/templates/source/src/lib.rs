//! Source `{{name}}`: reads logs of consecutive events.
//!
//! The format is a sample. Replace it with yours: `MARK`, `SENSORS`, `HEAD`, `event`, `is_head` and
//! the extension depend on it, and the logs in `testdata`.
//!
//! | bytes | contents |
//! |---|---|
//! | 2 | sync word `5a a5` |
//! | 1 | sensor: an index into `SENSORS` |
//! | 1 | length of the payload |
//! | 8 | time: microseconds since 1970, little-endian |
//! | 0 to 255 | payload |
//! | 1 | checksum: the sum of all bytes before it |

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::{Delimited, DelimitedSource, EventMarker, ParseOutcome};
use sluice_model::options::InPaths;
use sluice_model::{SniffResult, register};

/// Reads {{name}} logs.
// The options in pipeline files. Their doc comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogSource {
    /// The logs: a file, a glob, a list of them, or `-` for standard input.
    path: InPaths,
}

register! {
    source "{{name}}": DelimitedSource<LogSource>,
    about: "reads {{name}} logs",
    sample: include_str!("../samples/{{name}}.toml"),
    extensions: &["{{name}}"],
    sniff: sniff,
}

/// Every event starts with this. It locates the next event after damage.
const MARK: &[u8] = &[0x5a, 0xa5];
/// The channels, by sensor number.
const SENSORS: [&[u8]; 3] = [b"IMU", b"GPS", b"ODOMETRY"];
/// The number of bytes before the payload.
const HEAD: usize = 12;

impl Delimited for LogSource {
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

/// Parses the event at the start of `bytes`.
///
/// The result must depend only on the bytes of the event: Sluice splits a log, reads the parts on
/// all cores, and calls this at every mark. Damaged events are skipped and reported.
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

/// Detects the format from the first bytes of a file.
///
/// A log is recognised even if its first event is damaged: by the header of an event, or by a later
/// valid event.
fn sniff(head: &[u8]) -> SniffResult {
    if is_head(head) {
        return SniffResult::Yes;
    }
    let mut tails = (1..head.len()).filter_map(|at| head.get(at..));
    let has_event =
        tails.any(|bytes| is_head(bytes) && matches!(event(bytes), ParseOutcome::Event(_)));
    match has_event {
        true => SniffResult::Maybe,
        false => SniffResult::No,
    }
}

/// Whether this looks like the header of an event. Does not check the sum.
fn is_head(bytes: &[u8]) -> bool {
    let sensor = bytes.strip_prefix(MARK).and_then(<[u8]>::first);
    sensor.is_some_and(|sensor| usize::from(*sensor) < SENSORS.len())
}
