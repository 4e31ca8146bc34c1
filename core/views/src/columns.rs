//! Values of decoded rows by field: numbers, lists of numbers, bytes and texts. Knows no message.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::DataType;
use sluice_model::FieldPath;
use sluice_model::cast::cast;
use sluice_model::field::PathStep;

use crate::fields::{PlacementFields, Scalar};
use crate::rotation::{Placement, Rotation};

/// A number of each row.
#[derive(Debug)]
pub enum Numbers {
    /// The same number for all rows.
    Constant(f64),
    /// The values of a field.
    Column(Float64Array),
}

impl Numbers {
    /// `None` if the field does not exist or is no number.
    pub fn resolve(scalar: &Scalar, columns: &RecordBatch) -> Option<Self> {
        match scalar {
            Scalar::Number(number) => Some(Self::Constant(*number)),
            Scalar::Field(path) => doubles(&path.resolve(columns)?).map(Self::Column),
        }
    }

    /// `None` where it is null.
    pub fn at(&self, row: usize) -> Option<f64> {
        match self {
            Self::Constant(number) => Some(*number),
            Self::Column(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

/// An optional number: `None` only if it has a field that does not exist.
pub fn optional(scalar: Option<&Scalar>, columns: &RecordBatch) -> Option<Option<Numbers>> {
    scalar.map_or(Some(None), |scalar| Numbers::resolve(scalar, columns).map(Some))
}

/// The number as a count of pixels or bytes.
pub fn count(numbers: Option<&Numbers>, row: usize) -> Option<u32> {
    let number = numbers?.at(row)?;
    let is_count = (0.0..=f64::from(u32::MAX)).contains(&number);
    is_count.then_some(number as u32)
}

/// The numbers as doubles; `None` if they are none.
pub fn doubles(array: &ArrayRef) -> Option<Float64Array> {
    use arrow_array::types as t;
    Some(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().clone(),
        DataType::Float32 => array.as_primitive::<t::Float32Type>().unary(f64::from),
        DataType::Int8 => array.as_primitive::<t::Int8Type>().unary(f64::from),
        DataType::Int16 => array.as_primitive::<t::Int16Type>().unary(f64::from),
        DataType::Int32 => array.as_primitive::<t::Int32Type>().unary(f64::from),
        DataType::Int64 => array.as_primitive::<Int64Type>().unary(|number| number as f64),
        DataType::UInt8 => array.as_primitive::<t::UInt8Type>().unary(f64::from),
        DataType::UInt16 => array.as_primitive::<t::UInt16Type>().unary(f64::from),
        DataType::UInt32 => array.as_primitive::<t::UInt32Type>().unary(f64::from),
        DataType::UInt64 => array.as_primitive::<t::UInt64Type>().unary(|number| number as f64),
        kind if kind.is_numeric() => {
            cast(array, &DataType::Float64).ok()?.as_primitive::<Float64Type>().clone()
        }
        _ => return None,
    })
}

/// The numbers, with `value` in place of nulls. Copies them only if there are some.
pub(crate) fn nulls_replaced(numbers: Float64Array, value: f64) -> Float64Array {
    if numbers.null_count() == 0 {
        return numbers;
    }
    numbers.iter().map(|number| Some(number.unwrap_or(value))).collect()
}

/// Times of rows, in nanoseconds.
#[derive(Debug)]
pub struct Times {
    values: Int64Array,
    unit: i64,
    /// What seconds lack.
    nanos: Option<Box<Self>>,
}

/// The members of structures of seconds and nanoseconds: of ROS 2, of ROS 1, of the same in JSON,
/// and of Protobuf.
const SECONDS_AND_NANOS: [[&str; 2]; 4] =
    [["sec", "nanosec"], ["sec", "nsec"], ["secs", "nsecs"], ["seconds", "nanos"]];

impl Times {
    /// The times in a field: a number whose unit has this many nanoseconds, or what has a unit of
    /// its own, which is a timestamp of Arrow or a structure of seconds and nanoseconds.
    ///
    /// `None` if the field does not exist or is no time.
    pub fn resolve(path: &FieldPath, unit: i64, columns: &RecordBatch) -> Option<Self> {
        let array = path.resolve(columns)?;
        let (array, unit) = match array.data_type() {
            DataType::Timestamp(..) => {
                let nanos = DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, None);
                (cast(&array, &nanos).ok()?, 1)
            }
            DataType::Float32 | DataType::Float64 => {
                let nanos = |time: f64| whole_nanos(time, unit);
                (Arc::new(doubles(&array)?.unary_opt::<_, Int64Type>(nanos)) as ArrayRef, 1)
            }
            DataType::Struct(_) => return Self::of_parts(path, columns),
            kind if kind.is_integer() => (array, unit),
            _ => return None,
        };
        let values = cast(&array, &DataType::Int64).ok()?;
        Some(Self { values: values.as_primitive::<Int64Type>().clone(), unit, nanos: None })
    }

    fn of_parts(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let part = |name: &str, unit| {
            Self::resolve(&path.then(PathStep::Name(name.into())), unit, columns)
        };
        let mut pairs = SECONDS_AND_NANOS.iter();
        let (seconds, nanos) = pairs.find_map(|[s, ns]| part(s, 1_000_000_000).zip(part(ns, 1)))?;
        Some(Self { nanos: Some(Box::new(nanos)), ..seconds })
    }

    /// `None` where it is null or out of range.
    pub fn at(&self, row: usize) -> Option<i64> {
        let value = self.values.is_valid(row).then(|| self.values.value(row))?;
        let whole = value.checked_mul(self.unit)?;
        self.nanos.as_ref().map_or(Some(whole), |nanos| whole.checked_add(nanos.at(row)?))
    }
}

/// The nanoseconds of a time whose unit has `unit` of them. `None` out of range, and for NaN.
fn whole_nanos(time: f64, unit: i64) -> Option<i64> {
    let whole = time.trunc();
    // The bounds are powers of two, so they are exact.
    let units = (i64::MIN as f64..-(i64::MIN as f64)).contains(&whole).then_some(whole as i64)?;
    // The product of a whole time of today has no nanoseconds: a double is too short for them.
    let rest = ((time - whole) * unit as f64).round();
    units.checked_mul(unit)?.checked_add(rest as i64)
}

/// A list of numbers of each row.
#[derive(Debug)]
pub struct Lists {
    lists: ArrayRef,
    values: Float64Array,
    /// Where the lists begin and end.
    offsets: Vec<usize>,
}

impl Lists {
    /// With `null` in place of null numbers. `None` if the field does not exist or is no list of
    /// numbers.
    pub fn resolve(path: &FieldPath, null: f64, columns: &RecordBatch) -> Option<Self> {
        let lists = path.resolve(columns)?;
        let (offsets, values) = list_parts(&lists)?;
        Some(Self { lists, values: nulls_replaced(doubles(&values)?, null), offsets })
    }

    /// Empty if it is null or there is no such row.
    pub fn at(&self, row: usize) -> &[f64] {
        let (Some(start), Some(end)) = (self.offsets.get(row), self.offsets.get(row + 1)) else {
            return &[];
        };
        if self.lists.is_null(row) {
            return &[];
        }
        self.values.values().get(*start..*end).unwrap_or_default()
    }
}

/// The bounds of each row's list, and the elements; null lists are as long as they are stored.
pub fn list_parts(array: &ArrayRef) -> Option<(Vec<usize>, ArrayRef)> {
    if let Some(list) = array.as_list_opt::<i32>() {
        let offsets = list.offsets().iter().map(|offset| *offset as usize).collect();
        return Some((offsets, Arc::clone(list.values())));
    }
    if let Some(list) = array.as_list_opt::<i64>() {
        let offsets = list.offsets().iter().map(|offset| *offset as usize).collect();
        return Some((offsets, Arc::clone(list.values())));
    }
    if let Some(bytes) = array.as_binary_opt::<i32>() {
        let offsets = bytes.offsets().iter().map(|offset| *offset as usize).collect();
        let values: arrow_array::UInt8Array = bytes.values().iter().copied().collect();
        return Some((offsets, Arc::new(values)));
    }
    let list = array.as_fixed_size_list_opt()?;
    let len = usize::try_from(list.value_length()).ok()?;
    let offsets = (0..=list.len()).map(|row| row * len).collect();
    Some((offsets, Arc::clone(list.values())))
}

/// Bytes of each row.
#[derive(Debug)]
pub struct Blobs(ArrayRef);

impl Blobs {
    /// `None` if the field does not exist or has no bytes.
    pub fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
        let array = path.resolve(columns)?;
        let is_binary =
            matches!(array.data_type(), Binary | LargeBinary | BinaryView | FixedSizeBinary(_));
        is_binary.then_some(Self(array))
    }

    /// Empty where it is null.
    pub fn at(&self, row: usize) -> &[u8] {
        let array = &self.0;
        if array.is_null(row) {
            return &[];
        }
        let bytes = array.as_binary_opt::<i32>().map(|bytes| bytes.value(row));
        let bytes = bytes.or_else(|| array.as_binary_opt::<i64>().map(|bytes| bytes.value(row)));
        let bytes = bytes.or_else(|| array.as_binary_view_opt().map(|bytes| bytes.value(row)));
        let bytes =
            bytes.or_else(|| array.as_fixed_size_binary_opt().map(|bytes| bytes.value(row)));
        bytes.unwrap_or_default()
    }
}

/// A text of each row.
#[derive(Debug)]
pub struct Texts(ArrayRef);

impl Texts {
    /// `None` if the field does not exist or is no text.
    pub fn resolve(path: &FieldPath, columns: &RecordBatch) -> Option<Self> {
        let array = path.resolve(columns)?;
        let is_text =
            matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        is_text.then(|| cast(&array, &DataType::Utf8).ok().map(Self)).flatten()
    }

