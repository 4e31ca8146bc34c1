//! Decides when a recording starts a new file. `naming` names it.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Zoned;
use sluice_io::output::{NewFolders, ReservedName, folder_of};
use sluice_model::Error;
use sluice_pipeline::run::{self, PieceProgress, Stop};

use super::naming::{ExistingOutput, FileNaming};
use crate::progress::ProgressMeter;

/// When a file is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PieceLimits {
    pub(super) bytes: Option<u64>,
    pub(super) age: Option<Duration>,
}

/// Splits a recording into files.
pub(super) struct PieceCutter {
    pub(super) limits: PieceLimits,
    /// Set by SIGHUP to request a new file now.
    pub(super) new_file_requested: Arc<AtomicBool>,
    pub(super) stop: Arc<Stop>,
    pub(super) meter: Arc<ProgressMeter>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    naming: FileNaming,
    /// The length of the file when it was opened.
    len_at_open: u64,
    /// The name of the file, if that is created only when it is complete.
    reserved: Option<ReservedName>,
    reserves_names: bool,
    /// The folder of the next file, while other recordings must not choose names in it.
    locked: Option<File>,
    /// The folders that were created for files, so that they could be locked.
    created: NewFolders,
    /// The name of the current file.
    current: PathBuf,
    /// That file, if it grows under its name.
    watched: Option<WatchedFile>,
}

impl State {
    /// `reserves_names` is whether files have other names until they are complete.
    pub(super) fn new(naming: FileNaming, reserves_names: bool) -> Mutex<Self> {
        Mutex::new(Self {
            naming,
            len_at_open: 0,
            reserved: None,
            reserves_names,
            locked: None,
            created: NewFolders::default(),
            current: PathBuf::new(),
            watched: None,
        })
    }

    /// Whether other programs have taken the current file away. Returned once per file.
    fn displacement(&mut self) -> Option<String> {
        let how = self.watched.as_mut()?.displacement()?;
        self.watched = None;
        let file = self.current.display();
        Some(format!("another program has {how}; SIGHUP starts a new file: {file}"))
    }
}

/// A file that grows, as it was when it was last looked at.
struct WatchedFile {
    path: PathBuf,
    file: File,
    len: u64,
    checked: Instant,
    /// Whether it was found to be taken away: a program that rotates files sends SIGHUP at once.
    is_displaced: bool,
}

/// How often a file is looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

impl WatchedFile {
    /// `None` if there is no such file: tables and some others have other names until they are
    /// complete.
    fn open(path: &Path) -> Option<Self> {
        let len = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
        let (file, checked) = (File::open(path).ok()?, Instant::now());
        Some(Self { path: path.to_owned(), file, len, checked, is_displaced: false })
    }

    /// What other programs have done to it, if that was so a moment ago, too.
    fn displacement(&mut self) -> Option<&'static str> {
        if self.checked.elapsed() < WATCH_INTERVAL {
            return None;
        }
        self.checked = Instant::now();
        let ours = self.file.metadata().ok()?;
        let is_here = fs::metadata(&self.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        let how = if ours.nlink() == 0 {
            "deleted the file, and what is received is lost"
        } else if !is_here {
            "moved the file, which grows where it is now"
        } else if ours.len() < self.len {
            "truncated the file, and what was in it is lost"
        } else {
            self.len = ours.len();
            self.is_displaced = false;
            return None;
        };
        std::mem::replace(&mut self.is_displaced, true).then_some(how)
    }
}

