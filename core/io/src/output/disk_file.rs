//! A file that is brought to disk while it is still being written.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::sync::Arc;

use super::faults::{FaultInjector, write_all};
use super::sync_thread::SyncThread;

/// How much is written between two syncs.
const SYNC_STEP: u64 = 64 << 20;

/// A file on disk, written from start to end.
///
/// The system keeps what is written in memory for as long as it can, so that a run would end with a
/// wait for all of it. A long output is synced in a thread of its own as it grows, so that
/// publishing waits for its last part only.
pub(super) struct DiskFile {
    pub(super) file: File,
    faults: Option<Arc<FaultInjector>>,
    /// `None` if only the end of the run syncs.
    sync: Option<EarlySync>,
    /// `None` before it has its final name.
    growth: Option<Growth>,
}

/// How far a file has grown under its final name.
struct Growth {
    end: u64,
    /// Whether another program has truncated it meanwhile.
    is_truncated: bool,
}

#[derive(Default)]
struct EarlySync {
    /// Bytes written since the last sync was started.
    unsynced: u64,
    thread: SyncThread<io::Error>,
}

impl DiskFile {
    /// A file that nobody sees before it is published.
    pub(super) fn unpublished(file: File, faults: Option<Arc<FaultInjector>>) -> Self {
        // An injector counts steps, and others would make them random.
        let sync = faults.is_none().then(EarlySync::default);
        Self { file, faults, sync, growth: None }
    }

    /// A file of `end` bytes that grows under its final name.
    pub(super) fn growing(file: File, end: u64, faults: Option<Arc<FaultInjector>>) -> Self {
        let growth = Some(Growth { end, is_truncated: false });
        Self { file, faults, sync: None, growth }
    }

    /// Appends all of `bytes`; to a file that grows, all or nothing.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        let end = self.find_end()?;
        let written = write_all(self.faults.as_deref(), &mut self.file, bytes);
        match (&mut self.growth, written) {
            (Some(growth), Ok(())) => growth.end += len,
            // A part would hide what is appended later. The first error is the one to report.
            (Some(_), Err(error)) => {
                self.cut(end);
                return Err(error);
            }
            (None, written) => written?,
        }
        self.sync.as_mut().map_or(Ok(()), |sync| sync.wrote(&self.file, len))
    }

    /// Where a file that grows ends. If another program has truncated it, writing goes on at its
    /// end now: there would be a hole before the place where it ended.
    fn find_end(&mut self) -> io::Result<u64> {
        let Some(growth) = &mut self.growth else { return Ok(0) };
        let len = self.file.metadata()?.len();
        if len < growth.end {
            self.file.seek(SeekFrom::Start(len))?;
            *growth = Growth { end: len, is_truncated: true };
        }
        Ok(growth.end)
    }

    /// Where a file that grows ends, as far as is known without a look.
    pub(super) fn end(&self) -> u64 {
        self.growth.as_ref().map_or(0, |growth| growth.end)
    }

    /// Says where a file that grows ends, after other writes than by this.
    pub(super) fn has_grown_to(&mut self, end: u64) {
        self.growth.iter_mut().for_each(|growth| growth.end = end);
    }

    /// Removes what was appended to a file that grows after it had `end` bytes. Returns whether
    /// that succeeded.
    pub(super) fn cut(&mut self, end: u64) -> bool {
        // What another program has truncated is not filled with zeros.
        let Ok(now) = self.find_end() else { return false };
        let end = end.min(now);
        self.has_grown_to(end);
        self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end))).is_ok()
    }

    /// Whether another program has truncated it while it grew.
    pub(super) fn is_truncated(&mut self) -> bool {
        // If it cannot be looked at, the sync that follows fails, too.
        drop(self.find_end());
        self.growth.as_ref().is_some_and(|growth| growth.is_truncated)
    }

    /// Ends writing. What is not synced yet is left for publishing.
    pub(super) fn finish(mut self) -> io::Result<File> {
        if let Some(sync) = &mut self.sync {
            sync.wait()?;
        }
        Ok(self.file)
    }
}

impl EarlySync {
    /// Notes that `len` bytes were written. Fails if an earlier part did not reach the disk.
    fn wrote(&mut self, file: &File, len: u64) -> io::Result<()> {
        self.unsynced += len;
        if self.unsynced < SYNC_STEP || self.thread.is_busy() {
            return Ok(());
        }
        self.wait()?;
        // Without a thread, there is more to sync in the end.
        let same = file.try_clone();
        drop(same.and_then(|same| self.thread.start(move || same.sync_data())));
        self.unsynced = 0;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.thread.wait(|| io::Error::other("the thread that syncs the file has panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn written(file: DiskFile, mut len: u64) -> io::Result<File> {
        let (mut file, block) = (file, vec![0; 1 << 20]);
        while len > 0 {
            file.write_all(&block)?;
            len -= block.len() as u64;
        }
        file.finish()
    }

    /// A device that takes everything and cannot be synced.
    fn unsyncable() -> File {
        OpenOptions::new().write(true).open("/dev/null").unwrap()
    }

    #[test]
    fn a_long_file_whose_part_does_not_reach_the_disk_fails() {
        assert!(unsyncable().sync_data().is_err());
        assert!(written(DiskFile::unpublished(unsyncable(), None), SYNC_STEP).is_err());
    }

    #[test]
    fn a_short_file_and_one_that_grows_are_synced_by_others() {
        assert!(written(DiskFile::unpublished(unsyncable(), None), SYNC_STEP - (1 << 20)).is_ok());
        assert!(written(DiskFile::growing(unsyncable(), 0, None), 2 * SYNC_STEP).is_ok());
    }
}
