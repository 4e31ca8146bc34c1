//! Text to a document, or all its mistakes. Bounded in everything: tokens, depth, mistakes.

mod token;

use std::ops::Range;

use sluice_core::mistake::Mistake;

use self::token::{Kind, Token, Tokens};
use super::{Document, Entry, Value, Word};

pub use self::token::LONGEST_TOKEN;
pub(super) use self::token::is_in_name;

/// Deeper groups are refused.
const DEEPEST: usize = 64;
/// After so many mistakes the rest of a text is not looked at.
const MOST_MISTAKES: usize = 20;

/// What a text says, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Document, Vec<Mistake>> {
    let tokens = Tokens::new(text);
    let mut parser =
        Parser { tokens, next: None, last: 0..0, open: Vec::new(), mistakes: Vec::new() };
    let entries = parser.file();
    if parser.mistakes.is_empty() { Ok(Document { entries }) } else { Err(parser.mistakes) }
}

/// A mistake was noted; what stands around it can be read on.
struct Noted;

struct Parser<'t> {
    tokens: Tokens<'t>,
    /// The token that was looked at and not taken.
    next: Option<Token>,
    /// Where the token that was taken last stands.
    last: Range<usize>,
    /// Groups that are not closed yet, outermost first.
    open: Vec<Entry>,
    mistakes: Vec<Mistake>,
}

