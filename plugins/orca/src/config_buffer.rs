//! The configuration records of one subfile, buffered until the log is complete because some may
//! arrive after data. Does no I/O.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

/// The configuration records of a subfile, and how many of them are at the head of the file
/// already.
#[derive(Debug, Default)]
pub(crate) struct ConfigBuffer {
    /// Encoded records, concatenated.
    bytes: Vec<u8>,
    records: Vec<BufferedRecord>,
    /// Length of the configuration at the head of the file: the first records of `bytes`.
    written_bytes: u64,
    /// Whether the budget did not cover the head of the file. Nothing can be inserted then.
    has_overflowed: bool,
}

#[derive(Clone, Debug)]
struct BufferedRecord {
    /// The sequence number of the event.
    sequence: i64,
    /// The range of `bytes` that holds the record.
    range: Range<usize>,
}

/// The bytes of configuration that all subfiles together may still buffer.
#[derive(Debug)]
pub(crate) struct ConfigBudget(pub(crate) usize);

impl ConfigBudget {
    fn reserve(&mut self, record: &[u8]) -> bool {
        let left = self.0.checked_sub(memory_cost(record.len()));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The memory that buffering a record costs, bookkeeping included.
fn memory_cost(len: usize) -> usize {
    len + size_of::<BufferedRecord>()
}

impl ConfigBuffer {
    /// Buffers a record that is also being written to the file, before any data.
    pub(crate) fn push_written(&mut self, sequence: i64, record: &[u8], budget: &mut ConfigBudget) {
        if self.has_overflowed {
            return;
        }
        if budget.reserve(record) {
            self.push(sequence, record);
            self.written_bytes += record.len() as u64;
        } else {
            let kept: usize = self.records.iter().map(|kept| memory_cost(kept.range.len())).sum();
            budget.0 += kept;
            *self = Self { has_overflowed: true, ..Self::default() };
        }
    }

    /// Buffers a record that came after data. `false` if the budget does not allow it.
    pub(crate) fn push_late(
        &mut self,
        sequence: i64,
        record: &[u8],
        budget: &mut ConfigBudget,
    ) -> bool {
        let is_kept = !self.has_overflowed && budget.reserve(record);
        if is_kept {
            self.push(sequence, record);
        }
        is_kept
    }

    fn push(&mut self, sequence: i64, record: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.records.push(BufferedRecord { sequence, range: from..self.bytes.len() });
    }

    /// The new head of the file, and how many bytes of the old one it replaces. `None` if the file
    /// needs no change, or cannot be changed.
    pub(crate) fn replacement(&self) -> Option<(u64, Vec<u8>)> {
        let ordered = self.ordered();
        let is_in_place = self.written_bytes == self.bytes.len() as u64
            && ordered.iter().zip(&self.records).all(|(a, b)| a.range == b.range);
        let record =
            |record: &BufferedRecord| self.bytes.get(record.range.clone()).unwrap_or_default();
        let head = || ordered.iter().flat_map(record).copied().collect();
        (!is_in_place).then(|| (self.written_bytes, head()))
    }

    /// The number of events whose sequence number differs from their position in the file.
    pub(crate) fn renumbered(&self) -> u64 {
        let moved = |(place, record): &(i64, BufferedRecord)| *place != record.sequence;
        (0..).zip(self.ordered()).filter(moved).count() as u64
    }

    /// The records by sequence number if these are distinct, else in order of arrival.
    fn ordered(&self) -> Vec<BufferedRecord> {
        let mut ordered = self.records.clone();
        ordered.sort_by_key(|record| record.sequence);
        let differ = ordered.windows(2).all(|pair| match pair {
            [a, b] => a.sequence != b.sequence,
            _ => true,
        });
        if differ { ordered } else { self.records.clone() }
    }
}

/// The parts of `run` that none of the sorted ranges `taken` covers. A range lies entirely inside
/// or outside of `run`.
pub(crate) fn subtract_ranges(run: Range<usize>, excluded: &[Range<usize>]) -> Vec<Range<usize>> {
    let inside = excluded.partition_point(|part| part.start < run.start);
    let mut from = run.start;
    let mut parts = Vec::new();
    for part in excluded.iter().skip(inside).take_while(|part| part.end <= run.end) {
        parts.push(from..part.start);
        from = part.end;
    }
    parts.push(from..run.end);
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(written: &[(i64, &[u8])], late: &[(i64, &[u8])]) -> ConfigBuffer {
        let (mut buffer, mut budget) = (ConfigBuffer::default(), ConfigBudget(1 << 10));
        for (sequence, record) in written {
            buffer.push_written(*sequence, record, &mut budget);
        }
        for (sequence, record) in late {
            assert!(buffer.push_late(*sequence, record, &mut budget));
        }
        buffer
    }

    #[test]
    fn a_head_in_order_is_not_replaced() {
        assert_eq!(buffer(&[], &[]).replacement(), None);
        assert_eq!(buffer(&[(0, b"a"), (1, b"b")], &[]).replacement(), None);
        assert_eq!(buffer(&[(0, b"a"), (0, b"b")], &[]).replacement(), None);
    }

    #[test]
    fn records_are_ordered_by_distinct_numbers() {
        let replacement = buffer(&[(1, b"bb")], &[(2, b"ccc"), (0, b"a")]).replacement();
        assert_eq!(replacement, Some((2, b"abbccc".to_vec())));
        let replacement = buffer(&[(1, b"b"), (0, b"a")], &[]).replacement();
        assert_eq!(replacement, Some((2, b"ab".to_vec())));
    }

    #[test]
    fn records_of_one_number_stay_as_they_came() {
        let buffer = buffer(&[(1, b"b")], &[(0, b"a"), (1, b"c")]);
        assert_eq!((buffer.replacement(), buffer.renumbered()), (Some((1, b"bac".to_vec())), 3));
    }

    #[test]
    fn a_record_over_budget_is_not_buffered_but_a_later_one_can_be() {
        let (mut buffer, mut budget) = (ConfigBuffer::default(), ConfigBudget(2 * memory_cost(4)));
        assert!(buffer.push_late(0, b"aaaa", &mut budget));
        assert!(!buffer.push_late(1, &[0; 100], &mut budget));
        assert!(buffer.push_late(2, b"bbbb", &mut budget));
        assert_eq!((buffer.replacement(), budget.0), (Some((0, b"aaaabbbb".to_vec())), 0));
    }

    #[test]
    fn a_head_over_budget_is_left_alone_and_releases_its_budget() {
        let (mut buffer, mut budget) = (ConfigBuffer::default(), ConfigBudget(memory_cost(4)));
        buffer.push_written(1, b"aaaa", &mut budget);
        buffer.push_written(0, b"bbbb", &mut budget);
        assert_eq!((buffer.replacement(), budget.0), (None, memory_cost(4)));
        buffer.push_written(2, b"c", &mut budget);
        assert!(!buffer.push_late(3, b"d", &mut budget));
        assert_eq!((buffer.replacement(), budget.0), (None, memory_cost(4)));
    }

    #[test]
    fn excluded_ranges_are_subtracted_from_a_run() {
        let excluded = [0..2, 4..6, 6..7, 9..10, 12..13];
        let parts = |run, excluded: &[Range<usize>]| -> Vec<(usize, usize)> {
            subtract_ranges(run, excluded).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(4..10, &excluded), [(7, 9)]);
        assert_eq!(parts(2..12, &excluded), [(2, 4), (7, 9), (10, 12)]);
        assert_eq!(parts(13..15, &excluded), [(13, 15)]);
        assert_eq!(parts(7..9, &[]), [(7, 9)]);
    }
}
