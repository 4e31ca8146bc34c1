//! The disk quota: stops a recording before the disk is full.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use sluice_io::output::free_space;
use sluice_model::options::ByteSize;
use sluice_model::{Error, units};
use sluice_pipeline::run::Stop;

use crate::exit::Failure;

/// The interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The space that must stay free on the disk of a target, which need not exist.
#[derive(Clone, Debug)]
pub(super) struct DiskQuota {
    pub(super) target: PathBuf,
    pub(super) min_free: ByteSize,
}

impl DiskQuota {
    /// Returns a message if the free space is below the quota.
    pub(super) fn exceeded(&self) -> Result<Option<String>, Error> {
        let min_free = self.min_free.0;
        let free = free_space(&self.target)?.filter(|free| *free < min_free);
        Ok(free.map(|free| {
            format!(
                "the disk has {} free, less than the quota of {}",
                units::bytes(free),
                units::bytes(min_free)
            )
        }))
    }

    /// Refuses to start if the quota is already exceeded.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.exceeded()? {
            None => Ok(()),
            Some(message) => Err(Failure::Failed(format!("{message}; nothing was recorded"))),
        }
    }

    /// Checks the disk periodically and stops the run if the quota is exceeded, until the returned
    /// watch is dropped.
    pub(super) fn watch(
        self,
        stop: Arc<Stop>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<QuotaWatch, Error> {
        let (until, dropped) = mpsc::channel::<()>();
        let look = move || {
            while let Err(RecvTimeoutError::Timeout) = dropped.recv_timeout(CHECK_INTERVAL) {
                // Try again later if the disk cannot be queried.
                let Ok(Some(message)) = self.exceeded() else { continue };
                if !stop.is_requested() {
                    say(&format!("{message}: stopping"));
                    stop.request();
                }
                return;
            }
        };
        let thread = std::thread::Builder::new().name("sluice-quota".into()).spawn(look);
        let thread = thread
            .map_err(|e| Error::refused(format!("cannot start a thread to check the disk: {e}")))?;
        Ok(QuotaWatch { until: Some(until), thread: Some(thread) })
    }
}

/// Checks the disk until dropped.
pub(super) struct QuotaWatch {
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for QuotaWatch {
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

    fn quota(min_free: u64) -> DiskQuota {
        let target = std::env::temp_dir().join("drive.lcm");
        DiskQuota { target, min_free: ByteSize(min_free) }
    }

    #[test]
    fn an_impossible_quota_is_refused_and_zero_is_not() {
        assert!(quota(0).check().is_ok());
        assert_eq!(quota(u64::MAX).check().unwrap_err().code(), 1);
    }

    #[test]
    fn a_run_is_asked_once_to_end_when_the_disk_is_too_full() {
        let (stop, (sender, messages)) = (Arc::<Stop>::default(), mpsc::channel());
        let say = move |text: &str| sender.send(text.to_owned()).unwrap();
        let watch = quota(u64::MAX).watch(Arc::clone(&stop), say).unwrap();
        assert!(messages.recv().unwrap().contains("less than the quota"));
        drop(watch);
        assert!(stop.is_requested() && !stop.is_aborted());
    }
}
