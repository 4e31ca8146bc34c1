//! Errors in the text of queries.

use std::fmt;

/// An error in the text of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidQuery {
    /// What is wrong.
    pub message: String,
    /// Where, if known.
    pub position: Option<QueryPosition>,
    /// How to fix it, if known.
    pub help: Option<String>,
}

/// A position in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPosition {
    /// The line, starting at 1.
    pub line: usize,
    /// The character in the line, starting at 1.
    pub column: usize,
}

impl InvalidQuery {
    /// An error without a position.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), position: None, help: None }
    }

    /// The byte range at the position: one word, or one character. `None` without a position.
    pub fn span(&self, sql: &str) -> Option<std::ops::Range<usize>> {
        let QueryPosition { line, column } = self.position?;
        let start_of_line: usize =
            sql.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
        let rest = sql.get(start_of_line..)?;
        let before: usize = rest.chars().take(column.checked_sub(1)?).map(char::len_utf8).sum();
        let start = start_of_line + before;
        let word = sql.get(start..)?.chars().take_while(|c| c.is_alphanumeric() || *c == '_');
        let len: usize = word.map(char::len_utf8).sum();
        Some(start..(start + len.max(1)).min(sql.len()))
    }
}

impl fmt::Display for InvalidQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(QueryPosition { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Lowers the first letter, as in all our messages, unless it starts a name in capitals.
pub(super) fn lower_first(text: &str) -> String {
    let text = first_line(text);
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_converts_to_a_byte_range() {
        let invalid = |line, column| InvalidQuery {
            position: Some(QueryPosition { line, column }),
            ..InvalidQuery::new("")
        };
        assert_eq!(invalid(2, 3).span("ä\nä word x"), Some(6..10));
        assert_eq!(invalid(1, 1).span("*"), Some(0..1));
        assert_eq!(invalid(9, 9).span("short"), Some(5..5));
        assert_eq!(InvalidQuery::new("").span("x"), None);
    }
}