    /// Empty where it is null.
    pub fn at(&self, row: usize) -> &str {
        let texts = self.0.as_string_opt::<i32>().filter(|texts| texts.is_valid(row));
        texts.map(|texts| texts.value(row)).unwrap_or_default()
    }
}

/// A placement of each row.
#[derive(Debug)]
pub struct Placements {
    position: Vec<Numbers>,
    scale: f64,
    rotation: RotationColumns,
}

#[derive(Debug)]
enum RotationColumns {
    None,
    Quaternion([Numbers; 4]),
    Angles([Numbers; 3]),
    Yaw(Numbers),
}

impl Placements {
    /// `None` if a field does not exist.
    pub fn resolve(fields: &PlacementFields, columns: &RecordBatch) -> Option<Self> {
        let all = |scalars: &[Scalar]| -> Option<Vec<Numbers>> {
            scalars.iter().map(|scalar| Numbers::resolve(scalar, columns)).collect()
        };
        let quaternion = <[Numbers; 4]>::try_from(all(&fields.quaternion)?).ok();
        let angles = <[Numbers; 3]>::try_from(all(&fields.rpy)?).ok();
        let yaw = optional(fields.yaw.as_ref(), columns)?;
        let rotation = match (quaternion, angles, yaw) {
            (Some(quaternion), ..) => RotationColumns::Quaternion(quaternion),
            (None, Some(angles), _) => RotationColumns::Angles(angles),
            (None, None, Some(yaw)) => RotationColumns::Yaw(yaw),
            (None, None, None) => RotationColumns::None,
        };
        let position = all(&fields.position)?;
        Some(Self { position, scale: fields.scale.unwrap_or(1.0), rotation })
    }

