//! Expands `${NAME}` in the strings of a pipeline file. Knows nothing about where these strings
//! are.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use sluice_io::escape::escaped;

use super::messages::did_you_mean;

/// Values for `${NAME}`: explicit ones first, then the environment.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Set by `--set NAME=VALUE`.
    pub set: BTreeMap<String, String>,
    /// Whether other names are looked up in the environment.
    pub environment: bool,
}

/// A string with its variables filled in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExpandedText {
    /// The string.
    pub(crate) text: String,
    /// Whether it starts with the value of a variable, which comes from outside the file, so that a
    /// relative path is relative to the working folder.
    pub(crate) starts_outside: bool,
    /// Whether it was exactly one variable.
    pub(crate) is_variable: bool,
}

/// Why a string cannot be expanded, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExpandError {
    pub(crate) message: String,
    pub(crate) help: String,
    /// The variable, if it has no value; `None` for a syntax error.
    pub(crate) unset: Option<String>,
}

struct VariableValue {
    text: String,
    outside: bool,
}

impl Variables {
    /// Expands `${NAME}` and `${NAME:-default}`; `$$` is a dollar sign. As in a shell, the default
    /// also replaces an empty value. It may contain braces in pairs. `Err` lists everything wrong
    /// with the text.
    pub(crate) fn expand(&self, text: &str) -> Result<ExpandedText, Vec<ExpandError>> {
        let (mut out, mut unfilled) = (String::new(), Vec::new());
        let (mut begins_outside, mut is_variable) = (false, false);
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let at_start = before.is_empty() && rest.len() == text.len();
            let Some(inner) = after.strip_prefix('{') else {
                out.push('$');
                rest = after.strip_prefix('$').unwrap_or(after);
                continue;
            };
            let (reference, tail) = split_reference(inner);
            match reference.and_then(|reference| self.fill(reference)) {
                Ok(filled) => {
                    begins_outside |= at_start && filled.outside;
                    is_variable |= at_start && tail.is_empty();
                    out.push_str(&filled.text);
                }
                Err(reason) => unfilled.push(reason),
            }
            rest = tail;
        }
        out.push_str(rest);
        let expanded = ExpandedText { text: out, starts_outside: begins_outside, is_variable };
        if unfilled.is_empty() { Ok(expanded) } else { Err(unfilled) }
    }

    /// The value of the reference inside `${…}`.
    fn fill(&self, reference: &str) -> Result<VariableValue, ExpandError> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Err(bad_name(name));
        }
        match (self.value(name)?, default) {
            (Some(value), None) => Ok(VariableValue { text: value, outside: true }),
            (Some(value), Some(_)) if !value.is_empty() => {
                Ok(VariableValue { text: value, outside: true })
            }
            (_, Some(default)) if default.contains("${") => Err(nested()),
            (_, Some(default)) => Ok(VariableValue { text: default.to_owned(), outside: false }),
            (None, None) => Err(self.missing(name)),
        }
    }

    fn value(&self, name: &str) -> Result<Option<String>, ExpandError> {
        if let Some(value) = self.set.get(name) {
            return Ok(Some(value.clone()));
        }
        let value = self.environment.then(|| std::env::var_os(name)).flatten();
        value.map(|value| value.into_string().map_err(|value| not_utf8(name, &value))).transpose()
    }

    fn missing(&self, name: &str) -> ExpandError {
        let given: Vec<&str> = self.set.keys().map(String::as_str).collect();
        let hint = did_you_mean(name, &given).map(|hint| format!("; {hint}")).unwrap_or_default();
        ExpandError {
            message: format!("the variable `{name}` has no value"),
            help: format!("give it with --set {name}=… or in the environment{hint}"),
            unset: Some(name.to_owned()),
        }
    }
}

/// The reference inside the braces, up to the `}` that matches the `{` before it, and the text
/// after them.
fn split_reference(inner: &str) -> (Result<&str, ExpandError>, &str) {
    match reference_len(inner) {
        Some(len) => (Ok(&inner[..len]), &inner[len + 1..]),
        None => (Err(unclosed(inner)), ""),
    }
}

/// Whether a text contains a variable. `$$` is an escaped dollar sign.
pub fn has_variable(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('$') {
        if after.starts_with('{') {
            return true;
        }
        rest = after.strip_prefix('$').unwrap_or(after);
    }
    false
}

