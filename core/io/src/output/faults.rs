//! Fault injection: makes an output operation fail at a chosen step, so that tests can try every
//! step.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};

use rustix::io::Errno;

/// An operation on outputs that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OutputStep {
    /// Creating or opening a file or folder.
    Create,
    /// Writing bytes.
    Write,
    /// Flushing to disk.
    Sync,
    /// Changing the length of a file.
    Resize,
    /// Renaming a file or folder.
    Rename,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepFault {
    /// No space is left.
    Full,
    /// The device fails.
    Broken,
    /// Half of the bytes are written before space runs out. Steps that write nothing fail
    /// completely.
    Short,
}

/// Makes one step of outputs fail, or all from one on, and counts steps.
///
/// Removing and restoring never fail: no guarantee holds on a disk where they do. Nothing is
/// flushed to disk, since no test can see that, and runs with many files wait long for it.
///
/// With one thread, runs of one pipeline over one input number their steps identically.
#[derive(Debug, Default)]
pub struct FaultInjector {
    fault: Option<(u64, StepFault)>,
    lasts: bool,
    steps: AtomicU64,
    failed_step: OnceLock<OutputStep>,
    /// How syncs in the background fail, and what they wait for before.
    background: Option<(StepFault, Arc<Barrier>)>,
    observer: Option<Observer>,
}

/// What is called before each step, with its number.
struct Observer(Box<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl FaultInjector {
    /// Only counts steps.
    pub fn none() -> Self {
        Self::default()
    }

    /// Makes one step fail, counted from 0.
    pub fn at(step: u64, fault: StepFault) -> Self {
        Self { fault: Some((step, fault)), ..Self::default() }
    }

    /// Makes all steps from this one on fail, counted from 0: a disk that stays full.
    pub fn since(step: u64, fault: StepFault) -> Self {
        Self { lasts: true, ..Self::at(step, fault) }
    }

    /// Makes syncs of a recording in the background fail, each after waiting at `barrier`. They do
    /// not count as steps.
    pub fn in_background(fault: StepFault, barrier: Arc<Barrier>) -> Self {
        Self { background: Some((fault, barrier)), ..Self::default() }
    }

    /// Calls `observer` before each step with its number, counted from 0: what it finds is what a
    /// kill leaves there.
    pub fn observed(observer: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Observer(Box::new(observer))), ..Self::default() }
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The first step that failed, if one did.
    pub fn failed_step(&self) -> Option<OutputStep> {
        self.failed_step.get().copied()
    }

    /// The fault of the next step, if any.
    fn next(&self, step: OutputStep) -> Option<StepFault> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        if let Some(Observer(observer)) = &self.observer {
            observer(number);
        }
        let fails = |at: u64| number == at || (self.lasts && number > at);
        let (_, fault) = self.fault.filter(|(at, _)| fails(*at))?;
        self.failed_step.get_or_init(|| step);
        Some(fault)
    }
}

impl StepFault {
    fn error(self) -> io::Error {
        match self {
            Self::Full | Self::Short => Errno::NOSPC.into(),
            Self::Broken => Errno::IO.into(),
        }
    }
}

/// Returns the injected error of this step, if any.
pub(super) fn inject(faults: Option<&FaultInjector>, step: OutputStep) -> io::Result<()> {
    let fault = faults.and_then(|faults| faults.next(step));
    fault.map_or(Ok(()), |fault| Err(fault.error()))
}

/// Flushes with `sync`. With an injector, this step only succeeds or fails.
pub(super) fn flush(
    faults: Option<&FaultInjector>,
    sync: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match faults {
        Some(_) => inject(faults, OutputStep::Sync),
        None => sync(),
    }
}

/// Like [`flush`], in the background.
pub(super) fn flush_in_background(
    faults: Option<&FaultInjector>,
    sync: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let Some(faults) = faults else { return sync() };
    // As in `flush`, no test can see whether anything was synced.
    let Some((fault, barrier)) = &faults.background else { return Ok(()) };
    barrier.wait();
    Err(fault.error())
}

/// Writes all of `bytes`, unless a fault is injected.
pub(super) fn write_all(
    faults: Option<&FaultInjector>,
    to: &mut impl Write,
    bytes: &[u8],
) -> io::Result<()> {
    failing(faults, bytes, |bytes| to.write_all(bytes))
}

/// Writes all of `bytes` at an offset, unless a fault is injected.
pub(super) fn write_all_at(
    faults: Option<&FaultInjector>,
    file: &File,
    bytes: &[u8],
    at: u64,
) -> io::Result<()> {
    failing(faults, bytes, |bytes| file.write_all_at(bytes, at))
}

fn failing(
    faults: Option<&FaultInjector>,
    bytes: &[u8],
    write: impl FnOnce(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some(fault) = faults.and_then(|faults| faults.next(OutputStep::Write)) else {
        return write(bytes);
    };
    if fault == StepFault::Short {
        write(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
    }
    Err(fault.error())
}
