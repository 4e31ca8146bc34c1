//! Narrows a log to a time window by its index, as far as that can be verified.

use std::ops::Range;

use sluice_kit::window::ReadAt;
use sluice_model::Error;

use super::{SECOND, second, walk};
use crate::rules::Rules;
use crate::scan::{self, MessageScan};
use crate::start::{self, FileStart};
use crate::wire::{ENTRY_LEN, HEAD_LEN, HEADER_LEN, MARKER, MessageHeader};

/// How far an event may be out of place and still be found by a seek, in nanoseconds.
pub(crate) const MARGIN: i64 = 10_000_000_000;

/// Most bytes walked to verify one entry.
const MAX_WALKED: u64 = 64 << 20;
/// Entries, and positions in the file, sampled before an index is trusted.
const INDEX_SAMPLES: u64 = 64;
/// How far from a sampled position a message is searched for.
const SAMPLE_REACH: u64 = 1 << 20;
/// Most samples without a message.
const MAX_EMPTY_SAMPLES: usize = 16;
/// Most delay of an entry's message after its second: more is a gap, or a message out of place.
const MAX_DELAY: f64 = 5.0 * SECOND;
/// Most entries with the same position that are skipped backwards.
const MAX_SHARED: usize = 64;

/// Narrows a file of `len` bytes to the part with every event of a time window, using its index.
///
/// `window` is in milliseconds of the file's clock. An entry tells nothing about earlier times
/// after it, so events out of place by `MARGIN` or more may be missing at the end; the caller
/// adds that margin. `None` if the index does not help, or contradicts the messages: 64 entries and
/// 64 positions all over the file are checked, and for each entry used, all messages between the
/// previous position and it.
pub fn narrow(
    log: &mut dyn ReadAt,
    window: (Option<f64>, Option<f64>),
    len: u64,
    rules: &Rules,
) -> Result<Option<(u64, Option<u64>)>, Error> {
    let FileStart::Sound { body, head } = start::read_start(log, rules)? else { return Ok(None) };
    let MessageScan::Message { header: first, .. } = scan::classify(log, body, rules)? else {
        return Ok(None);
    };
    let mut index =
        IndexReader { log, rules, first: first.ms, body, count: u64::from(head.entries) };
    if !index.passes_samples()? {
        return Ok(None);
    }
    let Some(places) = sample_if_rising(index.log, body..len, rules)? else { return Ok(None) };
    let start = match window.0 {
        Some(ms) => {
            index.position_at(ms, f64::floor)?.filter(|at| all_before_earlier(&places, *at, ms))
        }
        None => None,
    };
    let end = match window.1 {
        Some(ms) => {
            index.position_at(ms, f64::ceil)?.filter(|at| none_after_earlier(&places, *at, ms))
        }
        None => None,
    };
    Ok(Some((start.unwrap_or(0), end)))
}

/// Position and time of a message in the file.
type MessageTime = (u64, f64);

/// Whether all samples before `at` are earlier than `ms`.
fn all_before_earlier(places: &[MessageTime], at: u64, ms: f64) -> bool {
    places.iter().filter(|(place, _)| *place < at).all(|(_, time)| *time < ms)
}

/// Whether no sample at or after `at` is earlier than `ms`.
fn none_after_earlier(places: &[MessageTime], at: u64, ms: f64) -> bool {
    places.iter().filter(|(place, _)| *place >= at).all(|(_, time)| *time >= ms)
}

/// Samples messages all over a range; `None` if their times do not rise, or if too many samples
/// find none.
fn sample_if_rising(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
) -> Result<Option<Vec<MessageTime>>, Error> {
    let (mut places, mut latest, mut silent) = (Vec::new(), f64::NEG_INFINITY, 0);
    for n in 0..INDEX_SAMPLES {
        let from = range.start + range.end.saturating_sub(range.start) / INDEX_SAMPLES * n;
        let to = range.end.min(from.saturating_add(SAMPLE_REACH));
        let Some((at, header)) = message_from(log, from..to, rules)? else {
            silent += 1;
            continue;
        };
        if header.ms < latest - MARGIN as f64 / 1e6 {
            return Ok(None);
        }
        latest = latest.max(header.ms);
        places.push((at, header.ms));
    }
    Ok((silent <= MAX_EMPTY_SAMPLES).then_some(places))
}

