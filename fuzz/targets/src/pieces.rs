//! The promise of every source: pieces give what the whole gives, and damage lies in the file.
//! Knows no format.

use sluice_core::Source;
use sluice_core::contract::{SourceContents, any_splitting_is_the_same, gather};

/// Reads a file of so many bytes whole and in pieces; nothing if it is refused.
///
/// # Panics
///
/// If pieces give anything else, or damage is out of order or lies behind the end.
pub(crate) fn read(source: &dyn Source, len: usize) -> Option<SourceContents> {
    let len = len as u64;
    if let Err(error) = gather(source, u64::MAX) {
        assert!(!error.to_string().is_empty());
        return None;
    }
    // Few pieces, as each opens the file anew.
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
