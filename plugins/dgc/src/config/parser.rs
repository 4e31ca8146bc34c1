//! Parses a text into a document, or lists its mistakes. Tokens, depth and mistakes are bounded.

mod lexer;

use std::ops::Range;

use sluice_kit::mistake::Mistake;

use self::lexer::{ConfigToken, Lexer, TokenKind};
use super::{ConfigEntry, ConfigValue, Document, Scalar};

/// Maximum nesting of groups.
const MAX_DEPTH: usize = 64;
/// Parsing stops after this many mistakes.
const MAX_MISTAKES: usize = 20;

impl Document {
    /// Parses a text. `Err` lists its mistakes in order, about twenty at most.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let tokens = Lexer::new(text);
        let mut parser =
            ConfigParser { tokens, next: None, last: 0..0, open: Vec::new(), mistakes: Vec::new() };
        let entries = parser.file();
        if parser.mistakes.is_empty() { Ok(Self { entries }) } else { Err(parser.mistakes) }
    }
}

/// Marks an error that was already recorded; parsing continues after it.
struct MistakeRecorded;

struct ConfigParser<'t> {
    tokens: Lexer<'t>,
    /// The lookahead token.
    next: Option<ConfigToken>,
    /// Byte range of the last consumed token.
    last: Range<usize>,
    /// Open groups, outermost first.
    open: Vec<ConfigEntry>,
    mistakes: Vec<Mistake>,
}