impl Parser<'_> {
    fn file(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        while self.mistakes.len() < MOST_MISTAKES && self.open.len() <= DEEPEST {
            let token = self.take();
            match token.kind {
                Kind::End => {
                    self.check_closed();
                    break;
                }
                Kind::Symbol('}') => self.close(&mut entries),
                Kind::Symbol(';') => {
                    let help = "leave it out: none belongs behind a `}`";
                    self.wrong(token.span, "a `;` that ends nothing", Some(help));
                }
                Kind::Name(name) => self.entry(name, token.span, &mut entries),
                found => {
                    let message = format!("expected a name, found {found}");
                    self.next = Some(Token { kind: found, span: token.span.clone() });
                    self.wrong(token.span, message, Some("write `NAME = VALUE;` or `NAME { … }`"));
                    self.skip();
                }
            }
        }
        entries
    }

    /// What follows a name.
    fn entry(&mut self, name: String, span: Range<usize>, entries: &mut Vec<Entry>) {
        match self.peek().kind {
            Kind::Symbol('{') => {
                self.take();
                self.open(name, span);
            }
            Kind::Symbol('=') => {
                self.take();
                if let Ok(value) = self.value(&name) {
                    self.add(Entry { name, span, value }, entries);
                }
            }
            _ => {
                let help = format!("write `{name} = VALUE;` or `{name} {{ … }}`");
                self.unexpected(&format!("`=` or `{{` behind `{name}`"), Some(&help));
                self.skip();
            }
        }
    }

    fn value(&mut self, name: &str) -> Result<Value, Noted> {
        if self.peek().kind == Kind::Symbol('(') {
            self.cast()?;
        }
        let value = match self.peek().kind {
            Kind::Symbol('[') => Value::List(self.list()?),
            _ => Value::Word(self.word(&format!("a value for `{name}`"))?),
        };
        self.end_of_value(name)?;
        Ok(value)
    }

    /// Types in front of values mean nothing.
    fn cast(&mut self) -> Result<(), Noted> {
        let opened = self.take().span;
        if self.tokens.skip_behind(b')') {
            return Ok(());
        }
        self.wrong(opened, "a `(` without its `)`", None);
        Err(Noted)
    }

    fn list(&mut self) -> Result<Vec<Word>, Noted> {
        self.take();
        let mut words = Vec::new();
        loop {
            if self.peek().kind == Kind::Symbol(']') {
                self.take();
                return Ok(words);
            }
            words.push(self.word("a value or `]`")?);
            match self.peek().kind {
                Kind::Symbol(',') => {
                    self.take();
                }
                Kind::Symbol(']') => {}
                _ => {
                    self.unexpected("`,` or `]` behind a value of an array", None);
                    self.skip();
                    return Err(Noted);
                }
            }
        }
    }

    fn word(&mut self, expected: &str) -> Result<Word, Noted> {
        let Token { kind, span } = self.take();
        match kind {
            Kind::Name(text) | Kind::Text(text) => Ok(Word { text, span }),
            other => {
                self.next = Some(Token { kind: other, span });
                self.unexpected(expected, None);
                self.skip();
                Err(Noted)
            }
        }
    }

    fn end_of_value(&mut self, name: &str) -> Result<(), Noted> {
        let behind = self.last.clone();
        match self.peek().kind {
            Kind::Symbol(';') => {
                self.take();
                Ok(())
            }
            // It is most likely all that is missing.
            Kind::Name(_) | Kind::Symbol('}') | Kind::End => {
                let message = format!("expected `;` behind the value of `{name}`");
                self.wrong(behind, message, None);
                Err(Noted)
            }
            _ => {
                self.unexpected(&format!("`;` behind the value of `{name}`"), None);
                self.skip();
                Err(Noted)
            }
        }
    }

    fn open(&mut self, name: String, span: Range<usize>) {
        self.open.push(Entry { name, span: span.clone(), value: Value::Group(Vec::new()) });
        if self.open.len() > DEEPEST {
            self.wrong(span, format!("groups in more than {DEEPEST} others"), None);
        }
    }

    fn close(&mut self, entries: &mut Vec<Entry>) {
        match self.open.pop() {
            Some(group) => self.add(group, entries),
            None => self.wrong(self.last.clone(), "a `}` that closes nothing", None),
        }
    }

    /// Adds an entry to the group that is open.
    fn add(&mut self, entry: Entry, outside: &mut Vec<Entry>) {
        match self.open.last_mut().map(|group| &mut group.value) {
            Some(Value::Group(entries)) => entries.push(entry),
            _ => outside.push(entry),
        }
    }

    fn check_closed(&mut self) {
        if let Some(Entry { name, span, .. }) = self.open.last() {
            let message = format!("the group `{name}` is not closed: a `}}` is missing");
            self.wrong(span.clone(), message, None);
        }
    }

    /// Goes on behind the next `;`, or before the next `}`.
    fn skip(&mut self) {
        loop {
            let Token { kind, span } = self.peek().clone();
            match kind {
                Kind::End | Kind::Symbol('}') => return,
                Kind::Symbol(';') => {
                    self.take();
                    return;
                }
                // Its end will be seen, so that it has to be known here.
                Kind::Symbol('{') => {
                    self.take();
                    self.open(String::new(), span);
                    return;
                }
                _ => {
                    self.take();
                }
            }
        }
    }

    fn peek(&mut self) -> &Token {
        if self.next.is_none() {
            self.next = Some(self.read());
        }
        self.next.as_ref().expect("it was just put there")
    }

    fn take(&mut self) -> Token {
        let token = self.next.take().unwrap_or_else(|| self.read());
        self.last = token.span.clone();
        token
    }

    /// The next token that is one. Where there are too many mistakes, the end.
    fn read(&mut self) -> Token {
        while self.mistakes.len() < MOST_MISTAKES {
            match self.tokens.next() {
                Ok(token) => return token,
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        self.tokens.end()
    }

    fn unexpected(&mut self, expected: &str, help: Option<&str>) {
        let Token { kind, span } = self.peek().clone();
        self.wrong(span, format!("expected {expected}, found {kind}"), help);
    }

    fn wrong(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<&str>) {
        if self.mistakes.len() < MOST_MISTAKES {
            let (message, help) = (message.into(), help.map(str::to_owned));
            self.mistakes.push(Mistake { span, message, help, detail: None });
        }
    }
}

#[cfg(test)]
mod tests;
