//! The judgement on what a damaged sample gives: which events may be missing or new, and what has to be
//! told. Reads nothing itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::Path;

use sluice_core::contract::PlainEvent;

use crate::extents::Extents;
use crate::finding::Fault;
use crate::hostile::{Change, Sort};
use crate::reading::{Read, Told, shown};
use crate::{Integrity, Promise};

/// What is known of a sound sample.
pub(crate) struct Judge<'s> {
    pub(crate) sound: &'s Read,
    pub(crate) integrity: Integrity,
    /// Where its events lie, if that can be told and if the changed file is the one they lie in.
    pub(crate) extents: Option<&'s Extents>,
    /// Whether damage is counted in bytes of the file itself.
    pub(crate) is_plain: bool,
    /// Whether the sample is read from a single input.
    pub(crate) is_single: bool,
    /// Whether a part of the file can be given where the rest cannot.
    pub(crate) is_divisible: bool,
    /// The file that is changed, as it is when it is sound.
    pub(crate) bytes: &'s [u8],
    /// How many bytes at its front all events depend on.
    pub(crate) header: usize,
    /// How many bytes at its back say what lies in front of them.
    pub(crate) footer: usize,
    keys: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
}

/// Whether events are found in their places only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Kept,
    Any,
}

/// How the events of a damaged sample compare with those of the sound one.
#[derive(Debug, Default)]
struct Match {
    /// Positions in the damaged one that the sound one does not have.
    new: Vec<usize>,
    /// Positions in the sound one that the damaged one does not have.
    missing: Vec<usize>,
    /// Positions in the damaged one whose events are not in their places.
    displaced: Vec<usize>,
}

impl Match {
    /// Positions in the damaged one of what was not there before.
    fn others(&self) -> impl Iterator<Item = usize> {
        self.new.iter().chain(&self.displaced).copied()
    }
}

impl<'s> Judge<'s> {
    pub(crate) fn new(sound: &'s Read, integrity: Integrity) -> Self {
        let mut judge = Self {
            sound,
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
        for (at, event) in sound.events.iter().enumerate() {
            let key = judge.key(event);
            judge.keys.entry(key).or_default().push(at);
        }
        judge
    }

    /// What an event is known by. Numbers, and in text also times, may count what stands before it.
    fn key(&self, event: &PlainEvent) -> u64 {
        let timestamp = (self.integrity != Integrity::Nothing).then_some(event.timestamp);
        self.hasher.hash_one((timestamp, &event.source, &event.channel, &event.payload))
    }

    fn is_same(&self, a: &PlainEvent, b: &PlainEvent) -> bool {
        (self.integrity == Integrity::Nothing || a.timestamp == b.timestamp)
            && (&a.channel, &a.source, &a.payload) == (&b.channel, &b.source, &b.payload)
    }

    /// How many events of the sound sample this begins with.
    pub(crate) fn prefix(&self, read: &Read) -> usize {
        let pairs = read.events.iter().zip(&self.sound.events);
        pairs.take_while(|(now, then)| now == then).count()
    }

    /// What is wrong with what a sample that was cut off gives. That a cut is not told is judged when all
    /// have been tried.
    pub(crate) fn cut(&self, at: usize, read: &Read) -> Vec<Fault> {
        if at < self.header {
            return Vec::new();
        }
        let prefix = self.prefix(read);
        let Some(next) = read.events.get(prefix) else { return Vec::new() };
        let is_last = prefix + 1 == read.events.len();
        if self.integrity == Integrity::Nothing && is_last && self.is_shortened(prefix, next) {
            return Vec::new();
        }
        let matched = self.matched(read, Order::Kept);
        let is_whole = matched.new.is_empty() && matched.displaced.is_empty();
        // Of several inputs, the others are still whole.
        if is_whole && !self.is_single {
            return Vec::new();
        }
        let what = match is_whole {
            true => "events that lie behind others are given, and those are not",
            false => "an event is given that the whole file does not have",
        };
        vec![Fault::new(Promise::Damage, what, format!("event {prefix} is {}", shown(next)))]
    }

    fn is_shortened(&self, at: usize, event: &PlainEvent) -> bool {
        self.sound.events.get(at).is_some_and(|whole| {
            whole.channel == event.channel && whole.payload.starts_with(&event.payload)
        })
    }

    /// What is wrong with what a changed sample gives.
    pub(crate) fn changed(&self, change: &Change, read: &Read) -> Vec<Fault> {
        if change.sort == Sort::Foreign {
            return Vec::new();
        }
        // Where it is all or nothing, what is changed may be what says the order.
        let is_kept = change.sort != Sort::Rearranged && self.extents.is_some();
        let order = if is_kept { Order::Kept } else { Order::Any };
        let matched = self.matched(read, order);
        let mut faults = Vec::new();
        faults.extend(self.invented(change, read, &matched));
        faults.extend(self.given_up(change, read).or_else(|| self.unsaid(change, read, &matched)));
        faults
    }

    /// Whether a change costs events that lie in front of it.
    fn given_up(&self, change: &Change, read: &Read) -> Option<Fault> {
        let is_in_footer = change.range.end + self.footer > self.bytes.len();
        let extents = self.extents.filter(|_| self.is_divisible && !is_in_footer)?;
        let in_front = extents.in_front(change.range.start);
        let pairs = read.events.iter().zip(&self.sound.events);
        let given = pairs.take(in_front).take_while(|(now, then)| self.is_same(now, then)).count();
        match &read.error {
            Some(error) if in_front > 0 => {
                let what = "damage ends the reading, though there are sound events in front of it";
                Some(Fault::new(Promise::Damage, what, error))
            }
            None if given < in_front => {
                let detail = format!("{given} of {in_front} are given");
                let what = "sound events in front of damage are lost";
                Some(Fault::new(Promise::Damage, what, detail))
            }
            _ => None,
        }
    }

    /// Events that were not there before, or not there: no more than were touched.
    fn invented(&self, change: &Change, read: &Read, matched: &Match) -> Option<Fault> {
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
            (_, Some(first)) => ("more events are invented than were touched", first),
            // A touched event may have become like another one.
            (_, None) => {
                ("sound events come in another order, or twice", matched.displaced.first()?)
            }
        };
        let event = read.events.get(*first).map(shown).unwrap_or_default();
        let (new, displaced) = (matched.new.len(), matched.displaced.len());
        let detail = format!(
            "{new} new and {displaced} out of place, {allowed} touched; event {first} is {event}"
        );
        Some(Fault::new(Promise::Damage, what, detail))
    }

