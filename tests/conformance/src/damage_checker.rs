//! Checks the result of reading a damaged sample: which events may be missing or new, and what has
//! to be reported. Reads nothing itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::Path;

use sluice_io::escape::unescaped_path;
use sluice_kit::contract::PlainEvent;

use crate::Promise;
use crate::extents::EventExtents;
use crate::finding::Fault;
use crate::hostile::{ByteChange, ChangeKind};
use crate::reading::{DamageRange, ReadResult, shown};
use crate::skipped_lines::SkippedLines;
use crate::subject::Integrity;

/// The valid sample and its properties, against which damaged results are checked.
pub(crate) struct DamageChecker<'s> {
    pub(crate) valid: &'s ReadResult,
    pub(crate) integrity: Integrity,
    /// Where its events lie, if known and if they lie in the damaged file.
    pub(crate) extents: Option<&'s EventExtents>,
    /// Whether damage offsets are bytes of the file itself.
    pub(crate) is_plain: bool,
    /// Whether the sample is read from a single input.
    pub(crate) is_single: bool,
    /// Whether part of the file can be read without the rest.
    pub(crate) is_divisible: bool,
    /// The valid content of the file that is damaged.
    pub(crate) bytes: &'s [u8],
    /// The number of leading bytes that all events depend on.
    pub(crate) header: usize,
    /// The number of trailing bytes that describe what precedes them.
    pub(crate) footer: usize,
    keys: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
}

/// Whether events must keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventPlacement {
    Kept,
    Any,
}

/// The comparison of a damaged sample's events with those of the valid one.
#[derive(Debug, Default)]
struct EventMatch {
    /// Positions in the damaged sample that the valid one does not have.
    new: Vec<usize>,
    /// Positions in the valid sample that the damaged one does not have.
    missing: Vec<usize>,
    /// Positions in the damaged sample with displaced events.
    displaced: Vec<usize>,
}

impl EventMatch {
    /// Positions in the damaged sample with new or displaced events.
    fn others(&self) -> impl Iterator<Item = usize> {
        self.new.iter().chain(&self.displaced).copied()
    }

    /// The missing events, if they are consecutive.
    fn missing_run(&self) -> Option<Range<usize>> {
        let (first, last) = (*self.missing.first()?, *self.missing.last()?);
        (last - first + 1 == self.missing.len()).then_some(first..last + 1)
    }
}

impl<'s> DamageChecker<'s> {
    pub(crate) fn new(valid: &'s ReadResult, integrity: Integrity) -> Self {
        let mut checker = Self {
            valid,
            integrity,
            extents: None,
            is_plain: true,
            is_single: true,
            is_divisible: true,
            bytes: &[],
            header: 0,
            footer: 0,
            keys: HashMap::new(),
            hasher: RandomState::new(),
        };
        for (at, event) in valid.events.iter().enumerate() {
            let key = checker.key(event);
            checker.keys.entry(key).or_default().push(at);
        }
        checker
    }

    /// The key of an event, without sequence numbers (and in text formats without times), which may
    /// depend on what precedes it.
    fn key(&self, event: &PlainEvent) -> u64 {
        let timestamp = (self.integrity != Integrity::Nothing).then_some(event.timestamp);
        self.hasher.hash_one((timestamp, &event.source, &event.channel, &event.payload))
    }

    fn is_same(&self, a: &PlainEvent, b: &PlainEvent) -> bool {
        (self.integrity == Integrity::Nothing || a.timestamp == b.timestamp)
            && (&a.channel, &a.source, &a.payload) == (&b.channel, &b.source, &b.payload)
    }

    /// How many events of the valid sample this result starts with.
    pub(crate) fn prefix(&self, read: &ReadResult) -> usize {
        let pairs = read.events.iter().zip(&self.valid.events);
        pairs.take_while(|(now, then)| now == then).count()
    }

    /// What is wrong with the result for a truncated sample. Silent truncations are checked after
    /// all have been tested.
    pub(crate) fn cut_faults(&self, at: usize, read: &ReadResult) -> Vec<Fault> {
        if at < self.header {
            return Vec::new();
        }
        let prefix = self.prefix(read);
        let Some(next) = read.events.get(prefix) else { return Vec::new() };
        let is_last = prefix + 1 == read.events.len();
        if self.integrity == Integrity::Nothing && is_last && self.is_shortened(prefix, next) {
            return Vec::new();
        }
        let matched = self.matched(read, EventPlacement::Kept);
        let is_whole = matched.new.is_empty() && matched.displaced.is_empty();
        // If there are several inputs, the others are still complete.
        if is_whole && !self.is_single {
            return Vec::new();
        }
        let what = match is_whole {
            true => "later events are returned, and earlier ones are not",
            false => "an event is returned that the whole file does not have",
        };
        vec![Fault::new(Promise::Damage, what, format!("event {prefix} is {}", shown(next)))]
    }

