//! The records of a subfile, indexed by scanning it once. Does not know the master, and of the
//! contents of records only whether the first is an object of a class.
//!
//! A subfile of objects is `[id] [length] [bytes]` repeated, without a header. The length is as
//! wide as the recording machine's words, and some loggers wrote no id, so the prefix is detected
//! from the file: it is the one behind which the first object names its class, or else the one that
//! leads exactly to the end of the file. If none does because of damage, the ones that do so behind
//! the damage are preferred, unless they are in a record that is cut off. Among several it is the
//! one that finds the most records whose last byte is 0, as that of every object is, then the one
//! with the smallest length of a record that is cut off, and the first in [`RecordPrefix::ALL`]
//! among equals. A length of 0 is no record, except between whole objects: four zeros follow a
//! length that is four bytes too short, as objects of classes end with five. A subfile of text
//! consists of lines.

#![warn(clippy::indexing_slicing)]

use std::cmp::Reverse;
use std::ops::Range;

use sluice_model::Error;

mod framing;
mod tail;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use framing::{ByteOrder, RecordFraming, RecordPrefix};
pub(crate) use walk::{ALIGNMENT, LONGEST_RECORD};

use crate::object::{CLASS_NAME_END, class_name};
use framing::LONGEST_PREFIX;
use tail::{TAIL_LEN, leading_bytes};
use walk::{ReadAtFn, ReadWindow, WalkStep};

/// The positions of the records of a subfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordIndex {
    /// How records are delimited.
    pub(crate) framing: RecordFraming,
    /// The number of records.
    pub(crate) records: u64,
    /// The offset of every record, or of every second, fourth, and so on.
    offsets: Vec<u64>,
    /// The number of records per offset, as a power of 2.
    shift: u32,
    /// The end of the last record.
    pub(crate) end: u64,
    /// The length of the rest of the file if that is not a record, and why.
    pub(crate) damage: Option<(u64, String)>,
    /// Whether the length of the only whole record may have four bytes or eight.
    pub(crate) has_ambiguous_length: bool,
}

/// What speaks for a framing, the most significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FramingScore {
    /// Whether it leads to the end of the file, or finds nothing but [`MANY_CLOSED`] records before
    /// damage.
    is_sound: bool,
    /// The number of records whose last byte is 0.
    closed: u64,
    /// The length of the record that is cut off.
    next: Reverse<u64>,
}

impl FramingScore {
    /// Whether several records up to `end` show that the file is cut off in the next one, which is
    /// not longer than they are together. What leads to the end of the file from `leading` on is
    /// then in that record: small numbers do so by chance.
    fn is_cut_off(&self, end: u64, leading: u64) -> bool {
        self.closed > 1 && self.next.0 <= end && end <= leading
    }
}

/// As many records whose last byte is 0 show a framing, even if it does not lead to the end of the
/// file.
const MANY_CLOSED: u64 = 16;

/// What is known about the framing before a subfile is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramingHints {
    /// The prefix, if it need not be detected.
    pub(crate) prefix: Option<RecordPrefix>,
    /// The byte order of lengths.
    pub(crate) byte_order: ByteOrder,
    /// Whether records may be empty.
    pub(crate) may_be_empty: bool,
    /// Whether the first record may lack the id that the others have.
    pub(crate) first_may_lack_id: bool,
}

