//! The index, a table of seconds before the messages: builds, checks and uses it.
//!
//! Sequential reading never uses it: it may be wrong, and usually is incomplete.
//!
//! Entry `i` is the position of the first message, in file order, whose time is at least `i`
//! seconds after the first message of the file. So a second without messages has the position of
//! the next message. `-1` means no entry and is always valid: a killed program leaves the whole
//! table like that.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_kit::window::ReadAt;
use sluice_model::Error;

use crate::rules::{DeletedMessages, Rules};
use crate::scan::{self, MessageScan};
use crate::start::{self, FileStart};
use crate::time::to_nanos;
use crate::wire::{ENTRY_LEN, HEAD_LEN, HEADER_LEN, MARKER, MessageHeader, UNUSED};

/// How far an event may be out of place and still be found by a seek, in nanoseconds.
pub(crate) const MARGIN: i64 = 10_000_000_000;

/// Greatest time that is indexed, in milliseconds.
const MAX_MILLIS: f64 = 9e15;
/// Milliseconds per entry.
const SECOND: f64 = 1_000.0;
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
/// Wrong entries reported one by one.
const MAX_REPORTED: usize = 20;
/// Most bytes by which an index may exceed the messages.
const INDEX_AHEAD: u64 = 1 << 20;

/// Builds an index from messages in file order.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    first: Option<f64>,
    latest: f64,
    positions: Vec<u64>,
    most: u64,
    /// Entries that a jump in time may always fill, if the size of the index is limited by the
    /// messages.
    least: Option<u64>,
    is_full: bool,
}

impl IndexBuilder {
    /// For an index of at most `most` entries.
    pub fn new(most: u64) -> Self {
        let (first, latest, positions) = (None, f64::NEG_INFINITY, Vec::new());
        Self { first, latest, positions, most, least: None, is_full: false }
    }

    /// For an index that is written: it ends before a jump in time that would make it a mebibyte
    /// longer than the messages before the jump, but not before it has `least` entries. Positions
    /// then count from the first message.
    pub fn proportional(least: u64, most: u64) -> Self {
        Self { least: Some(least), ..Self::new(most) }
    }

    /// Adds the next message in file order. A NaN time belongs to no second.
    pub fn add_message(&mut self, position: u64, ms: f64) {
        // Beyond this, doubles cannot tell seconds apart.
        let is_counted = ms.abs() <= MAX_MILLIS;
        if !is_counted {
            return;
        }
        let first = *self.first.get_or_insert(ms);
        self.latest = self.latest.max(ms);
        if self.is_full || ms < second(first, self.positions.len() as u64) {
            return;
        }
        let most = self.max_entries(position, seconds_to(first, ms));
        while ms >= second(first, self.positions.len() as u64) {
            if self.positions.len() as u64 >= most {
                self.is_full = true;
                return;
            }
            self.positions.push(position);
        }
    }

    /// Most entries after a message at `position` that makes it `needed` long.
    fn max_entries(&self, position: u64, needed: u64) -> u64 {
        let justified = position.saturating_add(INDEX_AHEAD) / ENTRY_LEN as u64;
        match self.least {
            Some(least) if needed > justified => self.most.min(least),
            _ => self.most,
        }
    }

    /// Seconds covered by the messages so far.
    pub fn count(&self) -> u64 {
        self.first.map_or(0, |first| seconds_to(first, self.latest))
    }

    /// The entries so far.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Whether there are seconds beyond the last possible entry.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Seconds started from `first` to `ms`.
fn seconds_to(first: f64, ms: f64) -> u64 {
    (((ms - first) / SECOND).floor().max(0.0) as u64).saturating_add(1)
}

/// The start of second `entry`.
fn second(first: f64, entry: u64) -> f64 {
    first + entry as f64 * SECOND
}

/// The result of checking an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexReport {
    /// Number of entries.
    pub entries: u64,
    /// Entries that agree with the messages.
    pub right: u64,
    /// Entries without a position.
    pub unused: u64,
    /// Entries that contradict the messages.
    pub wrong: u64,
    /// The first wrong entries, at most twenty.
    pub first_wrong: Vec<WrongEntry>,
    /// Number of entries up to the last one with a position.
    pub reach: u64,
    /// Seconds covered by the messages.
    pub seconds: u64,
}

