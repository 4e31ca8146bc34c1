//! The parser's access to tokens, and its reports of mistakes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use sluice_kit::mistake::Mistake;
use sluice_model::cursor::Token;

use crate::slice::syntax::SliceFile;
use crate::slice::token::Tokenizer;

/// The maximum number of mistakes per file: parsing stops at the last.
pub(crate) const MAX_MISTAKES: usize = 200;

/// The maximum length of a name. Types have full names: a small text with long names could use much
/// memory.
pub(super) const MAX_NAME: usize = 1000;

/// A mistake has been reported; parsing continues after it.
pub(super) struct MistakeReported;

pub(super) type ParseResult<T> = Result<T, MistakeReported>;

/// A parser of one file.
pub(super) struct SliceParser<'t> {
    pub(super) next: Option<Token<'t>>,
    /// The tokens after the next one.
    pub(super) tokens: Tokenizer<'t>,
    /// The length of the text.
    pub(super) end: usize,
    /// The full names of the open modules, the innermost last.
    pub(super) modules: Vec<Arc<str>>,
    /// Whether parsing is inside a struct, class or enum.
    pub(super) is_inside: bool,
    /// The total length of the full names of all types.
    pub(super) total_name_len: usize,
    pub(super) unit: SliceFile,
    pub(super) mistakes: Vec<Mistake>,
}

impl<'t> SliceParser<'t> {
    pub(super) fn peek(&self) -> Option<Token<'t>> {
        self.next.clone()
    }

    pub(super) fn take(&mut self) -> Option<Token<'t>> {
        std::mem::replace(&mut self.next, self.tokens.next())
    }

    pub(super) fn advance(&mut self) {
        self.next = self.tokens.next();
    }

    /// Consumes the next token if it is this one.
    pub(super) fn consume(&mut self, text: &str) -> bool {
        let is_it = self.next.as_ref().is_some_and(|token| token.text == text);
        if is_it {
            self.advance();
        }
        is_it
    }

    /// Consumes the next token, which must be a word.
    pub(super) fn word(&mut self, what: &str) -> ParseResult<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.report_end(what)) };
        let is_word = |c: char| c.is_alphanumeric() || "_.+-\\:\"\u{fffd}".contains(c);
        if !token.text.starts_with(is_word) {
            let message = format!("expected {what}, found `{}`", abbreviated(token.text));
            return Err(self.report(&token.span, message, None));
        }
        self.advance();
        Ok(token)
    }

    /// Consumes the next token, which must be a name without a module.
    pub(super) fn name(&mut self, what: &str) -> ParseResult<Token<'t>> {
        let Some(token) = self.peek() else { return Err(self.report_end(what)) };
        if !is_name(token.text) {
            let message = format!("expected {what}, found `{}`", abbreviated(token.text));
            let help = "names are letters, digits and `_`, and do not start with a digit";
            return Err(self.report(&token.span, message, Some(help)));
        }
        if token.text.len() > MAX_NAME {
            let message = format!("a name longer than {MAX_NAME} bytes");
            return Err(self.report(&token.span, message, None));
        }
        self.advance();
        Ok(token)
    }

    pub(super) fn expect(&mut self, mark: &str, place: &str) -> ParseResult<()> {
        if self.consume(mark) {
            return Ok(());
        }
        let Some(token) = self.peek() else { return Err(self.report_end(&format!("`{mark}`"))) };
        let message = format!("expected `{mark}` {place}, found `{}`", abbreviated(token.text));
        Err(self.report(&token.span, message, None))
    }

    /// Reports that something is missing at the end of the file, unless an unclosed comment is the
    /// reason.
    pub(super) fn report_end(&mut self, what: &str) -> MistakeReported {
        if self.tokens.unclosed().is_some() {
            return MistakeReported;
        }
        let end = self.end..self.end;
        self.report(&end, format!("expected {what}, found the end of the file"), None)
    }

    pub(super) fn report(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: Option<&str>,
    ) -> MistakeReported {
        let (span, message, help) = (span.clone(), message.into(), help.map(str::to_owned));
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(Mistake { span, message, help, detail: None });
        }
        if self.mistakes.len() == MAX_MISTAKES {
            self.stop();
        }
        MistakeReported
    }

    /// Skips the rest of the file.
    pub(super) fn stop(&mut self) {
        (self.next, self.tokens) = (None, Tokenizer::new(""));
        self.modules.clear();
    }
}

/// The maximum characters of an unexpected word that are shown.
pub(super) const MAX_SHOWN: usize = 60;

/// The start of a word, for messages.
pub(super) fn abbreviated(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()).into(),
        None => word.into(),
    }
}

pub(super) fn unescaped(name: &str) -> &str {
    name.strip_prefix('\\').unwrap_or(name)
}

pub(super) fn is_name(word: &str) -> bool {
    let word = unescaped(word);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(is_part)
}
