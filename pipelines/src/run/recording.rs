//! Recordings: runs without an end, whose outputs have to be safe while they grow.
//!
//! What has been written is flushed and synced every now and then, whether or not something new comes.
//! Outputs are cut into pieces: files or folders of their own, complete and published one after another.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use sluice_core::{Error, Outputs};

/// How a run records.
#[derive(Clone)]
pub struct Recording {
    /// How old what has been received may get before it is on the disk.
    pub flush: Duration,
    /// Cuts the output into pieces.
    pub pieces: Arc<dyn Pieces>,
}

/// Says when a piece of output is complete, and what pieces are called.
pub trait Pieces: Send + Sync {
    /// Whether the piece at hand is complete. Asked after every step of the run, a few times a second at
    /// least.
    fn is_complete(&self, piece: &Piece) -> bool;

    /// What the piece that begins now is called that stands for this target.
    fn name(&self, target: &Path) -> Result<PathBuf, Error>;
}

/// How far a piece of output is.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Events in it.
    pub events: u64,
    /// Bytes written to its files; of tables, which are written late, the bytes of messages in them.
    pub bytes: u64,
    /// When it was begun.
    pub begun: Instant,
}

/// Files that grow, with their names.
type Growing = Vec<(PathBuf, Arc<File>)>;

/// Syncs files on a thread of its own: a slow disk must not keep the run from receiving.
pub(super) struct Syncer {
    files: Option<Sender<Growing>>,
    failed: Arc<Mutex<Option<Error>>>,
    thread: Option<JoinHandle<()>>,
    every: Duration,
    last: Instant,
}

impl Syncer {
    pub(super) fn start(every: Duration) -> Result<Self, Error> {
        let (files, jobs) = bounded::<Growing>(1);
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

    /// Whether it is time to flush.
    pub(super) fn is_due(&self) -> bool {
        self.last.elapsed() >= self.every
    }

    /// Has what was flushed synced, unless it is still at what was before: then the next time.
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
