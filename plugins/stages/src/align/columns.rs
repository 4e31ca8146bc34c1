//! Columns of rows from the values that they take: copies, weighted means, rotations, vectors.
//! Chooses no value.

use std::f64::consts::TAU;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, ListArray, PrimitiveArray, new_empty_array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::interleave::interleave;
use sluice_model::Error;
use sluice_model::cast::cast;

use super::chunks::ChunkColumn;
use super::options::Method;
use super::plan::TrackPlan;
use super::track::{Pick, Place};
use super::values::to_fixed_length;

/// The values of a track that rows of one type may take.
pub(super) struct TrackValues<'t> {
    pub(super) plan: &'t TrackPlan,
    pub(super) kind: DataType,
    /// The number of elements of its lists, if it is the same for all.
    pub(super) length: Option<i64>,
    /// The number of the first chunk.
    pub(super) first: u64,
    /// By chunk.
    pub(super) chunks: Vec<Option<&'t ChunkColumn>>,
}

impl TrackValues<'_> {
    /// The values that these rows take.
    pub(super) fn column(&self, picks: &[Pick]) -> Result<ArrayRef, Error> {
        let column = match (self.plan.method, element(&self.kind)) {
            (Method::Slerp, _) => self.rotations(picks),
            (Method::Linear, DataType::Float32) => self.means::<Float32Type>(picks),
            (Method::Linear, DataType::Float64) => self.means::<Float64Type>(picks),
            _ => self.copies(picks),
        }?;
        match self.length.map(i32::try_from) {
            Some(Ok(length)) => to_fixed_length(&column, length)
                .ok_or_else(|| Error::internal("lists of a length that is not theirs")),
            _ => Ok(column),
        }
    }

    fn index(&self, place: Place) -> (usize, usize) {
        let chunk = place.chunk.saturating_sub(self.first);
        (usize::try_from(chunk).unwrap_or(usize::MAX), place.row as usize)
    }

    /// The arrays of this type by chunk; others are empty.
    fn arrays(&self) -> Vec<ArrayRef> {
        let empty = new_empty_array(&self.kind);
        let array = |chunk: &Option<&ChunkColumn>| match chunk {
            Some(column) if *column.values.data_type() == self.kind => Arc::clone(&column.values),
            _ => Arc::clone(&empty),
        };
        self.chunks.iter().map(array).collect()
    }

    fn copies(&self, picks: &[Pick]) -> Result<ArrayRef, Error> {
        let mut arrays = self.arrays();
        let null = (arrays.len(), 0);
        arrays.push(new_null_array(&self.kind, 1));
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let index = |pick: &Pick| match pick {
            Pick::One(place, _) => self.index(*place),
            Pick::Missing(_) | Pick::Between(..) => null,
        };
        let indices: Vec<(usize, usize)> = picks.iter().map(index).collect();
        interleave(&arrays, &indices)
            .map_err(|error| Error::internal(format!("values to align: {error}")))
    }

    /// The weighted means of floating-point numbers, or of lists of them.
    fn means<T: ArrowPrimitiveType>(&self, picks: &[Pick]) -> Result<ArrayRef, Error>
    where
        T::Native: Float,
    {
        let arrays = self.arrays();
        let lists: Vec<Numbers<'_, T>> = arrays.iter().map(Numbers::from_array).collect();
        let numbers = |place: Place| {
            let (chunk, row) = self.index(place);
            lists.get(chunk).map(|list| list.at(row)).unwrap_or_default()
        };
        let width = Width::from_kind(&self.kind);
        let (mut values, mut lengths) = (Vec::new(), Vec::with_capacity(picks.len()));
        for pick in picks {
            let start = values.len();
            match pick {
                Pick::Missing(_) => {}
                Pick::One(place, _) if self.plan.is_angle => {
                    let angle = |value: &T::Native| T::Native::from_double(wrap(value.double()));
                    values.extend(numbers(*place).iter().map(angle));
                }
                Pick::One(place, _) => values.extend_from_slice(numbers(*place)),
                Pick::Between(a, b, weight, _) => {
                    let pairs = numbers(*a).iter().zip(numbers(*b));
                    values.extend(pairs.map(|(a, b)| {
                        T::Native::from_double(self.mean(a.double(), b.double(), *weight))
                    }));
                }
            }
            if let Width::Fixed(width) = width {
                values.resize(start + width, T::Native::default());
            }
            lengths.push(values.len() - start);
        }
        let valid = picks.iter().map(|pick| !matches!(pick, Pick::Missing(_))).collect();
        shaped::<T>(values, &lengths, valid, &self.kind)
    }

    fn mean(&self, a: f64, b: f64, weight: f64) -> f64 {
        match self.plan.is_angle {
            true => wrap(a + weight * wrap(b - a)),
            // Exact at both ends, and between them for numbers of any size.
            false => a * (1.0 - weight) + b * weight,
        }
    }

    /// Rotations between unit quaternions, the shorter way round.
    fn rotations(&self, picks: &[Pick]) -> Result<ArrayRef, Error> {
        let arrays = self.arrays();
        let lists: Vec<Numbers<'_, Float64Type>> = arrays.iter().map(Numbers::from_array).collect();
        let quaternion = |place: Place| {
            let (chunk, row) = self.index(place);
            let parts = lists.get(chunk).map(|list| list.at(row)).unwrap_or_default();
            parts.first_chunk::<4>().copied().unwrap_or_default()
        };
        let mut values = Vec::with_capacity(picks.len() * 4);
        for pick in picks {
            values.extend(match pick {
                Pick::Missing(_) => [0.0; 4],
                Pick::One(place, _) => quaternion(*place),
                Pick::Between(a, b, weight, _) => slerp(quaternion(*a), quaternion(*b), *weight),
            });
        }
        let valid = picks.iter().map(|pick| !matches!(pick, Pick::Missing(_))).collect();
        shaped::<Float64Type>(values, &[], valid, &self.kind)
    }
}

