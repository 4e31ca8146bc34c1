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

use sluice_model::cursor::{Cursor, Token};

/// The tokens of a text, in order.
pub(crate) fn tokenize(text: &str) -> Vec<Token<'_>> {
    let (mut cursor, mut tokens) = (Cursor::after_mark(text), Vec::new());
    while let Some(first) = cursor.peek() {
        if let Some((length, _)) = cursor.comment() {
            cursor.take(length);
        } else if is_space(first) {
            cursor.next_char();
        } else if is_mark(first) {
            tokens.push(cursor.take(first.len_utf8()));
        } else if is_operator(first) {
            tokens.push(cursor.take_while(is_operator));
        } else {
            tokens.push(cursor.take(word_len(cursor.rest())));
        }
    }
    tokens
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

fn word_len(rest: &str) -> usize {
    let ends = |(at, c): &(usize, char)| {
        let after = rest.get(*at..).unwrap_or_default();
        let is_comment = *at > 0 && (after.starts_with("//") || after.starts_with("/*"));
        is_space(*c) || is_mark(*c) || is_operator(*c) || is_comment
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
