//! Recordings: runs without an end, whose outputs must be safe while they grow.
//!
//! Written data is flushed and synced at intervals, whether or not new data arrives. Outputs are
//! cut into pieces: separate files or folders, each complete and published on its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use sluice_model::{Error, Outputs};

/// How a run records.
#[derive(Clone)]
pub struct Recording {
    /// The maximum age of received data that is not yet on disk.
    pub flush: Duration,
    /// When to cut the output into pieces.
    pub pieces: Arc<dyn PiecePolicy>,
}

/// Decides when a piece of output is complete, and names pieces.
pub trait PiecePolicy: Send + Sync {
    /// Whether the current piece is complete. Asked after every step of the run, at least a few
    /// times a second.
    fn is_complete(&self, piece: &PieceProgress) -> bool;

    /// The name of the next piece of this target.
    fn name(&self, target: &Path) -> Result<PathBuf, Error>;
}

/// The progress of a piece of output.
#[derive(Clone, Copy, Debug)]
pub struct PieceProgress {
    /// Events in it.
    pub events: u64,
    /// Bytes written to its files; for tables, which are written late, the payload bytes in them.
    pub bytes: u64,
    /// When it was started.
    pub started: Instant,
}

/// Growing files, with their paths.
type GrowingFiles = Vec<(PathBuf, Arc<File>)>;

/// Syncs files on its own thread: a slow disk must not keep the run from receiving.
pub(super) struct Syncer {
    files: Option<Sender<GrowingFiles>>,
    failed: Arc<Mutex<Option<Error>>>,
    thread: Option<JoinHandle<()>>,
    every: Duration,
    last: Instant,
}

impl Syncer {
    pub(super) fn start(every: Duration) -> Result<Self, Error> {
        let (files, jobs) = bounded::<GrowingFiles>(1);
        let failed = Arc::new(Mutex::new(None));
        let failures = Arc::clone(&failed);
        let sync = move || {
            for (path, file) in jobs.into_iter().flatten() {
                if let Err(error) = file.sync_data() {
                    let error = Error::io("write", &path, error);
                    failures.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("sluice-sync".into()).spawn(sync);
        let thread = thread
            .map_err(|e| Error::refused(format!("cannot start a thread to sync files: {e}")))?;
        Ok(Self { files: Some(files), failed, thread: Some(thread), every, last: Instant::now() })
    }

    /// Whether a flush is due.
    pub(super) fn is_due(&self) -> bool {
        self.last.elapsed() >= self.every
    }

    /// Schedules a sync of flushed files, unless the previous one is still running.
    pub(super) fn sync(&mut self, outputs: &Outputs) -> Result<(), Error> {
        self.last = Instant::now();
        if let Some(files) = &self.files {
            drop(files.try_send(outputs.growing()));
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
