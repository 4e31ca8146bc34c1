//! Hostile changes to bytes: truncation, flips, insertions, deletions, zeros, impossible lengths,
//! duplicated and swapped pieces. Deterministic. Checks nothing.

use std::fmt;
use std::ops::Range;

/// A deterministic pseudo-random generator.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Creates a generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize).checked_rem(limit).unwrap_or(0)
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// The kind of a change, which decides what a reader must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// Truncated.
    Cut,
    /// Bytes overwritten, same length.
    Overwritten,
    /// Bytes inserted.
    Inserted,
    /// Bytes removed.
    Deleted,
    /// Pieces of the file duplicated or swapped.
    Rearranged,
    /// The file replaced.
    Foreign,
}

/// A change: `replacement` instead of `range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteChange {
    /// Its kind.
    pub(crate) kind: ChangeKind,
    /// The bytes to remove.
    pub(crate) range: Range<usize>,
    /// The bytes to insert.
    pub(crate) replacement: Vec<u8>,
    /// A description.
    what: String,
}

impl fmt::Display for ByteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl ByteChange {
    /// The bytes after the change.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        let front = bytes.get(..self.range.start).unwrap_or(bytes);
        let back = bytes.get(self.range.end..).unwrap_or_default();
        [front, &self.replacement, back].concat()
    }

    /// Truncates the file.
    pub(crate) fn cut(at: usize, len: usize) -> Self {
        let what = format!("the file cut off at byte {at} of {len}");
        Self { kind: ChangeKind::Cut, range: at..len, replacement: Vec::new(), what }
    }

    /// Overwrites bytes.
    pub(crate) fn set(at: usize, put: Vec<u8>) -> Self {
        let range = at..at + put.len();
        let what = format!("bytes {}..{} set to {}", range.start, range.end, hex(&put));
        Self { kind: ChangeKind::Overwritten, range, replacement: put, what }
    }

    fn insert(at: usize, put: Vec<u8>) -> Self {
        let what = format!("{} put in at byte {at}", hex(&put));
        Self { kind: ChangeKind::Inserted, range: at..at, replacement: put, what }
    }

    /// Removes bytes.
    pub(crate) fn delete(range: Range<usize>) -> Self {
        let what = format!("bytes {}..{} taken out", range.start, range.end);
        Self { kind: ChangeKind::Deleted, range, replacement: Vec::new(), what }
    }

    fn zero(range: Range<usize>) -> Self {
        let what = format!("bytes {}..{} set to zero", range.start, range.end);
        Self { kind: ChangeKind::Overwritten, replacement: vec![0; range.len()], range, what }
    }

    fn twice(bytes: &[u8], range: Range<usize>) -> Self {
        let piece = bytes.get(range.clone()).unwrap_or_default().to_vec();
        let what = format!("bytes {}..{} standing twice", range.start, range.end);
        Self { kind: ChangeKind::Rearranged, range: range.end..range.end, replacement: piece, what }
    }

    /// Swaps two adjacent pieces.
    fn swap(bytes: &[u8], start: usize, middle: usize, end: usize) -> Self {
        let piece = |range: Range<usize>| bytes.get(range).unwrap_or_default();
        let put = [piece(middle..end), piece(start..middle)].concat();
        let what = format!("bytes {start}..{middle} and {middle}..{end} changed about");
        Self { kind: ChangeKind::Rearranged, range: start..end, replacement: put, what }
    }

    fn foreign(len: usize, put: Vec<u8>, what: String) -> Self {
        Self { kind: ChangeKind::Foreign, range: 0..len, replacement: put, what }
    }
}

/// Bytes in hex; long ones are abbreviated.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    let digits: Vec<String> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = bytes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" … ({} bytes)", bytes.len()) } else { String::new() };
    digits.join(" ") + &more
}

/// Impossible lengths, in every width and byte order.
fn huge_lengths() -> Vec<Vec<u8>> {
    let mut lengths = Vec::new();
    for width in [1, 2, 4, 8] {
        let mut most = vec![0xff; width];
        lengths.push(most.clone());
        *most.last_mut().unwrap_or(&mut 0) = 0x7f;
        lengths.push(most.clone());
        if width > 1 {
            most.reverse();
            lengths.push(most);
        }
    }
    // Some fit into memory, so that comparing with the available memory is not enough.
    lengths.extend([(1u32 << 30).to_le_bytes().to_vec(), (1u32 << 30).to_be_bytes().to_vec()]);
    lengths.extend([(1u64 << 30).to_le_bytes().to_vec(), (1u64 << 30).to_be_bytes().to_vec()]);
    lengths
}

/// The smallest lengths, in several widths and in either byte order, besides the byte zero.
fn tiny_lengths() -> Vec<Vec<u8>> {
    let ones = [vec![1], vec![1, 0], vec![0, 1], vec![1, 0, 0, 0], vec![0, 0, 0, 1]];
    [2, 4].into_iter().map(|width| vec![0; width]).chain(ones).collect()
}

/// The number of bytes after a position that are overwritten with impossible lengths.
const HEADER: usize = 40;
/// The number that are overwritten with the smallest lengths, nearly all of them with zero.
const SHORT_HEADER: usize = 16;

