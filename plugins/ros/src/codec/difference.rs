//! What differs between two byte strings, from which one of them restores the other. Knows no
//! payload.
//!
//! A difference is the length of the other bytes, and then their parts that differ: how many bytes
//! are the same before each, its length, and its bytes. All numbers are 32 bits, little-endian.

/// Equal bytes between two parts that are cheaper to repeat than to skip.
const MIN_SKIP: usize = 8;

/// Appends what restores `to` from `from`. Nothing longer than 4 GiB comes back.
pub(crate) fn append_difference(from: &[u8], to: &[u8], out: &mut Vec<u8>) {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    out.extend(word(to.len()));
    let is_same = |at: usize| from.get(at).is_some() && from.get(at) == to.get(at);
    let mut at = 0;
    while at < to.len() {
        let start = at + (at..to.len()).take_while(|at| is_same(*at)).count();
        if start == to.len() {
            break;
        }
        let (mut end, mut same) = (start, 0);
        while end + same < to.len() && same < MIN_SKIP {
            if is_same(end + same) {
                same += 1;
            } else {
                (end, same) = (end + same + 1, 0);
            }
        }
        let part = to.get(start..end).unwrap_or_default();
        out.extend(word(start - at));
        out.extend(word(part.len()));
        out.extend_from_slice(part);
        at = end;
    }
}

/// The bytes that a difference restores; `None` if it is not one of these bytes. It may be
/// untrusted: the result is not longer than both together.
pub(crate) fn restore(from: &[u8], mut difference: &[u8]) -> Option<Vec<u8>> {
    let word = |rest: &mut &[u8]| {
        let (word, after) = rest.split_first_chunk::<4>()?;
        *rest = after;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    let len = word(&mut difference)?;
    if len > from.len().saturating_add(difference.len()) {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    while !difference.is_empty() {
        let (skip, part) = (word(&mut difference)?, word(&mut difference)?);
        out.extend_from_slice(from.get(out.len()..out.len().checked_add(skip)?)?);
        let (part, rest) = difference.split_at_checked(part)?;
        out.extend_from_slice(part);
        difference = rest;
    }
    if out.len() < len {
        out.extend_from_slice(from.get(out.len()..len)?);
    }
    (out.len() == len).then_some(out)
}
