//! TOML as the tree that configuration files are, so that one reader reads both. Knows no key.

use std::ops::Range;

use sluice_core::mistake::Mistake;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::read::{Tree, mistake};
use crate::config::{Entry, Value, Word};

/// What a TOML text says, or all that is wrong with it.
pub(super) fn of_toml(text: &str) -> Result<Tree, Vec<Mistake>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<Mistake> = errors
        .iter()
        .map(|error| mistake(error.span().unwrap_or_default(), error.message()))
        .collect();
    let entries = entries(table.get_ref(), &mut mistakes);
    if mistakes.is_empty() { Ok(entries) } else { Err(mistakes) }
}

/// The parser bounds how deep tables are.
fn entries(table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(table.len());
    for (name, value) in table.iter() {
        if let Some(value) = read(value, mistakes) {
            entries.push(Entry { name: name.get_ref().to_string(), span: name.span(), value });
        }
    }
    entries
}

fn read(value: &Spanned<DeValue<'_>>, mistakes: &mut Vec<Mistake>) -> Option<Value> {
    match value.get_ref() {
        DeValue::Table(table) => Some(Value::Group(entries(table, mistakes))),
        DeValue::Array(array) => {
            let words = array.iter().map(|value| {
                let word = word(value);
                if word.is_none() {
                    let what = "expected a number or a text, found an array or a table";
                    mistakes.push(mistake(value.span(), what));
                }
                word
            });
            words.collect::<Vec<_>>().into_iter().collect::<Option<_>>().map(Value::List)
        }
        _ => word(value).map(Value::Word),
    }
}

fn word(value: &Spanned<DeValue<'_>>) -> Option<Word> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(integer) => whole(integer.as_str(), integer.radix()),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(datetime) => datetime.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    };
    let span: Range<usize> = value.span();
    Some(Word { text, span })
}

/// Digits as decimal ones, unless they are more than any number of a calibration has.
fn whole(digits: &str, radix: u32) -> String {
    i64::from_str_radix(digits, radix).map_or_else(|_| digits.to_owned(), |n| n.to_string())
}
