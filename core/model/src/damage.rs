//! Damage: ranges of an input that could not be read, with the reason. Collected while reading
//! continues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::ChannelId;

/// A range of an input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The input, as the user named it: its [`escaped_path`](sluice_io::escape::escaped_path).
    pub input: Arc<str>,
    /// The byte offset of its start.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// Whether offset and length count the bytes of a compressed file, not of what it holds.
    pub counts_compressed: bool,
    /// The channel, if the range is one event whose header could be read.
    pub channel: Option<ChannelId>,
    /// The bytes, if the input cannot be read again and the run keeps damaged bytes.
    pub bytes: Vec<Bytes>,
}

impl Damage {
    /// A damaged range whose channel is unknown.
    pub fn new(input: &Arc<str>, offset: u64, length: u64, reason: impl Into<String>) -> Self {
        Self {
            input: Arc::clone(input),
            offset,
            length,
            reason: reason.into(),
            counts_compressed: false,
            channel: None,
            bytes: Vec::new(),
        }
    }

    /// Whether both are the same but for their places, and neither has a channel or bytes.
    fn is_plain_like(&self, other: &Self) -> bool {
        let is_plain = |damage: &Self| damage.channel.is_none() && damage.bytes.is_empty();
        is_plain(self)
            && is_plain(other)
            && self.counts_compressed == other.counts_compressed
            && self.input == other.input
            && self.reason == other.reason
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { input, offset, length, reason, .. } = self;
        write!(f, "{input}: {length} bytes at byte {offset} could not be read: {reason}")
    }
}

/// Collects the damage that readers skip. Shared by the threads that read one split.
#[derive(Debug, Default)]
pub struct DamageLog {
    damage: Mutex<DamageList>,
    keeps_bytes: bool,
}

impl DamageLog {
    /// A log that asks for the damaged bytes of inputs that cannot be read twice.
    pub fn keeping_bytes() -> Self {
        Self { keeps_bytes: true, ..Self::default() }
    }

    /// An empty log of the same kind.
    pub fn new_log(&self) -> Self {
        Self { keeps_bytes: self.keeps_bytes, ..Self::default() }
    }

    /// Whether to report the damaged bytes of inputs that cannot be read twice.
    pub fn keeps_bytes(&self) -> bool {
        self.keeps_bytes
    }

    /// Adds one damaged range.
    pub fn report(&self, damage: Damage) {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).push(damage);
    }

    /// The damage reported since the last call, in order.
    pub fn take(&self) -> Vec<Damage> {
        self.take_list().into_iter().collect()
    }

    /// Like [`take`](Self::take), in little memory.
    pub fn take_list(&self) -> DamageList {
        std::mem::take(&mut *self.damage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether so much damage is reported that it should be taken before more is.
    pub fn is_full(&self) -> bool {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).len >= MAX_PENDING
    }
}

/// The number of ranges from which on a log is full.
const MAX_PENDING: usize = 1 << 16;

/// Damaged ranges in order. A range that is adjacent to the one before, and has the same reason,
/// takes four bytes: garbage has millions of them.
#[derive(Clone, Debug, Default)]
pub struct DamageList {
    runs: Vec<DamageRun>,
    len: usize,
}

/// Adjacent ranges with the same reason.
#[derive(Clone, Debug)]
struct DamageRun {
    first: Damage,
    /// The lengths of the others.
    lengths: Vec<u32>,
    end: u64,
}

impl DamageList {
    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a range.
    pub fn push(&mut self, damage: Damage) {
        self.len += 1;
        let end = damage.offset.saturating_add(damage.length);
        if let (Some(run), Ok(length)) = (self.runs.last_mut(), u32::try_from(damage.length))
            && run.end == damage.offset
            && run.first.is_plain_like(&damage)
        {
            run.lengths.push(length);
            run.end = end;
            return;
        }
        self.runs.push(DamageRun { first: damage, lengths: Vec::new(), end });
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Damage> + '_ {
        self.runs.iter().cloned().flat_map(DamageRun::ranges)
    }

