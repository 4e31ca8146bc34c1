//! Checks for any source that splits yield the same as the whole, and that damage lies in the file.

use sluice_kit::contract::{SourceContents, any_splitting_is_the_same, gather};
use sluice_model::Source;

/// Reads a file of this length whole and in splits; `None` if it is refused.
///
/// # Panics
///
/// If splits yield anything else, or damage is out of order or beyond the end.
pub(crate) fn read(source: &dyn Source, len: usize) -> Option<SourceContents> {
    let len = len as u64;
    if let Err(error) = gather(source, u64::MAX) {
        assert!(!error.to_string().is_empty());
        return None;
    }
    // Few splits, because each opens the file again.
    let targets = [2, 7, 15].map(|pieces| len / pieces + 1);
    let found = any_splitting_is_the_same(source, &targets);
    let mut at = 0;
    for (offset, length, reason) in &found.damage {
        assert!(*offset >= at && !reason.is_empty(), "damage comes in order: {:?}", found.damage);
        at = offset + length;
    }
    assert!(at <= len, "damage lies in the file: {:?}", found.damage);
    Some(found)
}
