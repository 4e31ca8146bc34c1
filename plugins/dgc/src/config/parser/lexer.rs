//! Splits a text into tokens. Knows nothing of the grammar.
#![warn(clippy::indexing_slicing)]

use std::fmt;
use std::ops::Range;

use sluice_core::mistake::Mistake;

/// Maximum length of a name or string, in bytes.
const MAX_TOKEN_LEN: usize = 255;

/// Whether a byte may occur in names and unquoted values.
pub(in crate::config) fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+')
}

/// Whitespace as in C.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
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
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { bytes: text.as_bytes(), at: 0 }
    }

    /// The token at the end of the text.
    pub(super) fn end(&self) -> ConfigToken {
        ConfigToken { kind: TokenKind::End, span: self.bytes.len()..self.bytes.len() }
    }

    /// The next token. After `Err`, continues past the mistake.
    pub(super) fn next(&mut self) -> Result<ConfigToken, Mistake> {
        while self.peek().is_some_and(is_space) {
            self.bump();
        }
        let start = self.at;
        let kind = match self.peek() {
            None => return Ok(self.end()),
            Some(b'"') => self.text()?,
            Some(byte) if is_in_name(byte) => self.name()?,
            Some(byte) if b"=;,{}[]()".contains(&byte) => {
                self.bump();
                TokenKind::Symbol(char::from(byte))
            }
            Some(byte) => return Err(self.unexpected_bytes(byte)),
        };
        Ok(ConfigToken { kind, span: start..self.at })
    }

    /// Skips past the next occurrence of the byte. Returns `false` without moving if there is none.
    pub(super) fn skip_past(&mut self, wanted: u8) -> bool {
        let start = self.at;
        while let Some(byte) = self.peek() {
            self.bump();
            if byte == wanted {
                return true;
            }
        }
        self.at = start;
        false
    }

    fn name(&mut self) -> Result<TokenKind, Mistake> {
        let (start, mut name) = (self.at, String::new());
        // A comment ends a name, so the byte is read without skipping comments.
        while let Some(byte) = self.bytes.get(self.at).copied().filter(|byte| is_in_name(*byte)) {
            if name.len() <= MAX_TOKEN_LEN {
                name.push(char::from(byte));
            }
            self.bump();
        }
        if name.len() > MAX_TOKEN_LEN {
            Err(too_long(start..self.at))
        } else {
            Ok(TokenKind::Name(name))
        }
    }

    fn text(&mut self) -> Result<TokenKind, Mistake> {
        let start = self.at;
        let (mut text, mut last, mut first_bad) = (String::new(), b'"', None);
        self.bump();
        while let Some(byte) = self.peek() {
            let at = self.at;
            self.bump();
            if byte == b'"' && last != b'\\' {
                return match first_bad {
                    Some(at) => Err(not_printable(at, self.bytes)),
                    None if text.len() > MAX_TOKEN_LEN => Err(too_long(start..self.at)),
                    None => Ok(TokenKind::Text(text)),
                };
            }
            if !(byte.is_ascii_graphic() || is_space(byte)) {
                first_bad = first_bad.or(Some(at));
            } else if text.len() <= MAX_TOKEN_LEN {
                text.push(char::from(byte));
            }
            last = byte;
        }
        Err(Mistake {
            span: start..start + 1,
            message: "unclosed string: expected `\"`".into(),
            help: Some("note that `#` starts a comment even inside a string".into()),
            detail: None,
        })
    }

    /// Reports a run of bytes that start no token.
    fn unexpected_bytes(&mut self, first: u8) -> Mistake {
        let start = self.at;
        let is_stranger =
            |byte: &u8| !(is_space(*byte) || is_in_name(*byte) || b"=;,{}[]()\"#".contains(byte));
        while self.bytes.get(self.at).is_some_and(is_stranger) {
            self.at += 1;
        }
        if !first.is_ascii_graphic() {
            return not_printable(start, self.bytes);
        }
        Mistake {
            span: start..self.at,
            message: format!("unexpected character `{}`", char::from(first)),
            help: Some("quote it if it belongs to a value".into()),
            detail: None,
        }
    }

    /// The next byte outside comments.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        if rest.first() == Some(&b'#') {
            self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        }
        self.bytes.get(self.at).copied()
    }

    fn bump(&mut self) {
        self.at += 1;
    }
}

fn too_long(span: Range<usize>) -> Mistake {
    let message = format!("longer than {MAX_TOKEN_LEN} bytes, the maximum length of a word");
    Mistake { span, message, help: None, detail: None }
}

fn not_printable(at: usize, bytes: &[u8]) -> Mistake {
    let byte = bytes.get(at).copied().unwrap_or_default();
    Mistake {
        span: at..at + 1,
        message: format!("expected printable ASCII, found the byte 0x{byte:02x}"),
        help: Some("other bytes are only allowed in comments".into()),
        detail: None,
    }
}
