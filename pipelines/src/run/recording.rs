//! Recordings: runs without an end, whose outputs must be safe while they grow.
//!
//! Written data is flushed and synced at intervals, whether or not new data arrives. Outputs are
//! cut into pieces: separate files or folders, each complete and published on its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_io::output::SyncThread;
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

    /// Called when the files of the piece have been created, or could not be.
    fn opened(&self) {}
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

/// The room on disk that outputs need to be completed which cannot be read before.
#[derive(Default)]
pub(super) struct CompletionRoom {
    /// The bytes of the piece when it was last asked for.
    before: u64,
}

impl CompletionRoom {
    /// What else is written than events, such as indexes: of all, and of each channel.
    const DETAILS: [u64; 2] = [1 << 20, 8 << 10];

    /// How much has to be free besides twice what a sink holds in memory, as columns may be longer
    /// than payloads.
    pub(super) fn needed(&mut self, piece: &PieceProgress, channels: usize) -> u64 {
        let since = piece.bytes.saturating_sub(self.before);
        self.before = piece.bytes;
        let [of_all, of_each] = Self::DETAILS;
        // As much may come before it is asked for again.
        2 * since + of_all + of_each * channels as u64
    }
}

/// Syncs growing files on threads of their own, one at a time: a slow disk must not keep the run
/// from receiving.
pub(super) struct Syncer {
    thread: SyncThread<Error>,
    every: Duration,
    last: Instant,
}

/// Whether a sync was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncStart {
    /// The previous one, if any, has succeeded.
    Started,
    /// The previous one still runs.
    Busy,
}

impl Syncer {
    pub(super) fn new(every: Duration) -> Self {
        Self { thread: SyncThread::default(), every, last: Instant::now() }
    }

    /// Whether a flush is due.
    pub(super) fn is_due(&self) -> bool {
        self.last.elapsed() >= self.every
    }

    /// Starts a sync of flushed files, unless the previous one is still running. `Err` if that one
    /// failed.
    pub(super) fn sync(&mut self, outputs: &Outputs) -> Result<SyncStart, Error> {
        self.last = Instant::now();
        if self.thread.is_busy() {
            return Ok(SyncStart::Busy);
        }
        self.wait()?;
        let cannot = |e| Error::refused(format!("cannot start a thread to sync files: {e}"));
        self.thread.start(outputs.growing_sync()).map_err(cannot)?;
        Ok(SyncStart::Started)
    }

    /// Waits for the last sync. `Err` if it failed: a later one may succeed all the same, as the
    /// system reports an error only once.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.thread.wait(|| Error::internal("syncing panicked; its message is above"))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.wait());
    }
}
