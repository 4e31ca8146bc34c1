//! The records of a subfile, indexed by scanning it once. Knows neither the master nor the contents
//! of records.
//!
//! A subfile of objects is `[id] [length] [bytes]` repeated, without a header. The length is as
//! wide as the recording machine's words, and some loggers wrote no id, so the prefix is detected
//! from the file: it is the one that leads exactly to the end of the file. If several do, or none
//! does because the end is damaged, it is the one that finds the most records whose last byte is 0,
//! as that of every object is, and the first in [`RecordPrefix::ALL`] among equals. A subfile of
//! text consists of lines.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_model::Error;

mod framing;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use framing::{ByteOrder, RecordFraming, RecordPrefix};
pub(crate) use walk::{ALIGNMENT, LONGEST_RECORD};

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
    /// The length of the last record, prefix included.
    last_len: u64,
    /// The length of the rest of the file if that is not a record, and why.
    pub(crate) damage: Option<(u64, String)>,
}

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
        let FramingHints { byte_order: order, may_be_empty, .. } = hints;
        let count = if hints.first_may_lack_id { 6 } else { 4 };
        let prefixes = match hints.prefix {
            Some(prefix) => vec![prefix],
            None => RecordPrefix::ALL.into_iter().take(count).collect(),
        };
        let worth = |(index, closed): &(Self, u64)| (index.damage.is_none(), *closed);
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes.iter().copied() {
            let framing = RecordFraming::Framed { prefix, order, may_be_empty };
            let found = Self::walk(framing, len, &mut *read, max_offsets)?;
            if best.as_ref().is_none_or(|best| worth(&found) > worth(best)) {
                best = Some(found);
            }
        }
        let (best, _) = best.ok_or_else(|| Error::internal("no record framing was tried"))?;
        if best.damage.is_none() || may_be_empty {
            return Ok(best);
        }
        let with_empty = Self::build_with_empty_records(&prefixes, order, len, read, max_offsets)?;
        Ok(with_empty.filter(|index| index.records > best.records).unwrap_or(best))
    }

    /// The index of a subfile with empty records, if it leads exactly to the end of the file.
    /// Objects are never empty, but then the records after the empty ones are right. Zeros at the
    /// end of a file are not records.
    fn build_with_empty_records(
        prefixes: &[RecordPrefix],
        order: ByteOrder,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Option<Self>, Error> {
        let mut best: Option<(Self, u64)> = None;
        for prefix in prefixes {
            let framing = RecordFraming::Framed { prefix: *prefix, order, may_be_empty: true };
            let (index, closed) = Self::walk(framing, len, &mut *read, max_offsets)?;
            let is_right = index.damage.is_none() && index.records <= closed.saturating_mul(2);
            let ends_empty =
                index.last_len < prefix.len(index.records.saturating_sub(1)) as u64 + 1;
            let is_better = best.as_ref().is_none_or(|(_, most_closed)| closed > *most_closed);
            if is_right && !ends_empty && is_better {
                best = Some((index, closed));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// Scans a subfile of lines.
    pub(crate) fn build_lines(
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<Self, Error> {
        Ok(Self::walk(RecordFraming::Lines, len, read, max_offsets)?.0)
    }

    /// The index for one framing, and the number of records that end with a 0.
    fn walk(
        framing: RecordFraming,
        len: u64,
        read: ReadAtFn<'_>,
        max_offsets: usize,
    ) -> Result<(Self, u64), Error> {
        let mut file = ReadWindow::new(read, len);
        let mut index = Self {
            framing,
            records: 0,
            offsets: Vec::new(),
            shift: 0,
            end: 0,
            last_len: 0,
            damage: None,
        };
        let mut closed = 0;
        loop {
            match framing.step(&mut file, index.records, index.end)? {
                WalkStep::Record { end, is_closed } => {
                    index.push(end, max_offsets);
                    closed += u64::from(is_closed);
                }
                WalkStep::End => return Ok((index, closed)),
                WalkStep::Damage(reason) => {
                    index.damage = Some((len.saturating_sub(index.end), reason));
                    return Ok((index, closed));
                }
            }
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
        self.last_len = end - self.end;
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
