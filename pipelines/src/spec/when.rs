//! The key `when`: conditions on words, by which a node of a pipeline file is there or not. Says what a
//! condition is and whether it holds; what becomes of nodes is decided in `left_out`.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::check::Check;
use super::wording::kind_of;

/// Alternatives, of which one has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    alternatives: Vec<Comparison>,
    /// Where it stands.
    pub(super) span: Range<usize>,
}

/// Two words that have to be the same, or have to differ.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparison {
    left: Word,
    equal: bool,
    right: Word,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
}

/// What is wrong with a condition, and what to do.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    message: String,
    help: String,
}

impl Condition {
    pub(super) fn holds(&self) -> bool {
        let holds = |one: &Comparison| (one.left.text == one.right.text) == one.equal;
        self.alternatives.iter().any(holds)
    }
}

/// As it would be written without variables.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Comparison { left, equal, right }) in self.alternatives.iter().enumerate() {
            let or = if n > 0 { " or " } else { "" };
            let operator = if *equal { "==" } else { "!=" };
            write!(f, "{or}{left} {operator} {right}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs_none = !self.text.is_empty() && self.text.chars().all(is_plain) && !is_or(self);
        if needs_none && !self.quoted {
            f.write_str(&self.text)
        } else {
            write!(f, "'{}'", self.text)
        }
    }
}

impl Check<'_> {
    /// The condition of a node. Nothing if there is none, or if a mistake in it was noted.
    pub(super) fn when(&mut self, table: &DeTable<'_>) -> Option<Condition> {
        let given = table.get("when")?;
        let DeValue::String(text) = given.get_ref() else {
            let message = format!("expected a condition, found {}", kind_of(given.get_ref()));
            self.wrong(given.span(), message, Some(FORM.to_owned()));
            return None;
        };
        let span = given.span();
        let mut alternatives = match parse(text) {
            Ok(alternatives) => alternatives,
            Err(Wrong { message, help }) => {
                self.wrong(span, message, Some(help));
                return None;
            }
        };
        // All are looked at, so that every variable without a value is noted.
        let mut filled = true;
        for Comparison { left, right, .. } in &mut alternatives {
            filled &= self.fill(left, &span) & self.fill(right, &span);
        }
        filled.then_some(Condition { alternatives, span })
    }

    fn fill(&mut self, word: &mut Word, span: &Range<usize>) -> bool {
        let Some(expanded) = self.expand(&word.text, span.clone()) else { return false };
        let text = expanded.text;
        word.text = if word.quoted { text } else { text.trim().to_owned() };
        true
    }
}

const FORM: &str = "write for example `when = \"${FORMAT:-table} == text\"`, with `==` or `!=`, and `or` \
                    between several of these";

const NO_AND: &str =
    "there is no `and`: put one condition on the node and the other on what it reads from";

const NO_NOT: &str = "there is no `not`: write `!=` for `==`, or `==` for `!=`";

/// The comparisons of a condition as it is written: variables are filled in later, so that what a variable
/// holds is never taken for a part of the condition.
fn parse(text: &str) -> Result<Vec<Comparison>, Wrong> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut alternatives = Vec::new();
    loop {
        let place = if alternatives.is_empty() { "at the beginning" } else { "after `or`" };
        let left = word(tokens.next(), place)?;
        let is_not = left.text == "not" && !left.quoted;
        if is_not && matches!(tokens.peek(), Some(Token::Word(_))) {
            return Err(negated("`not` before a comparison".to_owned()));
        }
        let equal = operator(tokens.next())?;
        let after = if equal { "after `==`" } else { "after `!=`" };
        let right = word(tokens.next(), after)?;
        alternatives.push(Comparison { left, equal, right });
        match tokens.next() {
            None => return Ok(alternatives),
            Some(Token::Word(next)) if is_or(&next) => {}
            Some(other) => {
                let help = if is_and(&other) { NO_AND } else { FORM };
                let message = format!("expected `or` or the end, found {other}");
                return Err(Wrong { message, help: help.to_owned() });
            }
        }
    }
}

fn word(token: Option<Token>, place: &str) -> Result<Word, Wrong> {
    match token {
        Some(Token::Word(word)) if !is_or(&word) => Ok(word),
        Some(Token::Operator(operator)) if operator == "!" => {
            Err(negated(format!("expected a word {place}, found `!`")))
        }
        Some(other) => Err(wrong(format!("expected a word {place}, found {other}"))),
        None => Err(wrong(format!("expected a word {place}, found nothing"))),
    }
}

fn operator(token: Option<Token>) -> Result<bool, Wrong> {
    match token {
        Some(Token::Operator(operator)) if operator == "==" => Ok(true),
        Some(Token::Operator(operator)) if operator == "!=" => Ok(false),
        Some(other) => Err(wrong(format!("expected `==` or `!=`, found {other}"))),
        None => Err(wrong("expected `==` or `!=`, found nothing".to_owned())),
    }
}

fn is_and(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.text == "and" && !word.quoted,
        Token::Operator(operator) => operator == "&&",
    }
}

fn negated(message: String) -> Wrong {
    Wrong { message, help: NO_NOT.to_owned() }
}

fn is_or(word: &Word) -> bool {
    word.text == "or" && !word.quoted
}

