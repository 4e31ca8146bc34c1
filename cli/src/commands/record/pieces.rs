//! When a recording begins a new file. What that is called is said by `naming`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Zoned;
use sluice_core::Error;
use sluice_pipeline::run::{self, Piece, Stop};

use super::naming::{Existing, Naming};
use crate::progress::Meter;

/// When a file is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) bytes: Option<u64>,
    pub(super) age: Option<Duration>,
}

/// Cuts a recording into files.
pub(super) struct Pieces {
    pub(super) limits: Limits,
    /// Raised when somebody wants a new file at once.
    pub(super) wanted: Arc<AtomicBool>,
    pub(super) stop: Arc<Stop>,
    pub(super) meter: Arc<Meter>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    naming: Naming,
    /// What the file held when it was opened.
    before: u64,
}

impl State {
    pub(super) fn new(naming: Naming) -> Mutex<Self> {
        Mutex::new(Self { naming, before: 0 })
    }
}

impl Limits {
    fn are_reached(self, piece: &Piece, before: u64) -> bool {
        let long = self.bytes.is_some_and(|most| piece.bytes + before >= most);
        let old = self.age.is_some_and(|most| piece.begun.elapsed() >= most);
        // Where nothing comes, there is nothing to begin a file with.
        piece.events > 0 && (long || old)
    }
}

impl run::Pieces for Pieces {
    fn is_complete(&self, piece: &Piece) -> bool {
        // What is to end needs no new file; and on a full disk there would be one after another.
        if self.stop.is_requested() {
            return false;
        }
        let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).before;
        self.wanted.swap(false, Ordering::Relaxed) || self.limits.are_reached(piece, before)
    }

    fn name(&self, target: &Path) -> Result<PathBuf, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let name = state.naming.next(&target.to_string_lossy(), &Zoned::now())?;
        let continues = state.naming.existing == Existing::Continue;
        let held = fs::metadata(&name).ok().filter(|meta| continues && meta.is_file());
        state.before = held.map_or(0, |meta| meta.len());
        self.meter.records_into(&name);
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn piece(events: u64, bytes: u64, seconds: u64) -> Piece {
        let begun = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        Piece { events, bytes, begun }
    }

    #[test]
    fn a_file_is_complete_when_it_is_long_or_old_enough_and_not_empty() {
        let limits = Limits { bytes: Some(100), age: Some(Duration::from_secs(10)) };
        assert!(!limits.are_reached(&piece(1, 99, 9), 0));
        assert!(limits.are_reached(&piece(1, 100, 0), 0));
        assert!(limits.are_reached(&piece(1, 0, 10), 0));
        assert!(!limits.are_reached(&piece(0, 100, 10), 0));
        assert!(!Limits::default().are_reached(&piece(1, 1 << 40, 1 << 20), 0));
    }

    #[test]
    fn what_a_continued_file_held_before_counts() {
        let limits = Limits { bytes: Some(100), age: None };
        assert!(limits.are_reached(&piece(1, 1, 0), 99));
    }
}
