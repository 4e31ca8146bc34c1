//! Shows that a driver lives, once a second, whatever it is at.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use sluice_core::Error;

use super::room::Room;

/// How often a room is touched.
const EVERY: Duration = Duration::from_secs(1);

/// Beats until it is dropped.
pub(super) struct Heartbeat {
    _alive: mpsc::Sender<()>,
}

impl Heartbeat {
    pub(super) fn start<'s>(scope: &'s Scope<'s, '_>, room: &'s Room) -> Result<Self, Error> {
        let (alive, over) = mpsc::channel();
        let beat = move || {
            while over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // The next one may come through. Workers that hear none for long end by themselves.
                drop(room.touch());
            }
        };
        let thread = Builder::new().name("sluice-heartbeat".into()).spawn_scoped(scope, beat);
        thread.map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
        Ok(Self { _alive: alive })
    }
}
