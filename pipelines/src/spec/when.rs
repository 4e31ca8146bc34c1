//! The key `when`: a condition on variables that decides whether a node is part of the pipeline.
//! Reads and evaluates conditions; `prune` removes the nodes.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::check::{Check, TomlKey, TomlValue};
use super::messages::kind_of;
use super::relocation::{quoted, string_literal};
use super::variables::{has_variable, is_name, reference_len};

/// A condition: true if all tests of one of its alternatives are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    alternatives: Vec<Vec<ValueTest>>,
    /// Its position.
    pub(super) span: Range<usize>,
    /// What to show of it: a table, or a list of them. The string, if it has no such form.
    shown: String,
    /// How to write it, if it is a string.
    pub(super) note: Option<String>,
}

/// Tests whether a value is one of some words, or none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ValueTest {
    /// The variable that has the value, or in a string the text with it.
    variable: String,
    value: String,
    words: Vec<String>,
    is_negated: bool,
}

impl Condition {
    pub(super) fn holds(&self) -> bool {
        let holds = |test: &ValueTest| test.words.contains(&test.value) != test.is_negated;
        self.alternatives.iter().any(|tests| tests.iter().all(holds))
    }

    /// The values of its variables: "FORMAT is `text`".
    pub(super) fn values(&self) -> impl Iterator<Item = String> {
        let tests = self.alternatives.iter().flatten();
        tests.map(|test| format!("{} is `{}`", test.variable, test.value))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '+' | '@' | '%' | ',' | '$')
}

const HELP: &str = "write for example `when = { FORMAT = \"text\" }`; several words in a list are \
                    alternatives, and `{ not = \"text\" }` stands for any other";

impl Check<'_> {
    /// The condition of a node; `None` if there is none or after a reported mistake.
    pub(super) fn when(&mut self, table: &DeTable<'_>) -> Option<Condition> {
        let value = table.get("when")?;
        let (mut former, span) = (None, value.span());
        let alternatives = match value.get_ref() {
            DeValue::String(text) => {
                let Some(compared) = parse(text) else {
                    self.mistake_at(span, "expected a table of variables", Some(HELP.to_owned()));
                    return None;
                };
                former = Some((quoted(text), as_table(&compared)));
                self.each(&compared, |check, one| Some(vec![check.comparison(one, &span)?]))?
            }
            DeValue::Array(list) => {
                self.refuse_empty(list.is_empty(), &span, "table of variables")?;
                let tables: Vec<_> = list.iter().collect();
                self.each(&tables, |check, table| check.tests(table))?
            }
            _ => vec![self.tests(value)?],
        };
        Some(match former {
            None => Condition { shown: shown(&alternatives), alternatives, span, note: None },
            Some((text, table)) => {
                let form = table.as_ref().map(|table| format!("write `when = {table}`"));
                let form = form.unwrap_or_else(|| "write a table of variables".to_owned());
                let note = Some(format!("`when` as a string is outdated: {form}"));
                Condition { alternatives, span, shown: table.unwrap_or(text), note }
            }
        })
    }

    /// Reads all of them, so that every mistake is reported.
    fn each<T, R>(
        &mut self,
        all: &[T],
        mut read: impl FnMut(&mut Self, &T) -> Option<R>,
    ) -> Option<Vec<R>> {
        let read: Vec<Option<R>> = all.iter().map(|one| read(self, one)).collect();
        read.into_iter().collect()
    }

    /// No node can meet a condition without alternatives.
    fn refuse_empty(&mut self, is_empty: bool, span: &Range<usize>, what: &str) -> Option<()> {
        if is_empty {
            let message = format!("expected at least one {what}, found an empty list");
            self.mistake_at(span.clone(), message, Some(HELP.to_owned()));
        }
        (!is_empty).then_some(())
    }

    fn tests(&mut self, value: &TomlValue<'_>) -> Option<Vec<ValueTest>> {
        let Some(table) = value.get_ref().as_table() else {
            let found = kind_of(value.get_ref());
            let message = format!("expected a table of variables, found {found}");
            self.mistake_at(value.span(), message, Some(HELP.to_owned()));
            return None;
        };
        let entries: Vec<_> = table.iter().collect();
        self.each(&entries, |check, (name, value)| check.test(name, value))
    }

    fn test(&mut self, name: &TomlKey<'_>, value: &TomlValue<'_>) -> Option<ValueTest> {
        let variable = name.get_ref().to_string();
        // An unset variable is empty.
        let found = self.expand(&format!("${{{variable}:-}}"), name.span());
        let negated = value.get_ref().as_table().filter(|table| table.len() == 1);
        let negated = negated.and_then(|table| table.get("not"));
        let listed = negated.unwrap_or(value);
        let words = match listed.get_ref() {
            DeValue::Array(list) => {
                self.refuse_empty(list.is_empty(), &listed.span(), "word")?;
                let words: Vec<_> = list.iter().collect();
                self.each(&words, |check, word| check.word(word))
            }
            _ => self.word(listed).map(|word| vec![word]),
        };
        let (value, words) = (found?.text.trim().to_owned(), words?);
        Some(ValueTest { variable, value, words, is_negated: negated.is_some() })
    }

    fn word(&mut self, value: &TomlValue<'_>) -> Option<String> {
        let DeValue::String(text) = value.get_ref() else {
            let message = format!("expected a word, found {}", kind_of(value.get_ref()));
            self.mistake_at(value.span(), message, Some(HELP.to_owned()));
            return None;
        };
        self.expand(text, value.span()).map(|expanded| expanded.text)
    }

    fn comparison(&mut self, one: &Comparison<'_>, span: &Range<usize>) -> Option<ValueTest> {
        let (tested, word) = one.sides();
        if !has_variable(tested) {
            let message = "expected a variable to compare, found two words";
            self.mistake_at(span.clone(), message, Some(one.help()));
            return None;
        }
        let [value, word] = [tested, word].map(|side| {
            let expanded = self.expand(unquoted(side), span.clone())?.text;
            Some(if side.starts_with('\'') { expanded } else { expanded.trim().to_owned() })
        });
        let variable = reference(tested).map_or(unquoted(tested), |(name, _)| name).to_owned();
        Some(ValueTest { variable, value: value?, words: vec![word?], is_negated: !one.is_equal })
    }
}