/// An angle from -π to π.
fn wrap(angle: f64) -> f64 {
    angle - TAU * (angle / TAU).round()
}

fn slerp(a: [f64; 4], b: [f64; 4], weight: f64) -> [f64; 4] {
    let dot: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    // Both signs are the same rotation.
    let sign = if dot < 0.0 { -1.0 } else { 1.0 };
    let angle = dot.abs().min(1.0).acos();
    let (mut from, mut to) = (1.0 - weight, weight);
    if angle > 1e-6 {
        from = (from * angle).sin() / angle.sin();
        to = (to * angle).sin() / angle.sin();
    }
    let mut mean = [0.0; 4];
    for (mean, (a, b)) in mean.iter_mut().zip(a.iter().zip(b)) {
        *mean = from * a + sign * to * b;
    }
    let norm = mean.iter().map(|part| part * part).sum::<f64>().sqrt();
    mean.map(|part| part / norm)
}

/// The type of the innermost elements.
fn element(kind: &DataType) -> &DataType {
    match kind {
        DataType::FixedSizeList(field, _) | DataType::List(field) | DataType::LargeList(field) => {
            element(field.data_type())
        }
        other => other,
    }
}

/// Floating-point numbers of a column.
pub(super) trait Float: Copy + Default {
    fn double(self) -> f64;
    fn from_double(value: f64) -> Self;
}

impl Float for f32 {
    fn double(self) -> f64 {
        f64::from(self)
    }

    fn from_double(value: f64) -> Self {
        value as Self
    }
}

impl Float for f64 {
    fn double(self) -> f64 {
        self
    }

    fn from_double(value: f64) -> Self {
        value
    }
}

/// How many numbers a row has.
#[derive(Clone, Copy)]
enum Width {
    Fixed(usize),
    Any,
}

impl Width {
    fn from_kind(kind: &DataType) -> Self {
        match kind {
            DataType::FixedSizeList(_, length) => {
                Self::Fixed(usize::try_from(*length).unwrap_or(0))
            }
            DataType::List(_) | DataType::LargeList(_) => Self::Any,
            _ => Self::Fixed(1),
        }
    }
}

/// The numbers of each row of an array.
struct Numbers<'a, T: ArrowPrimitiveType> {
    values: &'a [T::Native],
    bounds: Bounds<'a>,
}

/// Where the numbers of a row are.
enum Bounds<'a> {
    Width(usize),
    Offsets(&'a [i32]),
    LongOffsets(&'a [i64]),
}

impl<'a, T: ArrowPrimitiveType> Numbers<'a, T> {
    fn from_array(array: &'a ArrayRef) -> Self {
        let (elements, bounds) = if let Some(list) = array.as_fixed_size_list_opt() {
            let width = usize::try_from(list.value_length()).unwrap_or(0);
            (list.values(), Bounds::Width(width))
        } else if let Some(list) = array.as_list_opt::<i32>() {
            (list.values(), Bounds::Offsets(list.value_offsets()))
        } else if let Some(list) = array.as_list_opt::<i64>() {
            (list.values(), Bounds::LongOffsets(list.value_offsets()))
        } else {
            (array, Bounds::Width(1))
        };
        let values = elements.as_primitive_opt::<T>().map(|values| &values.values()[..]);
        Self { values: values.unwrap_or_default(), bounds }
    }

    fn at(&self, row: usize) -> &'a [T::Native] {
        let (start, end) = match self.bounds {
            Bounds::Width(width) => (row * width, (row + 1) * width),
            Bounds::Offsets(offsets) => match (offsets.get(row), offsets.get(row + 1)) {
                (Some(start), Some(end)) => (*start as usize, *end as usize),
                _ => return &[],
            },
            Bounds::LongOffsets(offsets) => match (offsets.get(row), offsets.get(row + 1)) {
                (Some(start), Some(end)) => (*start as usize, *end as usize),
                _ => return &[],
            },
        };
        self.values.get(start..end).unwrap_or_default()
    }
}

