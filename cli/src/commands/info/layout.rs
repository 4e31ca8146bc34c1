//! How wide lines may be, and lines of words that fit. Knows nothing of logs.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::terminal::{clipped, width};

/// How wide lines are where nothing else is known.
const USUAL: usize = 80;

/// Narrower terminals break lines by themselves.
const NARROWEST: usize = 60;

/// A blank between words that belong together.
pub(super) const FIXED: char = '\u{a0}';

/// How wide lines may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) width: usize,
}

impl Layout {
    /// That of standard output: the terminal's, or 80 columns, so that what a pipe gets is always
    /// the same.
    pub(super) fn of_stdout() -> Self {
        let stdout = io::stdout();
        let columns = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten();
        let columns = columns.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Self { width: columns.unwrap_or(USUAL).max(NARROWEST) }
    }

    /// Appends words behind `head`, in lines that begin with `indent` blanks. Only a word that is
    /// longer than a line is cut. A [`FIXED`] blank is one, but no line ends there.
    pub(super) fn write(self, head: &str, indent: usize, words: &str, text: &mut String) {
        let room = self.width.saturating_sub(indent).max(1);
        let mut start = format!("{head:indent$}");
        let mut so_far = String::new();
        for word in words.split(' ') {
            if !so_far.is_empty() && width(&so_far) + 1 + width(word) > room {
                line(text, format_args!("{start}{so_far}"));
                (start, so_far) = (" ".repeat(indent), String::new());
            }
            if !so_far.is_empty() {
                so_far.push(' ');
            }
            so_far.push_str(&clipped(word, room).replace(FIXED, " "));
        }
        line(text, format_args!("{start}{so_far}"));
    }
}

/// Appends a line.
pub(super) fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_they_may_be() {
        let written = |words: &str| {
            let mut text = String::new();
            Layout { width: 20 }.write("  note", 9, words, &mut text);
            text
        };
        assert_eq!(written("short"), "  note   short\n");
        assert_eq!(written("as wide as it is"), "  note   as wide as\n         it is\n");
        assert_eq!(written("0123456789a"), "  note   0123456789a\n");
        assert_eq!(written("0123456789ab b"), "  note   0123456789…\n         b\n");
        assert_eq!(written("2 d (3\u{a0}h\u{a0}4\u{a0}s)"), "  note   2 d\n         (3 h 4 s)\n");
        assert_eq!(written(""), "  note   \n");
    }
}
