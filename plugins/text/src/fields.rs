//! Finds the decoded rows of events, and writes their values as table cells.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sluice_kit::json::{JsonRows, WriteCell, value};
use sluice_model::{Batch, Error};

use crate::write;

/// The decoded rows of a batch, looked up in event order.
#[derive(Debug)]
pub(crate) struct DecodedRows<'b>(Vec<RowCursor<'b>>);

/// Finds the rows of one type, in event order.
#[derive(Debug)]
pub(crate) struct RowFinder<'b> {
    events: &'b [u32],
    next: usize,
}

/// Which events of a batch have lost their payload.
#[derive(Debug)]
pub(crate) struct GonePayloads(Vec<bool>);

#[derive(Debug)]
struct RowCursor<'b> {
    rows: RowFinder<'b>,
    fields: JsonRows<'b>,
}

impl<'b> DecodedRows<'b> {
    /// The decoded rows of `batch`.
    pub(crate) fn from_batch(batch: &'b Batch) -> Result<Self, Error> {
        let cursor = |rows: &'b sluice_model::Rows| {
            let fields = JsonRows::new(&rows.columns)?;
            Ok(RowCursor { rows: RowFinder::new(&rows.events), fields })
        };
        batch.rows().iter().map(cursor).collect::<Result<_, Error>>().map(Self)
    }

    /// Appends `before` and the fields of an event, if it was decoded; returns whether it was.
    /// Events must be asked for in ascending order, each at most once.
    pub(crate) fn write(&mut self, event: usize, before: &str, out: &mut Vec<u8>) -> bool {
        for cursor in &mut self.0 {
            if let Some(row) = cursor.rows.find(event) {
                out.extend_from_slice(before.as_bytes());
                cursor.fields.write(row, out);
                return true;
            }
        }
        false
    }
}

impl<'b> RowFinder<'b> {
    /// The rows of `events`, which are ascending.
    pub(crate) fn new(events: &'b [u32]) -> Self {
        Self { events, next: 0 }
    }

    /// The row of an event. Events must be asked for in ascending order; some may be left out.
    pub(crate) fn find(&mut self, event: usize) -> Option<usize> {
        while let Some(found) = self.events.get(self.next).filter(|at| **at as usize <= event) {
            self.next += 1;
            if *found as usize == event {
                return Some(self.next - 1);
            }
        }
        None
    }
}

impl GonePayloads {
    pub(crate) fn from_batch(batch: &Batch) -> Self {
        Self(batch.decoded_only_mask().unwrap_or_default())
    }

    pub(crate) fn has(&self, event: usize) -> bool {
        self.0.get(event).copied().unwrap_or(false)
    }
}

/// Writes the values of a column as CSV cells: nothing for null, `""` for an empty text or no
/// bytes, JSON for lists and structs, and otherwise JSON without quotes. Quoted if needed.
pub(crate) fn table_cell(array: &ArrayRef, delimiter: char) -> Result<WriteCell<'_>, Error> {
    let write = table_value(array, delimiter)?;
    let Some(nulls) = array.nulls() else { return Ok(write) };
    Ok(Box::new(move |row, out| {
        if nulls.is_valid(row) {
            write(row, out);
        }
    }))
}

fn table_value(array: &ArrayRef, delimiter: char) -> Result<WriteCell<'_>, Error> {
    Ok(match array.data_type() {
        DataType::Null => Box::new(|_, _| {}),
        DataType::Utf8 => table_strings(array.as_string::<i32>(), delimiter),
        DataType::LargeUtf8 => table_strings(array.as_string::<i64>(), delimiter),
        DataType::Utf8View => table_strings(array.as_string_view(), delimiter),
        DataType::List(_) | DataType::LargeList(_) => table_json(array, delimiter)?,
        DataType::FixedSizeList(_, _) | DataType::Struct(_) => table_json(array, delimiter)?,
        _ => {
            let write = value(array)?;
            Box::new(move |row, out| {
                let start = out.len();
                write(row, out);
                write::unquote(out, start);
                // Bytes, which may be none.
                if out.len() == start {
                    out.extend_from_slice(b"\"\"");
                }
            })
        }
    })
}

fn table_strings<'c>(
    array: impl arrow_array::ArrayAccessor<Item = &'c str> + 'c,
    delimiter: char,
) -> WriteCell<'c> {
    Box::new(move |row, out| write::csv_text(out, array.value(row), delimiter))
}

fn table_json(array: &ArrayRef, delimiter: char) -> Result<WriteCell<'_>, Error> {
    let write = value(array)?;
    Ok(Box::new(move |row, out| {
        let start = out.len();
        write(row, out);
        write::quote_csv(out, start, delimiter);
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, StringArray};

    use super::*;

    #[test]
    fn nothing_is_written_only_for_null() {
        let columns: [ArrayRef; 2] = [
            Arc::new(BinaryArray::from(vec![Some(&b""[..]), None, Some(b"a")])),
            Arc::new(StringArray::from(vec![Some(""), None, Some("YQ==")])),
        ];
        for column in &columns {
            let cell = table_cell(column, ',').unwrap();
            let texts = [0, 1, 2].map(|row| {
                let mut out = Vec::new();
                cell(row, &mut out);
                String::from_utf8(out).unwrap()
            });
            assert_eq!(texts, ["\"\"", "", "YQ=="]);
        }
        let blank: ArrayRef = Arc::new(StringArray::from(vec![" \t"]));
        let mut out = Vec::new();
        table_cell(&blank, ',').unwrap()(0, &mut out);
        assert_eq!(out, b"\" \t\"");
    }
}
