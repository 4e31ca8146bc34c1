//! Wraps text to the width of the output. Knows nothing of logs.

use std::fmt::Write;

use crate::terminal::{clipped, stdout_width, width};

/// The line width if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 80;

/// On narrower terminals, lines wrap.
const MIN_WIDTH: usize = 60;

/// A blank at which lines are not broken.
pub(super) const NO_BREAK_SPACE: char = '\u{a0}';

/// The width of lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLayout {
    pub(super) width: usize,
}

impl LineLayout {
    /// The width of standard output: that of the terminal, or 80 columns, so that piped output is
    /// always the same.
    pub(super) fn of_stdout() -> Self {
        Self { width: stdout_width().unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH) }
    }

    /// Appends `words` after `head`, wrapped to lines indented by `indent`. Only a word longer than
    /// a line is clipped. Lines are not broken at [`NO_BREAK_SPACE`].
    pub(super) fn write_wrapped(self, head: &str, indent: usize, words: &str, text: &mut String) {
        let columns = self.width.saturating_sub(indent).max(1);
        let mut start = format!("{head:indent$}");
        let mut so_far = String::new();
        for word in words.split(' ') {
            if !so_far.is_empty() && width(&so_far) + 1 + width(word) > columns {
                line(text, format_args!("{start}{so_far}"));
                (start, so_far) = (" ".repeat(indent), String::new());
            }
            if !so_far.is_empty() {
                so_far.push(' ');
            }
            so_far.push_str(&clipped(word, columns).replace(NO_BREAK_SPACE, " "));
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
            LineLayout { width: 20 }.write_wrapped("  note", 9, words, &mut text);
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