/// The first plausible message that starts in a range.
fn message_from(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
) -> Result<Option<(u64, MessageHeader)>, Error> {
    let Some(at) = scan::find(log, range, rules)? else { return Ok(None) };
    Ok(header_at(log, at)?.map(|header| (at, header)))
}

fn header_at(log: &mut dyn ReadAt, at: u64) -> Result<Option<MessageHeader>, Error> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(at, &mut bytes)?;
    Ok(if there == bytes.len() { MessageHeader::parse(&bytes) } else { None })
}

/// An index whose entries are verified one by one.
struct IndexReader<'l> {
    log: &'l mut dyn ReadAt,
    rules: &'l Rules,
    /// The time of the first message.
    first: f64,
    /// Start of the first message.
    body: u64,
    count: u64,
}

impl IndexReader<'_> {
    /// The position for a time, if its entry can be verified.
    fn position_at(&mut self, ms: f64, round: impl Fn(f64) -> f64) -> Result<Option<u64>, Error> {
        let entry = round((ms - self.first) / SECOND);
        let is_there = entry >= 1.0 && entry < self.count as f64;
        if is_there { self.verified_position(entry as u64) } else { Ok(None) }
    }

    /// The position in an entry, if it is a possible one.
    fn position(&mut self, entry: u64) -> Result<Option<u64>, Error> {
        let mut bytes = [0; ENTRY_LEN];
        let at = HEAD_LEN as u64 + entry * ENTRY_LEN as u64;
        let there = self.log.read_at(at, &mut bytes)?;
        let position = u64::try_from(i64::from_le_bytes(bytes)).ok();
        Ok(position.filter(|position| there == bytes.len() && *position >= self.body))
    }

    /// The header at an entry's position, if its time is in that second or later.
    fn header(&mut self, entry: u64, position: u64) -> Result<Option<MessageHeader>, Error> {
        let header = header_at(self.log, position)?;
        let due = second(self.first, entry);
        Ok(header.filter(|h| h.marker == MARKER && self.rules.is_possible(h.size) && h.ms >= due))
    }

    /// Whether sampled entries point to messages of their seconds, in order. Unused entries at the
    /// end are ignored.
    fn passes_samples(&mut self) -> Result<bool, Error> {
        let (mut before, mut is_over, mut used) = (self.body, false, 0);
        for sample in 0..INDEX_SAMPLES.min(self.count) {
            let entry = sample * self.count / INDEX_SAMPLES.min(self.count);
            let Some(position) = self.position(entry)? else {
                is_over = true;
                continue;
            };
            if is_over || position < before || self.header(entry, position)?.is_none() {
                return Ok(false);
            }
            (before, used) = (position, used + 1);
        }
        Ok(used > 0)
    }

    /// The position of an entry, if its message is close to its second and all messages since the
    /// previous position are earlier.
    fn verified_position(&mut self, entry: u64) -> Result<Option<u64>, Error> {
        let Some(position) = self.position(entry)? else { return Ok(None) };
        let Some(before) = self.position_before(entry, position)? else { return Ok(None) };
        let due = second(self.first, entry);
        let is_timely =
            self.header(entry, position)?.is_some_and(|found| found.ms <= due + MAX_DELAY);
        let begins =
            before == self.body || scan::plausible_end(self.log, before, self.rules)?.is_some();
        if !is_timely || !begins || position - before > MAX_WALKED {
            return Ok(None);
        }
        let mut all_earlier = true;
        let ended = walk(self.log, before..position, self.rules, |_, header| {
            all_earlier &= header.ms < due;
            all_earlier
        })?;
        Ok((all_earlier && ended == position).then_some(position))
    }

    /// The last indexed position before `position`, or the first message; `None` if that is too
    /// many entries back.
    fn position_before(&mut self, entry: u64, position: u64) -> Result<Option<u64>, Error> {
        for earlier in (0..entry).rev().take(MAX_SHARED) {
            match self.position(earlier)? {
                Some(place) if place < position => return Ok(Some(place)),
                Some(place) if place == position => {}
                _ => return Ok(None),
            }
        }
        let is_first = entry <= MAX_SHARED as u64 && position >= self.body;
        Ok(is_first.then_some(self.body))
    }
}
