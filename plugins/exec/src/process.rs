//! A running child process: whether it is active, how it ended, and killing it with its children.

use std::io::{self, PipeReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{WaitId, WaitIdOptions, waitid};
use sluice_io::escape::printable;
use sluice_model::programs::ProcessGroup;
use sluice_model::{Error, ErrorKind, RunHandle};

use crate::activity::Activity;
use crate::child_stderr::ChildStderr;
use crate::stdin::{ProgramInput, SentBytes};

/// How long to wait for data between checks of the program.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long to wait for a program's last messages after an error.
pub(crate) const STDERR_GRACE: Duration = Duration::from_millis(500);

/// How long the output of a program may stay open after it exited.
const STDOUT_GRACE: Duration = Duration::from_secs(10);

/// The maximum length of a command line in messages.
const MAX_SHOWN: usize = 400;

/// What a program gets on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdinMode {
    Piped,
    Null,
}

/// Our ends of a program's pipes.
pub(crate) struct Pipes {
    /// `None` if it gets no input.
    pub(crate) input: Option<ProgramInput>,
    pub(crate) output: ChildStdout,
}

/// A running program. Dropping this kills it and its children.
#[derive(Debug)]
pub(crate) struct Process {
    line: String,
    child: Child,
    /// `None` after all of it was killed: the group's id may be in use again.
    group: Option<ProcessGroup>,
    /// Whether its children may continue after it succeeded.
    spares_children: bool,
    /// The bytes that it read of its input, if it exited and its children were spared.
    spared: Option<u64>,
    sent: Arc<SentBytes>,
    /// Its end of its input, while it exists: shows what was not read.
    input_end: Option<PipeReader>,
    ended: Option<ProcessExit>,
    stderr: ChildStderr,
    activity: Activity,
    /// The last value of `activity`, and when it changed.
    last_activity: (u64, Instant),
    timeout: Option<Duration>,
    talk: RunHandle,
}

#[derive(Clone, Copy, Debug)]
struct ProcessExit {
    status: ExitStatus,
    /// How many bytes of its input it read.
    read: u64,
}

impl Process {
    /// Starts the program of `command`.
    pub(crate) fn start(
        mut command: Command,
        stdin: StdinMode,
        line: String,
        timeout: Option<Duration>,
        talk: &RunHandle,
    ) -> io::Result<(Self, Pipes)> {
        let (mut input_end, mut input) = (None, None);
        let sent = Arc::<SentBytes>::default();
        if stdin == StdinMode::Piped {
            let (reader, pipe) = io::pipe()?;
            input_end = Some(reader.try_clone()?);
            input = Some(ProgramInput { pipe, sent: Arc::clone(&sent) });
            command.stdin(reader);
        } else {
            command.stdin(Stdio::null());
        }
        let (mut child, group) = ProcessGroup::start(|| command.spawn())?;
        // The command also holds its end of the pipe.
        drop(command);
        let pipes = child.stdout.take().zip(child.stderr.take());
        let Some((output, errors)) = pipes else {
            group.kill();
            child.wait()?;
            return Err(io::Error::other("its output is not piped"));
        };
        let activity = Activity::default();
        let stderr = ChildStderr::listen(errors, talk.clone(), Arc::clone(&activity));
        let stderr = match stderr {
            Ok(stderr) => stderr,
            Err(error) => {
                group.kill();
                child.wait()?;
                return Err(io::Error::other(error.to_string()));
            }
        };
        let process = Self {
            line,
            child,
            group: Some(group),
            spares_children: false,
            spared: None,
            sent,
            input_end,
            ended: None,
            stderr,
            activity,
            last_activity: (0, Instant::now()),
            timeout,
            talk: talk.clone(),
        };
        Ok((process, Pipes { input, output }))
    }

    /// Lets its children continue after it succeeded, until [`kill_children`](Self::kill_children).
    pub(crate) fn spare_children(&mut self) {
        self.spares_children = true;
    }

    /// The counter of its activity.
    pub(crate) fn activity(&self) -> Activity {
        Arc::clone(&self.activity)
    }

    /// Restarts the inactivity timer.
    pub(crate) fn restart_timer(&mut self) {
        self.last_activity = (self.activity.load(Ordering::Relaxed), Instant::now());
    }

