//! Checks for any source that splits yield the same as the whole, and that damage lies in the file.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_kit::contract::{SourceContents, gather_splits};
use sluice_model::{BlockPool, Error, Query, ReadContext, Source};

/// Short blocks, so that inputs of fuzzers fill several, and that clearing them costs little.
const BLOCK_LEN: usize = 16 << 10;

/// Whether a file is read in every number of splits, rather than in one that its length decides:
/// thrice the time, for tests.
pub static EVERY_COUNT: AtomicBool = AtomicBool::new(false);

thread_local! {
    static BLOCKS: BlockPool = BlockPool::new(BLOCK_LEN, 8);
}

/// Reads a file of this length whole and in splits; `None` if it is refused.
///
/// # Panics
///
/// If splits yield anything else, or damage is out of order or beyond the end.
pub(crate) fn read(source: &dyn Source, len: usize) -> Option<SourceContents> {
    let found = read_from_anywhere(source, len)?;
    let mut at = 0;
    for (offset, length, _) in &found.damage {
        assert!(*offset >= at, "damage comes in order: {:?}", found.damage);
        at = offset + length;
    }
    Some(found)
}

/// Like [`read`], for formats whose events are not in the order of the file.
pub(crate) fn read_from_anywhere(source: &dyn Source, len: usize) -> Option<SourceContents> {
    let len = len as u64;
    let found = match read_splits(source, u64::MAX, 0) {
        Ok(found) => found.expect("there are splits"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    // Few splits, because each opens the file again.
    let counts = [2, 7, 15];
    // Fuzzers change the length, and so come to all of them.
    let one = (len % 3) as usize;
    let counts = if EVERY_COUNT.load(Ordering::Relaxed) { &counts[..] } else { &counts[one..=one] };
    for target in counts.iter().map(|pieces| len / pieces + 1) {
        let pieces = read_splits(source, target, 2).expect("the source can be read in pieces");
        assert!(pieces.is_none_or(|pieces| pieces == found), "pieces of {target} bytes differ");
    }
    for (offset, length, reason) in &found.damage {
        assert!(!reason.is_empty() && offset + length <= len, "damage: {:?}", found.damage);
    }
    Some(found)
}

/// Reads a source in splits of this length; `None` if there are fewer than `least`.
fn read_splits(
    source: &dyn Source,
    target: u64,
    least: usize,
) -> Result<Option<SourceContents>, Error> {
    let splits = source.splits(target, &Query::default())?;
    if splits.len() < least {
        return Ok(None);
    }
    let blocks = BLOCKS.with(BlockPool::clone);
    let context = ReadContext { blocks, ..ReadContext::standalone("test") };
    gather_splits(source, splits, &context).map(Some)
}