impl RecordIndex {
    /// Scans a subfile of length-prefixed records, several times if the prefix is unknown.
    ///
    /// Keeps at most `max_offsets` offsets, for any number of records.
    pub(crate) fn build_framed(
        hints: FramingHints,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Self, Error> {
        let count = if hints.first_may_lack_id { 6 } else { 4 };
        let mut start = vec![0; LONGEST_PREFIX + CLASS_NAME_END];
        let start_len = read(0, &mut start)?;
        start.truncate(start_len);
        let first = |prefix: RecordPrefix| start.get(prefix.len(0)..).unwrap_or_default();
        let mut prefixes = match hints.prefix {
            Some(prefix) => vec![prefix],
            None => RecordPrefix::ALL.into_iter().take(count).collect(),
        };
        let is_before_class = |prefix: &RecordPrefix| class_name(first(*prefix)).is_some();
        if prefixes.iter().any(is_before_class) {
            prefixes.retain(is_before_class);
        }
        let mut found = Self::walk_all(&prefixes, hints, len, &mut *read, max_offsets)?;
        if !found.0.is_sound && prefixes.len() > 1 {
            let mut tail = vec![0; len.min(TAIL_LEN) as usize];
            let tail_len = read(len.saturating_sub(TAIL_LEN), &mut tail)?;
            tail.truncate(tail_len);
            let leading = |prefix: RecordPrefix| leading_bytes(prefix, hints.byte_order, &tail);
            let leads = prefixes.iter().filter_map(|prefix| Some((*prefix, leading(*prefix)?)));
            let (leads, lengths): (Vec<_>, Vec<_>) = leads.unzip();
            let longest = lengths.into_iter().max();
            if longest.is_some_and(|longest| !found.0.is_cut_off(found.2.end, len - longest)) {
                prefixes = leads;
                found = Self::walk_all(&prefixes, hints, len, &mut *read, max_offsets)?;
            }
        }
        let (_, prefix, mut best) = found;
        let [narrow, wide] = [false, true].map(|wide| RecordPrefix { wide, ..prefix });
        best.has_ambiguous_length = best.records == 1
            && prefixes.contains(&narrow)
            && prefixes.contains(&wide)
            && first(narrow).starts_with(&[0; 4]);
        Ok(best)
    }

    /// The index for the best of these prefixes, and what speaks for it.
    fn walk_all(
        prefixes: &[RecordPrefix],
        FramingHints { byte_order: order, may_be_empty, .. }: FramingHints,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<(FramingScore, RecordPrefix, Self), Error> {
        let mut found: Option<(FramingScore, RecordPrefix, Self)> = None;
        for prefix in prefixes.iter().copied() {
            let framing = RecordFraming::Framed { prefix, order, may_be_empty };
            let (index, score) = Self::walk(framing, len, &mut *read, max_offsets)?;
            if found.as_ref().is_none_or(|(best, ..)| score > *best) {
                found = Some((score, prefix, index));
            }
        }
        found.ok_or_else(|| Error::internal("no record framing was tried"))
    }

    /// Scans a subfile of lines.
    pub(crate) fn build_lines(
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Self, Error> {
        Ok(Self::walk(RecordFraming::Lines, len, read, max_offsets)?.0)
    }

    /// The index for one framing, and what speaks for it.
    fn walk(
        framing: RecordFraming,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<(Self, FramingScore), Error> {
        let mut file = ReadWindow::new(read, len);
        let mut index = Self {
            framing,
            records: 0,
            offsets: Vec::new(),
            shift: 0,
            end: 0,
            damage: None,
            has_ambiguous_length: false,
        };
        let (mut closed, mut next) = (0, 0);
        loop {
            match framing.step(&mut file, index.records, index.end)? {
                WalkStep::Record { end, is_closed } => {
                    index.push(end, max_offsets);
                    closed += u64::from(is_closed);
                    continue;
                }
                WalkStep::End => {}
                WalkStep::Damage { reason, length } => {
                    index.damage = Some((len.saturating_sub(index.end), reason));
                    next = length;
                }
            }
            let is_regular = closed >= MANY_CLOSED && closed == index.records;
            let is_sound = index.damage.is_none() || is_regular;
            return Ok((index, FramingScore { is_sound, closed, next: Reverse(next) }));
        }
    }

    fn push(&mut self, end: u64, max_offsets: usize) {
        if self.records & ((1 << self.shift) - 1) == 0 {
            if self.offsets.len() >= max_offsets.max(2) {
                let mut place = 0;
                self.offsets.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.shift += 1;
            }
            if self.records & ((1 << self.shift) - 1) == 0 {
                self.offsets.push(self.end);
            }
        }
        self.records += 1;
        self.end = end;
    }

    /// The range of a record, prefix included; `None` if there is no record of that number.
    ///
    /// Reads only if not every offset is kept. `cursor` is where the last search ended.
    pub(crate) fn locate(
        &self,
        record: u64,
        cursor: &mut IndexCursor,
        read: ReadAtFn<'_>,
    ) -> Result<Option<Range<u64>>, Error> {
        if record >= self.records {
            return Ok(None);
        }
        let place = |record: u64| usize::try_from(record >> self.shift).ok();
        let offset = |record| place(record).and_then(|place| self.offsets.get(place)).copied();
        if self.shift == 0 {
            let end = offset(record + 1).unwrap_or(self.end);
            return Ok(offset(record).map(|begin| begin..end));
        }
        let mut from = (record >> self.shift) << self.shift;
        let Some(mut at) = offset(record) else { return Ok(None) };
        if (from..=record).contains(&cursor.record) {
            (from, at) = (cursor.record, cursor.at);
        }
        let mut file = ReadWindow::new(read, self.end);
        loop {
            let WalkStep::Record { end, .. } = self.framing.step(&mut file, from, at)? else {
                return Ok(None);
            };
            if from == record {
                *cursor = IndexCursor { record: record + 1, at: end };
                return Ok(Some(at..end));
            }
            (from, at) = (from + 1, end);
        }
    }
}

/// Where the last search ended: objects are mostly requested in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexCursor {
    record: u64,
    at: u64,
}

impl Default for IndexCursor {
    fn default() -> Self {
        Self { record: u64::MAX, at: 0 }
    }
}