/// How long to wait until another recording has created its next file. A batch holds the lock for
/// as long as it runs.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Locks a folder, if possible: two recordings would choose the same free number.
fn lock_folder(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    let started = Instant::now();
    while let Err(TryLockError::WouldBlock) = folder.try_lock() {
        if started.elapsed() >= LOCK_TIMEOUT {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(folder)
}

impl PieceLimits {
    fn are_reached(self, piece: &PieceProgress, before: u64) -> bool {
        let long = self.bytes.is_some_and(|most| piece.bytes + before >= most);
        let old = self.age.is_some_and(|most| piece.started.elapsed() >= most);
        // A new file needs at least one event in the current one.
        piece.events > 0 && (long || old)
    }
}

impl run::PiecePolicy for PieceCutter {
    fn is_complete(&self, piece: &PieceProgress) -> bool {
        // Once stopping, no new file is needed; on a full disk, one would follow another.
        if self.stop.is_requested() {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.len_at_open;
        if let Some(warning) = state.displacement() {
            self.meter.warn(&warning);
        }
        self.new_file_requested.swap(false, Ordering::Relaxed)
            || self.limits.are_reached(piece, before)
    }

    fn name(&self, target: &Path) -> Result<PathBuf, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (target, now) = (target.to_string_lossy(), Zoned::now());
        let base = PathBuf::from(state.naming.base(&target, &now)?);
        // Recordings that start at once must lock the same folder.
        let mut new = NewFolders::default();
        // Opening the output reports why its folder cannot be created.
        drop(new.create(folder_of(&base)));
        new.sync();
        state.created.append(new);
        state.locked = lock_folder(folder_of(&base));
        let name = state.naming.next(&target, &now)?;
        let continues = state.naming.existing == ExistingOutput::Continue;
        let existing = fs::metadata(&name).ok().filter(|meta| continues && meta.is_file());
        state.len_at_open = existing.map_or(0, |meta| meta.len());
        state.reserved = state.reserves_names.then(|| ReservedName::reserve(&name)).flatten();
        self.meter.recording_into(&name);
        state.current.clone_from(&name);
        Ok(name)
    }

    fn opened(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.locked = None;
        state.watched = WatchedFile::open(&state.current).filter(|_| !state.reserves_names);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn piece(events: u64, bytes: u64, seconds: u64) -> PieceProgress {
        let begun = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        PieceProgress { events, bytes, started: begun }
    }

    #[test]
    fn a_file_is_complete_when_it_is_long_or_old_enough_and_not_empty() {
        let limits = PieceLimits { bytes: Some(100), age: Some(Duration::from_secs(10)) };
        assert!(!limits.are_reached(&piece(1, 99, 9), 0));
        assert!(limits.are_reached(&piece(1, 100, 0), 0));
        assert!(limits.are_reached(&piece(1, 0, 10), 0));
        assert!(!limits.are_reached(&piece(0, 100, 10), 0));
        assert!(!PieceLimits::default().are_reached(&piece(1, 1 << 40, 1 << 20), 0));
    }

    #[test]
    fn what_others_do_to_a_file_is_noticed_if_it_stays_so() {
        for (ways, told) in [
            (["truncate", "", ""], Some("truncated the file")),
            (["move", "", ""], Some("moved the file")),
            (["remove", "", ""], Some("deleted the file")),
            (["move", "move back", ""], None),
            (["", "", ""], None),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let [path, moved] = ["a", "b"].map(|name| folder.path().join(name));
            fs::write(&path, b"some events").unwrap();
            let mut watched = WatchedFile::open(&path).unwrap();
            let mut found = None;
            for way in ways {
                match way {
                    "truncate" => fs::write(&path, b"").unwrap(),
                    "move" => fs::rename(&path, &moved).unwrap(),
                    "move back" => fs::rename(&moved, &path).unwrap(),
                    "remove" => fs::remove_file(&path).unwrap(),
                    _ => {}
                }
                watched.checked -= WATCH_INTERVAL;
                found = found.or(watched.displacement());
            }
            assert!(found.is_some() == told.is_some(), "{ways:?}: {found:?}");
            assert!(found.unwrap_or_default().contains(told.unwrap_or_default()), "{ways:?}");
        }
    }

    #[test]
    fn the_existing_length_of_a_continued_file_counts() {
        let limits = PieceLimits { bytes: Some(100), age: None };
        assert!(limits.are_reached(&piece(1, 1, 0), 99));
    }
}
