//! Parses TOML into the tree of configuration files, so one reader handles both. Knows no keys.

use std::ops::Range;

use sluice_kit::mistake::Mistake;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mount_tree::mistake;
use super::read::ConfigTree;
use crate::config::{ConfigEntry, ConfigValue, Scalar};

/// Parses a TOML text, or returns all its mistakes.
pub(super) fn parse_toml(text: &str) -> Result<ConfigTree, Vec<Mistake>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<Mistake> = errors
        .iter()
        .map(|error| mistake(error.span().unwrap_or_default(), error.message()))
        .collect();
    let entries = entries(table.get_ref(), &mut mistakes);
    if mistakes.is_empty() { Ok(entries) } else { Err(mistakes) }
}

/// Recursion is bounded by the depth limit of the TOML parser.
fn entries(table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<ConfigEntry> {
    let mut entries = Vec::with_capacity(table.len());
    for (name, value) in table.iter() {
        if let Some(value) = read_value(value, mistakes) {
            entries.push(ConfigEntry {
                name: name.get_ref().to_string(),
                span: name.span(),
                value,
            });
        }
    }
    entries
}

fn read_value(value: &Spanned<DeValue<'_>>, mistakes: &mut Vec<Mistake>) -> Option<ConfigValue> {
    match value.get_ref() {
        DeValue::Table(table) => Some(ConfigValue::Group(entries(table, mistakes))),
        DeValue::Array(array) => {
            let scalars = array.iter().map(|value| {
                let scalar = scalar(value);
                if scalar.is_none() {
                    let what = "expected a number or a string, found an array or a table";
                    mistakes.push(mistake(value.span(), what));
                }
                scalar
            });
            scalars.collect::<Vec<_>>().into_iter().collect::<Option<_>>().map(ConfigValue::List)
        }
        _ => scalar(value).map(ConfigValue::Scalar),
    }
}

fn scalar(value: &Spanned<DeValue<'_>>) -> Option<Scalar> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(integer) => decimal_digits(integer.as_str(), integer.radix()),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(datetime) => datetime.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    };
    let span: Range<usize> = value.span();
    Some(Scalar { text, span })
}

/// Converts an integer to decimal digits, or returns it unchanged if it does not fit into 64 bits.
fn decimal_digits(digits: &str, radix: u32) -> String {
    i64::from_str_radix(digits, radix).map_or_else(|_| digits.to_owned(), |n| n.to_string())
}