/// An entry that contradicts the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongEntry {
    /// Its number, from 0.
    pub entry: u64,
    /// The position it has.
    pub found: i64,
    /// The correct position; `None` for a second after the last message.
    pub expected: Option<u64>,
}

impl IndexReport {
    /// Compares an entry with the one computed from the messages.
    fn add(&mut self, found: i64, expected: Option<u64>) {
        let entry = self.entries;
        self.entries += 1;
        if found == UNUSED {
            self.unused += 1;
            return;
        }
        self.reach = self.entries;
        if expected.is_some_and(|expected| u64::try_from(found) == Ok(expected)) {
            self.right += 1;
            return;
        }
        self.wrong += 1;
        if self.first_wrong.len() < MAX_REPORTED {
            self.first_wrong.push(WrongEntry { entry, found, expected });
        }
    }

    /// All findings, one sentence each: the figures, the first wrong entries, and seconds at the
    /// end that are not indexed.
    pub fn findings(&self) -> Vec<String> {
        let mut sentences = vec![self.to_string()];
        sentences.extend(self.wrong_entries());
        let (seconds, reach) = (self.seconds, self.reach);
        if reach < seconds {
            let left = seconds - reach;
            sentences.push(format!(
                "{left} of the log's {seconds} seconds are not indexed, from second {reach} to \
                 the end"
            ));
        }
        sentences
    }
}

impl IndexReport {
    /// The faults, one sentence each: the figures and the first wrong entries. Empty if every entry
    /// is right or unused.
    pub fn faults(&self) -> Vec<String> {
        let figures = (self.wrong > 0).then(|| self.to_string());
        figures.into_iter().chain(self.wrong_entries()).collect()
    }

    fn wrong_entries(&self) -> impl Iterator<Item = String> {
        let more = self.wrong.saturating_sub(self.first_wrong.len() as u64);
        let more = (more > 0).then(|| format!("{more} more entries are wrong"));
        self.first_wrong.iter().map(WrongEntry::to_string).chain(more)
    }
}

impl fmt::Display for IndexReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, right, unused, wrong, .. } = self;
        write!(f, "index: {entries} entries, {right} right, {unused} unused, {wrong} wrong")
    }
}

impl fmt::Display for WrongEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, found, expected } = self;
        write!(f, "entry {entry} points to byte {found}, expected ")?;
        match expected {
            Some(expected) => write!(f, "{expected}"),
            None => write!(f, "unused"),
        }
    }
}

/// Checks the index of the file at `path` against its messages; `None` if the head does not tell
/// how long the index is. Reads the headers of all messages, and skips damage.
pub fn inspect(path: &Path, rules: &Rules) -> Result<Option<IndexReport>, Error> {
    check_index(&mut LogFile::open(path)?, rules)
}

/// As [`inspect`], for an open log.
pub fn check_index(log: &mut dyn ReadAt, rules: &Rules) -> Result<Option<IndexReport>, Error> {
    // Messages may have been deleted after they were indexed.
    let rules = &Rules { deleted: DeletedMessages::Keep, ..rules.clone() };
    let FileStart::Sound { body, head } = start::read_start(log, rules)? else { return Ok(None) };
    let entries = entries(log, u64::from(head.entries))?;
    let mut seconds = IndexBuilder::new(entries.len() as u64);
    walk(log, body..u64::MAX, rules, |at, header| {
        seconds.add_message(at, header.ms);
        true
    })?;
    let mut verdict = IndexReport { seconds: seconds.count(), ..IndexReport::default() };
    for (entry, found) in entries.into_iter().enumerate() {
        verdict.add(found, seconds.positions().get(entry).copied());
    }
    Ok(Some(verdict))
}