fn wrong(message: String) -> Wrong {
    Wrong { message, help: FORM.to_owned() }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    Operator(String),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) if word.quoted => write!(f, "`{word}`"),
            Self::Word(Word { text, .. }) | Self::Operator(text) => write!(f, "`{text}`"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, Wrong> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '\'' => quoted(&rest[1..])?,
            _ if is_operator(first) => operator_token(rest),
            _ => plain(rest)?,
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn quoted(inside: &str) -> Result<(Token, &str), Wrong> {
    let Some((text, after)) = inside.split_once('\'') else {
        return Err(Wrong {
            message: "a `'` that is not closed".to_owned(),
            help: "put one before and one behind the word".to_owned(),
        });
    };
    Ok((Token::Word(Word { text: text.to_owned(), quoted: true }), after))
}

fn is_operator(c: char) -> bool {
    matches!(c, '=' | '!' | '<' | '>' | '~' | '&' | '|')
}

fn operator_token(text: &str) -> (Token, &str) {
    let end = text.find(|c| !is_operator(c)).unwrap_or(text.len());
    let (operator, after) = text.split_at(end);
    (Token::Operator(operator.to_owned()), after)
}

/// A word without quotes. A variable in it is taken as a whole, whatever its default holds.
fn plain(text: &str) -> Result<(Token, &str), Wrong> {
    let mut end = 0;
    while let Some(c) = text[end..].chars().next() {
        let variable = text[end..].starts_with("${").then(|| text[end..].find('}')).flatten();
        match variable {
            Some(closed) => end += closed + 1,
            None if c.is_whitespace() || is_operator(c) => break,
            None if is_plain(c) => end += c.len_utf8(),
            None => return Err(needs_quotes(c)),
        }
    }
    let (word, after) = text.split_at(end);
    Ok((Token::Word(Word { text: word.to_owned(), quoted: false }), after))
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '+' | '@' | '%' | ',' | '$')
}

fn needs_quotes(found: char) -> Wrong {
    Wrong {
        message: format!("`{}` in a word without quotes", found.escape_default()),
        help: "put the word into single quotes; there are no brackets and no patterns".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(text: &str) -> bool {
        Condition { alternatives: parse(text).unwrap(), span: 0..0 }.holds()
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().message
    }

    #[test]
    fn words_are_compared() {
        assert!(holds("a == a") && !holds("a == b") && holds("a!=b") && !holds(" a !=a "));
        assert!(holds("a == b or a == a") && !holds("a == b or a == c or a != a"));
        assert!(holds("'a b'=='a b'") && holds("'' != a") && holds("'or' == 'or'"));
        assert!(holds("é.1/x == é.1/x"));
    }

    #[test]
    fn a_variable_is_one_word_whatever_its_default_holds() {
        let comparisons = parse("${A:-x == y or z} == b").unwrap();
        assert_eq!(comparisons.len(), 1);
        assert_eq!(comparisons[0].left.text, "${A:-x == y or z}");
    }

    #[test]
    fn what_is_no_condition_is_told() {
        assert_eq!(message(""), "expected a word at the beginning, found nothing");
        assert_eq!(message("== a"), "expected a word at the beginning, found `==`");
        assert_eq!(message("a"), "expected `==` or `!=`, found nothing");
        assert_eq!(message("a = b"), "expected `==` or `!=`, found `=`");
        assert_eq!(message("a is b"), "expected `==` or `!=`, found `is`");
        assert_eq!(message("a =="), "expected a word after `==`, found nothing");
        assert_eq!(message("a != or b == c"), "expected a word after `!=`, found `or`");
        assert_eq!(message("a == b or"), "expected a word after `or`, found nothing");
        assert_eq!(message("a == b and c == d"), "expected `or` or the end, found `and`");
        assert_eq!(message("a == b || c == d"), "expected `or` or the end, found `||`");
        assert_eq!(message("a == 'b"), "a `'` that is not closed");
        assert_eq!(message("a == b*"), "`*` in a word without quotes");
    }

    #[test]
    fn what_to_write_for_and_and_not_is_told() {
        let help = |text: &str| parse(text).unwrap_err().help;
        for text in ["a == b and c == d", "a == b && c == d"] {
            assert_eq!(help(text), NO_AND, "{text}");
        }
        for text in ["not a == b", "!a == b", "a == b or not c == d"] {
            assert_eq!(help(text), NO_NOT, "{text}");
        }
        assert!(holds("not == not") && holds("and == and"));
        assert_eq!(help("a == b c"), FORM);
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "\\PC*|[a-c'=!$\\{\\}:\\- or\u{e9}\\n]{0,40}") {
            drop(parse(&text));
        }

        #[test]
        fn what_is_shown_of_a_condition_means_the_same(
            words in proptest::collection::vec(("[a-z]{0,3}", any::<bool>(), "[a-z ]{0,3}"), 1..4),
        ) {
            let quoted = |text: &str| Word { text: text.to_owned(), quoted: true };
            let each = words.iter().map(|(left, equal, right)| {
                Comparison { left: quoted(left), equal: *equal, right: quoted(right) }
            });
            let condition = Condition { alternatives: each.collect(), span: 0..0 };
            prop_assert_eq!(parse(&condition.to_string()).unwrap(), condition.alternatives);
        }
    }
}
