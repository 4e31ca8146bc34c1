//! Programs that work for a run: what a plugin that starts some says of them beforehand, what they need of
//! their run, and that none of them outlives this process. Starts none itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// A program that a plugin runs when it is given certain options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its command line, for people: a program runs with the rights of whoever started the run, so it is
    /// shown and has to be allowed.
    pub line: String,
    /// The files that its command names. What is in them decides what it does.
    pub files: Vec<PathBuf>,
}

/// The run, as far as a program that works for it is concerned.
pub trait Host: Send + Sync {
    /// Passes on a line that a program of this node has said. Must not block.
    fn say(&self, node: &str, line: &str);

    /// Whether the run has to end at once.
    fn is_aborted(&self) -> bool;
}

/// What a node has to do with its run while it waits for a program. Cheap to clone.
#[derive(Clone, Default)]
pub struct Talk {
    node: Arc<str>,
    host: Option<Arc<dyn Host>>,
}

impl Talk {
    /// The talk of a node with its run.
    pub fn new(node: impl Into<Arc<str>>, host: Arc<dyn Host>) -> Self {
        Self { node: node.into(), host: Some(host) }
    }

    /// The node's name; empty where it is part of no pipeline.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Passes on a line that a program has said.
    pub fn say(&self, line: &str) {
        if let Some(host) = &self.host {
            host.say(&self.node, line);
        }
    }

    /// Whether the run has to end at once.
    pub fn is_aborted(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.is_aborted())
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Talk({})", self.node)
    }
}

/// The process groups that are at work for this process.
static AT_WORK: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A process group of a program and everything it starts, known to
/// [`end_all`] until it is dropped.
#[derive(Debug)]
pub struct Group(Pid);

impl Group {
    /// The group of a process that was started as the first of a group of its own.
    ///
    /// Nothing if a process cannot have that number.
    pub fn of(process: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        at_work().push(pid);
        Some(Self(pid))
    }

    /// Ends all that is left of the group at once. Its first process must not have been waited for: until
    /// then nobody else can have its number.
    pub fn end(&self) {
        // Where nothing is left of it, there is nothing to end.
        let _none_left = kill_process_group(self.0, Signal::KILL);
    }

    /// The number of its first process.
    pub fn process(&self) -> Pid {
        self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut groups = at_work();
        if let Some(at) = groups.iter().position(|group| *group == self.0) {
            groups.swap_remove(at);
        }
    }
}

/// Ends every program that works for this process. For whoever is about to end it: threads that would
/// have done it do not come to it any more.
pub fn end_all() {
    for group in at_work().iter() {
        let _none_left = kill_process_group(*group, Signal::KILL);
    }
}

fn at_work() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    AT_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}
