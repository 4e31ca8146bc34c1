//! Failures on purpose: lets an output fail at a step of one's choice, so that tests can try every one. Runs
//! of users have none.
//!
//! Does not decide what is to become of outputs then: that is what is tried.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Something that is done to outputs, and that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OutputStep {
    /// A file or folder is made or opened.
    Create,
    /// Bytes are written.
    Write,
    /// What was written is brought to the disk.
    Sync,
    /// A file is made longer or shorter.
    Resize,
    /// A file or folder gets another name.
    Rename,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepFault {
    /// There is no space left.
    Full,
    /// The device does not work.
    Broken,
    /// There is space for half of what is written. Steps that write nothing fail as a whole.
    Short,
}

/// Lets one step of outputs fail, or all from one on, and counts the steps.
///
/// Removing and putting back never fail: nothing is promised of a disk on which they do.
///
/// Steps have the same numbers in runs of one pipeline over one input, if these have one thread.
#[derive(Debug, Default)]
pub struct FaultInjector {
    fault: Option<(u64, StepFault)>,
    lasts: bool,
    steps: AtomicU64,
    struck: OnceLock<OutputStep>,
}

impl FaultInjector {
    /// No step fails; they are only counted.
    pub fn none() -> Self {
        Self::default()
    }

    /// The step of this number fails, counted from 0; those after it do not.
    pub fn at(step: u64, fault: StepFault) -> Self {
        Self { fault: Some((step, fault)), ..Self::default() }
    }

    /// The step of this number fails, counted from 0, and all after it: a disk that stays full.
    pub fn since(step: u64, fault: StepFault) -> Self {
        Self { lasts: true, ..Self::at(step, fault) }
    }

    /// How many steps there were so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The first step that failed, if one did.
    pub fn struck(&self) -> Option<OutputStep> {
        self.struck.get().copied()
    }

    /// How the next step fails, if it does.
    fn next(&self, step: OutputStep) -> Option<StepFault> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        let fails = |at: u64| number == at || (self.lasts && number > at);
        let (_, fault) = self.fault.filter(|(at, _)| fails(*at))?;
        self.struck.get_or_init(|| step);
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

/// `Err` if this step is to fail.
pub(super) fn ask(faults: Option<&FaultInjector>, step: OutputStep) -> io::Result<()> {
    let fault = faults.and_then(|faults| faults.next(step));
    fault.map_or(Ok(()), |fault| Err(fault.error()))
}

/// Writes all of `bytes`, unless that is to fail.
pub(super) fn write_all(
    faults: Option<&FaultInjector>,
    to: &mut impl Write,
    bytes: &[u8],
) -> io::Result<()> {
    failing(faults, bytes, |bytes| to.write_all(bytes))
}

/// Writes all of `bytes` at a place of a file, unless that is to fail.
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
