//! Splits a condition into tokens.

use std::ops::Range;

use sluice_model::FieldPath;
use sluice_model::cursor::Cursor;
use sluice_model::field::DashRule;

use super::error::{ConditionError, error_at};
use super::number::Number;
use super::tree::{EventField, Function};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConditionToken {
    pub(super) kind: TokenKind,
    /// Its bytes in the condition.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Number(Number),
    Text(String),
    Field(FieldPath),
    EventField(EventField),
    Function(Function),
    /// A keyword, operator or bracket, spelled as in [`SYMBOLS`] and [`KEYWORDS`].
    Sign(&'static str),
    End,
}

const KEYWORDS: [&str; 7] = ["and", "or", "not", "in", "matches", "true", "false"];

/// Spellings and the symbols they stand for; a longer one comes before its prefixes.
const SYMBOLS: [(&str, &str); 22] = [
    ("&&", "and"),
    ("||", "or"),
    ("==", "=="),
    ("!=", "!="),
    ("<=", "<="),
    (">=", ">="),
    ("=", "=="),
    ("!", "!"),
    ("<", "<"),
    (">", ">"),
    ("+", "+"),
    ("-", "-"),
    ("*", "*"),
    ("/", "/"),
    ("%", "%"),
    ("(", "("),
    (")", ")"),
    ("[", "["),
    ("]", "]"),
    (",", ","),
    ("−", "-"),
    ("≠", "!="),
];

/// Operators of other languages, and what to write instead.
const FOREIGN_SYMBOLS: [(&str, &str); 10] = [
    ("===", "write `==`"),
    ("!==", "write `!=`"),
    ("<>", "write `!=`"),
    ("=<", "write `<=`"),
    ("=>", "write `>=`"),
    ("=~", "write `matches`"),
    ("**", "there are no powers; write a product"),
    ("//", "write `/`, which returns fractions"),
    ("<<", "there are no bit operations"),
    (">>", "there are no bit operations"),
];

/// Words of other languages, and what to write instead.
const FOREIGN_WORDS: [(&str, &str); 6] = [
    ("null", "write `exists(field)`"),
    ("none", "write `exists(field)`"),
    ("nan", "write `isnan(field)`"),
    ("like", "write `matches`"),
    ("between", "write two comparisons with `and`"),
    ("is", "write `==`, or `exists(field)`"),
];

/// A date, in which any digit is meant by each one.
const DATE: &str = "2000-00-00";

fn is_date(text: &str) -> bool {
    let is_same_kind = |(of_date, of_text): (u8, u8)| match of_date {
        b'-' => of_text == b'-',
        _ => of_text.is_ascii_digit(),
    };
    text.len() == DATE.len() && DATE.bytes().zip(text.bytes()).all(is_same_kind)
}

/// The tokens of `text`, followed by an end token.
pub(super) fn tokens(text: &str) -> Result<Vec<ConditionToken>, ConditionError> {
    let mut lexer = Lexer { cursor: Cursor::new(text) };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let is_end = token.kind == TokenKind::End;
        tokens.push(token);
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    cursor: Cursor<'t>,
}

impl Lexer<'_> {
    fn token(&mut self) -> Result<ConditionToken, ConditionError> {
        self.cursor.take_while(char::is_whitespace);
        let start = self.cursor.position();
        let kind = self.kind()?;
        Ok(ConditionToken { kind, span: start..self.cursor.position() })
    }

    fn kind(&mut self) -> Result<TokenKind, ConditionError> {
        let mut chars = self.cursor.rest().chars();
        let (Some(first), second) = (chars.next(), chars.next()) else {
            return Ok(TokenKind::End);
        };
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        match first {
            '"' | '\'' => self.text(first),
            '`' => self.field(),
            '$' => self.event_field(),
            '.' if is_digit(second) => self.number(),
            c if c.is_ascii_digit() => self.number(),
            c if is_word(c) && !"−≠".contains(c) => self.word(),
            _ => self.symbol(first),
        }
    }

    /// Quotes are doubled inside text. There are no escapes, because patterns would have to double
    /// theirs.
    fn text(&mut self, quote: char) -> Result<TokenKind, ConditionError> {
        let start = self.cursor.position();
        let mut text = String::new();
        loop {
            self.cursor.take(1);
            text.push_str(self.cursor.take_while(|c| c != quote).text);
            if self.cursor.next_char().is_none() {
                return Err(error_at(start..start + 1, "this quote is not closed"));
            }
            if !self.cursor.rest().starts_with(quote) {
                return Ok(TokenKind::Text(text));
            }
            text.push(quote);
        }
    }

    fn field(&mut self) -> Result<TokenKind, ConditionError> {
        let scanned = FieldPath::scan(self.cursor.rest(), DashRule::EndsNames);
        let (path, len) = scanned.map_err(|error| {
            let at = self.cursor.position() + error.at;
            error_at(at..at + 1, error.what)
        })?;
        self.cursor.take(len);
        Ok(TokenKind::Field(path))
    }

    fn event_field(&mut self) -> Result<TokenKind, ConditionError> {
        let start = self.cursor.position();
        self.cursor.take(1);
        let name = self.cursor.take_while(is_word).text;
        EventField::named(name).map(TokenKind::EventField).ok_or_else(|| {
            let known = EventField::ALL.map(|(name, _)| format!("`${name}`")).join(", ");
            error_at(
                start..self.cursor.position(),
                format!("events have no `${name}`; expected one of {known}"),
            )
        })
    }

    fn word(&mut self) -> Result<TokenKind, ConditionError> {
        let (start, before) = (self.cursor.position(), self.cursor);
        let word = self.cursor.take_while(is_word).text;
        if let Some(keyword) = KEYWORDS.into_iter().find(|keyword| *keyword == word) {
            return Ok(TokenKind::Sign(keyword));
        }
        if self.cursor.rest().trim_start().starts_with('(') {
            return self.function(word, start);
        }
        self.cursor = before;
        let field = self.field()?;
        let is_only_word = self.cursor.position() == start + word.len();
        match foreign_word_advice(word).filter(|_| is_only_word) {
            Some(advice) => Err(error_at(
                start..self.cursor.position(),
                format!("{advice}; put backquotes around a field of that name: `{word}`"),
            )),
            None => Ok(field),
        }
    }

    fn function(&self, name: &str, start: usize) -> Result<TokenKind, ConditionError> {
        Function::named(name).map(TokenKind::Function).ok_or_else(|| {
            let known = Function::ALL.map(|(name, _)| format!("`{name}`")).join(", ");
            let advice = foreign_word_advice(name)
                .map_or_else(|| format!("expected one of {known}"), str::to_owned);
            error_at(
                start..self.cursor.position(),
                format!("there is no function `{name}`; {advice}"),
            )
        })
    }

    fn number(&mut self) -> Result<TokenKind, ConditionError> {
        let mut before = self.cursor;
        if let Some(date) = self.cursor.rest().get(..DATE.len()).filter(|text| is_date(text)) {
            let start = self.cursor.position();
            return Err(error_at(
                start..start + DATE.len(),
                format!(
                    "`{date}` would be a subtraction, as conditions have no dates: `$timestamp` \
                     is in nanoseconds since 1970; `start` and `end` of a filter take dates"
                ),
            ));
        }
        let hex =
            self.cursor.rest().strip_prefix("0x").or_else(|| self.cursor.rest().strip_prefix("0X"));
        let number = match hex {
            Some(_) => self.hexadecimal(),
            None => self.decimal(),
        };
        self.cursor.take_while(|c| is_word(c) || c == '.');
        let end = self.cursor.position();
        let spelled = before.take(end - before.position());
        let whole = number.filter(|(_, number_end)| *number_end == end);
        whole.map(|(number, _)| TokenKind::Number(number)).ok_or_else(|| {
            error_at(
                spelled.span,
                format!(
                    "`{}` is not a number; put backquotes around names that start with a \
                     digit",
                    spelled.text
                ),
            )
        })
    }

    /// The number and the offset of its end.
    fn hexadecimal(&mut self) -> Option<(Number, usize)> {
        self.cursor.take(2);
        let digits = self.cursor.take_while(|c| c.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits.text, 16).ok()?;
        Some((Number::from_i128(number.into()), self.cursor.position()))
    }

    fn decimal(&mut self) -> Option<(Number, usize)> {
        let mut before = self.cursor;
        let digits = |c: char| c.is_ascii_digit();
        self.cursor.take_while(digits);
        if self.cursor.eat(".") {
            self.cursor.take_while(digits);
        }
        if self.cursor.eat("e") || self.cursor.eat("E") {
            let _is_signed = self.cursor.eat("+") || self.cursor.eat("-");
            self.cursor.take_while(digits);
        }
        let end = self.cursor.position();
        let spelled = before.take(end - before.position()).text;
        let float = || spelled.parse().ok().map(Number::Float);
        let number = spelled.parse().ok().map(Number::from_i128).or_else(float)?;
        Some((number, end))
    }

    fn symbol(&mut self, first: char) -> Result<TokenKind, ConditionError> {
        let (start, rest) = (self.cursor.position(), self.cursor.rest());
        if let Some((spelled, advice)) =
            FOREIGN_SYMBOLS.into_iter().find(|(s, _)| rest.starts_with(s))
        {
            return Err(error_at(
                start..start + spelled.len(),
                format!("`{spelled}` is not an operator; {advice}"),
            ));
        }
        if let Some((spelled, sign)) = SYMBOLS.into_iter().find(|(s, _)| rest.starts_with(s)) {
            self.cursor.take(spelled.len());
            return Ok(TokenKind::Sign(sign));
        }
        let advice = match first {
            '&' => "; write `and`",
            '|' => "; write `or`",
            '~' => "; write `matches`",
            _ => "",
        };
        let end = start + first.len_utf8();
        Err(error_at(start..end, format!("`{first}` is not an operator{advice}")))
    }
}

/// Whether `c` may be part of a name without backquotes.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !(c.is_ascii() || c.is_whitespace())
}

/// What to write instead of a word of another language.
fn foreign_word_advice(word: &str) -> Option<&'static str> {
    let lower = word.to_ascii_lowercase();
    let stranger = FOREIGN_WORDS.into_iter().find(|(foreign, _)| *foreign == lower);
    let is_keyword = || KEYWORDS.contains(&lower.as_str());
    let keyword = || is_keyword().then_some("write keywords in lower case");
    stranger.map(|(_, advice)| advice).or_else(keyword)
}