    fn is_shortened(&self, at: usize, event: &PlainEvent) -> bool {
        self.valid.events.get(at).is_some_and(|whole| {
            whole.channel == event.channel && whole.payload.starts_with(&event.payload)
        })
    }

    /// What is wrong with the result for a changed sample. `is_removed` finds out whether the
    /// change removes all bytes of these events.
    pub(crate) fn change_faults(
        &self,
        change: &ByteChange,
        read: &ReadResult,
        is_removed: &dyn Fn(Range<usize>) -> bool,
    ) -> Vec<Fault> {
        if change.kind == ChangeKind::Foreign {
            return Vec::new();
        }
        // All-or-nothing formats may have changed the part that defines the order.
        let is_kept = change.kind != ChangeKind::Rearranged && self.extents.is_some();
        let order = if is_kept { EventPlacement::Kept } else { EventPlacement::Any };
        let matched = self.matched(read, order);
        let mut faults = Vec::new();
        faults.extend(self.invented(change, read, &matched));
        faults.extend(self.damage_in_valid_event(change, read));
        faults.extend(
            self.lost_in_front(change, read)
                .or_else(|| self.unreported_loss(change, read, &matched, is_removed)),
        );
        faults
    }

    /// Checks that a change loses no event before it.
    fn lost_in_front(&self, change: &ByteChange, read: &ReadResult) -> Option<Fault> {
        let is_in_footer = change.range.end + self.footer > self.bytes.len();
        let extents = self.extents.filter(|_| self.is_divisible && !is_in_footer)?;
        let in_front = extents.in_front(change.range.start);
        let pairs = read.events.iter().zip(&self.valid.events);
        let given = pairs.take(in_front).take_while(|(now, then)| self.is_same(now, then)).count();
        match &read.error {
            Some(error) if in_front > 0 => {
                let what = "damage ends the reading, though valid events precede it";
                Some(Fault::new(Promise::Damage, what, error))
            }
            None if given < in_front => {
                let detail = format!("{given} of {in_front} are given");
                let what = "valid events before damage are lost";
                Some(Fault::new(Promise::Damage, what, detail))
            }
            _ => None,
        }
    }

    /// Checks that no more events are new or displaced than the change affects.
    fn invented(
        &self,
        change: &ByteChange,
        read: &ReadResult,
        matched: &EventMatch,
    ) -> Option<Fault> {
        let allowed = match (self.integrity, self.extents) {
            (Integrity::Nothing, _) => return None,
            (Integrity::Checksummed, _) => 0,
            (Integrity::Framed, None) => return None,
            (Integrity::Framed, Some(extents)) => extents.touched(&change.range),
        };
        if matched.new.len() + matched.displaced.len() <= allowed {
            return None;
        }
        let (what, first) = match (self.integrity, matched.new.get(allowed)) {
            (Integrity::Checksummed, Some(first)) => {
                ("changed bytes are passed on as events", first)
            }
            (_, Some(first)) => ("more events are invented than the change affects", first),
            // An affected event may have become equal to another one.
            (_, None) => {
                ("valid events come in another order, or twice", matched.displaced.first()?)
            }
        };
        let event = read.events.get(*first).map(shown).unwrap_or_default();
        let (new, displaced) = (matched.new.len(), matched.displaced.len());
        let detail = format!(
            "{new} new and {displaced} out of place, {allowed} touched; event {first} is {event}"
        );
        Some(Fault::new(Promise::Damage, what, detail))
    }

