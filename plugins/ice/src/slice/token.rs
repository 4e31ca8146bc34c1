//! The tokens of the Slice language. Knows no grammar.
//!
//! | token | text |
//! |---|---|
//! | words | runs of letters, digits and `_ . + - \`, with `::` before, between and after them |
//! | strings | `"…"` on one line, with `\"` inside |
//! | lines | `#…` if nothing precedes it on its line |
//! | marks | any other single character |
//! | skipped | white space, `// …` to the end of the line, `/* … */` (not nested) |
//!
//! An unclosed `"` is a mark. An unclosed `/*` ends the tokens. The work is linear in the length of
//! the text.

use std::ops::Range;

use sluice_model::cursor::{Cursor, Token};

/// Returns the tokens of a text in order.
#[derive(Debug)]
pub(crate) struct Tokenizer<'t> {
    cursor: Cursor<'t>,
    is_line_start: bool,
    /// Quotes before this offset are never closed: a search has found no end.
    open_quotes: usize,
    unclosed: Option<Range<usize>>,
}

impl<'t> Tokenizer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let cursor = Cursor::after_mark(text);
        Self { cursor, is_line_start: true, open_quotes: 0, unclosed: None }
    }

    /// The position of the `/*` of an unclosed comment, known after the last token.
    pub(crate) fn unclosed(&self) -> Option<Range<usize>> {
        self.unclosed.clone()
    }

    /// The length of the first piece of `rest`, and whether it is a token.
    fn next_piece(&mut self, rest: &str) -> (usize, bool) {
        if let Some((length, is_closed)) = self.cursor.comment() {
            let at = self.cursor.position();
            self.unclosed = (!is_closed).then_some(at..at + "/*".len());
            return (length, false);
        }
        match rest.chars().next().unwrap_or_default() {
            '#' if self.is_line_start => (rest.find('\n').unwrap_or(rest.len()), true),
            '"' => (self.quoted(rest), true),
            c if c.is_whitespace() => (c.len_utf8(), false),
            c if is_part(c) || rest.starts_with("::") => (word(rest), true),
            c => (c.len_utf8(), true),
        }
    }

    /// The length of a string with its quotes, or of only the quote if the string does not end on
    /// its line.
    fn quoted(&mut self, rest: &str) -> usize {
        if self.cursor.position() < self.open_quotes {
            return 1;
        }
        match closing_quote(rest) {
            Ok(end) => end,
            Err(looked) => {
                // All other quotes on that line are escaped, so none closes another.
                self.open_quotes = self.cursor.position() + looked;
                1
            }
        }
    }
}

impl<'t> Iterator for Tokenizer<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        while self.cursor.peek().is_some() {
            let (length, is_token) = self.next_piece(self.cursor.rest());
            let piece = self.cursor.take(length);
            self.is_line_start = !is_token && (self.is_line_start || piece.text.contains('\n'));
            if is_token {
                return Some(piece);
            }
        }
        None
    }
}

/// The length of a string with its quotes. `Err` has the length that was searched if it does not
/// end on its line.
fn closing_quote(rest: &str) -> Result<usize, usize> {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => return Err(at),
            '"' if !is_escaped => return Ok(at + 1),
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    Err(rest.len())
}

fn word(rest: &str) -> usize {
    let mut length = 0;
    while let Some(tail) = rest.get(length..) {
        if tail.starts_with("::") {
            length += 2;
        } else if let Some(c) = tail.chars().next().filter(|c| is_part(*c)) {
            length += c.len_utf8();
        } else {
            break;
        }
    }
    length
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-' | '\\' | char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Tokenizer::new(text).map(|token| token.text).collect()
    }

    #[test]
    fn marks_end_words_and_comments_are_skipped() {
        assert_eq!(
            words("struct T{::orca::Time t;}; // x\n/* y\n */ Object*p"),
            ["struct", "T", "{", "::orca::Time", "t", ";", "}", ";", "Object", "*", "p"]
        );
        assert_eq!(words("\u{feff}[[\"a;b\"]]"), ["[", "[", "\"a;b\"", "]", "]"]);
        assert_eq!(words(r#"= "say \"}\"";"#), ["=", r#""say \"}\"""#, ";"]);
        assert!(words("").is_empty() && words("/**/ //").is_empty());
    }

    #[test]
    fn an_unclosed_string_is_a_mark() {
        assert_eq!(words("\"open\nx"), ["\"", "open", "x"]);
        assert_eq!(words("\"a\\\"b\n\"c\""), ["\"", "a\\", "\"", "b", "\"c\""]);
    }

    #[test]
    fn an_unclosed_comment_ends_the_tokens() {
        let mut tokens = Tokenizer::new("a /* open /* b");
        assert_eq!(tokens.next().unwrap().text, "a");
        assert_eq!(tokens.unclosed(), None);
        assert_eq!(tokens.next(), None);
        assert_eq!(tokens.unclosed(), Some(2..4));
    }

    #[test]
    fn unclosed_quotes_and_comments_are_searched_once() {
        let quotes = "\"".to_owned() + &"\\\"".repeat(500_000);
        assert_eq!(Tokenizer::new(&quotes).count(), 1_000_001);
        assert_eq!(Tokenizer::new(&"/* ".repeat(1_000_000)).count(), 0);
    }

    #[test]
    fn a_line_for_the_preprocessor_is_one_token() {
        assert_eq!(words("  #include <a/b.ice>\nx # y"), ["#include <a/b.ice>", "x", "#", "y"]);
    }

    #[test]
    fn tokens_have_their_position() {
        let text = "ä /*x*/ b::c;";
        for token in Tokenizer::new(text) {
            assert_eq!(&text[token.span.clone()], token.text);
        }
    }
}
