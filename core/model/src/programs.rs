//! Child processes of a run: how plugins declare them, and how they are killed
//! with this process.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// A program that a plugin runs with certain options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its command line, for display: a program runs with the user's rights, so it is shown and
    /// must be allowed.
    pub line: String,
    /// The files named by its command, whose contents determine what it does.
    pub files: Vec<PathBuf>,
}

/// The child processes of this process.
static RUNNING: Mutex<RunningPrograms> =
    Mutex::new(RunningPrograms { groups: Vec::new(), is_over: false, files: None });

struct RunningPrograms {
    groups: Vec<Pid>,
    /// Whether this process is shutting down.
    is_over: bool,
    /// The limit of open files for child processes, if it differs from ours.
    files: Option<u64>,
}

/// The process group of a program and everything it starts, registered for [`kill_all`] and
/// [`shut_down`] while its id cannot be reused.
#[derive(Debug)]
pub struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Starts a program with `spawn`, as the leader of its own process group.
    ///
    /// `Err` if it cannot be started, or after [`shut_down`].
    pub fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Self)> {
        // Hold the lock while it starts: otherwise `kill_all` could miss it.
        let mut running = running_programs();
        if running.is_over {
            return Err(io::Error::other("the process is shutting down"));
        }
        let mut child = spawn()?;
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other("invalid process id"));
        };
        if let Some(files) = running.files {
            allow_files(pid, files);
        }
        running.groups.push(pid);
        Ok((child, Self(pid)))
    }

    /// Kills what is left of the group. Its leader must not have been waited for: until then its id
    /// cannot be reused.
    pub fn kill(self) {
        // An empty group is not an error.
        let _none_left = kill_process_group(self.0, Signal::KILL);
    }

    /// The id of its leader.
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

/// Kills every child process and everything they have started.
pub fn kill_all() {
    running_programs().kill_all();
}

/// Like [`kill_all`], and prevents new ones from starting. For use right before this process exits.
pub fn shut_down() {
    let mut running = running_programs();
    running.is_over = true;
    running.kill_all();
}

/// Sets the limit of open files for programs started from now on: programs that use `select` fail
/// beyond the usual one.
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
    // On failure it keeps the higher limit.
    let _refused = prlimit(Some(process), Resource::Nofile, limit);
}

#[cfg(not(target_os = "linux"))]
fn allow_files(_: Pid, _: u64) {}

fn running_programs() -> std::sync::MutexGuard<'static, RunningPrograms> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
