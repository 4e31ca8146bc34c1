//! `${NAME}` in the strings of a pipeline file. Knows nothing of where those strings are.

use std::collections::BTreeMap;

use super::wording::did_you_mean;

/// Values for `${NAME}`: those given by hand first, then the environment.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Given by `--set NAME=VALUE`.
    pub set: BTreeMap<String, String>,
    /// Whether names that were not given are looked up in the environment.
    pub environment: bool,
}

/// A string whose variables have been filled in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    /// The string.
    pub(crate) text: String,
    /// It begins with a variable that was given: from outside the file, so that a relative path means
    /// the working folder.
    pub(crate) begins_outside: bool,
    /// It was nothing but one variable.
    pub(crate) is_variable: bool,
}

/// Why a string cannot be filled in, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfilled {
    pub(crate) message: String,
    pub(crate) help: String,
    /// The variable, if it has no value; else the string cannot be read.
    pub(crate) unset: Option<String>,
}

struct Filled {
    text: String,
    outside: bool,
}

impl Variables {
    /// `text` with `${NAME}` and `${NAME:-default}` filled in; `$$` is a dollar sign. As in a shell, the
    /// default also stands in for an empty value. `Err` holds everything that is wrong with it.
    pub(crate) fn expand(&self, text: &str) -> Result<Expanded, Vec<Unfilled>> {
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
        let expanded = Expanded { text: out, begins_outside, is_variable };
        if unfilled.is_empty() { Ok(expanded) } else { Err(unfilled) }
    }

    /// What stands for the inside of `${…}`.
    fn fill(&self, reference: &str) -> Result<Filled, Unfilled> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Err(bad_name(name));
        }
        match (self.value(name), default) {
            (Some(value), None) => Ok(Filled { text: value, outside: true }),
            (Some(value), Some(_)) if !value.is_empty() => {
                Ok(Filled { text: value, outside: true })
            }
            (_, Some(default)) if default.contains("${") => Err(nested()),
            (_, Some(default)) => Ok(Filled { text: default.to_owned(), outside: false }),
            (None, None) => Err(self.missing(name)),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        let environment = || self.environment.then(|| std::env::var(name).ok()).flatten();
        self.set.get(name).cloned().or_else(environment)
    }

    fn missing(&self, name: &str) -> Unfilled {
        let given: Vec<&str> = self.set.keys().map(String::as_str).collect();
        let hint = did_you_mean(name, &given).map(|hint| format!("; {hint}")).unwrap_or_default();
        Unfilled {
            message: format!("the variable `{name}` has no value"),
            help: format!("give it with --set {name}=… or in the environment{hint}"),
            unset: Some(name.to_owned()),
        }
    }
}

/// The inside of the braces, and what follows them.
fn split_reference(inner: &str) -> (Result<&str, Unfilled>, &str) {
    match inner.split_once('}') {
        Some((reference, tail)) => (Ok(reference), tail),
        None => (Err(unclosed()), ""),
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn unclosed() -> Unfilled {
    Unfilled {
        message: "`${` without `}`".to_owned(),
        help: "write `$${` for the two characters themselves".to_owned(),
        unset: None,
    }
}

fn bad_name(name: &str) -> Unfilled {
    Unfilled {
        message: format!("`{name}` is no name of a variable"),
        help: "write ${NAME} or ${NAME:-default} with letters, digits and _ in NAME".to_owned(),
        unset: None,
    }
}

fn nested() -> Unfilled {
    Unfilled {
        message: "a default cannot hold another variable".to_owned(),
        help: "give the outer variable with --set or in the environment".to_owned(),
        unset: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<Expanded, Vec<Unfilled>> {
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
    fn where_a_string_begins_is_known() {
        let begins = |text: &str| expand(text).unwrap().begins_outside;
        assert!(begins("${IN}") && begins("${IN}/x"));
        assert!(!begins("./${IN}") && !begins("${OUT:-x}/${IN}") && !begins("${EMPTY:-x}"));
        let whole = |text: &str| expand(text).unwrap().is_variable;
        assert!(whole("${IN}") && whole("${OUT:-1}") && !whole("${IN}x") && !whole("$$"));
    }

    #[test]
    fn everything_wrong_with_a_string_is_told() {
        let messages = |text: &str| -> Vec<String> {
            expand(text).unwrap_err().into_iter().map(|unfilled| unfilled.message).collect()
        };
        assert_eq!(messages("${A}${B}").len(), 2);
        assert!(messages("${").concat().contains("without"));
        assert!(messages("${A B}${}").concat().contains("no name"));
        assert!(messages("${A:-${IN}}").concat().contains("default"));
        let near = Variables { set: [("INPUT".into(), String::new())].into(), environment: false };
        assert!(near.expand("${INPTU}").unwrap_err()[0].help.contains("did you mean `INPUT`"));
    }
}