/// The length of the text before the `}` that ends a reference.
pub(super) fn reference_len(inner: &str) -> Option<usize> {
    let mut open = 1;
    let mut braces = inner.match_indices(['{', '}']);
    let closing = braces.find(|(_, brace)| {
        open = if *brace == "{" { open + 1 } else { open - 1 };
        open == 0
    });
    closing.map(|(at, _)| at)
}

pub(super) fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn unclosed(inner: &str) -> ExpandError {
    let help = match inner.contains('{') {
        true => "close every `{` in the default of a variable",
        false => "write `$${` for the two characters themselves",
    };
    ExpandError { message: "`${` without `}`".to_owned(), help: help.to_owned(), unset: None }
}

fn bad_name(name: &str) -> ExpandError {
    ExpandError {
        message: format!("`{name}` is not a variable name"),
        help: "write ${NAME} or ${NAME:-default} with letters, digits and _ in NAME".to_owned(),
        unset: None,
    }
}

fn not_utf8(name: &str, value: &OsStr) -> ExpandError {
    let value = escaped(value.as_encoded_bytes());
    ExpandError {
        message: format!("the environment variable `{name}` is not UTF-8: `{value}`"),
        help: format!("set it to valid UTF-8, or give the value with --set {name}=…"),
        unset: None,
    }
}

fn nested() -> ExpandError {
    ExpandError {
        message: "a default cannot hold another variable".to_owned(),
        help: "give the outer variable with --set or in the environment".to_owned(),
        unset: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<ExpandedText, Vec<ExpandError>> {
        let set = [("IN", "a.lcm"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        Variables { set: set.into(), environment: false }.expand(text)
    }

    #[test]
    fn variables_are_filled_in_wherever_they_stand() {
        let text = |text: &str| expand(text).unwrap().text;
        assert_eq!(text("x/${IN}.${OUT:-b}/${OUT:-}"), "x/a.lcm.b/");
        assert_eq!(text("${EMPTY:-d}|${EMPTY}|"), "d||");
        assert_eq!(text("re:A$ $${IN} $$ $"), "re:A$ ${IN} $ $");
    }

    #[test]
    fn an_escaped_dollar_sign_begins_no_variable() {
        for (text, has) in
            [("a", false), ("$${A}", false), ("$$${A}", true), ("$A${B}", true), ("$", false)]
        {
            assert_eq!(has_variable(text), has, "{text}");
        }
    }

    #[test]
    fn a_default_may_contain_braces_in_pairs() {
        let text = |text: &str| expand(text).unwrap().text;
        assert_eq!(text("${OUT:-out/{stem}.jsonl}/x"), "out/{stem}.jsonl/x");
        assert_eq!(text("${IN:-out/{stem}.jsonl}}"), "a.lcm}");
        assert_eq!(text("${CH:-BROOM_{L,R}}|${CH:-{{{a}}}}"), "BROOM_{L,R}|{{{a}}}");
        let errors = expand("${OUT:-a{b}").unwrap_err();
        assert!(errors[0].help.contains("close every `{`"), "{errors:?}");
    }

    #[test]
    fn where_a_string_begins_is_known() {
        let begins = |text: &str| expand(text).unwrap().starts_outside;
        assert!(begins("${IN}") && begins("${IN}/x"));
        assert!(!begins("./${IN}") && !begins("${OUT:-x}/${IN}") && !begins("${EMPTY:-x}"));
        let whole = |text: &str| expand(text).unwrap().is_variable;
        assert!(whole("${IN}") && whole("${OUT:-1}") && !whole("${IN}x") && !whole("$$"));
    }

    #[test]
    fn everything_wrong_with_a_string_is_reported() {
        let messages = |text: &str| -> Vec<String> {
            expand(text).unwrap_err().into_iter().map(|unfilled| unfilled.message).collect()
        };
        assert_eq!(messages("${A}${B}").len(), 2);
        assert!(messages("${").concat().contains("without"));
        assert!(messages("${A B}${}").concat().contains("not a variable name"));
        assert!(messages("${A:-${IN}}").concat().contains("default"));
        let near = Variables { set: [("INPUT".into(), String::new())].into(), environment: false };
        assert!(near.expand("${INPTU}").unwrap_err()[0].help.contains("did you mean `INPUT`"));
    }
}
