//! Compiles the field with the role `kind` and the values of each kind.

use crate::column::Arity;
use crate::format::KindKey;
use crate::offset::RecordOffset;
use crate::options::{Options, Role};
use crate::wire::{BinaryNumber, range};

use super::placed_field::{PlacedField, only};
use super::{Mistakes, path};

/// Where records store their kind, and the value of each kind.
pub(super) fn compile(
    options: &Options,
    head: &[PlacedField<'_>],
    mistakes: &mut Mistakes,
) -> Option<KindKey> {
    let all: Vec<&PlacedField<'_>> = head.iter().collect();
    let placed = only(&all, Role::Kind, mistakes);
    check_misplaced(options, mistakes);
    match (placed, options.kinds.is_empty()) {
        (None, true) => None,
        (Some(placed), true) => {
            let what = "a role `kind` needs `kinds`";
            // May follow from `kinds` having been dropped as wrong.
            match options.fields.is_empty() {
                true => mistakes.at(&[], what),
                false => placed.report(mistakes, "role", what),
            }
            None
        }
        (None, false) => {
            // May follow from `head` having been dropped as wrong.
            let at = if options.head.is_empty() { Vec::new() } else { path(&["kinds"]) };
            mistakes.at(&at, "`kinds` need a field of `head` with the role `kind`");
            None
        }
        (Some(placed), false) => key(options, placed, mistakes),
    }
}

/// The kind must be known before the fields after the head.
fn check_misplaced(options: &Options, mistakes: &mut Mistakes) {
    let lists = [("fields", &options.fields), ("tail", &options.tail)];
    for (key, fields) in lists {
        for (n, _) in fields.iter().enumerate().filter(|(_, f)| f.role == Some(Role::Kind)) {
            mistakes.at(
                &path(&[key, &n.to_string(), "role"]),
                "the field with the role `kind` \
                 must be in `head`",
            );
        }
    }
    for (name, kind) in &options.kinds {
        for (n, _) in kind.fields.iter().enumerate().filter(|(_, f)| f.role == Some(Role::Kind)) {
            let path = path(&["kinds", name, "fields", &n.to_string(), "role"]);
            mistakes.at(&path, "the field with the role `kind` must be in `head`");
        }
    }
}

fn key(options: &Options, placed: &PlacedField<'_>, mistakes: &mut Mistakes) -> Option<KindKey> {
    let place = placed.word_or_text().filter(|_| placed.arity == Arity::One);
    let Some((RecordOffset::Start(at), len, word)) = place else {
        placed.report(mistakes, "role", "a kind must be a single integer or a text");
        return None;
    };
    let mut values: Vec<(Vec<u8>, usize)> = Vec::new();
    for (kind, name) in options.kinds.keys().enumerate() {
        match value(name, word, len) {
            Ok(value) if values.iter().any(|(other, _)| *other == value) => {
                mistakes.at(&path(&["kinds", name]), "another kind has the same value");
            }
            Ok(value) => values.push((value, kind)),
            Err(what) => mistakes.at(&path(&["kinds", name]), what),
        }
    }
    values.sort();
    Some(KindKey { at, len, values, other: None })
}

/// The bytes of a kind's value.
fn value(name: &str, word: Option<BinaryNumber>, len: usize) -> Result<Vec<u8>, String> {
    let Some(word) = word else {
        let mut bytes = name.as_bytes().to_vec();
        let has = bytes.len();
        if has > len {
            return Err(format!(
                "the field with the role `kind` has {len} bytes, `{name}` \
                                has {has}"
            ));
        }
        // Programs pad texts of fixed size with NUL.
        bytes.resize(len, 0);
        return Ok(bytes);
    };
    let (least, most) = range(word.number);
    let number = whole(name).filter(|number| (least..=most).contains(number));
    let number = number
        .ok_or_else(|| format!("expected a kind from {least} to {most}, such as 7 or 0x07"))?;
    Ok(word.bytes(number as u64))
}

/// An integer as the key of a table.
pub(super) fn whole(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with(['+', '-']) => i128::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}
