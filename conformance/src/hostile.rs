//! Hostile changes to bytes: cut, flipped, inserted, deleted, zeroed, lengths that cannot be, pieces that
//! stand twice or elsewhere. The same every time. Judges nothing.

use std::fmt;
use std::ops::Range;

/// Numbers that look random and are the same every time.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice that fall the same for every use with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`; 0 if that is 0.
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

/// What kind of change it is: that decides what a reader can be asked to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The end is missing.
    Cut,
    /// Other bytes, as many as there were.
    Overwritten,
    /// More bytes.
    Inserted,
    /// Fewer bytes.
    Deleted,
    /// Whole pieces of the file stand twice or elsewhere.
    Rearranged,
    /// Nothing of the file is left.
    Foreign,
}

/// A change: `put` stands where `range` was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its kind.
    pub(crate) sort: Sort,
    /// The bytes that go.
    pub(crate) range: Range<usize>,
    /// The bytes that come.
    pub(crate) put: Vec<u8>,
    /// What was done, in words.
    what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Change {
    /// The bytes after the change.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        let front = bytes.get(..self.range.start).unwrap_or(bytes);
        let back = bytes.get(self.range.end..).unwrap_or_default();
        [front, &self.put, back].concat()
    }

    /// The file, cut off.
    pub(crate) fn cut(at: usize, len: usize) -> Self {
        let what = format!("the file cut off at byte {at} of {len}");
        Self { sort: Sort::Cut, range: at..len, put: Vec::new(), what }
    }

    fn set(at: usize, put: Vec<u8>) -> Self {
        let range = at..at + put.len();
        let what = format!("bytes {}..{} set to {}", range.start, range.end, hex(&put));
        Self { sort: Sort::Overwritten, range, put, what }
    }

    fn insert(at: usize, put: Vec<u8>) -> Self {
        let what = format!("{} put in at byte {at}", hex(&put));
        Self { sort: Sort::Inserted, range: at..at, put, what }
    }

    fn delete(range: Range<usize>) -> Self {
        let what = format!("bytes {}..{} taken out", range.start, range.end);
        Self { sort: Sort::Deleted, range, put: Vec::new(), what }
    }

    fn zero(range: Range<usize>) -> Self {
        let what = format!("bytes {}..{} set to zero", range.start, range.end);
        Self { sort: Sort::Overwritten, put: vec![0; range.len()], range, what }
    }

    fn twice(bytes: &[u8], range: Range<usize>) -> Self {
        let piece = bytes.get(range.clone()).unwrap_or_default().to_vec();
        let what = format!("bytes {}..{} standing twice", range.start, range.end);
        Self { sort: Sort::Rearranged, range: range.end..range.end, put: piece, what }
    }

    /// Two neighbouring pieces in each other's place.
    fn swap(bytes: &[u8], start: usize, middle: usize, end: usize) -> Self {
        let piece = |range: Range<usize>| bytes.get(range).unwrap_or_default();
        let put = [piece(middle..end), piece(start..middle)].concat();
        let what = format!("bytes {start}..{middle} and {middle}..{end} changed about");
        Self { sort: Sort::Rearranged, range: start..end, put, what }
    }

    fn foreign(len: usize, put: Vec<u8>, what: String) -> Self {
        Self { sort: Sort::Foreign, range: 0..len, put, what }
    }
}

/// Bytes as digits; of many, the first and how many there are.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    let digits: Vec<String> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = bytes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" … ({} bytes)", bytes.len()) } else { String::new() };
    digits.join(" ") + &more
}

/// Lengths that cannot be, in every width and byte order.
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
    // Some that fit into memory, so that a check against the machine is not enough.
    lengths.extend([(1u32 << 30).to_le_bytes().to_vec(), (1u32 << 30).to_be_bytes().to_vec()]);
    lengths.extend([(1u64 << 30).to_le_bytes().to_vec(), (1u64 << 30).to_be_bytes().to_vec()]);
    lengths
}

/// Most bytes behind a place that are overwritten with lengths.
const HEADER: usize = 40;

