//! The table of seconds in front of the messages: making one, judging one, and finding a time with one.
//!
//! Reading from front to back never uses it: it may be wrong, and mostly is not complete.
//!
//! Entry `i` is the position of the first message, in the order of the file, whose time is `i` seconds or
//! more after that of the file's first message. So a second without messages has the position of the
//! message that follows it. `-1` stands for no entry, and is right anywhere: a program that was killed
//! leaves the whole table so.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use sluice_core::Error;
use sluice_core::window::ReadAt;

use crate::probe::Probe;
use crate::scan::{self, Deleted, Head, Rules, Verdict};
use crate::time::to_nanos;
use crate::wire::{ENTRY_LEN, HEAD_LEN, HEADER_LEN, Header, MARKER, UNUSED};

/// How far an event may be out of place for a seek by time still to find it, in nanoseconds.
pub const MARGIN: i64 = 10_000_000_000;

/// Seconds are counted up to here, in milliseconds from 0.
const MOST_MILLIS: f64 = 9e15;
/// Milliseconds an entry stands for.
const SECOND: f64 = 1_000.0;
/// How far an index is walked for proof of one entry.
const MOST_WALKED: u64 = 64 << 20;
/// Entries, and places of the file, that are looked at before an index is trusted.
const SAMPLES: u64 = 64;
/// How far a message is looked for from such a place.
const REACH: u64 = 1 << 20;
/// So many places may be without a message that can be found.
const MOST_SILENT: usize = 16;
/// How much later than its second the message of an entry may be: more is a gap, or a message out of place.
const NEAR: f64 = 5.0 * SECOND;
/// Entries with one position that are gone back over.
const MOST_SHARED: usize = 64;
/// Wrong entries that are told one by one.
const MOST_TOLD: usize = 20;
/// Bytes that an index may have more than the messages.
const INDEX_AHEAD: u64 = 1 << 20;

/// Gathers the entries of an index while messages go by.
#[derive(Clone, Debug)]
pub struct Seconds {
    first: Option<f64>,
    latest: f64,
    positions: Vec<u64>,
    most: u64,
    /// How many entries a jump in time may fill in any case, where the bytes of messages limit it.
    least: Option<u64>,
    is_full: bool,
}

impl Seconds {
    /// For an index of at most so many entries.
    pub fn new(most: u64) -> Self {
        let (first, latest, positions) = (None, f64::NEG_INFINITY, Vec::new());
        Self { first, latest, positions, most, least: None, is_full: false }
    }

    /// For an index that is to be written: it ends before a jump in time that would make it take a
    /// mebibyte more than the messages before the jump, but not before it has `least` entries. Positions
    /// then count from the first message.
    pub fn in_proportion(least: u64, most: u64) -> Self {
        Self { least: Some(least), ..Self::new(most) }
    }

    /// Takes the next message in the order of the file. A time that is no number belongs to no second.
    pub fn feed(&mut self, position: u64, ms: f64) {
        // Beyond these, doubles do not tell seconds apart.
        let is_counted = ms.abs() <= MOST_MILLIS;
        if !is_counted {
            return;
        }
        let first = *self.first.get_or_insert(ms);
        self.latest = self.latest.max(ms);
        if self.is_full || ms < second(first, self.positions.len() as u64) {
            return;
        }
        let most = self.most_with(position, seconds_to(first, ms));
        while ms >= second(first, self.positions.len() as u64) {
            if self.positions.len() as u64 >= most {
                self.is_full = true;
                return;
            }
            self.positions.push(position);
        }
    }

    /// How many entries there may be after a message at `position` which makes it `wanted`.
    fn most_with(&self, position: u64, wanted: u64) -> u64 {
        let justified = position.saturating_add(INDEX_AHEAD) / ENTRY_LEN as u64;
        match self.least {
            Some(least) if wanted > justified => self.most.min(least),
            _ => self.most,
        }
    }

    /// How many seconds the messages so far took.
    pub fn count(&self) -> u64 {
        self.first.map_or(0, |first| seconds_to(first, self.latest))
    }

