//! The disk quota: ends a recording before the disk is full.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::statvfs;
use sluice_core::Error;
use sluice_core::options::ByteSize;
use sluice_pipeline::run::Stop;

use crate::ending::Failure;
use crate::units;

/// How often the disk is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// How much has to stay free on the disk that a path is on.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    folder: PathBuf,
    least: u64,
}

impl Quota {
    /// The quota for what is written to `target`, which need not exist.
    pub(super) fn of(target: &Path, least: ByteSize) -> Self {
        let exists = |folder: &&Path| folder.is_dir();
        let folder = target.ancestors().skip(1).find(exists).unwrap_or(Path::new("."));
        Self { folder: folder.to_owned(), least: least.0 }
    }

    /// What is to be said if less is free than should be.
    pub(super) fn exceeded(&self) -> Result<Option<String>, Error> {
        let disk = statvfs(&self.folder).map_err(|e| {
            Error::io("find out what is free on the disk of", &self.folder, e.into())
        })?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok((free < self.least).then(|| {
            format!(
                "the disk has {} free, less than the quota of {}",
                units::bytes(free),
                units::bytes(self.least)
            )
        }))
    }

    /// Refuses to begin where the quota is exceeded already.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.exceeded()? {
            None => Ok(()),
            Some(said) => Err(Failure::Failed(format!("{said}; nothing was recorded"))),
        }
    }

    /// Looks at the disk now and then, and ends the run when too little is free, until what is given
    /// back is dropped.
    pub(super) fn watch(
        self,
        stop: Arc<Stop>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Watch, Error> {
        let (until, dropped) = mpsc::channel::<()>();
        let look = move || {
            while let Err(RecvTimeoutError::Timeout) = dropped.recv_timeout(PAUSE) {
                // A disk that cannot be asked now may answer the next time.
                let Ok(Some(said)) = self.exceeded() else { continue };
                if !stop.is_requested() {
                    say(&format!("{said}: stopping"));
                    stop.request();
                }
                return;
            }
        };
        let thread = std::thread::Builder::new().name("sluice-quota".into()).spawn(look);
        let thread = thread.map_err(|e| {
            Error::refused(format!("cannot start a thread to look after the disk: {e}"))
        })?;
        Ok(Watch { until: Some(until), thread: Some(thread) })
    }
}

/// Looks after the disk as long as it lives.
pub(super) struct Watch {
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_yet_to_be_made_is_on_the_disk_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a/b/drive.lcm");
        assert_eq!(Quota::of(&target, ByteSize(0)).folder, folder.path());
        assert_eq!(Quota::of(Path::new("drive.lcm"), ByteSize(0)).folder, Path::new("."));
    }

    #[test]
    fn what_no_disk_has_free_is_refused_and_nothing_is_not() {
        let target = tempfile::tempdir().unwrap().path().join("drive.lcm");
        assert!(Quota::of(&target, ByteSize(0)).check().is_ok());
        let failure = Quota::of(&target, ByteSize(u64::MAX)).check().unwrap_err();
        assert_eq!(failure.code(), 1);
    }

    #[test]
    fn a_run_is_asked_once_to_end_when_the_disk_is_too_full() {
        let (stop, (told, heard)) = (Arc::<Stop>::default(), mpsc::channel());
        let target = std::env::temp_dir().join("drive.lcm");
        let quota = Quota::of(&target, ByteSize(u64::MAX));
        let say = move |text: &str| told.send(text.to_owned()).unwrap();
        let watch = quota.watch(Arc::clone(&stop), say).unwrap();
        assert!(heard.recv().unwrap().contains("less than the quota"));
        drop(watch);
        assert!(stop.is_requested() && !stop.is_aborted());
    }
}
