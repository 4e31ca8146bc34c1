//! Splits `.lcm` text into tokens. Knows no grammar.
//!
//! | | |
//! |---|---|
//! | words | runs of any other characters: `int8_t`, `a.b`, `-5`, `0x1F`, `größe` |
//! | marks | `{ } [ ] ( ) ; , : " '` one at a time, and runs of `! ~ < > = & \| ^ % * +` |
//! | skipped | white space, `// …` to the end of the line, `/* … */` (not nested; may be left open) |
//!
//! lcm-gen treats braces as parts of words, and needs white space between a word and a comment.
//! This tokenizer does not, but reads everything that lcm-gen reads in the same way.

use std::ops::Range;

/// A word or mark, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LcmToken<'t> {
    pub(crate) text: &'t str,
    pub(crate) span: Range<usize>,
}

/// The tokens of a text, in order.
pub(crate) fn tokenize(text: &str) -> Vec<LcmToken<'_>> {
    // Some editors write a byte order mark.
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut tokens = Vec::new();
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_token) = scan_token(rest);
        if is_token {
            let span = at..at + length;
            tokens.push(LcmToken { text: rest.get(..length).unwrap_or_default(), span });
        }
        at += length;
    }
    tokens
}

/// The length of the first token or skipped part of `rest`, and whether it is a token.
fn scan_token(rest: &str) -> (usize, bool) {
    let run =
        |is_part: &dyn Fn(char) -> bool| rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
    let first = rest.chars().next().unwrap_or_default();
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        let close = rest.get(2..).and_then(|inner| inner.find("*/"));
        return (close.map_or(rest.len(), |at| at + 4), false);
    }
    match first {
        c if c.is_ascii_whitespace() || c == '\x0b' => (1, false),
        c if is_mark(c) => (1, true),
        c if is_operator(c) => (run(&is_operator), true),
        _ => (word_len(rest), true),
    }
}

fn word_len(rest: &str) -> usize {
    let ends = |(at, c): &(usize, char)| {
        let after = rest.get(*at..).unwrap_or_default();
        let is_comment = *at > 0 && (after.starts_with("//") || after.starts_with("/*"));
        c.is_ascii_whitespace() || *c == '\x0b' || is_mark(*c) || is_operator(*c) || is_comment
    };
    rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at)
}

fn is_mark(c: char) -> bool {
    matches!(c, '{' | '}' | '[' | ']' | '(' | ')' | ';' | ',' | ':' | '"' | '\'')
}

fn is_operator(c: char) -> bool {
    matches!(c, '!' | '~' | '<' | '>' | '=' | '&' | '|' | '^' | '%' | '*' | '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokenize(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn marks_end_words_and_comments_are_left_out() {
        assert_eq!(
            words("struct t{int8_t a-b[0x4];}"),
            ["struct", "t", "{", "int8_t", "a-b", "[", "0x4", "]", ";", "}"]
        );
        assert_eq!(words("a//b\nc/*d\n*/e/f // no end"), ["a", "c", "e/f"]);
        assert_eq!(words("\u{feff}größe\r\n= -5,+1 /* open"), ["größe", "=", "-5", ",", "+", "1"]);
        assert!(words("").is_empty() && words("/*").is_empty() && words("/**/ //").is_empty());
    }

    #[test]
    fn tokens_say_where_they_stand() {
        let text = "ä /*x*/ bc;";
        for token in tokenize(text) {
            assert_eq!(&text[token.span.clone()], token.text);
        }
    }
}
