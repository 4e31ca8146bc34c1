//! The threads of runs that are in Python, which has to wait for them when it ends. Calls nothing
//! there.
//!
//! Below 3.14, Python ends a thread that runs its code by unwinding it, once the interpreter is
//! gone. Frames of Rust do not survive that: it would abort the process. A guard that parks the
//! thread when it is dropped does not help, as optimised builds do not drop it then. So a thread
//! that does not end is parked before that.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use sluice_model::{Error, RunHandle};

use crate::interrupt;

struct Gate {
    is_closed: bool,
    /// The threads in Python.
    inside: Vec<PluginThread>,
}

struct PluginThread {
    /// Python's number for it.
    number: u64,
    run: RunHandle,
    /// Whether Python was told to end it.
    is_ending: bool,
    /// Whether its run is no longer waited for.
    is_given_up: bool,
}

impl PluginThread {
    fn must_end(&self) -> bool {
        self.run.is_aborted() && !self.is_given_up
    }
}

static GATE: Mutex<Gate> = Mutex::new(Gate { is_closed: false, inside: Vec::new() });
/// Notified when a thread leaves.
static LEFT: Condvar = Condvar::new();

/// Calls Python for a run, unless it is about to end.
pub(super) fn attached<R>(
    run: &RunHandle,
    work: impl FnOnce(Python<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    Python::attach(|py| {
        let _inside = ThreadInside::enter(py, run)?;
        work(py)
    })
}

/// Raises `SystemExit` in the threads that are in Python for aborted runs, in each once. Returns
/// whether there are any, without those [given up](give_up_aborted).
pub(crate) fn end_aborted(py: Python<'_>) -> PyResult<bool> {
    let mut new = Vec::new();
    let is_any = {
        let mut gate = gate();
        let aborted = gate.inside.iter_mut().filter(|thread| thread.must_end());
        let mut is_any = false;
        for thread in aborted {
            is_any = true;
            if !std::mem::replace(&mut thread.is_ending, true) {
                new.push(thread.number);
            }
        }
        is_any
    };
    if !new.is_empty() {
        py.import("sluice._plugins")?.call_method1("end_threads", (new,))?;
    }
    Ok(is_any)
}

/// Gives up the threads that are in Python for aborted runs: no later run waits for them.
pub(crate) fn give_up_aborted() {
    for thread in &mut gate().inside {
        thread.is_given_up |= thread.run.is_aborted();
    }
}

/// Refuses all further calls of plugins, and waits so long for those that have begun. Returns the
/// threads that are still in Python. For its end, which nobody takes back.
#[pyfunction]
pub(crate) fn close_plugins(py: Python<'_>, patience: Duration) -> Vec<u64> {
    py.detach(|| {
        let mut gate = gate();
        gate.is_closed = true;
        let left = LEFT.wait_timeout_while(gate, patience, |gate| !gate.inside.is_empty());
        let left = left.unwrap_or_else(PoisonError::into_inner).0;
        left.inside.iter().map(|thread| thread.number).collect()
    })
}

/// Keeps the calling thread, of this number, where it is until the process ends. It never takes the
/// GIL again, so it is not unwound, and Python need not wait for it.
#[pyfunction]
pub(crate) fn park_thread(py: Python<'_>, number: u64) {
    drop(ThreadInside(number));
    py.detach(|| {
        loop {
            thread::park();
        }
    });
}

struct ThreadInside(u64);

impl ThreadInside {
    fn enter(py: Python<'_>, run: &RunHandle) -> Result<Self, Error> {
        let number = || py.import("threading")?.call_method0("get_ident")?.extract();
        let number = number().map_err(|error: PyErr| Error::internal(error.to_string()))?;
        interrupt::listen_for_program();
        let mut gate = gate();
        if gate.is_closed {
            return Err(Error::refused("Python is about to end, and calls no plugin any more"));
        }
        let run = run.clone();
        gate.inside.push(PluginThread { number, run, is_ending: false, is_given_up: false });
        Ok(Self(number))
    }
}

impl Drop for ThreadInside {
    fn drop(&mut self) {
        let mut gate = gate();
        if let Some(place) = gate.inside.iter().position(|thread| thread.number == self.0) {
            gate.inside.swap_remove(place);
        }
        LEFT.notify_all();
    }
}

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}
