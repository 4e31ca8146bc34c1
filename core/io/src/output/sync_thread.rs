//! Syncs files in a thread, so that nothing else waits for a slow disk.

use std::io;
use std::thread::{Builder, JoinHandle};

/// One sync at a time, in a thread of its own, that fails with `E`. The system reports an error
/// only once, so results are kept until someone waits.
#[derive(Debug)]
pub struct SyncThread<E>(Option<JoinHandle<Result<(), E>>>);

impl<E> Default for SyncThread<E> {
    fn default() -> Self {
        Self(None)
    }
}

impl<E: Send + 'static> SyncThread<E> {
    /// Whether a sync is running.
    pub fn is_busy(&self) -> bool {
        self.0.as_ref().is_some_and(|running| !running.is_finished())
    }

    /// Starts a sync, whose predecessor was waited for. `Err` if there is no thread.
    pub fn start(
        &mut self,
        sync: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<()> {
        self.0 = Some(Builder::new().name("sluice-sync".into()).spawn(sync)?);
        Ok(())
    }

    /// Waits for the last sync; `panicked` is the error if it has panicked.
    pub fn wait(&mut self, panicked: impl FnOnce() -> E) -> Result<(), E> {
        let result = self.0.take().map(JoinHandle::join);
        result.map_or(Ok(()), |joined| joined.unwrap_or_else(|_| Err(panicked())))
    }
}
