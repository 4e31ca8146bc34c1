//! Parses and validates the values of options.

use std::ffi::{OsStr, OsString};

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Arg, Command};
use sluice_model::Pattern;
use sluice_model::time::{TimePoint, TimeSpan};

/// Parses the name of an input. One that is not UTF-8 may fail alone.
#[derive(Clone)]
pub(crate) struct InputParser;

impl TypedValueParser for InputParser {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        match value.to_str() {
            None => Ok(value.to_owned()),
            Some(_) => {
                let text = NonEmptyStringValueParser::new().parse_ref(command, argument, value);
                Ok(text?.into())
            }
        }
    }
}

/// A name with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The part before `=`.
    pub name: String,
    /// The part after `=`.
    pub value: String,
}

/// Parses `NAME=VALUE`.
pub(crate) fn assignment(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err("expected a name, `=` and a value".to_owned());
    }
    Ok(Assignment { name: name.to_owned(), value: value.to_owned() })
}

/// Parses `CHANNEL=TYPE`.
pub(super) fn channel_type(text: &str) -> Result<(String, String), String> {
    let (channel, name) = text.rsplit_once('=').ok_or("expected a channel, `=` and a type")?;
    Ok((channel_pattern(channel)?, name.to_owned()))
}

/// Validates a channel pattern.
pub(crate) fn channel_pattern(text: &str) -> Result<String, String> {
    Pattern::parse(text).map(|_| text.to_owned())
}

pub(super) fn time(text: &str) -> Result<String, String> {
    TimePoint::parse_chosen(text).map(|_| text.trim().to_owned())
}

/// Turns a regular expression for whole names into a channel pattern.
pub(crate) fn regex_pattern(text: &str) -> Result<String, String> {
    channel_pattern(&format!("re:{text}"))
}

/// Validates a duration above 0. Returns the text, which plugins parse again.
pub fn duration(text: &str) -> Result<String, String> {
    TimeSpan::parse_positive(text).map(|_| text.trim().to_owned())
}

pub(crate) fn finite_number(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

pub(crate) fn positive_number(text: &str) -> Result<f64, String> {
    let above = finite_number(text).ok().filter(|number| *number > 0.0);
    above.ok_or_else(|| "expected a number above 0".to_owned())
}
