//! Text and JSON on standard output, escaped so that names from logs and pipeline files cannot
//! control a terminal; in an embedded verb, for its caller. Event data is written elsewhere,
//! unescaped.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use sluice_io::escape::{json_escaped, path_text, printable, printable_lines};

use crate::shell::Shell;

/// Makes writing to standard output and standard error wait for a slow reader. Whoever started this
/// program may have made them non-blocking; then writing fails once a pipe is full.
pub(crate) fn wait_for_readers() {
    // On failure, they stay as they are.
    let _unchanged = make_blocking(io::stdout(), "/proc/self/fd/1", dup2_stdout);
    let _unchanged = make_blocking(io::stderr(), "/proc/self/fd/2", dup2_stderr);
}

/// Replaces a stream that does not block by one that does. Others that share the stream may rely on
/// its mode: it is opened again if the system allows that, which it does for pipes.
fn make_blocking(
    stream: impl AsFd,
    name: &str,
    replace: impl Fn(OwnedFd) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(&stream)?;
    if !flags.contains(OFlags::NONBLOCK) {
        return Ok(());
    }
    let is_pipe = FileType::from_raw_mode(fstat(&stream)?.st_mode) == FileType::Fifo;
    // Opening a pipe that nobody reads would wait for a reader.
    let opened = || open(name, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    match is_pipe.then(opened) {
        Some(Ok(own)) => {
            fcntl_setfl(&own, fcntl_getfl(&own)? - OFlags::NONBLOCK)?;
            replace(own)
        }
        _ => fcntl_setfl(&stream, flags - OFlags::NONBLOCK),
    }
}

/// Prints lines of text. Names in it must already be [`printable`], so that none spans several
/// lines.
pub(crate) fn text(text: &str, shell: &Shell) -> io::Result<()> {
    match shell.embedding() {
        Some(_) => unescaped(text, shell),
        None => unescaped(&printable_lines(text), shell),
    }
}

/// Prints text of the program, or of a pipeline file, as it is.
pub(crate) fn unescaped(text: &str, shell: &Shell) -> io::Result<()> {
    match shell.embedding() {
        Some(embedding) => embedding.print(text),
        None => io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

/// The result of printing, for commands whose result is their exit code: they do not end because
/// the reader has seen enough.
pub(crate) fn unless_closed(printed: io::Result<()>) -> io::Result<()> {
    printed.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// Prints JSON on a line. Escaping does not change its meaning.
pub(crate) fn json(json: &str, shell: &Shell) -> io::Result<()> {
    text(&(json_escaped(json).into_owned() + "\n"), shell)
}

/// A path, escaped for use within a line.
pub(crate) fn printable_path(path: &std::path::Path) -> String {
    printable(&path_text(path)).into_owned()
}
