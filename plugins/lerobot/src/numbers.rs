//! Arrays of numbers: converted to other types, and as 64-bit floats. Knows no feature.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array, PrimitiveArray};
use arrow_schema::DataType;

use crate::feature::NumberType;

/// Calls a macro with the Arrow type of an array of numbers.
macro_rules! with_numbers {
    ($array:expr, $values:ident => $body:expr, $other:expr) => {
        match $array.data_type() {
            DataType::Int8 => with_numbers!(@ Int8Type, $array, $values => $body),
            DataType::Int16 => with_numbers!(@ Int16Type, $array, $values => $body),
            DataType::Int32 => with_numbers!(@ Int32Type, $array, $values => $body),
            DataType::Int64 => with_numbers!(@ Int64Type, $array, $values => $body),
            DataType::UInt8 => with_numbers!(@ UInt8Type, $array, $values => $body),
            DataType::UInt16 => with_numbers!(@ UInt16Type, $array, $values => $body),
            DataType::UInt32 => with_numbers!(@ UInt32Type, $array, $values => $body),
            DataType::UInt64 => with_numbers!(@ UInt64Type, $array, $values => $body),
            DataType::Float32 => with_numbers!(@ Float32Type, $array, $values => $body),
            DataType::Float64 => with_numbers!(@ Float64Type, $array, $values => $body),
            _ => $other,
        }
    };
    (@ $kind:ident, $array:expr, $values:ident => $body:expr) => {{
        let $values = $array.as_primitive::<arrow_array::types::$kind>().values();
        $body
    }};
}
pub(crate) use with_numbers;

/// Numbers without nulls as another type; `None` if one does not fit into it.
#[expect(clippy::unnecessary_cast, reason = "one of all types of numbers is that already")]
pub(crate) fn converted(array: ArrayRef, to: NumberType) -> Option<ArrayRef> {
    if *array.data_type() == to.data_type() {
        return Some(array);
    }
    if let Some(halves) = array.as_primitive_opt::<Float16Type>() {
        let floats: Float32Array =
            halves.values().iter().map(|half| half.to_f32()).collect::<Vec<_>>().into();
        return converted(Arc::new(floats), to);
    }
    if let Some(bools) = array.as_boolean_opt() {
        return integers(&bools.values().iter().map(i128::from).collect::<Vec<_>>(), to);
    }
    match to {
        NumberType::Float32 => {
            let floats: Vec<f32> = with_numbers!(array, values => {
                values.iter().map(|value| *value as f32).collect()
            }, return None);
            Some(Arc::new(Float32Array::from(floats)))
        }
        NumberType::Float64 => {
            let floats: Vec<f64> = with_numbers!(array, values => {
                values.iter().map(|value| *value as f64).collect()
            }, return None);
            Some(Arc::new(Float64Array::from(floats)))
        }
        _ if array.data_type().is_floating() => {
            let floats: Vec<f64> = with_numbers!(array, values => {
                values.iter().map(|value| *value as f64).collect()
            }, return None);
            let is_whole = |value: &f64| value.fract() == 0.0 && value.abs() < 9.0e15;
            if !floats.iter().all(is_whole) {
                return None;
            }
            integers(&floats.into_iter().map(|value| value as i128).collect::<Vec<_>>(), to)
        }
        _ => {
            // Of one type, so that there is not a function for each pair of types.
            let whole: Vec<i128> = with_numbers!(array, values => {
                values.iter().map(|value| *value as i128).collect()
            }, return None);
            integers(&whole, to)
        }
    }
}

/// The place of the first number that does not fit into a type.
pub(crate) fn first_that_does_not_fit(array: &ArrayRef, to: NumberType) -> Option<usize> {
    (0..array.len()).find(|at| converted(array.slice(*at, 1), to).is_none())
}

/// The first number of an array as text.
pub(crate) fn text(array: &ArrayRef) -> String {
    let first = with_numbers!(array, values => values.first().map(ToString::to_string), {
        let wider = converted(Arc::clone(array), NumberType::Float32);
        wider.and_then(|wider| {
            wider.as_primitive::<Float32Type>().values().first().map(ToString::to_string)
        })
    });
    first.unwrap_or_default()
}

/// Whole numbers as an array of this type; `None` if one does not fit into it.
fn integers(values: &[i128], to: NumberType) -> Option<ArrayRef> {
    fn each<T: ArrowPrimitiveType>(values: &[i128]) -> Option<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let fitting = values.iter().map(|value| T::Native::try_from(*value).ok());
        let fitting: Vec<T::Native> = fitting.collect::<Option<_>>()?;
        Some(Arc::new(PrimitiveArray::<T>::from_iter_values(fitting)))
    }
    match to {
        NumberType::Bool => {
            let bools = values.iter().map(|value| match value {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            });
            let bools: Vec<bool> = bools.collect::<Option<_>>()?;
            Some(Arc::new(BooleanArray::from(bools)))
        }
        NumberType::Int8 => each::<Int8Type>(values),
        NumberType::Int16 => each::<Int16Type>(values),
        NumberType::Int32 => each::<Int32Type>(values),
        NumberType::Int64 => each::<Int64Type>(values),
        NumberType::Uint8 => each::<UInt8Type>(values),
        NumberType::Uint16 => each::<UInt16Type>(values),
        NumberType::Uint32 => each::<UInt32Type>(values),
        NumberType::Uint64 => each::<UInt64Type>(values),
        NumberType::Float32 => {
            Some(Arc::new(Float32Array::from_iter_values(values.iter().map(|value| *value as f32))))
        }
        NumberType::Float64 => {
            Some(Arc::new(Float64Array::from_iter_values(values.iter().map(|value| *value as f64))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int16Array, Int64Array, UInt8Array};

    #[test]
    fn numbers_that_fit_are_converted_and_others_refused() {
        let ints: ArrayRef = Arc::new(Int16Array::from(vec![0, 1, 255]));
        let bytes: ArrayRef = Arc::new(UInt8Array::from(vec![0, 1, 255]));
        assert_eq!(&converted(Arc::clone(&ints), NumberType::Uint8).unwrap(), &bytes);
        assert!(converted(Arc::clone(&ints), NumberType::Int8).is_none());
        assert!(converted(Arc::clone(&ints), NumberType::Bool).is_none());
        let floats = converted(ints, NumberType::Float32).unwrap();
        assert_eq!(&converted(floats, NumberType::Uint8).unwrap(), &bytes);
        let halves: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
        assert!(converted(halves, NumberType::Int64).is_none());
        let bools: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
        let found = converted(bools, NumberType::Int64).unwrap();
        assert_eq!(found.as_ref(), &Int64Array::from(vec![1, 0]));
    }
}
