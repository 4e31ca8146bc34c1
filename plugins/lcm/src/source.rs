//! Source `lcm-log`: one log or many, cut into splits; of a window of time by headers, or by seeking where
//! the user says that times rise.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::files::{self, InputContent, LogFile};
use sluice_core::options::{ByteSize, InPaths, Seek};
use sluice_core::plugin::TimeWindow;
use sluice_core::window::ReadAt;
use sluice_core::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::format::Log;
use crate::reader;
use crate::scan::{self, Limits};
use crate::wire::{HEADER_LEN, Header, SYNC};

/// Reads LCM event logs.
///
/// Damage is stepped over and reported; every event that can be believed is given, with the number and
/// the channel name that the log has for it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLog {
    /// The logs: a file, a glob, a list of them, or `-` for standard input. Logs are read one after
    /// another; what is compressed with zstd is read as what it holds.
    path: InPaths,
    /// Longest event that is believed. Damage can claim any length.
    #[serde(default = "longest_event")]
    max_event: ByteSize,
    /// How a window of time is read. `true`: by the headers of all events, without the payloads of those
    /// outside of it. `false`: all of the log is read. `"sorted"`: you know that times rise, and no event
    /// is more than ten seconds out of place; then the window is searched for, and what is elsewhere in the
    /// log is missed.
    #[serde(default = "headers")]
    seek: Seek,
}

fn longest_event() -> ByteSize {
    ByteSize(Limits::default().max_event)
}

fn headers() -> Seek {
    Seek::Headers
}

/// How a log begins: with an event, or with damage before one.
fn sniff(head: &[u8]) -> SniffResult {
    if head.starts_with(&SYNC) {
        return SniffResult::Yes;
    }
    if memchr::memmem::find(head, &SYNC).is_some() { SniffResult::Maybe } else { SniffResult::No }
}

sluice_core::register! {
    source "lcm-log": LcmLog,
    about: "reads LCM event logs, and goes on after damage",
    sample: include_str!("../samples/lcm-log-source.toml"),
    extensions: &["lcm", "lcmlog", "log"],
    sniff: sniff,
    byte_format: Some(&Log),
}

impl LcmLog {
    fn limits(&self) -> Limits {
        Limits { max_event: self.max_event.0 }
    }
}

impl Source for LcmLog {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Binary, "an LCM log")?;
        Split::from_files(inputs, target, |path, len| match self.seek {
            Seek::Sorted => sorted_part(path, len, query, &self.limits()),
            Seek::Headers | Seek::Off => Ok(0..len),
        })
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let window = match self.seek {
            Seek::Off => TimeWindow::default(),
            Seek::Headers | Seek::Sorted => context.query.window(),
        };
        Ok(Box::new(reader::open(window, &split.input, split, entry, self.limits(), context)?))
    }
}

/// How far an event may be out of place for a seek by time still to find it.
const MARGIN: i64 = 10_000_000_000;
/// Places that are looked at to see whether a log's times rise.
const SAMPLES: u64 = 64;
/// Logs below this length are read whole: that is as cheap as looking.
const WORTH_SEEKING: u64 = 16 << 20;

/// The part of a log that has every event of the window if its times rise, which the user says; all of
/// it where samples show that they do not.
fn sorted_part(
    path: &Path,
    len: u64,
    query: &Query,
    limits: &Limits,
) -> Result<std::ops::Range<u64>, Error> {
    if query.window().is_open() || len < WORTH_SEEKING {
        return Ok(0..len);
    }
    let mut log = Probe { log: LogFile::open(path)?, limits: *limits, failed: None };
    let mut samples: Vec<(u64, i64)> = Vec::new();
    for n in 0..SAMPLES {
        let Some(found) = log.event_at(len / SAMPLES * n, len)? else { continue };
        if samples.last().is_some_and(|(_, before)| found.1 < before.saturating_sub(MARGIN)) {
            return Ok(0..len);
        }
        samples.push(found);
    }
    let start = match query.start {
        Some(start) => log.last_before(start.saturating_sub(MARGIN), &samples)?,
        None => 0,
    };
    let end = match query.end {
        Some(end) => log.first_after(end.saturating_add(MARGIN), &samples, len)?,
        None => len,
    };
    Ok(start.min(end)..end)
}

/// Looks at single events of a log.
struct Probe {
    log: LogFile,
    limits: Limits,
    failed: Option<Error>,
}

impl Probe {
    /// How close a bisection comes: less would read more than it saves.
    const CLOSE: u64 = 1 << 20;

    /// The first event that begins at `from` or later, and its time in nanoseconds.
    fn event_at(&mut self, from: u64, to: u64) -> Result<Option<(u64, i64)>, Error> {
        let limits = self.limits;
        // Far enough for any event to end: a place without one is only not used.
        let range = from..to.min(from.saturating_add(Self::CLOSE));
        let found = scan::next_event(self, range, &limits);
        let found = found.map_err(|e| {
            self.failed.take().unwrap_or_else(|| Error::io("read", self.log.path(), e))
        })?;
        let Some(at) = found else { return Ok(None) };
        let mut head = [0; HEADER_LEN];
        self.log.read_at(at, &mut head)?;
        let time = Header::parse(&head).and_then(|header| header.utime.checked_mul(1_000));
        Ok(time.map(|time| (at, time)))
    }

    /// An event's place before which every event is earlier than `time`.
    fn last_before(&mut self, time: i64, samples: &[(u64, i64)]) -> Result<u64, Error> {
        let early = samples.iter().take_while(|(_, t)| *t < time).count();
        let Some((mut low, _)) = early.checked_sub(1).and_then(|n| samples.get(n)).copied() else {
            return Ok(0);
        };
        let mut high = samples.get(early).map_or(low, |(at, _)| *at);
        while high.saturating_sub(low) > Self::CLOSE {
            let middle = low + (high - low) / 2;
            match self.event_at(middle, high)? {
                Some((at, found)) if found < time => low = at,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// A place after which every event is at `time` or later.
    fn first_after(&mut self, time: i64, samples: &[(u64, i64)], len: u64) -> Result<u64, Error> {
        let late = samples.iter().position(|(_, t)| *t >= time);
        let Some((mut high, _)) = late.and_then(|n| samples.get(n)).copied() else {
            return Ok(len);
        };
        let mut low =
            late.and_then(|n| n.checked_sub(1)).and_then(|n| samples.get(n)).map_or(0, |s| s.0);
        while high.saturating_sub(low) > Self::CLOSE {
            let middle = low + (high - low) / 2;
            match self.event_at(middle, high)? {
                Some((at, found)) if found >= time => high = at,
                _ => low = middle,
            }
        }
        Ok(high)
    }
}

impl ReadAt for Probe {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        self.log.read_at(pos, buf).map_err(|error| {
            self.failed = Some(error);
            std::io::ErrorKind::Other.into()
        })
    }
}