    /// Checks that damage includes no part of an event that is returned unchanged. It may include
    /// whole ones: a format may name the unit, such as a chunk, that has a damaged part.
    fn damage_in_valid_event(&self, change: &ByteChange, read: &ReadResult) -> Option<Fault> {
        let extents = self.extents.filter(|extents| {
            self.is_plain && !extents.share_frames() && self.integrity != Integrity::Nothing
        })?;
        let places = self.unchanged_places(change, read, extents);
        let (range, end) = read.damage.iter().find_map(|range| {
            let damage = range.bytes();
            let is_unit =
                places.iter().any(|place| damage.start <= place.start && place.end <= damage.end);
            let ends = places.iter().map(|place| place.end);
            let end = ends.filter(|_| !is_unit).find(|end| damage.contains(&(end - 1)))?;
            Some((range, end))
        })?;
        let what = "damage is reported in a part of an event that is returned";
        let DamageRange { offset, length, .. } = range;
        let detail = format!("{length} bytes at byte {offset}; an event ends at byte {end}");
        Some(Fault::new(Promise::Damage, what, detail))
    }

    /// Where the events are in the changed file that lie before or behind the change, are returned,
    /// and whose ends are known.
    fn unchanged_places(
        &self,
        change: &ByteChange,
        read: &ReadResult,
        extents: &EventExtents,
    ) -> Vec<Range<u64>> {
        let (then, now) = (&self.valid.events[..], &read.events[..]);
        let (front, back) = self.common_ends(then, now);
        let place = |event: usize| {
            extents.exact_end(event).map(|end| extents.outer(event).start as u64..end as u64)
        };
        let (start, end) = (change.range.start as u64, change.range.end as u64);
        let in_front = (0..front).filter_map(place).filter(|place| place.end <= start);
        let behind = (then.len() - back..then.len()).filter_map(place);
        let moved = |at: u64| at - end + start + change.replacement.len() as u64;
        let behind = behind.filter(|place| place.start >= end);
        in_front.chain(behind.map(|place| moved(place.start)..moved(place.end))).collect()
    }

    /// How many events two lists have in common at their start, and how many others at their end.
    fn common_ends(&self, then: &[PlainEvent], now: &[PlainEvent]) -> (usize, usize) {
        let same = |(a, b): &(&PlainEvent, &PlainEvent)| self.is_same(a, b);
        let front = then.iter().zip(now).take_while(same).count();
        let rest = (then.len() - front).min(now.len() - front);
        let back = then.iter().rev().zip(now.iter().rev()).take(rest).take_while(same).count();
        (front, back)
    }

    /// Checks that missing events are accounted for, by reported damage or by new events.
    fn unreported_loss(
        &self,
        change: &ByteChange,
        read: &ReadResult,
        matched: &EventMatch,
        is_removed: &dyn Fn(Range<usize>) -> bool,
    ) -> Option<Fault> {
        if read.error.is_some() || matched.missing.is_empty() {
            return None;
        }
        let is_told = read.reports_anything() || matched.others().next().is_some();
        let missing = matched.missing.len();
        if !is_told {
            if self.may_be_joined(change, matched)
                || self.may_be_skipped(change, matched)
                || matched.missing_run().is_some_and(is_removed)
            {
                return None;
            }
            let what = format!("{missing} of {} events", self.valid.events.len());
            return Some(Fault::new(Promise::Damage, "events are lost silently", what));
        }
        let lost = self.lost_bytes(matched)?;
        let removed = change.range.len().saturating_sub(change.replacement.len());
        let reported: usize = read.damage.iter().map(|range| range.length as usize).sum();
        let overhead = self.most_overhead();
        let size = |event: &PlainEvent| event.payload.len() + event.channel.len() + overhead;
        let new: usize = matched.others().filter_map(|at| read.events.get(at)).map(size).sum();
        if reported + new + removed >= lost || !read.remarks.is_empty() {
            return None;
        }
        let detail = format!(
            "{missing} events with at least {lost} bytes are missing, and damage of {reported} \
             bytes is reported"
        );
        Some(Fault::new(Promise::Damage, "more is lost than is reported", detail))
    }

    /// Whether each missing event may be in a line that the change joined to another one: what
    /// results may be a valid line, and may equal the other one but for its time.
    fn may_be_joined(&self, change: &ByteChange, matched: &EventMatch) -> bool {
        let ends = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        let removed = ends(self.bytes.get(change.range.clone()).unwrap_or_default());
        let is_touched = |event: &usize| {
            self.extents.is_none_or(|extents| extents.is_touched(*event, &change.range))
        };
        self.integrity == Integrity::Nothing
            && matched.missing.len() <= removed.saturating_sub(ends(&change.replacement))
            && matched.missing.iter().all(is_touched)
    }