    /// Events that are missing: what they took has to be told as damage, or to be in an event that was
    /// not there before.
    fn unsaid(&self, change: &Change, read: &Read, matched: &Match) -> Option<Fault> {
        if read.error.is_some() || matched.missing.is_empty() {
            return None;
        }
        if change.sort == Sort::Deleted && self.takes_whole_events(&change.range) {
            return None;
        }
        let is_told = read.tells() || matched.others().next().is_some();
        let missing = matched.missing.len();
        if !is_told {
            let what = format!("{missing} of {} events", self.sound.events.len());
            return Some(Fault::new(Promise::Damage, "events are lost in silence", what));
        }
        let lost = self.lost_bytes(matched)?;
        let removed = change.range.len().saturating_sub(change.put.len());
        let told: usize = read.damage.iter().map(|told| told.length as usize).sum();
        let overhead = self.most_overhead();
        let size = |event: &PlainEvent| event.payload.len() + event.channel.len() + overhead;
        let new: usize = matched.others().filter_map(|at| read.events.get(at)).map(size).sum();
        if told + new + removed >= lost || !read.says.is_empty() {
            return None;
        }
        let detail = format!(
            "{missing} events with at least {lost} bytes are missing, and damage of {told} bytes is told"
        );
        Some(Fault::new(Promise::Damage, "more is lost than is told", detail))
    }

    /// Whether taking out these bytes leaves the same file as taking out whole events. Where neighbours are
    /// alike, it need not begin where an event does.
    fn takes_whole_events(&self, range: &Range<usize>) -> bool {
        let Some(extents) = self.extents else { return false };
        let (bytes, gap) = (self.bytes, range.len());
        let is_same =
            |at: usize| bytes.get(at).is_some_and(|byte| bytes.get(at + gap) == Some(byte));
        let front = (0..range.start).rev().take_while(|at| is_same(*at));
        let back = (range.start..).take_while(|at| is_same(*at)).map(|at| at + 1);
        let mut starts = std::iter::once(range.start).chain(front).chain(back);
        starts.any(|start| extents.is_near_end(start) && extents.is_near_end(start + gap))
    }

