//! The key `when`: word comparisons that decide whether a node is part of the pipeline. Parses and
//! evaluates conditions; `prune` removes the nodes.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::check::Check;
use super::messages::kind_of;

/// A condition: true if one of its alternatives is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    alternatives: Vec<Comparison>,
    /// Its position.
    pub(super) span: Range<usize>,
}

/// Compares two words for equality or inequality.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparison {
    left: Operand,
    equal: bool,
    right: Operand,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operand {
    text: String,
    quoted: bool,
}

/// Why a condition is invalid, and what to do.
#[derive(Debug, PartialEq, Eq)]
struct ConditionError {
    message: String,
    help: String,
}

impl Condition {
    pub(super) fn holds(&self) -> bool {
        let holds = |one: &Comparison| (one.left.text == one.right.text) == one.equal;
        self.alternatives.iter().any(holds)
    }
}

/// Displays as it would be written without variables.
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

impl fmt::Display for Operand {
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
    /// The condition of a node; `None` if there is none or after a reported mistake.
    pub(super) fn when(&mut self, table: &DeTable<'_>) -> Option<Condition> {
        let value = table.get("when")?;
        let DeValue::String(text) = value.get_ref() else {
            let message = format!("expected a condition, found {}", kind_of(value.get_ref()));
            self.mistake_at(value.span(), message, Some(SYNTAX_HELP.to_owned()));
            return None;
        };
        let span = value.span();
        let mut alternatives = match parse(text) {
            Ok(alternatives) => alternatives,
            Err(ConditionError { message, help }) => {
                self.mistake_at(span, message, Some(help));
                return None;
            }
        };
        // All are checked, so that every unset variable is reported.
        let mut filled = true;
        for Comparison { left, right, .. } in &mut alternatives {
            filled &= self.fill(left, &span) & self.fill(right, &span);
        }
        filled.then_some(Condition { alternatives, span })
    }

    fn fill(&mut self, word: &mut Operand, span: &Range<usize>) -> bool {
        let Some(expanded) = self.expand(&word.text, span.clone()) else { return false };
        let text = expanded.text;
        word.text = if word.quoted { text } else { text.trim().to_owned() };
        true
    }
}

const SYNTAX_HELP: &str = "write for example `when = \"${FORMAT:-table} == text\"`, with `==` \
                           or `!=`, and `or` between several of these";

const NO_AND: &str =
    "there is no `and`: put one condition on the node and the other on what it reads from";

const NO_NOT: &str = "there is no `not`: write `!=` for `==`, or `==` for `!=`";

/// Parses a condition as written: variables are filled in later, so that their values are never
/// parsed.
fn parse(text: &str) -> Result<Vec<Comparison>, ConditionError> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let mut alternatives = Vec::new();
    loop {
        let place = if alternatives.is_empty() { "at the beginning" } else { "after `or`" };
        let left = expect_operand(tokens.next(), place)?;
        let is_not = left.text == "not" && !left.quoted;
        if is_not && matches!(tokens.peek(), Some(ConditionToken::Word(_))) {
            return Err(negated("`not` before a comparison".to_owned()));
        }
        let equal = expect_operator(tokens.next())?;
        let after = if equal { "after `==`" } else { "after `!=`" };
        let right = expect_operand(tokens.next(), after)?;
        alternatives.push(Comparison { left, equal, right });
        match tokens.next() {
            None => return Ok(alternatives),
            Some(ConditionToken::Word(next)) if is_or(&next) => {}
            Some(other) => {
                let help = if is_and(&other) { NO_AND } else { SYNTAX_HELP };
                let message = format!("expected `or` or the end, found {other}");
                return Err(ConditionError { message, help: help.to_owned() });
            }
        }
    }
}

