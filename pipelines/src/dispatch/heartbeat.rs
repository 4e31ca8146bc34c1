//! The driver's heartbeat: touches the exchange directory once a second.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use sluice_model::Error;

use super::exchange::ExchangeDir;

/// The interval between beats.
const INTERVAL: Duration = Duration::from_secs(1);

/// Beats until it is dropped.
pub(super) struct Heartbeat {
    _alive: mpsc::Sender<()>,
}

impl Heartbeat {
    pub(super) fn start<'s>(
        scope: &'s Scope<'s, '_>,
        exchange: &'s ExchangeDir,
    ) -> Result<Self, Error> {
        let (alive, over) = mpsc::channel();
        let beat = move || {
            while over.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // The next beat may succeed. Workers without a heartbeat for long stop by
                // themselves.
                drop(exchange.touch());
            }
        };
        let thread = Builder::new().name("sluice-heartbeat".into()).spawn_scoped(scope, beat);
        thread.map_err(|e| Error::refused(format!("cannot start a thread: {e}")))?;
        Ok(Self { _alive: alive })
    }
}
