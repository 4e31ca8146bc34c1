//! A file that is brought to disk while it is still being written.

use std::fs::File;
use std::io;
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
        Self { file, faults, sync }
    }

    /// A file that grows under its final name.
    pub(super) fn growing(file: File, faults: Option<Arc<FaultInjector>>) -> Self {
        Self { file, faults, sync: None }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all(self.faults.as_deref(), &mut self.file, bytes)?;
        match &mut self.sync {
            Some(sync) => sync.wrote(&self.file, bytes.len() as u64),
            None => Ok(()),
        }
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
        assert!(written(DiskFile::growing(unsyncable(), None), 2 * SYNC_STEP).is_ok());
    }
}