/// Reads the entries of a file. Their number is bounded: the head has been checked.
fn entries(log: &mut dyn ReadAt, count: u64) -> Result<Vec<i64>, Error> {
    let mut bytes = vec![0; count as usize * ENTRY_LEN];
    let there = log.read_at(HEAD_LEN as u64, &mut bytes)?;
    bytes.truncate(there);
    let (entries, _) = bytes.as_chunks();
    Ok(entries.iter().map(|entry| i64::from_le_bytes(*entry)).collect())
}

/// Walks from message to message until `go_on` returns `false` or `range` ends. Returns the
/// position reached.
fn walk(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
    mut go_on: impl FnMut(u64, &MessageHeader) -> bool,
) -> Result<u64, Error> {
    let mut at = range.start;
    while at < range.end {
        log.forget(at);
        match scan::classify(log, at, rules)? {
            MessageScan::Message { header, end } => {
                if !go_on(at, &header) {
                    break;
                }
                at = end;
            }
            MessageScan::Damage { end, .. } => at = end,
            MessageScan::End => break,
        }
    }
    Ok(at)
}

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

/// The time of the first message that 64 bits of nanoseconds can hold; `None` if there is none.
pub(crate) fn first_time(log: &mut dyn ReadAt, rules: &Rules) -> Result<Option<i64>, Error> {
    let from = match start::read_start(log, rules)? {
        FileStart::Sound { body, .. } | FileStart::Marred { body, .. } => body,
        FileStart::Damaged { end, .. } => end,
        FileStart::Empty | FileStart::Refused { .. } => return Ok(None),
    };
    let mut first = None;
    walk(log, from..u64::MAX, rules, |_, header| {
        first = to_nanos(header.ms);
        first.is_none()
    })?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FileHead, append_message};
    use proptest::prelude::*;

    /// A file with these entries and message times.
    fn file(entries: &[i64], times: &[f64]) -> Vec<u8> {
        let mut file = FileHead::new(entries.len() as u32).write().to_vec();
        entries.iter().for_each(|entry| file.extend(entry.to_le_bytes()));
        for ms in times {
            append_message(&mut file, MARKER, (7, 1), *ms, b"x").unwrap();
        }
        file
    }

    fn report_of(entries: &[i64], times: &[f64]) -> IndexReport {
        let file = file(entries, times);
        check_index(&mut &file[..], &Rules::default()).unwrap().unwrap()
    }

    #[test]
    fn a_second_without_messages_has_the_position_of_the_next_message() {
        let mut seconds = IndexBuilder::new(100);
        for (position, ms) in
            [(100, 50.0), (200, 1049.9), (300, 1050.0), (400, 900.0), (500, 4050.0)]
        {
            seconds.add_message(position, ms);
        }
        assert_eq!(seconds.positions(), [100, 300, 500, 500, 500]);
    }

    #[test]
    fn a_jump_in_time_fills_no_more_than_there_may_be() {
        let mut seconds = IndexBuilder::new(10);
        for ms in [0.0, f64::NAN, 1e15, f64::INFINITY] {
            seconds.add_message(5, ms);
        }
        assert_eq!((seconds.positions().len(), seconds.is_full()), (10, true));
    }

    #[test]
    fn entries_are_judged_one_by_one() {
        let at = |n: i64| 12 + 4 * 8 + n * 22;
        let times = [0.0, 500.0, 1000.0, 2500.0];
        let right = report_of(&[at(0), at(2), at(3), -1], &times);
        assert_eq!(right.to_string(), "index: 4 entries, 3 right, 1 unused, 0 wrong");
        let wrong = report_of(&[at(0), -1, at(2), at(3)], &times);
        let expected = WrongEntry { entry: 2, found: at(2), expected: Some(at(3) as u64) };
        assert_eq!((wrong.right, wrong.unused, wrong.wrong), (1, 1, 2));
        assert_eq!(wrong.first_wrong[0], expected);
        let findings = report_of(&[at(0), at(2), at(3), 7], &times).findings();
        assert_eq!(findings[1..], ["entry 3 points to byte 7, expected unused"]);
    }

    #[test]
    fn only_the_first_of_many_wrong_entries_are_reported_one_by_one() {
        let findings = report_of(&[7; 50], &[0.0, 49_000.0]).findings();
        assert_eq!((findings.len(), &findings[21][..]), (22, "30 more entries are wrong"));
    }

    #[test]
    fn seconds_that_are_not_indexed_are_reported() {
        for (entries, reach) in [(&[][..], 0), (&[-1; 4], 0), (&[12 + 3 * 8, -1, -1], 1)] {
            let findings = report_of(entries, &[0.0, 3_600_000.0]).findings();
            let left = 3601 - reach;
            let expected = format!(
                "{left} of the log's 3601 seconds are not indexed, from second {reach} to the end"
            );
            assert_eq!(findings.last(), Some(&expected));
        }
    }

    #[test]
    fn a_message_that_was_deleted_later_is_still_in_the_index() {
        let mut bytes = file(&[20, 42], &[0.0, 1000.0, 1000.0]);
        bytes[28 + 4] = 0x30;
        bytes[12..20].copy_from_slice(&28i64.to_le_bytes());
        bytes[20..28].copy_from_slice(&50i64.to_le_bytes());
        bytes[50 + 4] = 0x30;
        let verdict = check_index(&mut &bytes[..], &Rules::default()).unwrap().unwrap();
        assert_eq!((verdict.right, verdict.wrong), (2, 0));
    }

    #[test]
    fn an_index_ends_where_a_jump_would_make_it_longer_than_the_messages() {
        let mut seconds = IndexBuilder::proportional(3, 10_000_000);
        [(0, 0.0), (69, 1e11), (138, 1e11 + 1.0), (207, 2e3)]
            .iter()
            .for_each(|(at, ms)| seconds.add_message(*at, *ms));
        assert_eq!((seconds.positions(), seconds.is_full()), (&[0, 69, 69][..], true));
        let mut seconds = IndexBuilder::proportional(0, 10_000_000);
        [(0, 0.0), (69, 1e7)].iter().for_each(|(at, ms)| seconds.add_message(*at, *ms));
        assert_eq!((seconds.positions().len(), seconds.is_full()), (10_001, false));
    }

    /// A file with a correct index.
    fn indexed(times: &[f64]) -> Vec<u8> {
        let mut seconds = IndexBuilder::new(100_000);
        times.iter().enumerate().for_each(|(n, ms)| seconds.add_message(n as u64 * 22, *ms));
        let body = 12 + seconds.positions().len() as u64 * 8;
        let entries: Vec<_> = seconds.positions().iter().map(|at| (body + at) as i64).collect();
        file(&entries, times)
    }

    /// The times left of a file with a correct index, for a window that includes its margins.
    fn left(times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
        left_of(&indexed(times), times, window)
    }

    fn left_of(file: &[u8], times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
        let len = file.len() as u64;
        let found = narrow(&mut &file[..], window, len, &Rules::default()).unwrap();
        let (from, to) = found.unwrap_or((0, None));
        let body = len - times.len() as u64 * 22;
        let place = |n: usize| body + n as u64 * 22;
        let is_left = |n: &usize| place(*n) >= from && to.is_none_or(|to| place(*n) < to);
        (0..times.len()).filter(is_left).map(|n| times[n]).collect()
    }

    fn rising_times() -> Vec<f64> {
        (0..1000).map(|n| f64::from(n) * 100.0).collect()
    }

    #[test]
    fn a_part_of_a_file_with_rising_times_is_left() {
        let times = rising_times();
        assert_eq!(left(&times, (Some(30_000.0), Some(50_000.0))), times[300..500]);
    }

    #[test]
    fn one_message_far_ahead_hides_nothing_behind_it() {
        let mut times = rising_times();
        times.insert(250, 1_000_000.0);
        for window in [(Some(30_000.0), Some(50_000.0)), (None, Some(50_000.0))] {
            let left = left(&times, window);
            let within: Vec<_> =
                times.iter().filter(|ms| (30_000.0..50_000.0).contains(*ms)).collect();
            assert!(within.iter().all(|ms| left.contains(ms)), "{window:?}");
        }
    }

    #[test]
    fn a_clock_that_began_anew_hides_nothing() {
        let times = [rising_times(), rising_times()].concat();
        for window in
            [(None, Some(60_000.0)), (Some(40_000.0), None), (Some(40_000.0), Some(60_000.0))]
        {
            assert_eq!(left(&times, window), times, "{window:?}");
        }
    }

    #[test]
    fn an_entry_that_shares_its_place_with_others_is_proven_from_before_them() {
        let times = rising_times();
        let right = indexed(&times);
        let window = (Some(98_000.0), None);
        // All entries but the first point to the last message.
        let last = right[12 + 99 * 8..].first_chunk::<8>().unwrap();
        let mut wrong = right.clone();
        (1..100).for_each(|n| wrong[12 + n * 8..][..8].copy_from_slice(last));
        assert_eq!(left_of(&wrong, &times, window), times);
        // Seconds without messages.
        let gaps: Vec<_> = times.iter().copied().filter(|ms| ms % 10_000.0 < 6_000.0).collect();
        let late = left(&gaps, (Some(40_000.0), None));
        assert_eq!(late, gaps[gaps.len() - 360..]);
    }

    proptest! {
        #[test]
        fn an_index_that_was_made_is_right(
            times in proptest::collection::vec(0.0f64..20_000.0, 1..40),
        ) {
            let body = 12 + 30 * 8;
            let mut seconds = IndexBuilder::new(30);
            for (n, ms) in times.iter().enumerate() {
                seconds.add_message(body + n as u64 * 22, *ms);
            }
            let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
            entries.resize(30, UNUSED);
            let verdict = report_of(&entries, &times);
            prop_assert_eq!((verdict.wrong, verdict.right), (0, seconds.positions().len() as u64));
        }

        #[test]
        fn a_narrowed_file_has_every_message_of_the_window(
            times in proptest::collection::vec(0.0f64..20_000.0, 1..60),
            start in 0.0f64..20_000.0, len in 0.0f64..10_000.0,
        ) {
            let mut times = times;
            times.sort_by(f64::total_cmp);
            let body = 12 + 20 * 8;
            let mut seconds = IndexBuilder::new(20);
            for (n, ms) in times.iter().enumerate() {
                seconds.add_message(body + n as u64 * 22, *ms);
            }
            let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
            entries.resize(20, UNUSED);
            let file = file(&entries, &times);
            let window = (Some(start), Some(start + len));
            let size = file.len() as u64;
            let found = narrow(&mut &file[..], window, size, &Rules::default()).unwrap();
            let (from, to) = found.unwrap_or((0, None));
            for (n, ms) in times.iter().enumerate() {
                let at = body + n as u64 * 22;
                if (start..start + len).contains(ms) {
                    prop_assert!(at >= from && to.is_none_or(|to| at < to), "{} at {}", ms, at);
                }
            }
        }

        #[test]
        fn messages_that_are_out_of_place_by_less_than_the_margin_are_left(
            late in proptest::collection::vec(0.0f64..9_000.0, 200..600),
            start in 0.0f64..60_000.0, len in 0.0f64..30_000.0,
        ) {
            let times: Vec<f64> =
                late.iter().enumerate().map(|(n, late)| n as f64 * 100.0 - late * 0.9).collect();
            let left = left(&times, (Some(start), Some(start + len)));
            for ms in &times {
                if (start..start + len - 10_000.0).contains(ms) {
                    prop_assert!(left.contains(ms), "{}", ms);
                }
            }
        }
    }
}