    /// The entries so far.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Whether there were seconds beyond the last entry that it may have.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// How many seconds begin from `first` up to `ms`.
fn seconds_to(first: f64, ms: f64) -> u64 {
    (((ms - first) / SECOND).floor().max(0.0) as u64).saturating_add(1)
}

/// When second `entry` begins.
fn second(first: f64, entry: u64) -> f64 {
    first + entry as f64 * SECOND
}

/// What an index is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexVerdict {
    /// How many entries it has.
    pub entries: u64,
    /// How many are as the messages say.
    pub right: u64,
    /// How many point nowhere.
    pub unused: u64,
    /// How many are not as the messages say.
    pub wrong: u64,
    /// The first of those, at most twenty.
    pub first_wrong: Vec<WrongEntry>,
    /// How many entries there are up to the last one that points somewhere.
    pub reach: u64,
    /// How many seconds the messages take.
    pub seconds: u64,
}

/// An entry that is not as the messages say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongEntry {
    /// Its number, from 0.
    pub entry: u64,
    /// The position it has.
    pub says: i64,
    /// The position it should have; nothing for a second after the last message.
    pub should: Option<u64>,
}

impl IndexVerdict {
    /// Judges an existing entry by the one that the messages make.
    fn add(&mut self, says: i64, should: Option<u64>) {
        let entry = self.entries;
        self.entries += 1;
        if says == UNUSED {
            self.unused += 1;
            return;
        }
        self.reach = self.entries;
        if should.is_some_and(|should| u64::try_from(says) == Ok(should)) {
            self.right += 1;
            return;
        }
        self.wrong += 1;
        if self.first_wrong.len() < MOST_TOLD {
            self.first_wrong.push(WrongEntry { entry, says, should });
        }
    }

    /// All there is to say of the index, a sentence each: the figures, the first wrong entries, and the
    /// seconds at the end that are not indexed.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.to_string()];
        sentences.extend(self.wrong_entries());
        let (seconds, reach) = (self.seconds, self.reach);
        if reach < seconds {
            let left = seconds - reach;
            sentences.push(format!(
                "{left} of the log's {seconds} seconds are not indexed, from second {reach} to the end"
            ));
        }
        sentences
    }
}

impl IndexVerdict {
    /// What is wrong, a sentence each: the figures and the first wrong entries. Nothing if every entry is right
    /// or unused.
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

impl fmt::Display for IndexVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, right, unused, wrong, .. } = self;
        write!(f, "index: {entries} entries, {right} right, {unused} unused, {wrong} wrong")
    }
}

impl fmt::Display for WrongEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, says, should } = self;
        write!(f, "entry {entry} says byte {says}, it should be ")?;
        match should {
            Some(should) => write!(f, "{should}"),
            None => write!(f, "unused"),
        }
    }
}

/// Judges the index of the file at `path` by its messages; nothing if the file's head does not say how
/// long its index is. Reads the headers of all messages, and goes through damage.
pub fn inspect(path: &Path, rules: &Rules) -> Result<Option<IndexVerdict>, Error> {
    Probe::open(path)?.look(|log| verdict(log, rules))
}

/// As [`inspect`], of a log that is open.
pub fn verdict(log: &mut dyn ReadAt, rules: &Rules) -> io::Result<Option<IndexVerdict>> {
    // Messages were there to be indexed before they were marked as deleted.
    let rules = &Rules { deleted: Deleted::Keep, ..rules.clone() };
    let Head::Sound { body, head } = scan::head(log, rules)? else { return Ok(None) };
    let entries = entries(log, u64::from(head.entries))?;
    let mut seconds = Seconds::new(entries.len() as u64);
    walk(log, body..u64::MAX, rules, |at, header| {
        seconds.feed(at, header.ms);
        true
    })?;
    let mut verdict = IndexVerdict { seconds: seconds.count(), ..IndexVerdict::default() };
    for (entry, says) in entries.into_iter().enumerate() {
        verdict.add(says, seconds.positions().get(entry).copied());
    }
    Ok(Some(verdict))
}

/// The entries that a file has; its head has been judged, so their number is bounded.
fn entries(log: &mut dyn ReadAt, count: u64) -> io::Result<Vec<i64>> {
    let mut bytes = vec![0; count as usize * ENTRY_LEN];
    let there = log.read_at(HEAD_LEN as u64, &mut bytes)?;
    bytes.truncate(there);
    let (entries, _) = bytes.as_chunks();
    Ok(entries.iter().map(|entry| i64::from_le_bytes(*entry)).collect())
}

/// Goes from message to message until `go_on` says no or `range` ends, and says where that was.
fn walk(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
    mut go_on: impl FnMut(u64, &Header) -> bool,
) -> io::Result<u64> {
    let mut at = range.start;
    while at < range.end {
        log.forget(at);
        match scan::judge(log, at, rules)? {
            Verdict::Message { header, end } => {
                if !go_on(at, &header) {
                    break;
                }
                at = end;
            }
            Verdict::Damage { end, .. } => at = end,
            Verdict::End => break,
        }
    }
    Ok(at)
}

