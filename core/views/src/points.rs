//! The columns of lists of points. Knows of their members only coordinates and azimuths.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Float32Array, Float64Array, RecordBatch, StructArray};
use arrow_schema::DataType;
use sluice_kit::lists::ListColumn;
use sluice_model::FieldPath;
use sluice_model::cast::cast;

use crate::columns::{doubles, nulls_replaced};

/// A list of points of each row.
#[derive(Debug)]
pub struct PointLists {
    lists: ArrayRef,
    ranges: Vec<Range<usize>>,
    points: StructArray,
    /// NaN where they are null; `x` also where the point is.
    xyz: [Float64Array; 3],
    azimuth: Option<Float32Array>,
}

impl PointLists {
    /// `None` if the field is no list of structs with numbers `x`, `y` and `z`.
    pub fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let lists = path.resolve(columns)?;
        let ListColumn { elements, ranges } = ListColumn::from_array(&lists)?;
        let points = elements.as_struct_opt()?.clone();
        let coordinate = |name| {
            let numbers = doubles(points.column_by_name(name)?)?;
            Some(nulls_replaced(numbers, f64::NAN))
        };
        let [mut x, y, z] = [coordinate("x")?, coordinate("y")?, coordinate("z")?];
        if points.null_count() > 0 {
            let known = x.iter().enumerate().map(|(at, x)| x.filter(|_| points.is_valid(at)));
            x = nulls_replaced(known.collect(), f64::NAN);
        }
        let azimuth = points.column_by_name("azimuth").filter(|one| one.data_type().is_numeric());
        let azimuth = azimuth.and_then(|azimuth| cast(azimuth, &DataType::Float32).ok());
        let azimuth = azimuth.map(|azimuth| azimuth.as_primitive::<Float32Type>().clone());
        Some(Self { lists, ranges, points, xyz: [x, y, z], azimuth })
    }

    /// The numbers of a row's points; `None` if the list is null.
    pub fn range(&self, row: usize) -> Option<Range<usize>> {
        self.ranges.get(row).filter(|_| self.lists.is_valid(row)).cloned()
    }

    /// The position of a point; `None` if a coordinate is null or not finite, or the point is null.
    ///
    /// # Panics
    ///
    /// If there is no point of this number.
    #[inline]
    pub fn position(&self, point: usize) -> Option<[f32; 3]> {
        let [x, y, z] = &self.xyz;
        let position = [x.value(point) as f32, y.value(point) as f32, z.value(point) as f32];
        position.iter().all(|part| part.is_finite()).then_some(position)
    }

    /// The azimuth of the first point of a row.
    pub fn first_azimuth(&self, row: usize) -> Option<f32> {
        let first = self.range(row)?.next()?;
        let azimuth = self.azimuth.as_ref()?;
        azimuth.is_valid(first).then(|| azimuth.value(first))
    }

    /// A member of the points of all rows.
    pub fn member(&self, name: &str) -> Option<&ArrayRef> {
        self.points.column_by_name(name)
    }
}