impl ConfigParser<'_> {
    fn file(&mut self) -> Vec<ConfigEntry> {
        let mut entries = Vec::new();
        while self.mistakes.len() < MAX_MISTAKES && self.open.len() <= MAX_DEPTH {
            let token = self.bump();
            match token.kind {
                TokenKind::End => {
                    self.check_closed();
                    break;
                }
                TokenKind::Symbol('}') => self.close(&mut entries),
                TokenKind::Symbol(';') => {
                    let help = "remove it: no `;` follows a `}`";
                    self.push_mistake(token.span, "unexpected `;`", Some(help));
                }
                TokenKind::Name(name) => self.entry(name, token.span, &mut entries),
                found => {
                    let message = format!("expected a name, found {found}");
                    self.next = Some(ConfigToken { kind: found, span: token.span.clone() });
                    self.push_mistake(
                        token.span,
                        message,
                        Some("write `NAME = VALUE;` or `NAME { … }`"),
                    );
                    self.skip();
                }
            }
        }
        entries
    }

    /// Parses what follows a name.
    fn entry(&mut self, name: String, span: Range<usize>, entries: &mut Vec<ConfigEntry>) {
        match self.peek().kind {
            TokenKind::Symbol('{') => {
                self.bump();
                self.open(name, span);
            }
            TokenKind::Symbol('=') => {
                self.bump();
                if let Ok(value) = self.value(&name) {
                    self.add(ConfigEntry { name, span, value }, entries);
                }
            }
            _ => {
                let help = format!("write `{name} = VALUE;` or `{name} {{ … }}`");
                self.unexpected(&format!("`=` or `{{` after `{name}`"), Some(&help));
                self.skip();
            }
        }
    }

    fn value(&mut self, name: &str) -> Result<ConfigValue, MistakeRecorded> {
        if self.peek().kind == TokenKind::Symbol('(') {
            self.cast()?;
        }
        let value = match self.peek().kind {
            TokenKind::Symbol('[') => ConfigValue::List(self.list()?),
            _ => ConfigValue::Scalar(self.scalar(&format!("a value for `{name}`"))?),
        };
        self.end_of_value(name)?;
        Ok(value)
    }

    /// Skips a cast in front of a value; it has no meaning.
    fn cast(&mut self) -> Result<(), MistakeRecorded> {
        let opened = self.bump().span;
        if self.tokens.skip_past(')') {
            return Ok(());
        }
        self.push_mistake(opened, "unclosed `(`", None);
        Err(MistakeRecorded)
    }

    fn list(&mut self) -> Result<Vec<Scalar>, MistakeRecorded> {
        self.bump();
        let mut scalars = Vec::new();
        loop {
            if self.peek().kind == TokenKind::Symbol(']') {
                self.bump();
                return Ok(scalars);
            }
            scalars.push(self.scalar("a value or `]`")?);
            match self.peek().kind {
                TokenKind::Symbol(',') => {
                    self.bump();
                }
                TokenKind::Symbol(']') => {}
                _ => {
                    self.unexpected("`,` or `]` after an array element", None);
                    self.skip();
                    return Err(MistakeRecorded);
                }
            }
        }
    }

    fn scalar(&mut self, expected: &str) -> Result<Scalar, MistakeRecorded> {
        let ConfigToken { kind, span } = self.bump();
        match kind {
            TokenKind::Name(text) | TokenKind::Text(text) => Ok(Scalar { text, span }),
            other => {
                self.next = Some(ConfigToken { kind: other, span });
                self.unexpected(expected, None);
                self.skip();
                Err(MistakeRecorded)
            }
        }
    }

    fn end_of_value(&mut self, name: &str) -> Result<(), MistakeRecorded> {
        let behind = self.last.clone();
        match self.peek().kind {
            TokenKind::Symbol(';') => {
                self.bump();
                Ok(())
            }
            // The `;` is most likely all that is missing.
            TokenKind::Name(_) | TokenKind::Symbol('}') | TokenKind::End => {
                let message = format!("expected `;` after the value of `{name}`");
                self.push_mistake(behind, message, None);
                Err(MistakeRecorded)
            }
            _ => {
                self.unexpected(&format!("`;` after the value of `{name}`"), None);
                self.skip();
                Err(MistakeRecorded)
            }
        }
    }

    fn open(&mut self, name: String, span: Range<usize>) {
        self.open.push(ConfigEntry {
            name,
            span: span.clone(),
            value: ConfigValue::Group(Vec::new()),
        });
        if self.open.len() > MAX_DEPTH {
            self.push_mistake(span, format!("groups nested more than {MAX_DEPTH} deep"), None);
        }
    }

    fn close(&mut self, entries: &mut Vec<ConfigEntry>) {
        match self.open.pop() {
            Some(group) => self.add(group, entries),
            None => self.push_mistake(self.last.clone(), "unexpected `}`", None),
        }
    }

    /// Adds an entry to the innermost open group.
    fn add(&mut self, entry: ConfigEntry, outside: &mut Vec<ConfigEntry>) {
        match self.open.last_mut().map(|group| &mut group.value) {
            Some(ConfigValue::Group(entries)) => entries.push(entry),
            _ => outside.push(entry),
        }
    }

    fn check_closed(&mut self) {
        if let Some(ConfigEntry { name, span, .. }) = self.open.last() {
            let message = format!("unclosed group `{name}`: expected `}}`");
            self.push_mistake(span.clone(), message, None);
        }
    }

    /// Skips past the next `;`, or up to the next `}`.
    fn skip(&mut self) {
        loop {
            let ConfigToken { kind, span } = self.peek().clone();
            match kind {
                TokenKind::End | TokenKind::Symbol('}') => return,
                TokenKind::Symbol(';') => {
                    self.bump();
                    return;
                }
                // Its `}` will follow, so the group has to be open.
                TokenKind::Symbol('{') => {
                    self.bump();
                    self.open(String::new(), span);
                    return;
                }
                _ => {
                    self.bump();
                }
            }
        }
    }

    fn peek(&mut self) -> &ConfigToken {
        if self.next.is_none() {
            self.next = Some(self.lex());
        }
        self.next.as_ref().expect("it was filled above")
    }

    fn bump(&mut self) -> ConfigToken {
        let token = self.next.take().unwrap_or_else(|| self.lex());
        self.last = token.span.clone();
        token
    }

    /// The next valid token, or the end after too many mistakes.
    fn lex(&mut self) -> ConfigToken {
        while self.mistakes.len() < MAX_MISTAKES {
            match self.tokens.next() {
                Ok(token) => return token,
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        self.tokens.end()
    }

    fn unexpected(&mut self, expected: &str, help: Option<&str>) {
        let ConfigToken { kind, span } = self.peek().clone();
        self.push_mistake(span, format!("expected {expected}, found {kind}"), help);
    }

    fn push_mistake(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<&str>) {
        if self.mistakes.len() < MAX_MISTAKES {
            let (message, help) = (message.into(), help.map(str::to_owned));
            self.mistakes.push(Mistake { span, message, help, detail: None });
        }
    }
}

#[cfg(test)]
mod tests;
