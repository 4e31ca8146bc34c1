//! The words of the Slice language. Knows no grammar.
//!
//! | | |
//! |---|---|
//! | words | runs of letters, digits and `_ . + - \`, and of `::` in front of, between and behind them |
//! | texts | `"…"` on one line, with `\"` inside |
//! | lines | `#…` where nothing stands in front of it |
//! | marks | any other character, alone |
//! | left out | white space, `// …` to the end of the line, `/* … */` (not nested) |
//!
//! A `/*` or `"` that is never closed is a mark.

use std::ops::Range;

/// A word, text, line or mark, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token<'t> {
    pub(crate) text: &'t str,
    pub(crate) span: Range<usize>,
}

/// The tokens of a text, in order.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    // Some editors put this mark in front of a file.
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let (mut tokens, mut is_line_start) = (Vec::new(), true);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_token) = piece(rest, is_line_start);
        let piece = rest.get(..length).unwrap_or_default();
        if is_token {
            tokens.push(Token { text: piece, span: at..at + length });
        }
        is_line_start = !is_token && (is_line_start || piece.contains('\n'));
        at += length;
    }
    tokens
}

/// The length of the first piece of `rest`, and whether it is a token.
fn piece(rest: &str, is_line_start: bool) -> (usize, bool) {
    let first = rest.chars().next().unwrap_or_default();
    if rest.starts_with("//") {
        return (line(rest), false);
    }
    if rest.starts_with("/*") {
        let close = rest.get(2..).and_then(|inner| inner.find("*/"));
        return close.map_or((2, true), |at| (at + 4, false));
    }
    match first {
        '#' if is_line_start => (line(rest), true),
        '"' => (quoted(rest), true),
        c if c.is_whitespace() => (c.len_utf8(), false),
        c if is_part(c) || rest.starts_with("::") => (word(rest), true),
        c => (c.len_utf8(), true),
    }
}

fn line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// The length of a text with its quotes, or of the quote alone if the text does not end on its line.
fn quoted(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => return 1,
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    1
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
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn marks_end_words_and_comments_are_left_out() {
        assert_eq!(
            words("struct T{::orca::Time t;}; // x\n/* y\n */ Object*p"),
            ["struct", "T", "{", "::orca::Time", "t", ";", "}", ";", "Object", "*", "p"]
        );
        assert_eq!(words("\u{feff}[[\"a;b\"]]"), ["[", "[", "\"a;b\"", "]", "]"]);
        assert_eq!(words(r#"= "say \"}\"";"#), ["=", r#""say \"}\"""#, ";"]);
        assert!(words("").is_empty() && words("/**/ //").is_empty());
    }

    #[test]
    fn what_is_not_closed_is_a_mark() {
        assert_eq!(words("/* open"), ["/*", "open"]);
        assert_eq!(words("\"open\nx"), ["\"", "open", "x"]);
    }

    #[test]
    fn a_line_for_the_preprocessor_is_one_token() {
        assert_eq!(words("  #include <a/b.ice>\nx # y"), ["#include <a/b.ice>", "x", "#", "y"]);
    }

    #[test]
    fn tokens_say_where_they_stand() {
        let text = "ä /*x*/ b::c;";
        for token in tokens(text) {
            assert_eq!(&text[token.span.clone()], token.text);
        }
    }
}