    /// The channels of ranges that have one.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.runs.iter().filter_map(|run| run.first.channel)
    }
}

impl IntoIterator for DamageList {
    type Item = Damage;
    type IntoIter = Box<dyn Iterator<Item = Damage>>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.runs.into_iter().flat_map(DamageRun::ranges))
    }
}

impl DamageRun {
    fn ranges(self) -> impl Iterator<Item = Damage> {
        let Self { first, lengths, .. } = self;
        let mut offset = first.offset.saturating_add(first.length);
        let (input, reason) = (Arc::clone(&first.input), first.reason.clone());
        let counts_compressed = first.counts_compressed;
        let others = lengths.into_iter().map(move |length| {
            let range = Damage {
                counts_compressed,
                ..Damage::new(&input, offset, length.into(), reason.clone())
            };
            offset += u64::from(length);
            range
        });
        std::iter::once(first).chain(others)
    }
}

/// The damage that a run has found so far, in reading order. Shared with its sinks, for which it is
/// complete when they finish.
#[derive(Debug, Default)]
pub struct RunDamage(Mutex<FoundDamage>);

#[derive(Debug, Default)]
struct FoundDamage {
    ranges: Vec<Arc<Damage>>,
    totals: BTreeMap<Arc<str>, DamageTotals>,
}

/// How much of an input is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageTotals {
    /// The number of ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl RunDamage {
    /// The most ranges that are kept; a log of garbage has any number of them.
    pub const MAX_RANGES: usize = 100_000;

    /// Adds a range.
    pub fn add(&self, damage: &Arc<Damage>) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = found.totals.entry(Arc::clone(&damage.input)).or_default();
        totals.ranges += 1;
        totals.bytes = totals.bytes.saturating_add(damage.length);
        if found.ranges.len() < Self::MAX_RANGES {
            found.ranges.push(Arc::clone(damage));
        }
    }

    /// The ranges of an input that are kept, in reading order, and how much of it is damaged.
    pub fn of_input(&self, input: &str) -> (Vec<Arc<Damage>>, DamageTotals) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges = found.ranges.iter().filter(|damage| *damage.input == *input);
        (ranges.cloned().collect(), found.totals.get(input).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_the_ranges_that_were_added() {
        let (one, other): (Arc<str>, Arc<str>) = ("a.log".into(), "b.log".into());
        let with_channel =
            Damage { channel: Some(ChannelId(3)), ..Damage::new(&one, 12, 1, "short") };
        let ranges = [
            Damage::new(&one, 0, 2, "short"),
            Damage::new(&one, 2, 3, "short"),
            Damage::new(&one, 5, 0, "short"),
            Damage::new(&one, 5, 1 << 40, "short"),
            Damage::new(&one, 8, 2, "short"),
            Damage::new(&one, 10, 2, "long"),
            with_channel.clone(),
            Damage { offset: 13, ..with_channel },
            Damage::new(&other, 14, 1, "long"),
            Damage { bytes: vec![Bytes::from_static(b"x")], ..Damage::new(&other, 15, 1, "long") },
            Damage::new(&other, 16, 1, "long"),
            Damage::new(&other, 17, 1, "long"),
            Damage { counts_compressed: true, ..Damage::new(&other, 18, 1, "long") },
            Damage { counts_compressed: true, ..Damage::new(&other, 19, 1, "long") },
        ];
        let mut list = DamageList::default();
        assert!(list.is_empty());
        ranges.iter().cloned().for_each(|range| list.push(range));
        assert_eq!(list.len(), ranges.len());
        assert!(list.runs.len() < ranges.len());
        assert_eq!(list.channels().count(), 2);
        assert_eq!(list.iter().collect::<Vec<_>>(), ranges);
        assert_eq!(list.into_iter().collect::<Vec<_>>(), ranges);
    }
}