    /// Whether missing events may be in lines that are no events, such as comments.
    fn may_be_skipped(&self, change: &ByteChange, matched: &EventMatch) -> bool {
        let extents = self.extents.filter(|_| self.integrity == Integrity::Nothing);
        extents.is_some_and(|extents| {
            matched.missing.iter().all(|event| extents.is_touched(*event, &change.range))
                && SkippedLines::between(self.bytes, extents).may_come_from(self.bytes, change)
        })
    }

    /// The minimum bytes of the missing events, if known.
    fn lost_bytes(&self, matched: &EventMatch) -> Option<usize> {
        let extents = self.extents.filter(|extents| {
            self.is_plain && !extents.share_frames() && self.integrity != Integrity::Nothing
        })?;
        Some(matched.missing.iter().map(|at| extents.least(*at)).sum())
    }

    /// The maximum bytes of an event besides its payload.
    fn most_overhead(&self) -> usize {
        let Some(extents) = self.extents else { return 0 };
        let overhead = |(at, event): (usize, &PlainEvent)| {
            extents.outer(at).len().saturating_sub(event.payload.len())
        };
        self.valid.events.iter().enumerate().map(overhead).max().unwrap_or(0)
    }

    /// Matches events: common prefix and suffix first, the others wherever they are found.
    fn matched(&self, read: &ReadResult, order: EventPlacement) -> EventMatch {
        let (then, now) = (&self.valid.events[..], &read.events[..]);
        let (front, back) = self.common_ends(then, now);
        let mut found = vec![false; then.len()];
        let (mut matched, mut next, last) = (EventMatch::default(), front, then.len() - back);
        for (at, event) in now.iter().enumerate().take(now.len() - back).skip(front) {
            let places = self.keys.get(&self.key(event));
            let place = places.and_then(|places| {
                let is_free = |place: &&usize| (next..last).contains(*place) && !found[**place];
                places.iter().find(is_free).copied()
            });
            match place {
                Some(place) => {
                    found[place] = true;
                    next = if order == EventPlacement::Kept { place + 1 } else { next };
                }
                // A duplicated piece yields its events twice.
                None if places.is_some() && order == EventPlacement::Any => {}
                None if places.is_some() => {
                    matched.displaced.push(at);
                }
                None => matched.new.push(at),
            }
        }
        matched.missing = (front..last).filter(|at| !found[*at]).collect();
        matched
    }
}

/// What is wrong with the result for any input at all.
pub(crate) fn read_faults(read: &ReadResult, folder: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(what) = &read.endless {
        faults.push(Fault::new(
            Promise::Termination,
            "it returns more than its input can hold",
            what,
        ));
    }
    if let Some(error) = &read.error
        && !names_a_file(error, folder)
    {
        let what = "an error does not name its file";
        faults.push(Fault::new(Promise::Damage, what, error));
    }
    faults.extend(damage_range_fault(&read.damage));
    faults
}

fn names_a_file(error: &str, folder: &Path) -> bool {
    let root = folder.to_string_lossy();
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    error.contains(&*root) || names.any(|name| error.contains(&*name.to_string_lossy()))
}

/// Checks that damage lies within its file, and that no byte is reported twice.
fn damage_range_fault(damage: &[DamageRange]) -> Option<Fault> {
    for (n, range) in damage.iter().enumerate() {
        let path = unescaped_path(&range.input);
        let Ok(meta) = std::fs::metadata(&path) else {
            let what = "damage is reported for a file that does not exist; its input must be the \
                        path's `escaped_path`";
            return Some(Fault::new(Promise::Damage, what, &range.input));
        };
        let end = range.offset.checked_add(range.length);
        let is_packed = sluice_io::files::is_zstd(&path).unwrap_or(false);
        if !is_packed && end.is_none_or(|end| end > meta.len()) {
            let what = "damage is reported for bytes that the file does not have";
            let (DamageRange { offset, length, .. }, len) = (range, meta.len());
            let detail = format!("{length} bytes at byte {offset} of {len}");
            return Some(Fault::new(Promise::Damage, what, detail));
        }
        let overlaps = |other: &&DamageRange| {
            let end = end.unwrap_or(u64::MAX);
            other.input == range.input
                && other.offset < end
                && range.offset < other.offset.saturating_add(other.length)
        };
        if let Some(other) = damage.iter().skip(n + 1).take(64).find(overlaps) {
            let show = |range: &DamageRange| format!("{}+{}", range.offset, range.length);
            let what = "damage is reported twice for the same bytes";
            return Some(Fault::new(
                Promise::Damage,
                what,
                format!("{} and {}", show(range), show(other)),
            ));
        }
    }
    None
}