/// The part of a file of `len` bytes that has every event of a time window, by its index.
///
/// `window` is in milliseconds of the file's clock. An entry says nothing of earlier times behind it, so
/// events may be missing at the end that are out of place by [`MARGIN`] or more; who asks leaves as
/// much. Nothing, if the index does not help, or if what it says is not true of the messages: 64 entries
/// and 64 places all over the file are looked at, and of each entry that is used all messages between it
/// and the place before.
pub fn narrowed(
    log: &mut dyn ReadAt,
    window: (Option<f64>, Option<f64>),
    len: u64,
    rules: &Rules,
) -> io::Result<Option<(u64, Option<u64>)>> {
    let Head::Sound { body, head } = scan::head(log, rules)? else { return Ok(None) };
    let Verdict::Message { header: first, .. } = scan::judge(log, body, rules)? else {
        return Ok(None);
    };
    let mut index = Index { log, rules, first: first.ms, body, count: u64::from(head.entries) };
    if !index.seems_right()? {
        return Ok(None);
    }
    let Some(places) = rising(index.log, body..len, rules)? else { return Ok(None) };
    let start = match window.0 {
        Some(ms) => index.first_at(ms, f64::floor)?.filter(|at| all_before(&places, *at, ms)),
        None => None,
    };
    let end = match window.1 {
        Some(ms) => index.first_at(ms, f64::ceil)?.filter(|at| none_behind(&places, *at, ms)),
        None => None,
    };
    Ok(Some((start.unwrap_or(0), end)))
}

/// A message that was met somewhere in the file: its position and its time.
type Met = (u64, f64);

/// Whether what was met before `at` is earlier than `ms`.
fn all_before(places: &[Met], at: u64, ms: f64) -> bool {
    places.iter().filter(|(place, _)| *place < at).all(|(_, time)| *time < ms)
}

/// Whether nothing that was met at `at` or behind it is earlier than `ms`.
fn none_behind(places: &[Met], at: u64, ms: f64) -> bool {
    places.iter().filter(|(place, _)| *place >= at).all(|(_, time)| *time >= ms)
}

/// Messages from places all over a range; nothing if their times do not rise, or if too many places
/// do not tell.
fn rising(log: &mut dyn ReadAt, range: Range<u64>, rules: &Rules) -> io::Result<Option<Vec<Met>>> {
    let (mut places, mut latest, mut silent) = (Vec::new(), f64::NEG_INFINITY, 0);
    for n in 0..SAMPLES {
        let from = range.start + range.end.saturating_sub(range.start) / SAMPLES * n;
        let to = range.end.min(from.saturating_add(REACH));
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
    Ok((silent <= MOST_SILENT).then_some(places))
}

/// The first believable message that begins in a range.
fn message_from(
    log: &mut dyn ReadAt,
    range: Range<u64>,
    rules: &Rules,
) -> io::Result<Option<(u64, Header)>> {
    let Some(at) = scan::find(log, range, rules)? else { return Ok(None) };
    Ok(header_at(log, at)?.map(|header| (at, header)))
}

fn header_at(log: &mut dyn ReadAt, at: u64) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_LEN];
    let there = log.read_at(at, &mut bytes)?;
    Ok(if there == bytes.len() { Header::parse(&bytes) } else { None })
}

/// An index whose entries are believed one by one.
struct Index<'l> {
    log: &'l mut dyn ReadAt,
    rules: &'l Rules,
    /// The time of the first message.
    first: f64,
    /// Where the first message begins.
    body: u64,
    count: u64,
}

