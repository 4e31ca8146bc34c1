//! The configuration at the front of a subfile, kept until the log is complete: some may come after data. Touches
//! no file.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

/// The configuration of a subfile, and which of it the file begins with already.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// Records as they are written, one behind another.
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// How many bytes of configuration the file begins with: the first of those that are kept.
    written: u64,
    /// Whether there was no room for what the file begins with. Then nothing can be put among it.
    is_fixed: bool,
}

#[derive(Clone, Debug)]
struct Record {
    /// The event's number.
    sequence: i64,
    /// Where it lies in what is kept.
    place: Range<usize>,
}

/// How much more may be kept of all subfiles together, in bytes.
#[derive(Debug)]
pub(crate) struct Room(pub(crate) usize);

impl Room {
    fn take(&mut self, record: &[u8]) -> bool {
        let left = self.0.checked_sub(cost(record.len()));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// What keeping a record takes: short ones take more for their places than for their bytes.
fn cost(len: usize) -> usize {
    len + size_of::<Record>()
}

impl Front {
    /// Notes a record that the file is given now, before any data.
    pub(crate) fn begin_with(&mut self, sequence: i64, record: &[u8], room: &mut Room) {
        if self.is_fixed {
            return;
        }
        if room.take(record) {
            self.push(sequence, record);
            self.written += record.len() as u64;
        } else {
            let kept: usize = self.records.iter().map(|kept| cost(kept.place.len())).sum();
            room.0 += kept;
            *self = Self { is_fixed: true, ..Self::default() };
        }
    }

    /// Keeps a record that came after data. `false` says that it could not.
    pub(crate) fn keep(&mut self, sequence: i64, record: &[u8], room: &mut Room) -> bool {
        let is_kept = !self.is_fixed && room.take(record);
        if is_kept {
            self.push(sequence, record);
        }
        is_kept
    }

    fn push(&mut self, sequence: i64, record: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.records.push(Record { sequence, place: from..self.bytes.len() });
    }

    /// What the file has to begin with, and how many of its bytes that takes the place of; nothing if it
    /// begins with that already, or with what cannot be changed.
    pub(crate) fn replacement(&self) -> Option<(u64, Vec<u8>)> {
        let ordered = self.ordered();
        let is_in_place = self.written == self.bytes.len() as u64
            && ordered.iter().zip(&self.records).all(|(a, b)| a.place == b.place);
        let record = |record: &Record| self.bytes.get(record.place.clone()).unwrap_or_default();
        let head = || ordered.iter().flat_map(record).copied().collect();
        (!is_in_place).then(|| (self.written, head()))
    }

    /// How many events have another number than their place in the file.
    pub(crate) fn renumbered(&self) -> u64 {
        let moved = |(place, record): &(i64, Record)| *place != record.sequence;
        (0..).zip(self.ordered()).filter(moved).count() as u64
    }

    /// By their numbers if these tell them apart, else as they came.
    fn ordered(&self) -> Vec<Record> {
        let mut ordered = self.records.clone();
        ordered.sort_by_key(|record| record.sequence);
        let differ = ordered.windows(2).all(|pair| match pair {
            [a, b] => a.sequence != b.sequence,
            _ => true,
        });
        if differ { ordered } else { self.records.clone() }
    }
}

/// The parts of `run` that lie in none of `taken`: ranges in order, each inside or outside of it as a whole.
pub(crate) fn without(run: Range<usize>, taken: &[Range<usize>]) -> Vec<Range<usize>> {
    let inside = taken.partition_point(|part| part.start < run.start);
    let mut from = run.start;
    let mut parts = Vec::new();
    for part in taken.iter().skip(inside).take_while(|part| part.end <= run.end) {
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

    fn front(written: &[(i64, &[u8])], late: &[(i64, &[u8])]) -> Front {
        let (mut front, mut room) = (Front::default(), Room(1 << 10));
        for (sequence, record) in written {
            front.begin_with(*sequence, record, &mut room);
        }
        for (sequence, record) in late {
            assert!(front.keep(*sequence, record, &mut room));
        }
        front
    }

    #[test]
    fn what_lies_right_already_is_not_replaced() {
        assert_eq!(front(&[], &[]).replacement(), None);
        assert_eq!(front(&[(0, b"a"), (1, b"b")], &[]).replacement(), None);
        assert_eq!(front(&[(0, b"a"), (0, b"b")], &[]).replacement(), None);
    }

    #[test]
    fn records_are_ordered_by_numbers_that_tell_them_apart() {
        let replacement = front(&[(1, b"bb")], &[(2, b"ccc"), (0, b"a")]).replacement();
        assert_eq!(replacement, Some((2, b"abbccc".to_vec())));
        let replacement = front(&[(1, b"b"), (0, b"a")], &[]).replacement();
        assert_eq!(replacement, Some((2, b"ab".to_vec())));
    }

    #[test]
    fn records_of_one_number_stay_as_they_came() {
        let front = front(&[(1, b"b")], &[(0, b"a"), (1, b"c")]);
        assert_eq!((front.replacement(), front.renumbered()), (Some((1, b"bac".to_vec())), 3));
    }

    #[test]
    fn what_does_not_fit_is_not_kept_and_the_next_may_be() {
        let (mut front, mut room) = (Front::default(), Room(2 * cost(4)));
        assert!(front.keep(0, b"aaaa", &mut room));
        assert!(!front.keep(1, &[0; 100], &mut room));
        assert!(front.keep(2, b"bbbb", &mut room));
        assert_eq!((front.replacement(), room.0), (Some((0, b"aaaabbbb".to_vec())), 0));
    }

    #[test]
    fn a_front_that_is_not_kept_as_a_whole_is_left_alone_and_gives_its_room_back() {
        let (mut front, mut room) = (Front::default(), Room(cost(4)));
        front.begin_with(1, b"aaaa", &mut room);
        front.begin_with(0, b"bbbb", &mut room);
        assert_eq!((front.replacement(), room.0), (None, cost(4)));
        front.begin_with(2, b"c", &mut room);
        assert!(!front.keep(3, b"d", &mut room));
        assert_eq!((front.replacement(), room.0), (None, cost(4)));
    }

    #[test]
    fn what_is_taken_is_cut_out_of_a_run() {
        let taken = [0..2, 4..6, 6..7, 9..10, 12..13];
        let parts = |run, taken: &[Range<usize>]| -> Vec<(usize, usize)> {
            without(run, taken).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(4..10, &taken), [(7, 9)]);
        assert_eq!(parts(2..12, &taken), [(2, 4), (7, 9), (10, 12)]);
        assert_eq!(parts(13..15, &taken), [(13, 15)]);
        assert_eq!(parts(7..9, &[]), [(7, 9)]);
    }
}
