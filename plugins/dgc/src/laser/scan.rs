//! Finds planar scans in decoded rows, whatever the name of their type. Makes no points.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sluice_model::Rows;

use crate::points::UTIME;

/// Rows that are scans.
#[derive(Debug)]
pub(super) struct ScanColumns<'r> {
    ranges: &'r ArrayRef,
    intensities: Option<&'r ArrayRef>,
    rad0: &'r ArrayRef,
    radstep: &'r ArrayRef,
    utime: Option<&'r ArrayRef>,
}

/// The directions of the samples of a scan, in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScanBearings {
    pub(super) first: f64,
    pub(super) step: f64,
}

impl<'r> ScanColumns<'r> {
    /// The scans of these rows. `None` without the columns of a scan: lists of floats `ranges`, and
    /// floats `rad0` and `radstep`.
    pub(super) fn from_rows(rows: &'r Rows) -> Option<Self> {
        let column = |name| rows.columns.column_by_name(name);
        let floats = |name| column(name).filter(|column| is_float(column.data_type()));
        let lists = |name| column(name).filter(|column| is_list(column.data_type()));
        Some(Self {
            ranges: lists("ranges")?,
            intensities: lists("intensities"),
            rad0: floats("rad0")?,
            radstep: floats("radstep")?,
            utime: column(UTIME),
        })
    }

    /// Upper bound of the number of ranges in all rows.
    pub(super) fn samples(&self) -> usize {
        self.ranges.as_list_opt::<i32>().map_or_else(
            || self.ranges.as_fixed_size_list_opt().map_or(0, |list| list.values().len()),
            |list| list.values().len(),
        )
    }

    /// The message's own time in microseconds, if present.
    pub(super) fn utime(&self, row: usize) -> Option<i64> {
        let utimes = self.utime?.as_primitive_opt::<Int64Type>()?;
        utimes.is_valid(row).then(|| utimes.value(row))
    }

    /// The directions of the samples. `None` if they are not finite.
    pub(super) fn bearings(&self, row: usize) -> Option<ScanBearings> {
        let (first, step) = (float(self.rad0, row)?, float(self.radstep, row)?);
        (first.is_finite() && step.is_finite()).then_some(ScanBearings { first, step })
    }

    /// Reads the ranges of a row, in metres, into `into`. Returns `false` if they are null.
    pub(super) fn ranges(&self, row: usize, into: &mut Vec<f64>) -> bool {
        list(self.ranges, row, into)
    }

    /// Reads the intensities of a row into `into`.
    pub(super) fn intensities(&self, row: usize, into: &mut Vec<f64>) {
        into.clear();
        if let Some(column) = self.intensities {
            list(column, row, into);
        }
    }
}

fn is_float(kind: &DataType) -> bool {
    matches!(kind, DataType::Float32 | DataType::Float64)
}

fn is_list(kind: &DataType) -> bool {
    match kind {
        DataType::List(of) | DataType::FixedSizeList(of, _) => is_float(of.data_type()),
        _ => false,
    }
}

fn float(column: &ArrayRef, row: usize) -> Option<f64> {
    if column.is_null(row) {
        return None;
    }
    let narrow = column.as_primitive_opt::<Float32Type>();
    narrow
        .map(|column| f64::from(column.value(row)))
        .or_else(|| column.as_primitive_opt::<Float64Type>().map(|column| column.value(row)))
}

/// Reads a list of one row; null elements become NaN. Returns `false` if the list is null.
fn list(column: &ArrayRef, row: usize, into: &mut Vec<f64>) -> bool {
    into.clear();
    if column.is_null(row) {
        return false;
    }
    let values = column
        .as_list_opt::<i32>()
        .map(|list| list.value(row))
        .or_else(|| column.as_fixed_size_list_opt().map(|list| list.value(row)));
    let Some(values) = values else { return false };
    fill::<Float32Type>(&values, into);
    fill::<Float64Type>(&values, into);
    true
}

fn fill<T: ArrowPrimitiveType<Native: Into<f64>>>(values: &ArrayRef, into: &mut Vec<f64>) {
    let Some(values) = values.as_primitive_opt::<T>() else { return };
    if values.null_count() == 0 {
        into.extend(values.values().iter().map(|value| (*value).into()));
    } else {
        into.extend(values.iter().map(|value| value.map_or(f64::NAN, Into::into)));
    }
}