fn expect_operand(token: Option<ConditionToken>, place: &str) -> Result<Operand, ConditionError> {
    match token {
        Some(ConditionToken::Word(word)) if !is_or(&word) => Ok(word),
        Some(ConditionToken::Operator(operator)) if operator == "!" => {
            Err(negated(format!("expected a word {place}, found `!`")))
        }
        Some(other) => Err(syntax_error(format!("expected a word {place}, found {other}"))),
        None => Err(syntax_error(format!("expected a word {place}, found nothing"))),
    }
}

fn expect_operator(token: Option<ConditionToken>) -> Result<bool, ConditionError> {
    match token {
        Some(ConditionToken::Operator(operator)) if operator == "==" => Ok(true),
        Some(ConditionToken::Operator(operator)) if operator == "!=" => Ok(false),
        Some(other) => Err(syntax_error(format!("expected `==` or `!=`, found {other}"))),
        None => Err(syntax_error("expected `==` or `!=`, found nothing".to_owned())),
    }
}

fn is_and(token: &ConditionToken) -> bool {
    match token {
        ConditionToken::Word(word) => word.text == "and" && !word.quoted,
        ConditionToken::Operator(operator) => operator == "&&",
    }
}

fn negated(message: String) -> ConditionError {
    ConditionError { message, help: NO_NOT.to_owned() }
}

fn is_or(word: &Operand) -> bool {
    word.text == "or" && !word.quoted
}

fn syntax_error(message: String) -> ConditionError {
    ConditionError { message, help: SYNTAX_HELP.to_owned() }
}

#[derive(Debug, PartialEq, Eq)]
enum ConditionToken {
    Word(Operand),
    Operator(String),
}

impl fmt::Display for ConditionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) if word.quoted => write!(f, "`{word}`"),
            Self::Word(Operand { text, .. }) | Self::Operator(text) => write!(f, "`{text}`"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<ConditionToken>, ConditionError> {
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

fn quoted(inside: &str) -> Result<(ConditionToken, &str), ConditionError> {
    let Some((text, after)) = inside.split_once('\'') else {
        return Err(ConditionError {
            message: "a `'` that is not closed".to_owned(),
            help: "put one before and one after the word".to_owned(),
        });
    };
    Ok((ConditionToken::Word(Operand { text: text.to_owned(), quoted: true }), after))
}

fn is_operator(c: char) -> bool {
    matches!(c, '=' | '!' | '<' | '>' | '~' | '&' | '|')
}

fn operator_token(text: &str) -> (ConditionToken, &str) {
    let end = text.find(|c| !is_operator(c)).unwrap_or(text.len());
    let (operator, after) = text.split_at(end);
    (ConditionToken::Operator(operator.to_owned()), after)
}

/// An unquoted word. A variable in it is one unit, whatever its default contains.
fn plain(text: &str) -> Result<(ConditionToken, &str), ConditionError> {
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
    Ok((ConditionToken::Word(Operand { text: word.to_owned(), quoted: false }), after))
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '+' | '@' | '%' | ',' | '$')
}

fn needs_quotes(found: char) -> ConditionError {
    ConditionError {
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
    fn invalid_conditions_are_reported() {
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
    fn the_help_says_what_to_write_for_and_and_not() {
        let help = |text: &str| parse(text).unwrap_err().help;
        for text in ["a == b and c == d", "a == b && c == d"] {
            assert_eq!(help(text), NO_AND, "{text}");
        }
        for text in ["not a == b", "!a == b", "a == b or not c == d"] {
            assert_eq!(help(text), NO_NOT, "{text}");
        }
        assert!(holds("not == not") && holds("and == and"));
        assert_eq!(help("a == b c"), SYNTAX_HELP);
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
            let quoted = |text: &str| Operand { text: text.to_owned(), quoted: true };
            let each = words.iter().map(|(left, equal, right)| {
                Comparison { left: quoted(left), equal: *equal, right: quoted(right) }
            });
            let condition = Condition { alternatives: each.collect(), span: 0..0 };
            prop_assert_eq!(parse(&condition.to_string()).unwrap(), condition.alternatives);
        }
    }
}