    /// How many bytes of the file the missing events take at least, where that can be told.
    fn lost_bytes(&self, matched: &Match) -> Option<usize> {
        let extents = self.extents.filter(|extents| {
            self.is_plain && !extents.are_framed_together() && self.integrity != Integrity::Nothing
        })?;
        Some(matched.missing.iter().map(|at| extents.least(*at)).sum())
    }

    /// How many bytes of the file an event may take beside its payload.
    fn most_overhead(&self) -> usize {
        let Some(extents) = self.extents else { return 0 };
        let overhead = |(at, event): (usize, &PlainEvent)| {
            extents.outer(at).len().saturating_sub(event.payload.len())
        };
        self.sound.events.iter().enumerate().map(overhead).max().unwrap_or(0)
    }

    /// Which events are still there: those at the front and at the back for certain, others where they
    /// are found.
    fn matched(&self, read: &Read, order: Order) -> Match {
        let (then, now) = (&self.sound.events[..], &read.events[..]);
        let same = |(a, b): &(&PlainEvent, &PlainEvent)| self.is_same(a, b);
        let front = then.iter().zip(now).take_while(same).count();
        let rest = (then.len() - front).min(now.len() - front);
        let back = then.iter().rev().zip(now.iter().rev()).take(rest).take_while(same).count();
        let mut found = vec![false; then.len()];
        let (mut matched, mut next, last) = (Match::default(), front, then.len() - back);
        for (at, event) in now.iter().enumerate().take(now.len() - back).skip(front) {
            let places = self.keys.get(&self.key(event));
            let place = places.and_then(|places| {
                let is_free = |place: &&usize| (next..last).contains(*place) && !found[**place];
                places.iter().find(is_free).copied()
            });
            match place {
                Some(place) => {
                    found[place] = true;
                    next = if order == Order::Kept { place + 1 } else { next };
                }
                // What stands twice is given twice.
                None if places.is_some() && order == Order::Any => {}
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

/// What is wrong with a reading of any input whatever.
pub(crate) fn plausible(read: &Read, folder: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(what) = &read.endless {
        faults.push(Fault::new(Promise::Termination, "it gives more than there can be", what));
    }
    if let Some(error) = &read.error
        && !names_a_file(error, folder)
    {
        let what = "an error does not name the file it is about";
        faults.push(Fault::new(Promise::Damage, what, error));
    }
    faults.extend(ranges(&read.damage));
    faults
}

fn names_a_file(error: &str, folder: &Path) -> bool {
    let root = folder.to_string_lossy();
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    error.contains(&*root) || names.any(|name| error.contains(&*name.to_string_lossy()))
}

/// Damage lies within its file, and no byte of it is told twice.
fn ranges(damage: &[Told]) -> Option<Fault> {
    for (n, told) in damage.iter().enumerate() {
        let Ok(meta) = std::fs::metadata(&told.input) else {
            let what = "damage is told of a file that is not there";
            return Some(Fault::new(Promise::Damage, what, &told.input));
        };
        let end = told.offset.checked_add(told.length);
        let is_packed = sluice_core::files::is_zstd(Path::new(&told.input)).unwrap_or(false);
        if !is_packed && end.is_none_or(|end| end > meta.len()) {
            let what = "damage is told of bytes that the file does not have";
            let (Told { offset, length, .. }, len) = (told, meta.len());
            let detail = format!("{length} bytes at byte {offset} of {len}");
            return Some(Fault::new(Promise::Damage, what, detail));
        }
        let overlaps = |other: &&Told| {
            let end = end.unwrap_or(u64::MAX);
            other.input == told.input
                && other.offset < end
                && told.offset < other.offset.saturating_add(other.length)
        };
        if let Some(other) = damage.iter().skip(n + 1).take(64).find(overlaps) {
            let range = |told: &Told| format!("{}+{}", told.offset, told.length);
            let what = "damage is told twice of the same bytes";
            return Some(Fault::new(
                Promise::Damage,
                what,
                format!("{} and {}", range(told), range(other)),
            ));
        }
    }
    None
}
