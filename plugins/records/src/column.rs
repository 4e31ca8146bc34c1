//! What the columns of a kind of records hold, and where. Reads nothing.

use crate::offset::RecordOffset;
use crate::wire::BinaryNumber;

/// A column of a kind.
#[derive(Clone, Debug)]
pub(crate) struct RecordColumn {
    /// Its name.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: Option<String>,
    /// Where its values are stored.
    pub(crate) at: FieldPlace,
    /// How its values are stored.
    pub(crate) value: ValueKind,
    /// How many values a record has.
    pub(crate) arity: Arity,
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
    /// Numbers.
    Number(BinaryNumber),
    /// Numbers with a factor and an offset.
    Scaled(BinaryNumber, f64, f64),
    /// One bit of a number.
    Flag(BinaryNumber, u32),
    /// Bits of a number: the lowest, and how many.
    Bits(BinaryNumber, u32, u32),
    /// A byte that is not 0.
    Bool,
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
