//! Values of a column as text, for CSV and tables.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sluice_kit::json;
use sluice_model::Error;

use super::plain;

/// Appends the text of a row's value; nothing for null.
type CellFormatter<'c> = Box<dyn Fn(usize, &mut Vec<u8>) + 'c>;

/// The format of binary values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    /// Complete, in base64.
    Base64,
    /// For people: the length and the first bytes.
    Preview,
}

/// The text values of a column.
pub(super) struct Cells {
    column: ArrayRef,
    binary: Binary,
}

impl Cells {
    pub(super) fn new(column: &ArrayRef, binary: Binary) -> Result<Self, Error> {
        Ok(Self { column: plain::column(column)?, binary })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.column.is_null(row) || *self.column.data_type() == DataType::Null
    }

    /// The function that formats values.
    pub(super) fn formatter(&self) -> Result<CellFormatter<'_>, Error> {
        let (array, binary) = (&self.column, self.binary);
        Ok(match array.data_type() {
            DataType::Utf8 => strings(array.as_string::<i32>()),
            DataType::LargeUtf8 => strings(array.as_string::<i64>()),
            DataType::Utf8View => strings(array.as_string_view()),
            DataType::Binary => bytes(array.as_binary::<i32>(), binary),
            DataType::LargeBinary => bytes(array.as_binary::<i64>(), binary),
            DataType::BinaryView => bytes(array.as_binary_view(), binary),
            DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary(), binary),
            other => {
                let (write, nests) = (json::value(array)?, other.is_nested());
                Box::new(move |row, out| {
                    let start = out.len();
                    write(row, out);
                    if !nests {
                        unquote(out, start);
                    }
                })
            }
        })
    }
}

fn strings<'c>(array: impl arrow_array::ArrayAccessor<Item = &'c str> + 'c) -> CellFormatter<'c> {
    Box::new(move |row, out| out.extend_from_slice(array.value(row).as_bytes()))
}

fn bytes<'c>(
    array: impl arrow_array::ArrayAccessor<Item = &'c [u8]> + 'c,
    binary: Binary,
) -> CellFormatter<'c> {
    Box::new(move |row, out| match binary {
        Binary::Base64 => json::base64(out, array.value(row)),
        Binary::Preview => preview(array.value(row), out),
    })
}

/// `12 B 0a00ff…`
fn preview(bytes: &[u8], out: &mut Vec<u8>) {
    const SHOWN: usize = 8;
    json::integer(out, bytes.len());
    out.extend_from_slice(b" B");
    for (at, byte) in bytes.iter().take(SHOWN).enumerate() {
        let gap = if at == 0 { " " } else { "" };
        out.extend_from_slice(format!("{gap}{byte:02x}").as_bytes());
    }
    if bytes.len() > SHOWN {
        out.extend_from_slice("…".as_bytes());
    }
}

/// Removes the quotes of a JSON string without escapes: `NaN`, or a decimal number.
fn unquote(out: &mut Vec<u8>, start: usize) {
    if out.get(start) == Some(&b'"') {
        out.pop();
        out.remove(start);
    }
}
