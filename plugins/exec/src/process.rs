//! A program at work: whether it is still there, whether it does anything, how it ended, and ending it with
//! all it has started. Reads and writes none of its data.

use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use sluice_core::name::printable;
use sluice_core::programs::{ProcessGroup, RunHandle};
use sluice_core::{Error, ErrorKind};

use crate::child_stderr::ChildStderr;
use crate::launch::StdinMode;

/// How long is waited for data before looking at the program.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a program that wrote something wrong may take to say what was wrong with it.
pub(crate) const STDERR_GRACE: Duration = Duration::from_millis(500);

/// How long the output of a program that has ended may stay open.
const STDOUT_GRACE: Duration = Duration::from_secs(10);

/// How much of a command line is told.
const MAX_SHOWN: usize = 400;

/// Counts what a program takes, gives and says.
pub(crate) type Activity = Arc<AtomicU64>;

/// The ends of a program's pipes that are ours.
pub(crate) struct Pipes {
    /// Nothing where it is given nothing.
    pub(crate) input: Option<PipeWriter>,
    pub(crate) output: ChildStdout,
}

/// A program at work. Ended, with all it has started, when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    line: String,
    child: Child,
    /// Nothing, once all of it has been ended: others may have its number then.
    group: Option<ProcessGroup>,
    /// Whether what it has started may go on writing when it has ended well.
    spares_children: bool,
    /// What it left in its input, where it has ended and what it started was spared.
    spared: Option<u64>,
    /// The end of its input that is its own, as long as it is there: shows what it did not take.
    unread: Option<PipeReader>,
    ended: Option<ProcessExit>,
    stderr: ChildStderr,
    activity: Activity,
    /// What `activity` was when it changed last, and when that was.
    last_activity: (u64, Instant),
    timeout: Option<Duration>,
    talk: RunHandle,
}

#[derive(Clone, Copy, Debug)]
struct ProcessExit {
    status: ExitStatus,
    /// Bytes of its input that it left in the pipe.
    unread: u64,
}

impl Process {
    /// Starts the program that `command` describes.
    pub(crate) fn start(
        mut command: Command,
        stdin: StdinMode,
        line: String,
        timeout: Option<Duration>,
        talk: &RunHandle,
    ) -> io::Result<(Self, Pipes)> {
        let (mut unread, mut input) = (None, None);
        if stdin == StdinMode::Piped {
            let (reader, writer) = io::pipe()?;
            (unread, input) = (Some(reader.try_clone()?), Some(writer));
            command.stdin(reader);
        } else {
            command.stdin(Stdio::null());
        }
        let (mut child, group) = ProcessGroup::start(|| command.spawn())?;
        // Its end of the pipe is held by the command, too.
        drop(command);
        let pipes = child.stdout.take().zip(child.stderr.take());
        let Some((output, errors)) = pipes else {
            group.kill();
            child.wait()?;
            return Err(io::Error::other("it has no pipes"));
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
            unread,
            ended: None,
            stderr,
            activity,
            last_activity: (0, Instant::now()),
            timeout,
            talk: talk.clone(),
        };
        Ok((process, Pipes { input, output }))
    }

    /// What it has started may go on writing when it has ended well, until [`kill_children`](Self::kill_children).
    pub(crate) fn spare_children(&mut self) {
        self.spares_children = true;
    }

    /// What counts what it takes, gives and says.
    pub(crate) fn activity(&self) -> Activity {
        Arc::clone(&self.activity)
    }

    /// From now on the program is waited for: what went by before does not count.
    pub(crate) fn restart_timer(&mut self) {
        self.last_activity = (self.activity.load(Ordering::Relaxed), Instant::now());
    }

    /// Looks whether it is right to go on waiting. `Err` if the run is aborted, or if it has done nothing for
    /// too long: it is ended then. One that has ended takes what it started with it.
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
                "has ended, and something that it started kept its output open without writing for {} s \
                 and was ended; a larger `timeout` waits for longer",
                limit.as_secs_f64()
            );
            return Err(self.error(&what));
        }
        if self.ended.is_some() {
            let what =
                "has ended, and something that it started and that hides from us holds its output";
            return Err(self.error(what));
        }
        self.end();
        let what = format!(
            "has neither taken nor given anything for {} s and was ended; a larger `timeout` lets it be \
             silent for longer",
            limit.as_secs_f64()
        );
        Err(self.error(&what))
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.note_end();
        self.ended.is_some() || self.spared.is_some()
    }

    /// Ends what a program that has ended has left, which was spared so far.
    pub(crate) fn kill_children(&mut self) {
        if let Some(unread) = self.spared.take() {
            self.reap(unread);
            self.stderr.wait(STDERR_GRACE);
        }
    }

    /// Waits until it has ended and all it said has been passed on.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        self.wait_unless(|| false).map(drop)
    }

    /// The same, unless this becomes true meanwhile. Gives whether it has ended by itself.
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
        // What it started may have more to say.
        if self.spared.is_none() {
            self.stderr.wait(STDERR_GRACE);
        }
        Ok(true)
    }

    /// `Err` unless it ended as a program does that could do all it was to do.
    pub(crate) fn check_exit(&mut self) -> Result<(), Error> {
        let Some(ProcessExit { status, .. }) = self.ended else {
            return Err(Error::internal("a program is judged before it has ended"));
        };
        if status.success() { Ok(()) } else { Err(self.error(&describe_exit(status))) }
    }

    /// Bytes of its input that it left when it ended.
    pub(crate) fn unread(&self) -> u64 {
        self.ended.map_or(0, |ended| ended.unread)
    }

    /// The error of a program that did `what`, which it may have something to say to. If it ends in a moment
    /// with a failure of its own, that is what is told.
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

    /// An error of this program: what it did, and the last it said.
    pub(crate) fn error(&self, what: &str) -> Error {
        let said = self.stderr.last(STDERR_GRACE);
        let said = if said.is_empty() { said } else { format!("; the last it said:{said}") };
        let node = self.talk.node();
        let whose = if node.is_empty() { String::new() } else { format!("`{node}`: ") };
        Error::refused(format!("{whose}the program `{}` {what}{said}", display_text(&self.line)))
    }

    /// Ends it at once, with all it has started.
    pub(crate) fn end(&mut self) {
        if self.ended.is_none() {
            let unread = self.spared.take().unwrap_or(0);
            self.reap(unread);
        }
        self.unread = None;
    }

    /// Notes whether it has ended.
    fn note_end(&mut self) {
        let (None, None, Some(group)) = (self.ended, self.spared, &self.group) else { return };
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = waitid(WaitId::Pid(group.leader()), how) else { return };
        let unread = self.unread.take().and_then(|pipe| ioctl_fionread(&pipe).ok()).unwrap_or(0);
        if self.spares_children && status.exit_status() == Some(0) {
            self.spared = Some(unread);
        } else {
            self.reap(unread);
        }
    }

    /// Ends all that is there of it, which then has ended. What it started and left behind is ended before anybody
    /// else can have its number.
    fn reap(&mut self, unread: u64) {
        if let Some(group) = self.group.take() {
            group.kill();
        }
        // It has ended or been killed: this does not take long.
        if let Ok(status) = self.child.wait() {
            self.ended = Some(ProcessExit { status, unread });
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A command line, or another text from options, as it is told: safe for terminals, and no page of it.
pub(crate) fn display_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", printable(text.get(..end).unwrap_or(text))),
        None => printable(text).into_owned(),
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended with exit code 0".to_owned(),
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended in an unknown way".to_owned(),
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