/// Up to about `most` changes to `bytes`: lengths after `places`, where headers are likely, then
/// random changes, then unrelated files.
pub(crate) fn changes(bytes: &[u8], places: &[usize], most: usize, seed: u64) -> Vec<ByteChange> {
    let mut dice = SeededRandom::new(seed);
    let foreign = foreign(bytes.len(), seed);
    let most = most.saturating_sub(foreign.len());
    let lengths = |header: usize, lengths: &[Vec<u8>], most: usize| {
        some_of(lengths_at(bytes, places, header, lengths), most)
    };
    let mut changes = lengths(HEADER, &huge_lengths(), most / 3);
    changes.extend(lengths(SHORT_HEADER, &[vec![0]], most / 4));
    changes.extend(lengths(SHORT_HEADER, &tiny_lengths(), most / 12));
    while !bytes.is_empty() && changes.len() < most {
        changes.push(random_change(bytes, &mut dice));
    }
    changes.extend(foreign);
    changes
}

/// About `most` of these changes.
fn some_of(changes: Vec<ByteChange>, most: usize) -> Vec<ByteChange> {
    let stride = changes.len().div_ceil(most.max(1)).max(1);
    // An odd stride, so that no width or position is always skipped.
    changes.into_iter().step_by(if stride > 1 { stride | 1 } else { 1 }).collect()
}

/// Unrelated files.
fn foreign(len: usize, seed: u64) -> Vec<ByteChange> {
    let mut dice = SeededRandom::new(!seed);
    let mut files = vec![
        ByteChange::foreign(len, Vec::new(), "an empty file".to_owned()),
        ByteChange::foreign(len, vec![0; len.max(64)], "nothing but zeros".to_owned()),
        ByteChange::foreign(len, vec![0xff; len.max(64)], "nothing but ff".to_owned()),
    ];
    for n in 0..4 {
        let what = format!("random bytes, number {n} of seed {seed}");
        files.push(ByteChange::foreign(len, dice.bytes(64 << n), what));
    }
    files
}

/// Every length at each of the first `header` bytes after each position, unless it is there.
fn lengths_at(
    bytes: &[u8],
    places: &[usize],
    header: usize,
    lengths: &[Vec<u8>],
) -> Vec<ByteChange> {
    let mut ats: Vec<usize> = places.iter().flat_map(|place| *place..place + header).collect();
    ats.sort_unstable();
    ats.dedup();
    let is_change =
        |at: usize, put: &[u8]| bytes.get(at..at + put.len()).is_some_and(|there| there != put);
    ats.iter()
        .flat_map(|at| lengths.iter().map(|put| (*at, put)))
        .filter(|(at, put)| is_change(*at, put))
        .map(|(at, put)| ByteChange::set(at, put.clone()))
        .collect()
}

/// A random change of non-empty bytes.
fn random_change(bytes: &[u8], dice: &mut SeededRandom) -> ByteChange {
    let len = bytes.len();
    let at = dice.below(len);
    let longest = 1 << (1 + dice.below(10));
    let some = 1 + dice.below((len - at).min(longest));
    match dice.below(16) {
        0..=5 => {
            let flipped = bytes.get(at).copied().unwrap_or(0) ^ (1 << dice.below(8));
            ByteChange::set(at, vec![flipped])
        }
        6..=8 => ByteChange::insert(at, dice.bytes(1 + some % 64)),
        9..=11 => ByteChange::delete(at..at + some),
        12 | 13 => ByteChange::zero(at..at + some),
        14 => ByteChange::twice(bytes, at..at + some),
        _ => {
            let middle = at + some;
            ByteChange::swap(bytes, at, middle, (middle + 1 + dice.below(some)).min(len))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_the_same_every_time_and_no_more_than_asked_for() {
        let bytes: Vec<u8> = (0..200).collect();
        let all = changes(&bytes, &[0, 50], 300, 7);
        assert_eq!(all, changes(&bytes, &[0, 50], 300, 7));
        assert!(all.len() <= 300, "{}", all.len());
        assert_ne!(all, changes(&bytes, &[0, 50], 300, 8));
    }

    #[test]
    fn a_change_does_what_it_says() {
        assert_eq!(ByteChange::set(1, vec![9]).apply(b"abc"), b"a\x09c");
        assert_eq!(ByteChange::insert(1, b"xy".to_vec()).apply(b"abc"), b"axybc");
        assert_eq!(ByteChange::delete(0..2).apply(b"abc"), b"c");
        assert_eq!(ByteChange::twice(b"abc", 0..2).apply(b"abc"), b"ababc");
        assert_eq!(ByteChange::swap(b"abcd", 0, 1, 3).apply(b"abcd"), b"bcad");
        assert_eq!(ByteChange::cut(1, 3).apply(b"abc"), b"a");
        assert_eq!(ByteChange::set(1, vec![9, 10]).to_string(), "bytes 1..3 set to 09 0a");
    }

    #[test]
    fn an_empty_file_can_be_changed_too() {
        assert!(changes(b"", &[0], 50, 1).iter().all(|change| change.apply(b"").len() < 1000));
    }
}
