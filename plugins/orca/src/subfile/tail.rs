//! Whether records lead to the end of a subfile, whatever is damaged before them.

use super::framing::{ByteOrder, RecordPrefix};

/// The number of bytes at the end of a subfile in which such records are searched for.
pub(super) const TAIL_LEN: u64 = 64 << 10;
/// As many records in a row whose last byte is 0, the last of which ends with the file, show a
/// prefix.
const MANY_LEADING: u8 = 4;

/// The number of bytes at the end of these that records with this prefix take up, if as many as
/// [`MANY_LEADING`] lead there.
pub(super) fn leading_bytes(prefix: RecordPrefix, order: ByteOrder, tail: &[u8]) -> Option<u64> {
    // For each offset, the number of records from there to the end, and one more; 0 if they do not
    // lead there.
    let mut counts = vec![0_u8; tail.len()];
    counts.push(1);
    let mut first = None;
    for at in (0..tail.len()).rev() {
        let rest = tail.get(at..).unwrap_or_default();
        let record = prefix.parse(1, rest, order).filter(|(_, len)| *len > 0);
        let len = record.and_then(|(_, len)| usize::try_from(len).ok());
        let end = len.and_then(|len| len.checked_add(at + prefix.len(1)));
        let Some(end) = end.filter(|end| tail.get(end - 1) == Some(&0)) else { continue };
        let behind = counts.get(end).copied().unwrap_or(0);
        if behind >= MANY_LEADING {
            first = Some(at);
        }
        if let Some(count) = counts.get_mut(at).filter(|_| behind > 0) {
            *count = behind.saturating_add(1);
        }
    }
    first.map(|at| (tail.len() - at) as u64)
}