impl Index<'_> {
    /// Where the entry for a time leads, if there is one that proves right.
    fn first_at(&mut self, ms: f64, round: impl Fn(f64) -> f64) -> io::Result<Option<u64>> {
        let entry = round((ms - self.first) / SECOND);
        let is_there = entry >= 1.0 && entry < self.count as f64;
        if is_there { self.proven(entry as u64) } else { Ok(None) }
    }

    /// The position of an entry, if it can be one.
    fn position(&mut self, entry: u64) -> io::Result<Option<u64>> {
        let mut bytes = [0; ENTRY_LEN];
        let at = HEAD_LEN as u64 + entry * ENTRY_LEN as u64;
        let there = self.log.read_at(at, &mut bytes)?;
        let position = u64::try_from(i64::from_le_bytes(bytes)).ok();
        Ok(position.filter(|position| there == bytes.len() && *position >= self.body))
    }

    /// The header at the position of an entry, if its time is of that second or later.
    fn header(&mut self, entry: u64, position: u64) -> io::Result<Option<Header>> {
        let header = header_at(self.log, position)?;
        let due = second(self.first, entry);
        Ok(header.filter(|h| h.marker == MARKER && self.rules.is_possible(h.size) && h.ms >= due))
    }

    /// Whether entries all over it point to messages of their seconds, in order; unused ones at its end
    /// do not count.
    fn seems_right(&mut self) -> io::Result<bool> {
        let (mut before, mut is_over, mut used) = (self.body, false, 0);
        for sample in 0..SAMPLES.min(self.count) {
            let entry = sample * self.count / SAMPLES.min(self.count);
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

    /// The position of an entry, if its message is of about its second, and all messages between the
    /// place before and it are earlier.
    fn proven(&mut self, entry: u64) -> io::Result<Option<u64>> {
        let Some(position) = self.position(entry)? else { return Ok(None) };
        let Some(before) = self.place_before(entry, position)? else { return Ok(None) };
        let due = second(self.first, entry);
        let is_timely = self.header(entry, position)?.is_some_and(|found| found.ms <= due + NEAR);
        let begins =
            before == self.body || scan::believable(self.log, before, self.rules)?.is_some();
        if !is_timely || !begins || position - before > MOST_WALKED {
            return Ok(None);
        }
        let mut all_earlier = true;
        let ended = walk(self.log, before..position, self.rules, |_, header| {
            all_earlier &= header.ms < due;
            all_earlier
        })?;
        Ok((all_earlier && ended == position).then_some(position))
    }

    /// Where the last entry leads that leads to a place before `position`, or else the first message;
    /// nothing if that is far.
    fn place_before(&mut self, entry: u64, position: u64) -> io::Result<Option<u64>> {
        for earlier in (0..entry).rev().take(MOST_SHARED) {
            match self.position(earlier)? {
                Some(place) if place < position => return Ok(Some(place)),
                Some(place) if place == position => {}
                _ => return Ok(None),
            }
        }
        let is_first = entry <= MOST_SHARED as u64 && position >= self.body;
        Ok(is_first.then_some(self.body))
    }
}

/// The nanoseconds of the first message of a file whose time 64 bits can hold; nothing if it has none.
pub(crate) fn first_time(log: &mut dyn ReadAt, rules: &Rules) -> io::Result<Option<i64>> {
    let from = match scan::head(log, rules)? {
        Head::Sound { body, .. } | Head::Marred { body, .. } => body,
        Head::Damaged { end, .. } => end,
        Head::Empty | Head::Refused { .. } => return Ok(None),
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

    /// A file with these entries and messages of these times.
    fn file(entries: &[i64], times: &[f64]) -> Vec<u8> {
        let mut file = FileHead::new(entries.len() as u32).write().to_vec();
        entries.iter().for_each(|entry| file.extend(entry.to_le_bytes()));
        for ms in times {
            append_message(&mut file, MARKER, (7, 1), *ms, b"x").unwrap();
        }
        file
    }

    fn judged(entries: &[i64], times: &[f64]) -> IndexVerdict {
        let file = file(entries, times);
        verdict(&mut &file[..], &Rules::default()).unwrap().unwrap()
    }

    #[test]
    fn a_second_without_messages_has_the_position_of_the_next_message() {
        let mut seconds = Seconds::new(100);
        for (position, ms) in
            [(100, 50.0), (200, 1049.9), (300, 1050.0), (400, 900.0), (500, 4050.0)]
        {
            seconds.feed(position, ms);
        }
        assert_eq!(seconds.positions(), [100, 300, 500, 500, 500]);
    }

    #[test]
    fn a_jump_in_time_fills_no_more_than_there_may_be() {
        let mut seconds = Seconds::new(10);
        for ms in [0.0, f64::NAN, 1e15, f64::INFINITY] {
            seconds.feed(5, ms);
        }
        assert_eq!((seconds.positions().len(), seconds.is_full()), (10, true));
    }

    #[test]
    fn entries_are_judged_one_by_one() {
        let at = |n: i64| 12 + 4 * 8 + n * 22;
        let times = [0.0, 500.0, 1000.0, 2500.0];
        let right = judged(&[at(0), at(2), at(3), -1], &times);
        assert_eq!(right.to_string(), "index: 4 entries, 3 right, 1 unused, 0 wrong");
        let wrong = judged(&[at(0), -1, at(2), at(3)], &times);
        let expected = WrongEntry { entry: 2, says: at(2), should: Some(at(3) as u64) };
        assert_eq!((wrong.right, wrong.unused, wrong.wrong), (1, 1, 2));
        assert_eq!(wrong.first_wrong[0], expected);
        let said = judged(&[at(0), at(2), at(3), 7], &times).sentences();
        assert_eq!(said[1..], ["entry 3 says byte 7, it should be unused"]);
    }

    #[test]
    fn only_the_first_of_many_wrong_entries_are_told_one_by_one() {
        let said = judged(&[7; 50], &[0.0, 49_000.0]).sentences();
        assert_eq!((said.len(), &said[21][..]), (22, "30 more entries are wrong"));
    }

    #[test]
    fn seconds_that_are_not_indexed_are_told() {
        for (entries, reach) in [(&[][..], 0), (&[-1; 4], 0), (&[12 + 3 * 8, -1, -1], 1)] {
            let said = judged(entries, &[0.0, 3_600_000.0]).sentences();
            let left = 3601 - reach;
            let expected = format!(
                "{left} of the log's 3601 seconds are not indexed, from second {reach} to the end"
            );
            assert_eq!(said.last(), Some(&expected));
        }
    }

    #[test]
    fn a_message_that_was_deleted_later_is_still_in_the_index() {
        let mut bytes = file(&[20, 42], &[0.0, 1000.0, 1000.0]);
        bytes[28 + 4] = 0x30;
        bytes[12..20].copy_from_slice(&28i64.to_le_bytes());
        bytes[20..28].copy_from_slice(&50i64.to_le_bytes());
        bytes[50 + 4] = 0x30;
        let verdict = verdict(&mut &bytes[..], &Rules::default()).unwrap().unwrap();
        assert_eq!((verdict.right, verdict.wrong), (2, 0));
    }

    #[test]
    fn an_index_ends_where_a_jump_would_make_it_longer_than_the_messages() {
        let mut seconds = Seconds::in_proportion(3, 10_000_000);
        [(0, 0.0), (69, 1e11), (138, 1e11 + 1.0), (207, 2e3)]
            .iter()
            .for_each(|(at, ms)| seconds.feed(*at, *ms));
        assert_eq!((seconds.positions(), seconds.is_full()), (&[0, 69, 69][..], true));
        let mut seconds = Seconds::in_proportion(0, 10_000_000);
        [(0, 0.0), (69, 1e7)].iter().for_each(|(at, ms)| seconds.feed(*at, *ms));
        assert_eq!((seconds.positions().len(), seconds.is_full()), (10_001, false));
    }

    /// A file with a right index.
    fn indexed(times: &[f64]) -> Vec<u8> {
        let mut seconds = Seconds::new(100_000);
        times.iter().enumerate().for_each(|(n, ms)| seconds.feed(n as u64 * 22, *ms));
        let body = 12 + seconds.positions().len() as u64 * 8;
        let entries: Vec<_> = seconds.positions().iter().map(|at| (body + at) as i64).collect();
        file(&entries, times)
    }

    /// The times that are left of a file with a right index, for a window that has its margins.
    fn left(times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
        left_of(&indexed(times), times, window)
    }

    fn left_of(file: &[u8], times: &[f64], window: (Option<f64>, Option<f64>)) -> Vec<f64> {
        let len = file.len() as u64;
        let found = narrowed(&mut &file[..], window, len, &Rules::default()).unwrap();
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
        // All entries but the first lead to the last message.
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
        fn an_index_that_was_made_is_right(times in proptest::collection::vec(0.0f64..20_000.0, 1..40)) {
            let body = 12 + 30 * 8;
            let mut seconds = Seconds::new(30);
            times.iter().enumerate().for_each(|(n, ms)| seconds.feed(body + n as u64 * 22, *ms));
            let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
            entries.resize(30, UNUSED);
            let verdict = judged(&entries, &times);
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
            let mut seconds = Seconds::new(20);
            times.iter().enumerate().for_each(|(n, ms)| seconds.feed(body + n as u64 * 22, *ms));
            let mut entries: Vec<i64> = seconds.positions().iter().map(|at| *at as i64).collect();
            entries.resize(20, UNUSED);
            let file = file(&entries, &times);
            let window = (Some(start), Some(start + len));
            let size = file.len() as u64;
            let found = narrowed(&mut &file[..], window, size, &Rules::default()).unwrap();
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
