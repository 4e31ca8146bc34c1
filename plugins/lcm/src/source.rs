//! Source `lcm-log`: one or more logs, cut into splits. A time window is read by headers, or by
//! bisection if the user says that times rise.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, InputContent, LogFile};
use sluice_model::options::{ByteSize, InPaths, Seek};
use sluice_model::plugin::TimeWindow;
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::format::LcmByteFormat;
use crate::reader;
use crate::scan::{self, ScanLimits};
use crate::wire::{HEADER_LEN, LcmHeader, SYNC};

/// Reads LCM event logs.
///
/// Damage is skipped and reported. Every plausible event is read, with the number and channel name
/// it has in the log.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLog {
    /// The logs: a file, a glob, a list of them, or `-` for standard input, read in this order.
    /// Logs compressed with zstd are decompressed.
    path: InPaths,
    /// Longest event accepted. A damaged log can claim any length.
    #[serde(default = "default_max_event")]
    max_event: ByteSize,
    /// How a time window is read. `true`: reads all headers, and skips payloads outside the window.
    /// `false`: reads the whole log. `"sorted"`: searches for the window, which requires that times
    /// rise and no event is more than ten seconds out of place; events elsewhere are missed.
    #[serde(default = "default_seek")]
    seek: Seek,
}

fn default_max_event() -> ByteSize {
    ByteSize(ScanLimits::default().max_event)
}

fn default_seek() -> Seek {
    Seek::Headers
}

/// A log starts with an event, or with damage before one.
fn sniff(head: &[u8]) -> SniffResult {
    if head.starts_with(&SYNC) {
        return SniffResult::Yes;
    }
    if memchr::memmem::find(head, &SYNC).is_some() { SniffResult::Maybe } else { SniffResult::No }
}

sluice_model::register! {
    source "lcm-log": LcmLog,
    about: "reads LCM event logs, including damaged ones",
    sample: include_str!("../samples/lcm-log-source.toml"),
    extensions: &["lcm", "lcmlog", "log"],
    sniff: sniff,
    byte_format: Some(&LcmByteFormat),
}

impl LcmLog {
    fn limits(&self) -> ScanLimits {
        ScanLimits { max_event: self.max_event.0 }
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

/// How far an event may be out of place and still be found by a seek, in nanoseconds.
const SORT_MARGIN: i64 = 10_000_000_000;
/// Positions sampled to check that times rise.
const SORT_SAMPLES: u64 = 64;
/// Shorter logs are read completely, which is as cheap as seeking.
const MIN_SEEK_LEN: u64 = 16 << 20;

/// The part of a sorted log that has every event of the window; the whole log if samples show that
/// it is not sorted.
fn sorted_part(
    path: &Path,
    len: u64,
    query: &Query,
    limits: &ScanLimits,
) -> Result<std::ops::Range<u64>, Error> {
    if query.window().is_open() || len < MIN_SEEK_LEN {
        return Ok(0..len);
    }
    let mut log = SeekProbe { log: LogFile::open(path)?, limits: *limits };
    let mut samples: Vec<(u64, i64)> = Vec::new();
    for n in 0..SORT_SAMPLES {
        let Some(found) = log.event_at(len / SORT_SAMPLES * n, len)? else { continue };
        if samples.last().is_some_and(|(_, before)| found.1 < before.saturating_sub(SORT_MARGIN)) {
            return Ok(0..len);
        }
        samples.push(found);
    }
    let start = match query.start {
        Some(start) => log.last_before(start.saturating_sub(SORT_MARGIN), &samples)?,
        None => 0,
    };
    let end = match query.end {
        Some(end) => log.first_after(end.saturating_add(SORT_MARGIN), &samples, len)?,
        None => len,
    };
    Ok(start.min(end)..end)
}

/// Reads single events of a log, to seek by time.
struct SeekProbe {
    log: LogFile,
    limits: ScanLimits,
}

impl SeekProbe {
    /// Bisection stops at this distance: going on would read more than it saves.
    const BISECT_LIMIT: u64 = 1 << 20;

    /// The first event at `from` or later, and its time in nanoseconds.
    fn event_at(&mut self, from: u64, to: u64) -> Result<Option<(u64, i64)>, Error> {
        // Positions without an event within this distance are not used.
        let range = from..to.min(from.saturating_add(Self::BISECT_LIMIT));
        let Some(at) = scan::next_event(&mut self.log, range, &self.limits)? else {
            return Ok(None);
        };
        let mut head = [0; HEADER_LEN];
        self.log.read_at(at, &mut head)?;
        let time = LcmHeader::parse(&head).and_then(|header| header.utime.checked_mul(1_000));
        Ok(time.map(|time| (at, time)))
    }

    /// A position before which every event is earlier than `time`.
    fn last_before(&mut self, time: i64, samples: &[(u64, i64)]) -> Result<u64, Error> {
        let early = samples.iter().take_while(|(_, t)| *t < time).count();
        let Some((mut low, _)) = early.checked_sub(1).and_then(|n| samples.get(n)).copied() else {
            return Ok(0);
        };
        let mut high = samples.get(early).map_or(low, |(at, _)| *at);
        while high.saturating_sub(low) > Self::BISECT_LIMIT {
            let middle = low + (high - low) / 2;
            match self.event_at(middle, high)? {
                Some((at, found)) if found < time => low = at,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// A position after which every event is at `time` or later.
    fn first_after(&mut self, time: i64, samples: &[(u64, i64)], len: u64) -> Result<u64, Error> {
        let late = samples.iter().position(|(_, t)| *t >= time);
        let Some((mut high, _)) = late.and_then(|n| samples.get(n)).copied() else {
            return Ok(len);
        };
        let mut low =
            late.and_then(|n| n.checked_sub(1)).and_then(|n| samples.get(n)).map_or(0, |s| s.0);
        while high.saturating_sub(low) > Self::BISECT_LIMIT {
            let middle = low + (high - low) / 2;
            match self.event_at(middle, high)? {
                Some((at, found)) if found >= time => high = at,
                _ => low = middle,
            }
        }
        Ok(high)
    }
}
