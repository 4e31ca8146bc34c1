//! Text as tokens. Does not know in what order they may come.
#![warn(clippy::indexing_slicing)]

use std::fmt;
use std::ops::Range;

use sluice_core::mistake::Mistake;

/// The longest name or text, in bytes.
pub const LONGEST_TOKEN: usize = 255;

/// Whether names and unquoted values may have this byte.
pub(in crate::config) fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+')
}

/// What C takes for space.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// A token, and the bytes of the text that it is.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A name, or a value without quotes.
    Name(String),
    /// What stood between quotes.
    Text(String),
    /// One of `= ; , { } [ ] ( )`.
    Symbol(char),
    /// The end of the text.
    End,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// The tokens of a text, one after another.
pub(super) struct Tokens<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { bytes: text.as_bytes(), at: 0 }
    }

    /// The token at the end of the text.
    pub(super) fn end(&self) -> Token {
        Token { kind: Kind::End, span: self.bytes.len()..self.bytes.len() }
    }

    /// The next token. After `Err` comes what stands behind the mistake.
    pub(super) fn next(&mut self) -> Result<Token, Mistake> {
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
                Kind::Symbol(char::from(byte))
            }
            Some(byte) => return Err(self.stranger(byte)),
        };
        Ok(Token { kind, span: start..self.at })
    }

    /// Goes behind the next such byte; `false`, and nowhere, if there is none.
    pub(super) fn skip_behind(&mut self, wanted: u8) -> bool {
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

    fn name(&mut self) -> Result<Kind, Mistake> {
        let (start, mut name) = (self.at, String::new());
        // A comment ends a name; the byte at `at` is looked at as it stands.
        while let Some(byte) = self.bytes.get(self.at).copied().filter(|byte| is_in_name(*byte)) {
            if name.len() <= LONGEST_TOKEN {
                name.push(char::from(byte));
            }
            self.bump();
        }
        if name.len() > LONGEST_TOKEN {
            Err(too_long(start..self.at))
        } else {
            Ok(Kind::Name(name))
        }
    }

    fn text(&mut self) -> Result<Kind, Mistake> {
        let start = self.at;
        let (mut text, mut last, mut stranger) = (String::new(), b'"', None);
        self.bump();
        while let Some(byte) = self.peek() {
            let at = self.at;
            self.bump();
            if byte == b'"' && last != b'\\' {
                return match stranger {
                    Some(at) => Err(not_printable(at, self.bytes)),
                    None if text.len() > LONGEST_TOKEN => Err(too_long(start..self.at)),
                    None => Ok(Kind::Text(text)),
                };
            }
            if !(byte.is_ascii_graphic() || is_space(byte)) {
                stranger = stranger.or(Some(at));
            } else if text.len() <= LONGEST_TOKEN {
                text.push(char::from(byte));
            }
            last = byte;
        }
        Err(Mistake {
            span: start..start + 1,
            message: "a text that is not closed: a `\"` is missing".into(),
            help: Some("mind that `#` begins a comment even inside a text".into()),
            detail: None,
        })
    }

    /// A run of bytes that begin no token.
    fn stranger(&mut self, first: u8) -> Mistake {
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
            message: format!("`{}` has no meaning here", char::from(first)),
            help: Some("write it between quotes if it belongs to a value".into()),
            detail: None,
        }
    }

    /// The next byte that is in no comment.
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
    let message = format!("longer than {LONGEST_TOKEN} bytes, which is as long as a word may be");
    Mistake { span, message, help: None, detail: None }
}

fn not_printable(at: usize, bytes: &[u8]) -> Mistake {
    let byte = bytes.get(at).copied().unwrap_or_default();
    Mistake {
        span: at..at + 1,
        message: format!("expected printable ASCII, found the byte 0x{byte:02x}"),
        help: Some("only comments may have other bytes".into()),
        detail: None,
    }
}
