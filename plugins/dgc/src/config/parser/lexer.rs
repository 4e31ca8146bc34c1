//! Splits a text into tokens. Knows nothing of the grammar.
#![warn(clippy::indexing_slicing)]

use std::fmt;
use std::ops::Range;

use sluice_kit::mistake::Mistake;
use sluice_model::cursor::Cursor;

use crate::config::document::is_in_name;

/// Maximum length of a name or string, in bytes.
const MAX_TOKEN_LEN: usize = 255;

/// Whitespace as in C.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | ';' | ',' | '{' | '}' | '[' | ']' | '(' | ')')
}

/// A token and its byte range.
#[derive(Clone, Debug)]
pub(super) struct ConfigToken {
    pub(super) kind: TokenKind,
    pub(super) span: Range<usize>,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// A name, or a value without quotes.
    Name(String),
    /// A quoted string.
    Text(String),
    /// One of `= ; , { } [ ] ( )`.
    Symbol(char),
    /// The end of the text.
    End,
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// The lexer of a text.
pub(super) struct Lexer<'t> {
    text: &'t str,
    cursor: Cursor<'t>,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, cursor: Cursor::new(text) }
    }

    /// The token at the end of the text.
    pub(super) fn end(&self) -> ConfigToken {
        ConfigToken { kind: TokenKind::End, span: self.text.len()..self.text.len() }
    }

    /// The next token. After `Err`, continues past the mistake.
    pub(super) fn next(&mut self) -> Result<ConfigToken, Mistake> {
        while self.peek().is_some_and(is_space) {
            self.cursor.next_char();
        }
        let start = self.cursor.position();
        let kind = match self.peek() {
            None => return Ok(self.end()),
            Some('"') => self.text()?,
            Some(c) if is_in_name(c) => self.name()?,
            Some(c) if is_symbol(c) => {
                self.cursor.next_char();
                TokenKind::Symbol(c)
            }
            Some(c) => return Err(self.unexpected(c)),
        };
        Ok(ConfigToken { kind, span: start..self.cursor.position() })
    }

    /// Skips past the next occurrence of the character. Returns `false` without moving if there is
    /// none.
    pub(super) fn skip_past(&mut self, wanted: char) -> bool {
        let before = self.cursor;
        while self.peek().is_some() {
            if self.cursor.next_char() == Some(wanted) {
                return true;
            }
        }
        self.cursor = before;
        false
    }

    fn name(&mut self) -> Result<TokenKind, Mistake> {
        let name = self.cursor.take_while(is_in_name);
        if name.text.len() > MAX_TOKEN_LEN {
            return Err(too_long(name.span));
        }
        Ok(TokenKind::Name(name.text.to_owned()))
    }

    fn text(&mut self) -> Result<TokenKind, Mistake> {
        let start = self.cursor.position();
        let (mut text, mut last, mut first_bad) = (String::new(), '"', None);
        self.cursor.next_char();
        while let Some(c) = self.peek() {
            let at = self.cursor.position();
            self.cursor.next_char();
            if c == '"' && last != '\\' {
                return match first_bad {
                    Some(at) => Err(self.not_printable(at)),
                    None if text.len() > MAX_TOKEN_LEN => {
                        Err(too_long(start..self.cursor.position()))
                    }
                    None => Ok(TokenKind::Text(text)),
                };
            }
            if !(c.is_ascii_graphic() || is_space(c)) {
                first_bad = first_bad.or(Some(at));
            } else if text.len() <= MAX_TOKEN_LEN {
                text.push(c);
            }
            last = c;
        }
        Err(Mistake {
            span: start..start + 1,
            message: "unclosed string: expected `\"`".into(),
            help: Some("note that `#` starts a comment even inside a string".into()),
            detail: None,
        })
    }

    /// Reports a run of characters that start no token.
    fn unexpected(&mut self, first: char) -> Mistake {
        let starts_token = |c| is_space(c) || is_in_name(c) || is_symbol(c) || "\"#".contains(c);
        let span = self.cursor.take_while(|c| !starts_token(c)).span;
        if !first.is_ascii_graphic() {
            return self.not_printable(span.start);
        }
        Mistake {
            span,
            message: format!("unexpected character `{first}`"),
            help: Some("quote it if it belongs to a value".into()),
            detail: None,
        }
    }

    /// The next character outside comments.
    fn peek(&mut self) -> Option<char> {
        if self.cursor.peek() == Some('#') {
            self.cursor.take_while(|c| c != '\n');
        }
        self.cursor.peek()
    }

    fn not_printable(&self, at: usize) -> Mistake {
        let byte = self.text.as_bytes().get(at).copied().unwrap_or_default();
        Mistake {
            span: at..at + 1,
            message: format!("expected printable ASCII, found the byte 0x{byte:02x}"),
            help: Some("other bytes are only allowed in comments".into()),
            detail: None,
        }
    }
}

fn too_long(span: Range<usize>) -> Mistake {
    let message = format!("longer than {MAX_TOKEN_LEN} bytes, the maximum length of a word");
    Mistake { span, message, help: None, detail: None }
}
