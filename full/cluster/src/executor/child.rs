//! The child process that runs one unit: starts it, relays its output, and stops it.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::context::{MessageSender, send_message};
use crate::unit::UnitResult;

/// How long a cancelled process may take to stop its own children and exit.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// The most of a line that is kept.
const MAX_LINE: u64 = 64 << 10;

/// How a process ended.
#[derive(Debug)]
pub(super) enum ChildExit {
    /// It exited and reported a result.
    Finished(UnitResult),
    /// It exited without a result; how.
    Crashed(String),
    /// It was cancelled.
    Cancelled,
}

/// Runs an order in a child process of this program, with `folder` as its working directory.
/// Sending on `end`, or dropping its sender, cancels the process.
///
/// `Err` if the process cannot be started.
pub(super) async fn run_unit(
    arguments: &[String],
    folder: &Path,
    order: &str,
    name: &str,
    messages: &MessageSender,
    end: oneshot::Receiver<()>,
) -> io::Result<ChildExit> {
    let mut child = command(arguments, folder).spawn()?;
    let Some(((mut input, output), errors)) =
        child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take())
    else {
        return Err(io::Error::other("the child process has no pipes"));
    };
    let last = Mutex::new(String::new());
    let pipes = async {
        let feed = async {
            // A process that dies before it has read its order reports why on stderr.
            drop(input.write_all(format!("{order}\n").as_bytes()).await);
            drop(input.flush().await);
        };
        tokio::join!(keep_last_line(output, &last), forward_stderr(errors, name, messages), feed);
    };
    let mut pipes = Box::pin(pipes);
    // Its stdin stays open until here: the process exits when stdin closes.
    let status = tokio::select! {
        status = wait_for_exit(&mut child, &mut pipes) => Some(status?),
        _ = end => None,
    };
    drop(pipes);
    drop(input);
    match status {
        Some(status) => {
            Ok(classify_exit(status, &last.lock().unwrap_or_else(PoisonError::into_inner)))
        }
        None => {
            end_child(&mut child).await;
            Ok(ChildExit::Cancelled)
        }
    }
}

/// Waits until the process has exited and its pipes are closed. Processes that it left behind may
/// hold the pipes open; after `EXIT_GRACE` they are ignored.
async fn wait_for_exit(
    child: &mut Child,
    pipes: &mut (impl Future<Output = ()> + Unpin),
) -> io::Result<ExitStatus> {
    let (mut ended, mut pipes_done) = (None, false);
    loop {
        tokio::select! {
            () = &mut *pipes, if !pipes_done => pipes_done = true,
            status = child.wait(), if ended.is_none() => ended = Some(status?),
            () = sleep(EXIT_GRACE), if ended.is_some() => pipes_done = true,
        }
        if let (Some(status), true) = (ended, pipes_done) {
            return Ok(status);
        }
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

async fn end_child(child: &mut Child) {
    if timeout(EXIT_GRACE, child.wait()).await.is_err() {
        // If that fails, it has exited meanwhile.
        drop(child.kill().await);
    }
}

fn classify_exit(status: ExitStatus, last: &str) -> ChildExit {
    match serde_json::from_str(last) {
        Ok(ended) if status.success() => ChildExit::Finished(ended),
        _ => ChildExit::Crashed(format!("its process ended without a result: {status}")),
    }
}

async fn keep_last_line(output: ChildStdout, last: &Mutex<String>) {
    let mut lines = BufReader::new(output);
    while let Some(line) = next_line(&mut lines).await {
        *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }
}

/// Relays the lines of a child's stderr, prefixed with the name of its unit.
async fn forward_stderr(errors: ChildStderr, name: &str, messages: &MessageSender) {
    let mut lines = BufReader::new(errors);
    while let Some(line) = next_line(&mut lines).await {
        send_message(messages, format!("{name}: {line}")).await;
    }
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
