//! Programs that work for a run: what a plugin that starts some says of them beforehand, what they need of
//! their run, and that none of them outlives this process. What it starts is a plugin's business.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Child;
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
pub trait RunHost: Send + Sync {
    /// Passes on a line that a program of this node has said. Must not block.
    fn log_line(&self, node: &str, line: &str);

    /// Whether the run has to end at once.
    fn is_aborted(&self) -> bool;
}

/// What a node has to do with its run while it waits for a program. Cheap to clone.
#[derive(Clone, Default)]
pub struct RunHandle {
    node: Arc<str>,
    host: Option<Arc<dyn RunHost>>,
}

impl RunHandle {
    /// The talk of a node with its run.
    pub fn new(node: impl Into<Arc<str>>, host: Arc<dyn RunHost>) -> Self {
        Self { node: node.into(), host: Some(host) }
    }

    /// The node's name; empty where it is part of no pipeline.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Passes on a line that a program has said.
    pub fn log_line(&self, line: &str) {
        if let Some(host) = &self.host {
            host.log_line(&self.node, line);
        }
    }

    /// Whether the run has to end at once.
    pub fn is_aborted(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.is_aborted())
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Talk({})", self.node)
    }
}

/// The programs that are at work for this process.
static RUNNING: Mutex<RunningPrograms> =
    Mutex::new(RunningPrograms { groups: Vec::new(), is_over: false, files: None });

struct RunningPrograms {
    groups: Vec<Pid>,
    /// Whether this process is about to end.
    is_over: bool,
    /// How many files programs may have open, where that is not how many we may.
    files: Option<u64>,
}

/// A process group of a program and everything it starts, known to [`end_all`] and [`close`] as long as its
/// number is certainly its own.
#[derive(Debug)]
pub struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Starts a program by `spawn`, as the first process of a group of its own.
    ///
    /// `Err` if it cannot be started, and behind [`close`].
    pub fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Self)> {
        // Held while it starts: whoever ends all programs would miss it otherwise.
        let mut at_work = running_programs();
        if at_work.is_over {
            return Err(io::Error::other("everything is ending"));
        }
        let mut child = spawn()?;
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other("no process can have its number"));
        };
        if let Some(files) = at_work.files {
            allow_files(pid, files);
        }
        at_work.groups.push(pid);
        Ok((child, Self(pid)))
    }

    /// Ends all that is left of the group at once. Its first process must not have been waited for: until
    /// then nobody else can have its number.
    pub fn kill(self) {
        // Where nothing is left of it, there is nothing to end.
        let _none_left = kill_process_group(self.0, Signal::KILL);
    }

    /// The number of its first process.
    pub fn leader(&self) -> Pid {
        self.0
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let groups = &mut running_programs().groups;
        if let Some(at) = groups.iter().position(|group| *group == self.0) {
            groups.swap_remove(at);
        }
    }
}

/// Ends every program that works for this process, and all that those have started.
pub fn kill_all() {
    running_programs().kill_all();
}

/// The same, and lets none start any more. For whoever is about to end this process: threads that would have
/// done it do not come to it.
pub fn shut_down() {
    let mut at_work = running_programs();
    at_work.is_over = true;
    at_work.kill_all();
}

/// Has programs that are started from now on begin with this limit of open files, whatever that of this process is:
/// a program that waits by `select` fails beyond the usual one.
pub fn limit_open_files(files: u64) {
    running_programs().files = Some(files);
}

impl RunningPrograms {
    fn kill_all(&self) {
        for group in &self.groups {
            let _none_left = kill_process_group(*group, Signal::KILL);
        }
    }
}

#[cfg(target_os = "linux")]
fn allow_files(process: Pid, files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let limit = Rlimit { current: Some(files), ..getrlimit(Resource::Nofile) };
    // Where that is refused, it has more than it needs.
    let _refused = prlimit(Some(process), Resource::Nofile, limit);
}

#[cfg(not(target_os = "linux"))]
fn allow_files(_: Pid, _: u64) {}

fn running_programs() -> std::sync::MutexGuard<'static, RunningPrograms> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
