//! Runs on threads of their own, and how Python waits for them. Knows no table.

use std::process;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sluice_model::options::ByteSize;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::{Pipeline, Report};

use crate::temporary::TemporaryFile;
use crate::{errors, plugins};

/// How long Python waits, or takes what is there, before it looks at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a run may take to end when it is aborted.
const PATIENCE: Duration = Duration::from_secs(1);

/// The resources of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    pub(crate) jobs: Option<usize>,
    pub(crate) memory: Option<ByteSize>,
    /// The log, if it was given as bytes.
    pub(crate) contents: Option<Arc<TemporaryFile>>,
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
        let result = self.wait_while(py, stop, || {
            if let Err(error) = py.check_signals() {
                stop.request();
                raised.get_or_insert(error);
            }
        });
        match raised {
            Some(raised) => Err(raised),
            None => result?.ok_or_else(errors::lost_thread),
        }
    }

    /// Waits for the result, and calls `look` while it does so. Once `stop` aborts the work, ends
    /// its plugins in Python; `None` if one does not end.
    pub(crate) fn wait_while(
        &self,
        py: Python<'_>,
        stop: &Stop,
        mut look: impl FnMut(),
    ) -> PyResult<Option<T>> {
        let mut ending_since = None;
        loop {
            match py.detach(|| self.result.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Disconnected) => return Err(errors::lost_thread()),
                Err(RecvTimeoutError::Timeout) => look(),
            }
            // Only Python's main thread handles signals, so this is the only wait that they abort.
            if !stop.is_aborted() || !plugins::end_aborted(py)? {
                ending_since = None;
            } else if ending_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                plugins::give_up_aborted();
                return Ok(None);
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
    /// When signals were last looked at.
    looked: Mutex<Instant>,
    /// What the run reads is there until its consumer has taken all.
    _contents: Option<Arc<TemporaryFile>>,
}

impl<T: Send + 'static> Delivery<T> {
    /// Starts a pipeline whose sink sends into `items`. Does not touch Python.
    pub(crate) fn start(
        pipeline: Pipeline,
        items: Receiver<T>,
        resources: Resources,
    ) -> Result<Self, Error> {
        let stop = Arc::<Stop>::default();
        let Resources { jobs, memory, contents } = resources;
        let options = Options { stop: Arc::clone(&stop), jobs, memory, ..Options::default() };
        let run = Background::start(move || run::run(pipeline, &options))?;
        let (process, looked) = (process::id(), Mutex::new(Instant::now()));
        Ok(Self { items, run, stop, process, looked, _contents: contents })
    }

    /// The next item; `Ok(Err)` with the result of the run at its end. `is_stopped` is asked for
    /// each item, and while it waits. Does not touch Python.
    pub(crate) fn next(&self, is_stopped: impl Fn() -> bool) -> Result<Result<T, Report>, Error> {
        self.check_process()?;
        loop {
            if is_stopped() {
                self.abort();
                return Err(ErrorKind::Interrupted.into());
            }
            match self.items.recv_timeout(SIGNAL_INTERVAL) {
                Ok(item) => return Ok(Ok(item)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end().map(Err),
            }
        }
    }

    /// Like [`next`](Self::next), for a thread that holds the GIL; looks at signals.
    pub(crate) fn next_attached(
        &self,
        py: Python<'_>,
        is_stopped: impl Fn() -> bool,
    ) -> PyResult<Result<T, Report>> {
        let next = self.next_unless_signalled(py, is_stopped)?;
        next.map_err(|error| errors::from_error(py, &error))
    }

    /// Like [`next`](Self::next); the outer `Err` is what a signal handler raised.
    fn next_unless_signalled(
        &self,
        py: Python<'_>,
        is_stopped: impl Fn() -> bool,
    ) -> PyResult<Result<Result<T, Report>, Error>> {
        if let Err(error) = self.check_process() {
            return Ok(Err(error));
        }
        loop {
            self.look_at_signals(py).inspect_err(|_| self.abort())?;
            if is_stopped() {
                self.abort();
                // On the main thread, Python would raise the signal behind this error once more.
                py.check_signals()?;
                return Ok(Err(ErrorKind::Interrupted.into()));
            }
            match py.detach(|| self.items.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(item) => return Ok(Ok(Ok(item))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(py.detach(|| self.end()).map(Err));
                }
            }
        }
    }

    /// Lets Python handle signals, if it was not asked just now. A consumer in C does not do so
    /// between two items.
    fn look_at_signals(&self, py: Python<'_>) -> PyResult<()> {
        let now = Instant::now();
        {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            if now.duration_since(*looked) < SIGNAL_INTERVAL {
                return Ok(());
            }
            *looked = now;
        }
        // A handler may ask for an item itself.
        py.check_signals()
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
}

impl<T> Delivery<T> {
    /// Ends the run. Whoever waits for its items gets an error.
    fn abort(&self) {
        // The second request ends the run at once.
        self.stop.request();
        self.stop.request();
    }

    /// Waits until an aborted run has ended, but not longer than a second: it may be in a read that
    /// does not return.
    fn wait_for_end(&self) {
        let until = Instant::now() + PATIENCE;
        while self.process == process::id() {
            // Its sink may wait for a consumer.
            match self.items.recv_deadline(until) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    drop(self.run.result.recv_deadline(until));
                    return;
                }
            }
        }
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The delivery that an iterator takes from: in one thread at a time, and until any thread closes
/// it.
///
/// Dropped, it waits until its run has ended: a program may fork behind a loop that it has left.
#[derive(Debug)]
pub(crate) struct SharedDelivery<T: Send>(Mutex<Option<Arc<Delivery<T>>>>);

impl<T: Send> SharedDelivery<T> {
    pub(crate) fn new(delivery: Delivery<T>) -> Self {
        Self(Mutex::new(Some(Arc::new(delivery))))
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Delivery<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts the run.
    fn abort(&self) -> Option<Arc<Delivery<T>>> {
        let delivery = self.open().take();
        delivery.inspect(|delivery| delivery.abort())
    }

    /// Ends the run, and waits until it has ended.
    pub(crate) fn close(&self, py: Python<'_>) {
        if let Some(delivery) = self.abort() {
            py.detach(|| delivery.wait_for_end());
        }
    }
}

impl<T: Send + 'static> SharedDelivery<T> {
    /// Like [`Delivery::next_attached`]; `None` after an error, the end or [`close`](Self::close),
    /// which also ends a wait.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<Result<T, Report>>> {
        let Some(delivery) = self.open().clone() else { return Ok(None) };
        let next = delivery.next_unless_signalled(py, || false);
        let next = next.inspect_err(|_| drop(self.abort()))?;
        if self.open().is_none() {
            return Ok(None);
        }
        if !matches!(next, Ok(Ok(_))) {
            drop(self.abort());
        }
        next.map(Some).map_err(|error| errors::from_error(py, &error))
    }
}

impl<T: Send> Drop for SharedDelivery<T> {
    fn drop(&mut self) {
        // Not while the interpreter is ending.
        Python::try_attach(|py| self.close(py));
    }
}

/// The state of an iterator, for the thread that takes its next item. `Err` if another thread, or
/// the same one below a signal handler, is doing so.
pub(crate) fn turn<S>(state: &Mutex<S>) -> PyResult<MutexGuard<'_, S>> {
    match state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(PyValueError::new_err("the iterator is already waiting for its next item"))
        }
    }
}
