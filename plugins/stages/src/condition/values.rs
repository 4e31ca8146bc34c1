//! The values of a part of a condition, per event, and their conversion from Arrow columns.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayAccessor, ArrayRef, OffsetSizeTrait};
use arrow_schema::{DataType, TimeUnit};

use super::number::Number;

/// One value per event; `None` if it is missing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values<'a> {
    /// No event has a value, and the type is unknown.
    Missing,
    Truths(Vec<Option<bool>>),
    Numbers(Vec<Option<Number>>),
    Texts(Vec<Option<&'a str>>),
    /// Bytes or lists, of which only the lengths are used.
    Lengths(&'static str, Vec<Option<usize>>),
    /// Values of another type, which only `exists` can use.
    Other(&'static str),
}

impl<'a> Values<'a> {
    /// The values of a column.
    pub(super) fn from_array(array: &'a ArrayRef) -> Self {
        match array.data_type() {
            DataType::Null => Self::Missing,
            DataType::Boolean => Self::Truths(array.as_boolean().iter().collect()),
            DataType::Utf8 => texts(array.as_string::<i32>()),
            DataType::LargeUtf8 => texts(array.as_string::<i64>()),
            DataType::Utf8View => texts(array.as_string_view()),
            DataType::Binary => bytes(array.as_binary::<i32>()),
            DataType::LargeBinary => bytes(array.as_binary::<i64>()),
            DataType::BinaryView => bytes(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary()),
            DataType::List(_) => lists::<i32>(array),
            DataType::LargeList(_) => lists::<i64>(array),
            DataType::FixedSizeList(_, len) => fixed_lists(array, *len),
            DataType::Struct(_) => Self::Other("a struct"),
            _ => numbers(array).map_or(Self::Other("of another type"), Self::Numbers),
        }
    }

    /// The name of their type, for messages.
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Truths(_) => "true or false",
            Self::Numbers(_) => "a number",
            Self::Texts(_) => "text",
            Self::Lengths(kind_name, _) | Self::Other(kind_name) => kind_name,
        }
    }
}

fn texts<'a>(array: impl ArrayAccessor<Item = &'a str>) -> Values<'a> {
    Values::Texts((0..array.len()).map(|row| valid(&array, row)).collect())
}

fn bytes<'a>(array: impl ArrayAccessor<Item = &'a [u8]>) -> Values<'a> {
    Values::Lengths(
        "bytes",
        (0..array.len()).map(|row| valid(&array, row).map(<[u8]>::len)).collect(),
    )
}

fn valid<A: ArrayAccessor>(array: &A, row: usize) -> Option<A::Item> {
    array.is_valid(row).then(|| array.value(row))
}

fn lists<O: OffsetSizeTrait>(array: &ArrayRef) -> Values<'_> {
    let list = array.as_list::<O>();
    let length = |row| list.is_valid(row).then(|| list.value_length(row).as_usize());
    Values::Lengths("a list", (0..list.len()).map(length).collect())
}

fn fixed_lists(array: &ArrayRef, len: i32) -> Values<'_> {
    let length = |row| if array.is_valid(row) { usize::try_from(len).ok() } else { None };
    Values::Lengths("a list", (0..array.len()).map(length).collect())
}

fn numbers(array: &ArrayRef) -> Option<Vec<Option<Number>>> {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match array.data_type() {
        DataType::Int8 => whole::<Int8Type>(array),
        DataType::Int16 => whole::<Int16Type>(array),
        DataType::Int32 => whole::<Int32Type>(array),
        DataType::Int64 => whole::<Int64Type>(array),
        DataType::UInt8 => whole::<UInt8Type>(array),
        DataType::UInt16 => whole::<UInt16Type>(array),
        DataType::UInt32 => whole::<UInt32Type>(array),
        DataType::UInt64 => each::<UInt64Type>(array, |value| Number::from_i128(value.into())),
        DataType::Float16 => each::<Float16Type>(array, |value| Number::Float(value.to_f64())),
        DataType::Float32 => each::<Float32Type>(array, |value| Number::Float(value.into())),
        DataType::Float64 => each::<Float64Type>(array, Number::Float),
        Timestamp(Second, _) => whole::<TimestampSecondType>(array),
        Timestamp(Millisecond, _) => whole::<TimestampMillisecondType>(array),
        Timestamp(Microsecond, _) => whole::<TimestampMicrosecondType>(array),
        Timestamp(Nanosecond, _) => whole::<TimestampNanosecondType>(array),
        Duration(Second) => whole::<DurationSecondType>(array),
        Duration(Millisecond) => whole::<DurationMillisecondType>(array),
        Duration(Microsecond) => whole::<DurationMicrosecondType>(array),
        Duration(Nanosecond) => whole::<DurationNanosecondType>(array),
        Time32(Second) => whole::<Time32SecondType>(array),
        Time32(_) => whole::<Time32MillisecondType>(array),
        Time64(Microsecond) => whole::<Time64MicrosecondType>(array),
        Time64(_) => whole::<Time64NanosecondType>(array),
        Date32 => whole::<Date32Type>(array),
        Date64 => whole::<Date64Type>(array),
        _ => return None,
    })
}

fn whole<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef) -> Vec<Option<Number>> {
    each::<T>(array, |value| Number::Whole(value.into()))
}

fn each<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    number: impl Fn(T::Native) -> Number,
) -> Vec<Option<Number>> {
    let array = array.as_primitive::<T>();
    match array.null_count() {
        0 => array.values().iter().map(|value| Some(number(*value))).collect(),
        _ => array.iter().map(|value| value.map(&number)).collect(),
    }
}
