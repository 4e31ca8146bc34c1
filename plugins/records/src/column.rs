//! What the columns of a kind of records hold, and where. Reads nothing.

use sluice_kit::columns::ViewKind;

use crate::offset::RecordOffset;

/// A column of a kind.
#[derive(Clone, Debug)]
pub(crate) struct RecordColumn {
    /// Its name.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: Option<String>,
    /// How its values are stored.
    pub(crate) value: ValueKind,
}

/// The place of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldPlace {
    /// A fixed offset and length.
    Fixed(RecordOffset, usize),
    /// The step of the field walk.
    Step(usize),
}

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueKind {
    /// In numbers.
    Number(ViewKind),
    /// Text up to the first NUL, without trailing blanks.
    Text,
    /// Bytes.
    Bytes,
}

/// How many values a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arity {
    /// One.
    One,
    /// A fixed number.
    Fixed(usize),
    /// Any number.
    List,
}
