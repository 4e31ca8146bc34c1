//! Types of cells: guessing them, checking cells, and building columns.

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder,
};
use arrow_schema::DataType;
use serde::Deserialize;
use sluice_io::escape::{escaped, printable};
use sluice_model::schemars::JsonSchema;

use super::scan::Cell;

/// Floats represent all integers up to here exactly.
const EXACT: u64 = 1 << 53;

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum CellType {
    /// A number.
    F64,
    /// An integer.
    I64,
    /// `true` or `false`.
    Bool,
    /// Any text.
    Text,
}

impl CellType {
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::F64 => DataType::Float64,
            Self::I64 => DataType::Int64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8,
        }
    }

    /// Checks a cell of a column of this type; returns what is wrong.
    pub(super) fn check(self, cell: &Cell, row: &[u8]) -> Option<String> {
        if self == Self::Text {
            return None;
        }
        let text = cell.text(row);
        if is_null(cell, &text) {
            return None;
        }
        let wrong = match self {
            Self::Text => None,
            Self::F64 if is_short_decimal(text.trim_ascii()) => None,
            Self::F64 => number(&text).err(),
            Self::I64 => parsed::<i64>(&text).is_none().then_some("not an integer of 64 bits"),
            Self::Bool => truth(&text).is_none().then_some("neither true nor false"),
        };
        wrong.map(|wrong| describe_cell(&text, wrong))
    }
}

/// What a sampled cell may be.
#[derive(Clone, Copy)]
pub(super) struct CellSample {
    is_empty: bool,
    is_number: bool,
    /// An integer that a float does not represent exactly.
    is_long: bool,
    is_whole: bool,
    is_bool: bool,
}

impl CellSample {
    pub(super) fn from_cell(cell: &Cell, row: &[u8]) -> Self {
        let text = cell.text(row);
        let whole = parsed::<i64>(&text);
        Self {
            is_empty: is_null(cell, &text),
            is_number: number(&text).is_ok() && !is_code(&text),
            is_long: whole.is_some_and(|whole| whole.unsigned_abs() > EXACT),
            is_whole: whole.is_some() && !is_code(&text),
            is_bool: truth(&text).is_some(),
        }
    }
}

/// Whether it is digits with leading zeros, which would be lost in a number.
fn is_code(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.len() > 1 && text.starts_with(b"0") && text.iter().all(u8::is_ascii_digit)
}

/// The type of a column, guessed from samples.
pub(super) fn guess<'s>(samples: impl Iterator<Item = &'s CellSample>) -> CellType {
    let there: Vec<&CellSample> = samples.filter(|sample| !sample.is_empty).collect();
    let all =
        |is: fn(&CellSample) -> bool| !there.is_empty() && there.iter().all(|sample| is(sample));
    if all(|s| s.is_bool) {
        CellType::Bool
    } else if all(|s| s.is_whole) && there.iter().any(|s| s.is_long) {
        CellType::I64
    } else if all(|s| s.is_number) && !there.iter().any(|s| s.is_long) {
        CellType::F64
    } else {
        CellType::Text
    }
}

/// Whether a cell has no value, unless its column has texts: there, only an empty cell has none.
fn is_null(cell: &Cell, text: &[u8]) -> bool {
    !cell.is_quoted && text.trim_ascii().is_empty()
}

pub(super) fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn truth(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
    if is(b"true") { Some(true) } else { is(b"false").then_some(false) }
}

/// A number, unless it is beyond those of a float, or an integer that a float would change.
fn number(text: &[u8]) -> Result<f64, &'static str> {
    let number: f64 = parsed(text).ok_or("not a number")?;
    if number.is_infinite() && text.iter().any(u8::is_ascii_digit) {
        return Err("too large for type f64: give the column type text");
    }
    if number.abs() >= EXACT as f64
        && is_whole(text)
        && parsed::<i128>(text) != Some(number as i128)
    {
        return Err("too many digits for type f64: give the column type text, or i64 if it fits");
    }
    Ok(number)
}

