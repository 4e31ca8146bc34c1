//! Which signals have come, for those who may not ask Python, and for the program, which does not.
//! Other handlers run as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::{SigId, flag, low_level};
use sluice::extension::SignalListener;
use sluice_pipeline::run::Stop;

/// What signals make of the program, if this process is one.
static PROGRAM: OnceLock<Arc<Stop>> = OnceLock::new();
static LISTENER: OnceLock<SignalListener> = OnceLock::new();

/// The requests of signals to stop the program. They are counted from its first call of a plugin
/// on.
pub(crate) fn program_stop() -> Arc<Stop> {
    Arc::clone(PROGRAM.get_or_init(Arc::default))
}

/// Counts signals from now on, if this process is the program. Only for its runs: they have a
/// handler, and without any, a signal would have ended the program until now.
pub(crate) fn listen_for_program() {
    let Some(stop) = PROGRAM.get() else { return };
    LISTENER.get_or_init(|| {
        // The program, too, ignores the second SIGHUP.
        SignalListener::spawn(|signal| {
            if signal != SIGHUP || !stop.is_requested() {
                stop.request_for(signal);
            }
        })
    });
}

/// Notices SIGINT while it lives.
#[derive(Debug, Default)]
pub(crate) struct InterruptFlag {
    raised: Arc<AtomicBool>,
    handler: Option<SigId>,
}

impl InterruptFlag {
    /// Listens from now on; to nothing unless SIGINT is a `KeyboardInterrupt`. What any other
    /// handler makes of it, nobody but Python knows. `Err` is what the handler of a signal raised.
    pub(crate) fn listen(py: Python<'_>) -> PyResult<Self> {
        let mut flag = Self::default();
        if raises_keyboard_interrupt(py)? {
            flag.handler = flag::register(SIGINT, Arc::clone(&flag.raised)).ok();
            keep_registered(py)?;
        }
        Ok(flag)
    }

    /// Whether it came.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

impl Drop for InterruptFlag {
    fn drop(&mut self) {
        if let Some(handler) = self.handler {
            low_level::unregister(handler);
        }
    }
}

/// Sets the handler below the flags again, which Python may have replaced since it was registered.
fn keep_registered(py: Python<'_>) -> PyResult<()> {
    let kept = py.import("sluice._signals").and_then(|signals| signals.call_method0("keep"));
    match kept {
        // Without `ctypes`, flags work until the next `signal.signal`.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(()),
        kept => kept.map(drop),
    }
}

fn raises_keyboard_interrupt(py: Python<'_>) -> PyResult<bool> {
    let signal = py.import("signal")?;
    let handler = signal.call_method1("getsignal", (SIGINT,))?;
    Ok(handler.is(&signal.getattr("default_int_handler")?))
}
