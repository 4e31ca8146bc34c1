//! A field of a description with its place in records.

use crate::column::{Arity, FieldPlace, RecordColumn};
use crate::offset::RecordOffset;
use crate::options::{Field, FieldType, Role};
use crate::wire::BinaryNumber;

use super::{KeyPath, Mistakes};

/// A field with its place.
#[derive(Clone, Debug)]
pub(super) struct PlacedField<'o> {
    pub(super) field: &'o Field,
    /// The keys that lead to it.
    pub(super) path: KeyPath,
    pub(super) at: FieldPlace,
    /// Its number format, if it is a number.
    pub(super) word: Option<BinaryNumber>,
    /// Whether it is a single value or a list.
    pub(super) arity: Arity,
    pub(super) columns: Vec<RecordColumn>,
    pub(super) constant: Option<Vec<u8>>,
}

impl PlacedField<'_> {
    pub(super) fn has(&self, role: Role) -> bool {
        self.field.role == Some(role)
    }

    /// Its offset and length, if they are fixed.
    pub(super) fn spot(&self) -> Option<(RecordOffset, usize)> {
        match self.at {
            FieldPlace::Fixed(spot, len) => Some((spot, len)),
            FieldPlace::Step(_) => None,
        }
    }

    /// Its offset and number format, if it is a single integer at a fixed offset.
    pub(super) fn whole(&self) -> Option<(RecordOffset, BinaryNumber)> {
        let word = self.word.filter(|word| !word.number.is_float())?;
        (self.arity == Arity::One).then(|| self.spot().map(|(spot, _)| (spot, word))).flatten()
    }

    /// Its offset, length and number format, if it is a text or a single integer at a fixed offset.
    pub(super) fn word_or_text(&self) -> Option<(RecordOffset, usize, Option<BinaryNumber>)> {
        let (spot, len) = self.spot()?;
        let is_text = self.field.kind == FieldType::Text;
        (is_text || self.whole().is_some()).then_some((spot, len, self.word))
    }

    pub(super) fn report(&self, mistakes: &mut Mistakes, key: &str, what: impl Into<String>) {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        mistakes.at(&path, what);
    }
}

/// The only field with this role.
pub(super) fn only<'f, 'o>(
    fields: &[&'f PlacedField<'o>],
    role: Role,
    mistakes: &mut Mistakes,
) -> Option<&'f PlacedField<'o>> {
    let mut found = fields.iter().copied().filter(|placed| placed.has(role));
    let first = found.next();
    for other in found {
        let what = format!("another field of the record has the role `{}`", role.word());
        other.report(mistakes, "role", what);
    }
    first
}
