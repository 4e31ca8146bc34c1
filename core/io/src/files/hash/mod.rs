//! The BLAKE3 hash of an input, computed from the bytes that are read of it anyway.

mod missing;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::input::Input;
use crate::Error;
pub use missing::hash_file;
use tree::{HashTree, HashedPiece};

/// Inputs are hashed in pieces of this length, at multiples of it. Fits a core's own cache.
pub(super) const PIECE: u64 = 256 << 10;
/// Shorter reads are not hashed: most are repeated.
pub(super) const SHORTEST_READ: usize = 64 << 10;
/// The most parts of an input that are kept apart. Beyond that, what is missing is read at the end.
const MAX_PARTS: usize = 16 << 10;

/// The hash of an input. Whoever reads the input adds what was read.
#[derive(Debug)]
pub struct InputHash {
    path: PathBuf,
    /// Its length in bytes. More may have been added to the file since.
    len: u64,
    progress: Mutex<Progress>,
    /// Notified when nothing is being hashed.
    idle: Condvar,
    /// In hex; `None` if the input is no longer there in full. `Err` says why it cannot be read.
    hash: OnceLock<Result<Option<String>, String>>,
}

#[derive(Debug)]
struct Progress {
    claimed: ClaimedRanges,
    tree: HashTree,
    /// The number of pieces being hashed.
    active: usize,
    /// Why a piece could not be read.
    failure: Option<Error>,
}

impl InputHash {
    /// For a file or an object of this length.
    pub fn new(path: &Path, len: u64) -> Self {
        let progress = Progress {
            claimed: ClaimedRanges::default(),
            tree: HashTree::new(len),
            active: 0,
            failure: None,
        };
        Self {
            path: path.to_owned(),
            len,
            progress: Mutex::new(progress),
            idle: Condvar::new(),
            hash: OnceLock::new(),
        }
    }

    /// Hashes bytes that were read at this position, unless that was done before.
    pub(super) fn add(&self, at: u64, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len() as u64).min(self.len);
        // A single piece is read faster than it is put together.
        if at >= end || self.len <= PIECE {
            return;
        }
        let mut progress = self.progress();
        if progress.claimed.0.len() + progress.tree.parts() > MAX_PARTS {
            return;
        }
        let ranges = progress.claimed.claim(at..end);
        let _active = self.activate(progress);
        for range in ranges {
            let part = (range.start - at) as usize..(range.end - at) as usize;
            self.add_claimed(range.start, bytes.get(part).unwrap_or_default());
        }
    }

    fn add_claimed(&self, at: u64, bytes: &[u8]) {
        let piece = HashedPiece::new(at, bytes);
        self.progress().tree.add(piece);
    }

    /// Counts the caller as active, as long as the result lives.
    fn activate<'h>(&'h self, mut progress: MutexGuard<'h, Progress>) -> Active<'h> {
        progress.active += 1;
        Active(self)
    }

    fn claim_missing(&self) -> Option<(Range<u64>, Active<'_>)> {
        let mut progress = self.progress();
        if progress.failure.is_some() {
            return None;
        }
        let range = progress.claimed.first_missing(self.len)?;
        progress.claimed.claim(range.clone());
        Some((range, self.activate(progress)))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who hashes a claimed range.
struct Active<'h>(&'h InputHash);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        progress.active -= 1;
        if progress.active == 0 {
            self.0.idle.notify_all();
        }
    }
}

/// The hashes of a run's inputs, for those who read them. Empty if nobody wants them.
#[derive(Debug, Default)]
pub struct InputHashes(BTreeMap<PathBuf, Arc<InputHash>>);

impl InputHashes {
    /// For those of these inputs that can be read twice.
    pub fn of_inputs(inputs: &[Input]) -> Self {
        let each = inputs.iter().filter_map(|input| {
            let hash = Arc::new(InputHash::new(&input.path, input.bytes?));
            Some((input.path.clone(), hash))
        });
        Self(each.collect())
    }

    /// The hash of an input, if it is wanted.
    pub fn of(&self, path: &Path) -> Option<&Arc<InputHash>> {
        self.0.get(path)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<InputHash>> {
        self.0.values()
    }
}

/// Ranges that are hashed or being hashed: apart, and by their starts.
#[derive(Debug, Default)]
struct ClaimedRanges(BTreeMap<u64, u64>);

impl ClaimedRanges {
    /// Adds a range, and returns the parts of it that were not claimed before.
    fn claim(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut joined = range.clone();
        let (mut free, mut at) = (Vec::new(), range.start);
        let before = self.0.range(..=range.start).next_back().map(|(start, _)| *start);
        let touching = self.0.range(before.unwrap_or(range.start)..=range.end);
        let touching: Vec<_> = touching
            .map(|(start, end)| *start..*end)
            .filter(|other| other.end >= range.start)
            .collect();
        for other in touching {
            if other.start > at {
                free.push(at..other.start);
            }
            at = at.max(other.end);
            joined = joined.start.min(other.start)..joined.end.max(other.end);
            self.0.remove(&other.start);
        }
        if at < range.end {
            free.push(at..range.end);
        }
        self.0.insert(joined.start, joined.end);
        free
    }

    /// The first range that is not claimed, within a piece of an input of this length.
    fn first_missing(&self, len: u64) -> Option<Range<u64>> {
        let mut claimed = self.0.iter();
        let (start, next) = match claimed.next() {
            Some((0, end)) => (*end, claimed.next().map(|(start, _)| *start)),
            other => (0, other.map(|(start, _)| *start)),
        };
        let piece_end = (start / PIECE + 1) * PIECE;
        let end = next.unwrap_or(len).min(piece_end).min(len);
        (start < end).then_some(start..end)
    }
}