/// Whether it is an integer, of any length.
fn is_whole(text: &[u8]) -> bool {
    let digits = text.trim_ascii();
    let digits = digits.strip_prefix(b"+").or(digits.strip_prefix(b"-")).unwrap_or(digits);
    digits.iter().all(u8::is_ascii_digit)
}

/// Whether it is a [`number`] by its characters alone, without the cost of parsing it: digits with
/// at most one point, and a sign. Few enough before the point for a float to be exact.
fn is_short_decimal(text: &[u8]) -> bool {
    /// The digits of `EXACT`, less one.
    const MAX_WHOLE: usize = 15;
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = match text {
        [b'+' | b'-', rest @ ..] => rest,
        text => text,
    };
    let whole = digits(text);
    if !(1..=MAX_WHOLE).contains(&whole) {
        return false;
    }
    match text.get(whole..) {
        Some([b'.', fraction @ ..]) => digits(fraction) == fraction.len(),
        rest => rest.is_some_and(<[u8]>::is_empty),
    }
}

/// A cell and a statement about it.
pub(super) fn describe_cell(text: &[u8], what: &str) -> String {
    const SHOWN: usize = 40;
    let text = text.get(..SHOWN).unwrap_or(text);
    format!("`{}` is {what}", printable(&String::from_utf8_lossy(text)))
}

/// Builds a column of fields.
pub(super) enum ColumnBuilder {
    F64(Float64Builder),
    I64(Int64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
}

impl ColumnBuilder {
    pub(super) fn new(kind: CellType) -> Self {
        match kind {
            CellType::F64 => Self::F64(Float64Builder::new()),
            CellType::I64 => Self::I64(Int64Builder::new()),
            CellType::Bool => Self::Bool(BooleanBuilder::new()),
            CellType::Text => Self::Text(StringBuilder::new()),
        }
    }

    pub(super) fn push(&mut self, cell: &Cell, row: &[u8]) {
        let text = cell.text(row);
        let is_null = is_null(cell, &text);
        match self {
            Self::F64(column) => column.append_option(number(&text).ok().filter(|_| !is_null)),
            Self::I64(column) => column.append_option(parsed(&text).filter(|_| !is_null)),
            Self::Bool(column) => column.append_option(truth(&text).filter(|_| !is_null)),
            Self::Text(column) if is_null && text.is_empty() => column.append_null(),
            Self::Text(column) => column.append_value(escaped(&text)),
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::F64(mut column) => ArrayBuilder::finish(&mut column),
            Self::I64(mut column) => ArrayBuilder::finish(&mut column),
            Self::Bool(mut column) => ArrayBuilder::finish(&mut column),
            Self::Text(mut column) => ArrayBuilder::finish(&mut column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn most_cells_of_numbers_are_short_decimals() {
        for text in ["0", "-1.5", "+12.", "0.0086937527219", "999999999999999.9"] {
            assert!(is_short_decimal(text.as_bytes()), "{text}");
        }
        for text in ["", "-", ".5", "1e3", "1.2.3", "nan", "1 ", "9007199254740993"] {
            assert!(!is_short_decimal(text.as_bytes()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_integer_is_kept_exactly_or_refused(
            near in -40i128..40, side: bool, plus: bool)
        {
            let whole = (if side { 1 } else { -1 }) * i128::from(EXACT) + near;
            let text = if plus && whole > 0 { format!("+{whole}") } else { whole.to_string() };
            match number(text.as_bytes()) {
                Ok(number) => prop_assert_eq!(number as i128, whole),
                Err(_) => prop_assert!(whole.unsigned_abs() > u128::from(EXACT)),
            }
        }

        #[test]
        fn a_short_decimal_is_a_number(text in "[-+]?[0-9]{0,17}[.]?[0-9]{0,4}[.e -]?") {
            if is_short_decimal(text.as_bytes()) {
                prop_assert!(number(text.as_bytes()).is_ok(), "{text}");
            }
        }
    }
}
