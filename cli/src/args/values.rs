//! Values of options: reads and judges single ones.

use sluice_core::Pattern;
use sluice_core::time::{TimeLength, TimePoint};

/// A name with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// What stands before `=`.
    pub name: String,
    /// What stands behind it.
    pub value: String,
}

/// Reads a name, `=` and a value.
pub fn assignment(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err("expected a name, `=` and a value".to_owned());
    }
    Ok(Assignment { name: name.to_owned(), value: value.to_owned() })
}

/// Reads a channel, `=` and a type.
pub fn channel_type(text: &str) -> Result<(String, String), String> {
    let (channel, name) = text.rsplit_once('=').ok_or("expected a channel, `=` and a type")?;
    Ok((pattern(channel)?, name.to_owned()))
}

/// Judges a pattern of channels.
pub(crate) fn pattern(text: &str) -> Result<String, String> {
    Pattern::parse(text).map(|_| text.to_owned())
}

pub(super) fn time(text: &str) -> Result<String, String> {
    TimePoint::parse_chosen(text).map(|_| text.trim().to_owned())
}

/// A regular expression for whole names, as the pattern that it is.
pub(crate) fn regex(text: &str) -> Result<String, String> {
    pattern(&format!("re:{text}"))
}

/// A length of time; the text is what a plugin gets.
pub fn length(text: &str) -> Result<String, String> {
    match TimeLength::parse(text)? {
        TimeLength(1..) => Ok(text.trim().to_owned()),
        TimeLength(_) => Err("expected a length of time above 0".to_owned()),
    }
}

pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let above = number(text).ok().filter(|number| *number > 0.0);
    above.ok_or_else(|| "expected a number above 0".to_owned())
}
