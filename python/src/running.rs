//! Runs on threads of their own, and how Python waits for them. Knows no table.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use pyo3::prelude::*;
use sluice_model::options::ByteSize;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::{Pipeline, Report};

use crate::errors;

/// How long Python waits before it looks at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The resources of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resources {
    pub(crate) jobs: Option<usize>,
    pub(crate) memory: Option<ByteSize>,
}

/// The runs of this process, which a fork inherits without their threads.
struct LiveRuns {
    /// The process that counts them; 0 before the first.
    process: AtomicU32,
    count: AtomicUsize,
}

static LIVE: LiveRuns = LiveRuns { process: AtomicU32::new(0), count: AtomicUsize::new(0) };

/// A run while it is live.
struct LiveRun;

impl LiveRun {
    /// Counts a run. Refuses it in a process that was forked during another one, whose threads may
    /// have held locks.
    fn start() -> Result<Self, Error> {
        let (process, counted) = (process::id(), LIVE.process.load(Ordering::Relaxed));
        if counted != process && LIVE.count.load(Ordering::Relaxed) > 0 {
            return Err(Error::refused(
                "this process was forked while a log was being read, and cannot read any: start \
                 it with `spawn`, or fork when nothing is read",
            ));
        }
        LIVE.process.store(process, Ordering::Relaxed);
        LIVE.count.fetch_add(1, Ordering::Relaxed);
        Ok(Self)
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        LIVE.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work on a thread of its own, with one result.
#[derive(Debug)]
pub(crate) struct Background<T> {
    result: Receiver<T>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts the work. Does not touch Python.
    pub(crate) fn start(work: impl FnOnce() -> T + Send + 'static) -> Result<Self, Error> {
        let live = LiveRun::start()?;
        let (sender, result) = bounded(1);
        let work = move || {
            let done = work();
            drop(live);
            // Nobody waits for the result any more if it cannot be sent.
            drop(sender.send(done));
        };
        let started = thread::Builder::new().name("sluice-run".to_owned()).spawn(work);
        started.map_err(|e| Error::refused(format!("cannot start a thread to read: {e}")))?;
        Ok(Self { result })
    }

    /// Waits for the result. A signal handler that raises stops the work first: gently, and at once
    /// the second time.
    pub(crate) fn wait(&self, py: Python<'_>, stop: &Stop) -> PyResult<T> {
        let mut raised = None;
        loop {
            match py.detach(|| self.result.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(result) => return raised.map_or(Ok(result), Err),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(raised.unwrap_or_else(errors::lost_thread));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        stop.request();
                        raised.get_or_insert(error);
                    }
                }
            }
        }
    }
}

/// A run that delivers into a channel while its consumer takes. Dropping it aborts the run.
#[derive(Debug)]
pub(crate) struct Delivery<T> {
    items: Receiver<T>,
    run: Background<Result<Report, Error>>,
    stop: Arc<Stop>,
    /// The process that started it: its threads do not exist in a fork.
    process: u32,
}

impl<T: Send + 'static> Delivery<T> {
    /// Starts a pipeline whose sink sends into `items`. Does not touch Python.
    pub(crate) fn start(
        pipeline: Pipeline,
        items: Receiver<T>,
        resources: Resources,
    ) -> Result<Self, Error> {
        let stop = Arc::<Stop>::default();
        let Resources { jobs, memory } = resources;
        let options = Options { stop: Arc::clone(&stop), jobs, memory, ..Options::default() };
        let run = Background::start(move || run::run(pipeline, &options))?;
        Ok(Self { items, run, stop, process: process::id() })
    }

    /// The next item; `Ok(Err)` with the result of the run at its end. `is_stopped` is asked while
    /// it waits. Does not touch Python.
    pub(crate) fn next(&self, is_stopped: impl Fn() -> bool) -> Result<Result<T, Report>, Error> {
        self.check_process()?;
        loop {
            match self.items.recv_timeout(SIGNAL_INTERVAL) {
                Ok(item) => return Ok(Ok(item)),
                Err(RecvTimeoutError::Timeout) if is_stopped() => {
                    self.abort();
                    return Err(ErrorKind::Interrupted.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end().map(Err),
            }
        }
    }

    /// Like [`next`](Self::next), for a thread that holds the GIL; looks at signals.
    pub(crate) fn next_attached(&self, py: Python<'_>) -> PyResult<Result<T, Report>> {
        self.check_process().map_err(|error| errors::from_error(py, &error))?;
        loop {
            match py.detach(|| self.items.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(item) => return Ok(Ok(item)),
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| self.abort())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = py.detach(|| self.end());
                    return ended.map(Err).map_err(|error| errors::from_error(py, &error));
                }
            }
        }
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(Error::refused(
            "this stream belongs to the process that was forked: open the log again, or start \
             processes with `spawn`",
        ))
    }

    fn end(&self) -> Result<Report, Error> {
        let lost = || Error::internal("the thread of a run ended without a result");
        self.run.result.recv().unwrap_or_else(|_| Err(lost()))
    }

    fn abort(&self) {
        // The second request ends the run at once.
        self.stop.request();
        self.stop.request();
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
    }
}