    /// Checks whether to continue waiting. `Err` if the run is aborted or the program was inactive
    /// for too long, and is killed. If it has exited, its children are killed.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        if self.talk.is_aborted() {
            self.end();
            return Err(ErrorKind::Aborted.into());
        }
        self.note_end();
        let now = self.activity.load(Ordering::Relaxed);
        if now != self.last_activity.0 {
            self.last_activity = (now, Instant::now());
        }
        let limit = if self.ended.is_some() { Some(STDOUT_GRACE) } else { self.timeout };
        let Some(limit) = limit.filter(|limit| self.last_activity.1.elapsed() >= *limit) else {
            return Ok(());
        };
        if self.spared.is_some() {
            self.end();
            let what = format!(
                "has exited, but a child of it kept its output open without writing for {} s and \
                 was killed; a larger `timeout` waits longer",
                limit.as_secs_f64()
            );
            return Err(self.error(&what));
        }
        if self.ended.is_some() {
            let what = "has exited, but a hidden child of it keeps its output open";
            return Err(self.error(what));
        }
        self.end();
        let what = format!(
            "was inactive for {} s and was killed; a larger `timeout` waits longer",
            limit.as_secs_f64()
        );
        Err(self.error(&what))
    }

    /// Whether it has exited by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.note_end();
        self.ended.is_some() || self.spared.is_some()
    }

    /// Kills the children of a program that has exited, which were spared so far.
    pub(crate) fn kill_children(&mut self) {
        if let Some(read) = self.spared.take() {
            self.reap(read);
            self.stderr.wait(STDERR_GRACE);
        }
    }

    /// Waits until it has exited and all its messages were passed on.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        self.wait_unless(|| false).map(drop)
    }

    /// The same, unless `given_up` becomes true. Returns whether it exited by itself.
    pub(crate) fn wait_unless(&mut self, given_up: impl Fn() -> bool) -> Result<bool, Error> {
        self.restart_timer();
        let mut pause = Duration::from_micros(200);
        while !self.has_ended() {
            if given_up() {
                self.end();
                return Ok(false);
            }
            self.check_alive()?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL_INTERVAL / 5);
        }
        // Its children may have more to say.
        if self.spared.is_none() {
            self.stderr.wait(STDERR_GRACE);
        }
        Ok(true)
    }

    /// `Err` unless it succeeded.
    pub(crate) fn check_exit(&mut self) -> Result<(), Error> {
        let Some(ProcessExit { status, .. }) = self.ended else {
            return Err(Error::internal("a program is checked before it has exited"));
        };
        if status.success() { Ok(()) } else { Err(self.error(&describe_exit(status))) }
    }

    /// How many bytes of what was written to it so far it had not read when it exited.
    pub(crate) fn unread(&self) -> u64 {
        self.ended.map_or(0, |ended| self.sent.total().saturating_sub(ended.read))
    }

    /// The error of a program that did `what`, after waiting briefly for its own messages. If it
    /// fails by itself meanwhile, that is the error.
    pub(crate) fn failed(&mut self, what: &str) -> Error {
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < STDERR_GRACE && !self.talk.is_aborted() {
            std::thread::sleep(POLL_INTERVAL / 10);
        }
        match self.ended {
            Some(ProcessExit { status, .. }) if !status.success() => {
                let what = format!("{} (it {what})", describe_exit(status));
                self.error(&what)
            }
            _ => {
                self.end();
                self.error(what)
            }
        }
    }

    /// An error of this program: what it did, and its last messages.
    pub(crate) fn error(&self, what: &str) -> Error {
        let said = self.stderr.last(STDERR_GRACE);
        let said = if said.is_empty() { said } else { format!("; its last messages:{said}") };
        let node = self.talk.node();
        let whose = if node.is_empty() { String::new() } else { format!("`{node}`: ") };
        Error::refused(format!("{whose}the program `{}` {what}{said}", display_text(&self.line)))
    }

    /// Kills it at once, with its children.
    pub(crate) fn end(&mut self) {
        if self.ended.is_none() {
            let read = self.spared.take().unwrap_or(u64::MAX);
            self.reap(read);
        }
        self.input_end = None;
    }

    /// Checks whether it has exited.
    fn note_end(&mut self) {
        let (None, None, Some(group)) = (self.ended, self.spared, &self.group) else { return };
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = waitid(WaitId::Pid(group.leader()), how) else { return };
        let read = self.input_end.take().map_or(0, |pipe| self.sent.read_from(&pipe));
        if self.spares_children && status.exit_status() == Some(0) {
            self.spared = Some(read);
        } else {
            self.reap(read);
        }
    }

    /// Kills what is left of it and reaps it. Its children are killed before their ids can be
    /// reused.
    fn reap(&mut self, read: u64) {
        if let Some(group) = self.group.take() {
            group.kill();
        }
        // It has exited or was killed, so this returns soon.
        if let Ok(status) = self.child.wait() {
            self.ended = Some(ProcessExit { status, read });
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Text from options as shown in messages: safe for terminals, and not too long.
pub(crate) fn display_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", printable(text.get(..end).unwrap_or(text))),
        None => printable(text).into_owned(),
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "exited with code 0".to_owned(),
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended for an unknown reason".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        6 => " (SIGABRT)",
        9 => " (SIGKILL; it may have used too much memory)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