    /// `None` where a number is missing or not finite, or the quaternion is zero.
    pub fn at(&self, row: usize) -> Option<Placement> {
        let mut position = [0.0; 3];
        for (part, numbers) in position.iter_mut().zip(&self.position) {
            *part = numbers.at(row)? * self.scale;
        }
        let finite = |number: f64| number.is_finite().then_some(number);
        let rotation = match &self.rotation {
            RotationColumns::None => Rotation::IDENTITY,
            RotationColumns::Quaternion([x, y, z, w]) => {
                Rotation::from_xyzw([x.at(row)?, y.at(row)?, z.at(row)?, w.at(row)?])?
            }
            RotationColumns::Angles([roll, pitch, yaw]) => {
                let angles =
                    [finite(roll.at(row)?)?, finite(pitch.at(row)?)?, finite(yaw.at(row)?)?];
                Rotation::from_rpy(angles)
            }
            RotationColumns::Yaw(yaw) => Rotation::from_rpy([0.0, 0.0, finite(yaw.at(row)?)?]),
        };
        position.iter().all(|part| part.is_finite()).then_some(Placement { position, rotation })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{StructArray, UInt32Array};
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn seconds_as_doubles_are_as_exact_as_they_are() {
        let seconds = [1_600_000_000.25, -1.5, 1e10, f64::NAN, 2e-9];
        let columns = [("t", Arc::new(Float64Array::from(seconds.to_vec())) as ArrayRef)];
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let times = Times::resolve(&FieldPath::column("t"), 1_000_000_000, &columns).unwrap();
        let found = [0, 1, 2, 3, 4].map(|row| times.at(row));
        let quarter = Some(1_600_000_000_250_000_000);
        assert_eq!(found, [quarter, Some(-1_500_000_000), None, None, Some(2)]);
    }

    #[test]
    fn a_structure_of_seconds_and_nanoseconds_is_a_time() {
        for [seconds, nanos] in SECONDS_AND_NANOS {
            let column = |name: &str, values: [Option<u32>; 3]| {
                let field = Arc::new(Field::new(name, DataType::UInt32, true));
                (field, Arc::new(UInt32Array::from_iter(values)) as ArrayRef)
            };
            let stamp = StructArray::from(vec![
                column(seconds, [Some(1_700_000_000), None, Some(2)]),
                column(nanos, [Some(5), Some(6), Some(7)]),
            ]);
            let columns = [("stamp", Arc::new(stamp) as ArrayRef)];
            let columns = RecordBatch::try_from_iter(columns).unwrap();
            let resolve =
                |path: &str| Times::resolve(&FieldPath::parse(path).ok()?, 1_000, &columns);
            let times = resolve("stamp").unwrap();
            let found = [0, 1, 2].map(|row| times.at(row));
            assert_eq!(found, [Some(1_700_000_000_000_000_005), None, Some(2_000_000_007)]);
            assert_eq!(resolve(&format!("stamp.{seconds}")).unwrap().at(2), Some(2_000));
        }
    }
}