/// Compares two words, with their quotes and variables, in a condition that is a string.
struct Comparison<'t> {
    left: &'t str,
    is_equal: bool,
    right: &'t str,
}

impl<'t> Comparison<'t> {
    /// The side with a variable, if one has it, and the other side.
    fn sides(&self) -> (&'t str, &'t str) {
        let (left, right) = (self.left, self.right);
        if has_variable(left) || !has_variable(right) { (left, right) } else { (right, left) }
    }

    /// What to write instead if it has no variable.
    fn help(&self) -> String {
        let (name, word) = (unquoted(self.left), unquoted(self.right));
        if !is_name(name) {
            return HELP.to_owned();
        }
        format!("write `when = {}`", table(&[test_text(name, !self.is_equal, &[word])]))
    }
}

/// Parses a string: comparisons with `==` or `!=`, and `or` between them. Variables are filled in
/// later, so that their values are never parsed.
fn parse(text: &str) -> Option<Vec<Comparison<'_>>> {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        let (left, after) = first_word(rest)?;
        let (operator, after) = after.trim_start().split_at_checked(2)?;
        let is_equal = operator == "==";
        let (right, after) = first_word(after).filter(|_| is_equal || operator == "!=")?;
        found.push(Comparison { left, is_equal, right });
        if after.trim().is_empty() {
            return Some(found);
        }
        rest = first_word(after).filter(|(word, _)| *word == "or")?.1;
    }
}

/// The first word of a text, and what follows it. A variable is one unit, whatever its default.
fn first_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let mut end = text.strip_prefix('\'').map_or(Some(0), |rest| Some(rest.find('\'')? + 2))?;
    while let Some(c) = text[end..].chars().next().filter(|_| !text.starts_with('\'')) {
        match c {
            '$' if text[end..].starts_with("${") => {
                end += reference_len(&text[end + 2..])? + "${}".len();
            }
            c if is_plain(c) => end += c.len_utf8(),
            _ => break,
        }
    }
    (end > 0).then(|| text.split_at(end))
}

fn unquoted(word: &str) -> &str {
    word.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(word)
}

