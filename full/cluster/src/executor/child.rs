//! The child processes that run units: starts them, hands them orders, relays their output, and
//! stops them.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::context::{MessageSender, send_message};
use crate::unit::{END_OF_UNIT, UnitResult};

/// How long a cancelled process may take to stop its own children and exit.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// The most of a line that is kept.
const MAX_LINE: u64 = 64 << 10;

/// How a unit ended.
#[derive(Debug)]
pub(super) enum UnitExit {
    /// The process reported a result.
    Finished(UnitResult),
    /// The process ended without a result; how.
    Crashed(String),
    /// It was cancelled.
    Cancelled,
}

/// A child process of this program that runs units, one after the other, in one working directory.
/// Killed when dropped.
#[derive(Debug)]
pub(super) struct UnitProcess {
    folder: PathBuf,
    child: Child,
    /// The process exits when this closes.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl UnitProcess {
    /// Starts a process. Must be called on a Tokio runtime.
    pub(super) fn start(arguments: &[String], folder: &Path) -> io::Result<Self> {
        let mut child = command(arguments, folder).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) =
            pipes.ok_or_else(|| io::Error::other("the child process has no pipes"))?;
        let (output, errors) = (BufReader::new(output), BufReader::new(errors));
        Ok(Self { folder: folder.to_owned(), child, input, output, errors })
    }

    /// Whether it can run an order in this working directory.
    pub(super) fn is_ready_in(&mut self, folder: &Path) -> bool {
        self.folder == folder && matches!(self.child.try_wait(), Ok(None))
    }

    /// Runs an order. Sending on `end`, or dropping its sender, cancels it.
    ///
    /// Returns the process too if it can run another order: if it has delivered this one.
    pub(super) async fn run(
        mut self,
        order: &str,
        name: &str,
        messages: &MessageSender,
        end: oneshot::Receiver<()>,
    ) -> io::Result<(UnitExit, Option<Self>)> {
        let Self { child, input, output, errors, .. } = &mut self;
        let feed = async {
            // A process that dies before it has read its order reports why on stderr.
            drop(input.write_all(format!("{order}\n").as_bytes()).await);
            drop(input.flush().await);
        };
        let result = async { tokio::join!(read_result(output), feed).0 };
        let work = with_messages(result, forward_stderr(errors, name, messages));
        let ended = tokio::select! {
            ended = until_exit(child, work) => Some(ended?),
            _ = end => None,
        };
        Ok(match ended {
            Some(Ok((result, has_all_messages))) => {
                let is_reusable = result == UnitResult::Delivered && has_all_messages;
                (UnitExit::Finished(result), is_reusable.then_some(self))
            }
            Some(Err(status)) => {
                let crash = format!("its process ended without a result: {status}");
                (UnitExit::Crashed(crash), None)
            }
            None => {
                self.end().await;
                (UnitExit::Cancelled, None)
            }
        })
    }

    /// Ends the process, if need be by force.
    async fn end(mut self) {
        drop(self.input);
        if timeout(EXIT_GRACE, self.child.wait()).await.is_err() {
            // If that fails, it has exited meanwhile.
            drop(self.child.kill().await);
        }
    }
}

/// A unit's result, and whether all its messages were relayed before the next unit's.
type UnitEnd = (UnitResult, bool);

/// Waits for the result, while messages are relayed, and then for the last messages, but not for
/// long: whatever else writes to the same pipe may have garbled their end.
async fn with_messages(
    result: impl Future<Output = Option<UnitResult>>,
    messages: impl Future<Output = bool>,
) -> Option<UnitEnd> {
    let (mut result, mut messages) = (pin!(result), pin!(messages));
    let mut relayed = None;
    let result = loop {
        tokio::select! {
            result = &mut result => break result,
            all = &mut messages, if relayed.is_none() => relayed = Some(all),
        }
    };
    let relayed = match relayed {
        Some(all) => all,
        None => timeout(EXIT_GRACE, messages).await.unwrap_or(false),
    };
    result.map(|result| (result, relayed))
}

/// Waits for the result of the work, or until the process has exited without one. Processes that it
/// left behind may hold its pipes open; after `EXIT_GRACE` they are ignored.
async fn until_exit(
    child: &mut Child,
    work: impl Future<Output = Option<UnitEnd>>,
) -> io::Result<Result<UnitEnd, ExitStatus>> {
    let (mut work, mut exited) = (pin!(work), None);
    let end = loop {
        tokio::select! {
            end = &mut work => break end,
            status = child.wait(), if exited.is_none() => exited = Some(status?),
            () = sleep(EXIT_GRACE), if exited.is_some() => break None,
        }
    };
    match (end, exited) {
        (Some(end), _) => Ok(Ok(end)),
        (None, Some(status)) => Ok(Err(status)),
        (None, None) => child.wait().await.map(Err),
    }
}

fn command(arguments: &[String], folder: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg0("sluice");
    command.args(["cluster", "unit"]).args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Its own process group: Ctrl-C in the executor's terminal is for the executor.
    command.process_group(0).kill_on_drop(true);
    command
}

/// The path of this program, even if its file was replaced meanwhile.
pub(crate) fn program() -> std::path::PathBuf {
    let itself = Path::new("/proc/self/exe");
    if itself.exists() {
        return itself.to_owned();
    }
    std::env::current_exe().unwrap_or_else(|_| "sluice".into())
}

/// The result that the process prints, or `None` if it ends without one.
async fn read_result(output: &mut BufReader<ChildStdout>) -> Option<UnitResult> {
    loop {
        if let Ok(result) = serde_json::from_str(&next_line(output).await?) {
            return Some(result);
        }
    }
}

/// Relays the lines of a child's stderr, prefixed with the name of its unit, up to the end of the
/// unit. False if stderr ends before.
async fn forward_stderr(
    errors: &mut BufReader<ChildStderr>,
    name: &str,
    messages: &MessageSender,
) -> bool {
    while let Some(line) = next_line(errors).await {
        // A program that was run may have written the start of the line.
        let (message, is_end) = match line.strip_suffix(END_OF_UNIT) {
            Some(message) => (message, true),
            None => (&*line, false),
        };
        if !message.is_empty() {
            send_message(messages, format!("{name}: {message}")).await;
        }
        if is_end {
            return true;
        }
    }
    false
}

/// The next line that is not empty, cut at `MAX_LINE`.
async fn next_line<R: tokio::io::AsyncRead + Unpin>(from: &mut BufReader<R>) -> Option<String> {
    loop {
        let mut line = Vec::new();
        let read = (&mut *from).take(MAX_LINE).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|length| length > 0) {
            return None;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !line.is_empty() {
            return Some(line);
        }
    }
}
