//! The column of attached values: written by the fold, read by the map of the same stage.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use sluice_model::{Error, Rows};

use crate::poses::ReadFromRows;
use crate::poses::rows::with_columns;

/// A value that can be stored in a column.
pub(crate) trait AttachedValue: ReadFromRows {
    /// Name of the column. Internal to the stage.
    const COLUMN: &str;
    /// Numbers per value.
    const WIDTH: usize;
    /// Plural noun for notes.
    const PLURAL: &str;

    /// Appends the numbers of the value.
    fn append(&self, to: &mut Vec<f64>);
}

/// The values that the fold attached to rows.
pub(crate) struct AttachedColumn<'r>(Option<&'r FixedSizeListArray>);

impl<'r> AttachedColumn<'r> {
    /// The values in a column, or no values if there is no such column.
    pub(crate) fn from_column<K: AttachedValue>(column: Option<&'r ArrayRef>) -> Self {
        let lists = column.and_then(|column| column.as_fixed_size_list_opt());
        Self(lists.filter(|lists| lists.value_length() == K::WIDTH as i32))
    }

    /// The numbers of a row's value, if it has one.
    pub(crate) fn values(&self, row: usize) -> Option<&'r [f64]> {
        let lists = self.0.filter(|lists| lists.is_valid(row))?;
        let values = lists.values().as_primitive_opt::<Float64Type>()?;
        let width = lists.value_length() as usize;
        values.values().get(row * width..(row + 1) * width)
    }
}

/// The rows with the values as an additional column.
pub(super) fn attach_column<K: AttachedValue>(
    rows: &Rows,
    values: &[Option<&K>],
) -> Result<Rows, Error> {
    let mut numbers = Vec::with_capacity(values.len() * K::WIDTH);
    for (row, values) in (1..).zip(values) {
        values.inspect(|values| values.append(&mut numbers));
        numbers.resize(row * K::WIDTH, 0.0);
    }
    let nulls = NullBuffer::from(values.iter().map(Option::is_some).collect::<Vec<bool>>());
    let element = Arc::new(Field::new_list_field(DataType::Float64, false));
    let numbers: ArrayRef = Arc::new(Float64Array::from(numbers));
    let list = FixedSizeListArray::new(element, K::WIDTH as i32, numbers, Some(nulls));
    let field = Field::new(K::COLUMN, list.data_type().clone(), true);
    with_columns(rows, &[], vec![(field, Arc::new(list))])
}