/// The name and the default of a variable that is the whole word.
fn reference(word: &str) -> Option<(&str, &str)> {
    let inside = unquoted(word).strip_prefix("${")?.strip_suffix('}')?;
    let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
    (!inside.contains('$')).then_some((name, default))
}

/// A condition as a table, or a list of them; `None` if it has no such form.
fn as_table(compared: &[Comparison<'_>]) -> Option<String> {
    let mut tests: Vec<(&str, bool, Vec<&str>)> = Vec::new();
    for one in compared {
        let (tested, word) = one.sides();
        let ((name, default), word) = (reference(tested)?, unquoted(word));
        if word.contains('$') || word.is_empty() && !default.is_empty() {
            return None;
        }
        let unset = (default == word && !word.is_empty()).then_some("");
        let words = unset.into_iter().chain([word]);
        match tests.last_mut().filter(|last| one.is_equal && last.1 && last.0 == name) {
            Some((_, _, more)) => more.extend(words),
            None => tests.push((name, one.is_equal, words.collect())),
        }
    }
    let texts = tests.iter().map(|(name, is_equal, words)| test_text(name, !is_equal, words));
    Some(one_or_list(texts.map(|text| table(&[text]))))
}

/// A condition as it is written in a file, with its variables filled in.
fn shown(alternatives: &[Vec<ValueTest>]) -> String {
    one_or_list(alternatives.iter().map(|tests| {
        let text = |test: &ValueTest| test_text(&test.variable, test.is_negated, &test.words);
        table(&tests.iter().map(text).collect::<Vec<_>>())
    }))
}

fn table(tests: &[String]) -> String {
    format!("{{ {} }}", tests.join(", "))
}

fn test_text(name: &str, is_negated: bool, words: &[impl AsRef<str>]) -> String {
    let words = one_or_list(words.iter().map(|word| string_literal(word.as_ref())));
    if is_negated { format!("{name} = {{ not = {words} }}") } else { format!("{name} = {words}") }
}

fn one_or_list(each: impl Iterator<Item = String>) -> String {
    let each: Vec<String> = each.collect();
    if let [one] = &each[..] { one.clone() } else { format!("[{}]", each.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared(text: &str) -> Vec<(&str, bool, &str)> {
        parse(text).unwrap().iter().map(|one| (one.left, one.is_equal, one.right)).collect()
    }

    #[test]
    fn strings_are_comparisons_of_words() {
        assert_eq!(compared("a == b"), [("a", true, "b")]);
        assert_eq!(compared(" a!=a "), [("a", false, "a")]);
        assert_eq!(compared("'a b'=='or'"), [("'a b'", true, "'or'")]);
        let variable = "${A:-x == y or z}";
        assert_eq!(compared(&format!("é.1/x == {variable}")), [("é.1/x", true, variable)]);
        let braces = "${A:-b{c}}";
        assert_eq!(compared(&format!("{braces} == d")), [(braces, true, "d")]);
        assert_eq!(compared("a == b or c != ''"), [("a", true, "b"), ("c", false, "''")]);
    }

    #[test]
    fn other_strings_are_no_conditions() {
        for text in [
            "",
            "== a",
            "a",
            "a = b",
            "a is b",
            "a ==",
            "a == b or",
            "a == b and c == d",
            "a == b || c == d",
            "a == 'b",
            "a == b*",
            "not a == b",
            "a == b c",
            "(a == b)",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn strings_have_a_form_as_tables() {
        let table = |text: &str| as_table(&parse(text).unwrap());
        for (text, expected) in [
            ("${FORMAT:-table} == table", r#"{ FORMAT = ["", "table"] }"#),
            ("${FORMAT:-table} == text", r#"{ FORMAT = "text" }"#),
            ("${A} == b or ${A} == 'c d'", r#"{ A = ["b", "c d"] }"#),
            ("${MASKS:-} != ''", r#"{ MASKS = { not = "" } }"#),
            ("a != ${A} or ${B} == c", r#"[{ A = { not = "a" } }, { B = "c" }]"#),
        ] {
            assert_eq!(table(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["a == b", "${A}${B} == c", "${A} == ${B}", "${A:-x} == ''"] {
            assert_eq!(table(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "\\PC*|[a-c'=!$\\{\\}:\\- or\u{e9}\\n]{0,40}") {
            drop(parse(&text).as_deref().map(as_table));
        }
    }
}
