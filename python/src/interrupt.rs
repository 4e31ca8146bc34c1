//! Whether Ctrl-C was pressed, for those who may not ask Python. Python's own handler runs as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use signal_hook::consts::SIGINT;
use signal_hook::{SigId, flag, low_level};

/// Notices SIGINT while it lives.
#[derive(Debug, Default)]
pub(crate) struct InterruptFlag {
    raised: Arc<AtomicBool>,
    handler: Option<SigId>,
}

impl InterruptFlag {
    /// Listens from now on; to nothing unless SIGINT is a `KeyboardInterrupt`. What any other
    /// handler makes of it, nobody but Python knows.
    pub(crate) fn listen(py: Python<'_>) -> Self {
        let raised = Arc::<AtomicBool>::default();
        let handler = match raises_keyboard_interrupt(py) {
            Ok(true) => flag::register(SIGINT, Arc::clone(&raised)).ok(),
            _ => None,
        };
        Self { raised, handler }
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

fn raises_keyboard_interrupt(py: Python<'_>) -> PyResult<bool> {
    let signal = py.import("signal")?;
    let handler = signal.call_method1("getsignal", (SIGINT,))?;
    Ok(handler.is(&signal.getattr("default_int_handler")?))
}