/// Numbers as a column of this type. `lengths` are those of lists.
fn shaped<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    lengths: &[usize],
    valid: Vec<bool>,
    kind: &DataType,
) -> Result<ArrayRef, Error> {
    let wrong = |error| Error::internal(format!("means to align: {error}"));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    let field = || Arc::new(Field::new_list_field(T::DATA_TYPE, true));
    match kind {
        DataType::FixedSizeList(_, length) => {
            let values = Arc::new(PrimitiveArray::<T>::new(values.into(), None));
            let list = FixedSizeListArray::try_new(field(), *length, values, nulls);
            list.map(|list| Arc::new(list) as ArrayRef).map_err(wrong)
        }
        DataType::List(_) | DataType::LargeList(_) => {
            let values = Arc::new(PrimitiveArray::<T>::new(values.into(), None));
            let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
            let list = ListArray::try_new(field(), offsets, values, nulls).map_err(wrong)?;
            cast(&list, kind).map_err(wrong)
        }
        _ => Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))),
    }
}

/// One vector per row of all numbers of these columns; null where one of them is.
pub(super) fn vector(columns: &[ArrayRef]) -> Result<ArrayRef, Error> {
    let wrong = |error| Error::internal(format!("vectors to align: {error}"));
    let rows = columns.first().map_or(0, |column| column.len());
    let parts = columns.iter().map(|column| match column.as_fixed_size_list_opt() {
        Some(list) => {
            (Arc::clone(list.values()), usize::try_from(list.value_length()).unwrap_or(0))
        }
        None => (Arc::clone(column), 1),
    });
    let mut parts: Vec<(ArrayRef, usize)> = parts.collect();
    let first = parts.first().map(|(part, _)| part.data_type().clone());
    if parts.iter().any(|(part, _)| Some(part.data_type()) != first.as_ref()) {
        for (part, _) in &mut parts {
            *part = cast(part, &DataType::Float64).map_err(wrong)?;
        }
    }
    let width: usize = parts.iter().map(|(_, width)| width).sum();
    let mut indices = Vec::with_capacity(rows * width);
    for row in 0..rows {
        for (at, (_, width)) in parts.iter().enumerate() {
            indices.extend((row * width..(row + 1) * width).map(|place| (at, place)));
        }
    }
    let arrays: Vec<&dyn Array> = parts.iter().map(|(part, _)| part.as_ref()).collect();
    let values = interleave(&arrays, &indices).map_err(wrong)?;
    let nulls = columns.iter().fold(None, |all: Option<NullBuffer>, column| {
        NullBuffer::union(all.as_ref(), column.logical_nulls().as_ref())
    });
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let width =
        i32::try_from(width).map_err(|_| Error::invalid("a vector has more than 2^31 numbers"))?;
    let list = FixedSizeListArray::try_new(field, width, values, nulls).map_err(wrong)?;
    Ok(Arc::new(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    #[test]
    fn angles_go_the_shorter_way_round() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        let mean = |a: f64, b: f64, w: f64| wrap(a + w * wrap(b - a));
        assert!(near(mean(PI - 0.1, -PI + 0.1, 0.25), PI - 0.05));
        assert!(near(mean(PI - 0.1, -PI + 0.1, 0.75), -PI + 0.05));
        assert!(near(mean(6.2, 0.1, 0.0), 6.2 - TAU));
    }

    #[test]
    fn rotations_go_the_shorter_way_round_and_stay_unit() {
        let about_z = |angle: f64| [(angle / 2.0).cos(), 0.0, 0.0, (angle / 2.0).sin()];
        let (a, b) = (about_z(0.2), about_z(1.4));
        let negative = b.map(|part| -part);
        for to in [b, negative] {
            for weight in [0.0, 0.25, 0.5, 1.0] {
                let (found, wanted) = (slerp(a, to, weight), about_z(0.2 + 1.2 * weight));
                assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
            }
        }
        let same = slerp(a, a, 0.3);
        assert!(same.iter().zip(a).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}