/// Changes to `bytes`, at most about `most`: first lengths behind `places`, where headers are likely, then
/// what dice say, then files that have nothing to do with this one.
pub(crate) fn changes(bytes: &[u8], places: &[usize], most: usize, seed: u64) -> Vec<Change> {
    let (len, mut dice) = (bytes.len(), Dice::new(seed));
    let foreign = foreign(len, seed);
    let most = most.saturating_sub(foreign.len());
    let lengths = lengths_at(len, places);
    let stride = lengths.len().div_ceil((most / 2).max(1)).max(1);
    // Neither the widths nor the places may be a multiple of it, or some would always be left out.
    let stride = if stride > 1 { stride | 1 } else { 1 };
    let picked = lengths.into_iter().step_by(stride).map(|(at, put)| Change::set(at, put));
    let mut changes: Vec<Change> = picked.collect();
    while len > 0 && changes.len() < most {
        changes.push(any(bytes, &mut dice));
    }
    changes.extend(foreign);
    changes
}

/// Files that have nothing to do with this one.
fn foreign(len: usize, seed: u64) -> Vec<Change> {
    let mut dice = Dice::new(!seed);
    let mut files = vec![
        Change::foreign(len, Vec::new(), "an empty file".to_owned()),
        Change::foreign(len, vec![0; len.max(64)], "nothing but zeros".to_owned()),
        Change::foreign(len, vec![0xff; len.max(64)], "nothing but ff".to_owned()),
    ];
    for n in 0..4 {
        let what = format!("random bytes, number {n} of seed {seed}");
        files.push(Change::foreign(len, dice.bytes(64 << n), what));
    }
    files
}

/// Every length at every byte behind each place.
fn lengths_at(len: usize, places: &[usize]) -> Vec<(usize, Vec<u8>)> {
    let mut ats: Vec<usize> =
        places.iter().flat_map(|place| *place..(place + HEADER).min(len)).collect();
    ats.sort_unstable();
    ats.dedup();
    let fits = |at: usize, put: &Vec<u8>| at + put.len() <= len;
    ats.iter()
        .flat_map(|at| huge_lengths().into_iter().map(move |put| (*at, put)))
        .filter(|(at, put)| fits(*at, put))
        .collect()
}

/// A change of a kind and at a place that dice choose. There is at least a byte.
fn any(bytes: &[u8], dice: &mut Dice) -> Change {
    let len = bytes.len();
    let at = dice.below(len);
    let longest = 1 << (1 + dice.below(10));
    let some = 1 + dice.below((len - at).min(longest));
    match dice.below(16) {
        0..=5 => {
            let flipped = bytes.get(at).copied().unwrap_or(0) ^ (1 << dice.below(8));
            Change::set(at, vec![flipped])
        }
        6..=8 => Change::insert(at, dice.bytes(1 + some % 64)),
        9..=11 => Change::delete(at..at + some),
        12 | 13 => Change::zero(at..at + some),
        14 => Change::twice(bytes, at..at + some),
        _ => {
            let middle = at + some;
            Change::swap(bytes, at, middle, (middle + 1 + dice.below(some)).min(len))
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
        assert_eq!(Change::set(1, vec![9]).apply(b"abc"), b"a\x09c");
        assert_eq!(Change::insert(1, b"xy".to_vec()).apply(b"abc"), b"axybc");
        assert_eq!(Change::delete(0..2).apply(b"abc"), b"c");
        assert_eq!(Change::twice(b"abc", 0..2).apply(b"abc"), b"ababc");
        assert_eq!(Change::swap(b"abcd", 0, 1, 3).apply(b"abcd"), b"bcad");
        assert_eq!(Change::cut(1, 3).apply(b"abc"), b"a");
        assert_eq!(Change::set(1, vec![9, 10]).to_string(), "bytes 1..3 set to 09 0a");
    }

    #[test]
    fn an_empty_file_can_be_changed_too() {
        assert!(changes(b"", &[0], 50, 1).iter().all(|change| change.apply(b"").len() < 1000));
    }
}
