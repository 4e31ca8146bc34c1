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
use crate::scan::{self, Head, Rules, Verdict};
use crate::time::to_nanos;
use crate::wire::{ENTRY_LEN, HEAD_LEN, HEADER_LEN, Header, MARKER, UNUSED};

/// Milliseconds an entry stands for.
const SECOND: f64 = 1_000.0;
/// How far an index is walked for proof of one entry.
const MOST_WALKED: u64 = 64 << 20;
/// Entries that are looked at before an index is trusted.
const SAMPLES: u64 = 64;

/// Gathers the entries of an index while messages go by.
#[derive(Clone, Debug)]
pub struct Seconds {
    first: Option<f64>,
    positions: Vec<u64>,
    most: u64,
    is_full: bool,
}

impl Seconds {
    /// For an index of at most so many entries.
    pub fn new(most: u64) -> Self {
        Self { first: None, positions: Vec::new(), most, is_full: false }
    }

    /// Takes the next message in the order of the file. A time that is no number belongs to no second.
    pub fn feed(&mut self, position: u64, ms: f64) {
        if !ms.is_finite() {
            return;
        }
        let first = *self.first.get_or_insert(ms);
        while ms >= second(first, self.positions.len() as u64) {
            if self.positions.len() as u64 >= self.most {
                self.is_full = true;
                return;
            }
            self.positions.push(position);
        }
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

/// When second `entry` begins.
fn second(first: f64, entry: u64) -> f64 {
    first + entry as f64 * SECOND
}

/// What an index is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexVerdict {
    /// How many entries it has.
    pub entries: u64,
    /// How many are as the messages say.
    pub right: u64,
    /// How many point nowhere.
    pub unused: u64,
    /// How many are not as the messages say.
    pub wrong: u64,
    /// The first of those.
    pub first_wrong: Option<WrongEntry>,
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
        } else if should.is_some_and(|should| u64::try_from(says) == Ok(should)) {
            self.right += 1;
        } else {
            self.wrong += 1;
            self.first_wrong.get_or_insert(WrongEntry { entry, says, should });
        }
    }
}

impl fmt::Display for IndexVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, right, unused, wrong, first_wrong } = self;
        write!(f, "index: {entries} entries, {right} right, {unused} unused, {wrong} wrong")?;
        let Some(WrongEntry { entry, says, should }) = first_wrong else { return Ok(()) };
        write!(f, " (first: entry {entry} says byte {says}, it should be ")?;
        match should {
            Some(should) => write!(f, "{should})"),
            None => write!(f, "unused)"),
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
    let Head::Sound { body, head: Some(head) } = scan::head(log, rules)? else { return Ok(None) };
    let entries = entries(log, u64::from(head.entries))?;
    let mut seconds = Seconds::new(entries.len() as u64);
    walk(log, body..u64::MAX, rules, |at, header| {
        seconds.feed(at, header.ms);
        !seconds.is_full()
    })?;
    let mut verdict = IndexVerdict::default();
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

/// The part of a file that has every event of a time window, by its index.
///
/// `window` is in milliseconds of the file's clock. Nothing, if the index does not help, or if what it
/// says is not true of the messages: of each entry that is used, all messages between it and the entry
/// before are looked at, and 64 others are looked at by themselves.
pub fn narrowed(
    log: &mut dyn ReadAt,
    window: (Option<f64>, Option<f64>),
    rules: &Rules,
) -> io::Result<Option<(u64, Option<u64>)>> {
    let Head::Sound { body, head: Some(head) } = scan::head(log, rules)? else { return Ok(None) };
    let Verdict::Message { header: first, .. } = scan::judge(log, body, rules)? else {
        return Ok(None);
    };
    let mut index = Index { log, rules, first: first.ms, body, count: u64::from(head.entries) };
    if !index.seems_right()? {
        return Ok(None);
    }
    let (start, end) = window;
    let start = match start.and_then(|ms| index.second_of(ms, f64::floor)) {
        Some(entry) => index.proven(entry)?,
        None => None,
    };
    let end = match end.and_then(|ms| index.second_of(ms, f64::ceil)) {
        Some(entry) => index.proven(entry)?,
        None => None,
    };
    Ok(Some((start.unwrap_or(0), end)))
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
    /// The entry for a time; nothing before the first and after the last.
    fn second_of(&self, ms: f64, round: impl Fn(f64) -> f64) -> Option<u64> {
        let entry = round((ms - self.first) / SECOND);
        (entry >= 1.0 && entry < self.count as f64).then_some(entry as u64)
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
        let mut bytes = [0; HEADER_LEN];
        let there = self.log.read_at(position, &mut bytes)?;
        let header = if there == bytes.len() { Header::parse(&bytes) } else { None };
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

    /// The position of an entry, if all messages between the entry before and it are earlier than its
    /// second, and it is not.
    fn proven(&mut self, entry: u64) -> io::Result<Option<u64>> {
        let (Some(before), Some(position)) =
            (self.position(entry.saturating_sub(1))?, self.position(entry)?)
        else {
            return Ok(None);
        };
        let is_near = position.checked_sub(before).is_some_and(|len| len <= MOST_WALKED);
        let begins = scan::believable(self.log, before, self.rules)?.is_some();
        if !is_near || !begins || self.header(entry, position)?.is_none() {
            return Ok(None);
        }
        let (due, mut all_earlier) = (second(self.first, entry), true);
        let ended = walk(self.log, before..position, self.rules, |_, header| {
            all_earlier &= header.ms < due;
            all_earlier
        })?;
        Ok((all_earlier && ended == position).then_some(position))
    }
}

/// The nanoseconds of the first message of a file; nothing if it has none.
pub(crate) fn first_time(log: &mut dyn ReadAt, rules: &Rules) -> io::Result<Option<i64>> {
    let from = match scan::head(log, rules)? {
        Head::Sound { body, .. } | Head::Marred { body, .. } => body,
        Head::Damaged { end, .. } => end,
        Head::Refused { .. } => return Ok(None),
    };
    let mut first = None;
    walk(log, from..u64::MAX, rules, |_, header| {
        first = to_nanos(header.ms);
        false
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
        assert_eq!(wrong.first_wrong, Some(expected));
        let text = judged(&[at(0), at(2), at(3), 7], &times).to_string();
        assert!(
            text.ends_with("1 wrong (first: entry 3 says byte 7, it should be unused)"),
            "{text}"
        );
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
            let found = narrowed(&mut &file[..], window, &Rules::default()).unwrap();
            let (from, to) = found.unwrap_or((0, None));
            for (n, ms) in times.iter().enumerate() {
                let at = body + n as u64 * 22;
                if (start..start + len).contains(ms) {
                    prop_assert!(at >= from && to.is_none_or(|to| at < to), "{} at {}", ms, at);
                }
            }
        }
    }
}
