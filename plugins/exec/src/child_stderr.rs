//! Passes on a program's standard error line by line, cleaned and bounded, and keeps the last
//! lines.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use sluice_io::escape::printable_sentence;
use sluice_model::{Error, RunHandle};

use crate::activity::Activity;

/// The maximum length of a line to pass on.
const MAX_LINE_LEN: usize = 2000;
/// The maximum number of lines to pass on.
const MAX_LINES: u64 = 1000;
/// How many of the last lines to keep.
const KEPT_LINES: usize = 12;

/// The standard error of a child process.
#[derive(Debug)]
pub(crate) struct ChildStderr {
    /// Raw lines, truncated.
    last: Arc<Mutex<VecDeque<Vec<u8>>>>,
    over: Receiver<()>,
}

impl ChildStderr {
    /// Reads `from` to its end on a thread of its own. Each line counts as activity.
    pub(crate) fn listen(
        from: impl Read + Send + 'static,
        talk: RunHandle,
        activity: Activity,
    ) -> Result<Self, Error> {
        let last = Arc::<Mutex<VecDeque<Vec<u8>>>>::default();
        let (kept, (sender, over)) = (Arc::clone(&last), bounded(1));
        let listen = move || {
            pass_on(from, &talk, &activity, &kept);
            drop(sender);
        };
        let thread = std::thread::Builder::new().name("sluice-stderr".into());
        thread
            .spawn(listen)
            .map_err(|e| Error::io("start a thread to listen to", "a program", e))?;
        Ok(Self { last, over })
    }

    /// Waits until everything has been passed on, at most for `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        // Nothing is ever received: the channel is closed at the end.
        let _over = self.over.recv_timeout(patience);
    }

    /// The last lines, each on a line of its own, after waiting at most for `patience`.
    pub(crate) fn last(&self, patience: Duration) -> String {
        self.wait(patience);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(|line| format!("\n  {}", cleaned(line))).collect()
    }
}

fn pass_on(
    from: impl Read,
    talk: &RunHandle,
    activity: &Activity,
    kept: &Mutex<VecDeque<Vec<u8>>>,
) {
    let mut from = BufReader::new(from);
    let (mut lines, mut line) = (0u64, Vec::new());
    while next_line(&mut from, &mut line) {
        activity.fetch_add(1, Ordering::Relaxed);
        lines += 1;
        match lines {
            ..=MAX_LINES => talk.log_line(&cleaned(&line)),
            lines if lines == MAX_LINES + 1 => talk.log_line("(more is not shown)"),
            _ => {}
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if kept.len() == KEPT_LINES { kept.pop_front() } else { None };
        kept.push_back(std::mem::replace(&mut line, oldest.unwrap_or_default()));
    }
}

/// Reads the next line, up to the maximum length; returns whether there was one.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> bool {
    line.clear();
    let mut begun = false;
    loop {
        let found = from.fill_buf().ok().filter(|found| !found.is_empty());
        let Some(found) = found else { return begun };
        begun = true;
        let end = found.iter().position(|byte| *byte == b'\n');
        let part = found.get(..end.unwrap_or(found.len())).unwrap_or_default();
        let room = (MAX_LINE_LEN + 1).saturating_sub(line.len());
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return true;
        }
    }
}

/// A line as text that is safe for terminals.
fn cleaned(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line.get(..MAX_LINE_LEN).unwrap_or(line));
    let more = if line.len() > MAX_LINE_LEN { "…" } else { "" };
    format!("{}{more}", printable_sentence(&text.replace('\t', "    ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_cleaned_and_the_last_are_kept() {
        let mut text = b"first\n".to_vec();
        text.extend(vec![b'x'; MAX_LINE_LEN * 3]);
        text.extend(b"\n\x1b[31mred\r\nno end");
        let stderr = ChildStderr::listen(
            std::io::Cursor::new(text),
            RunHandle::default(),
            Activity::default(),
        )
        .unwrap();
        let message = stderr.last(Duration::from_secs(60));
        let lines: Vec<&str> = message.lines().skip(1).map(str::trim).collect();
        assert_eq!((lines[0], lines[2], lines[3]), ("first", "\\u{1b}[31mred", "no end"));
        assert_eq!(lines[1].chars().count(), MAX_LINE_LEN + 1);
    }

    #[test]
    fn backslashes_stay_as_the_program_wrote_them() {
        let line = r"cannot open C:\new\readings\u{1}.txt";
        assert_eq!(cleaned(line.as_bytes()), line);
    }

    #[test]
    fn of_many_lines_the_last_are_kept() {
        let text: String = (0..MAX_LINES + 50).map(|n| format!("{n}\n")).collect();
        let stderr = ChildStderr::listen(
            std::io::Cursor::new(text),
            RunHandle::default(),
            Activity::default(),
        )
        .unwrap();
        assert_eq!(stderr.last(Duration::from_secs(60)).lines().count(), KEPT_LINES + 1);
    }
}
