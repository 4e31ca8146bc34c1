//! Writes values of Arrow columns as JSON, without line breaks.
//!
//! | Arrow | JSON |
//! |---|---|
//! | integers, also of times, dates and durations | number |
//! | floats | number, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | decimals, strings | string |
//! | binary | string, base64 |
//! | struct | object |
//! | lists | array |
//! | dictionary | as its values |

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use sluice_io::escape::json_escaped;
use sluice_model::Error;
use sluice_model::raw::is_raw;

/// Writes the value of one row of a column.
pub type WriteCell<'c> = Box<dyn Fn(usize, &mut Vec<u8>) + 'c>;

/// The rows of some columns, ready to be written as JSON objects.
pub struct JsonRows<'c>(Vec<(String, WriteCell<'c>)>);

impl std::fmt::Debug for JsonRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fields({})", self.0.len())
    }
}

impl<'c> JsonRows<'c> {
    /// The rows of `columns`. Inspects types only.
    ///
    /// `Err` for types without a JSON form: maps, unions, intervals.
    pub fn new(columns: &'c RecordBatch) -> Result<Self, Error> {
        let fields = columns.schema_ref().fields().iter().zip(columns.columns());
        // Raw columns are only needed by `encode`.
        let shown = fields.filter(|(field, _)| !is_raw(field));
        Self::from_columns(shown.map(|(field, column)| (field.name(), column)))
    }

    fn from_columns<'n>(
        columns: impl Iterator<Item = (&'n String, &'c ArrayRef)>,
    ) -> Result<Self, Error> {
        let named = columns.enumerate().map(|(at, (name, column))| {
            let mut key = vec![if at == 0 { b'{' } else { b',' }];
            string(&mut key, name);
            key.push(b':');
            let key = String::from_utf8_lossy(&key).into_owned();
            let cell =
                cell(column).map_err(|e| Error::invalid(format!("the field `{name}`: {e}")))?;
            Ok((key, cell))
        });
        named.collect::<Result<_, Error>>().map(Self)
    }

    /// Appends the object of a row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.0.is_empty() {
            out.push(b'{');
        }
        for (key, cell) in &self.0 {
            out.extend_from_slice(key.as_bytes());
            cell(row, out);
        }
        out.push(b'}');
    }
}

/// Appends a number.
pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a JSON string, with its quotes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    serde_json::to_writer(&mut *out, text).expect("a Vec takes every string");
    // Escape characters that terminals interpret or hide: to a JSON parser it is the same string.
    if text.bytes().any(|byte| byte >= 0x7f) {
        let json = String::from_utf8_lossy(out.get(start..).unwrap_or_default());
        if let Cow::Owned(spelled) = json_escaped(&json) {
            out.truncate(start);
            out.extend_from_slice(spelled.as_bytes());
        }
    }
}

/// Appends bytes in base64, without quotes.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let len = base64::encoded_len(bytes.len(), true).expect("a payload is shorter than memory");
    out.resize(start + len, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("it has just the length that is needed");
}

fn cell(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    let write = value(array)?;
    let Some(nulls) = array.nulls() else { return Ok(write) };
    Ok(Box::new(move |row, out| match nulls.is_null(row) {
        true => out.extend_from_slice(b"null"),
        false => write(row, out),
    }))
}

/// Writes the values of a column where they are not null.
///
/// `Err` for types without a JSON form: maps, unions, intervals.
pub fn value(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    Ok(match array.data_type() {
        DataType::Null => null(),
        DataType::Boolean => boolean(array),
        DataType::Utf8 => strings(array.as_string::<i32>()),
        DataType::LargeUtf8 => strings(array.as_string::<i64>()),
        DataType::Utf8View => strings(array.as_string_view()),
        DataType::Binary => bytes(array.as_binary::<i32>()),
        DataType::LargeBinary => bytes(array.as_binary::<i64>()),
        DataType::BinaryView => bytes(array.as_binary_view()),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary()),
        DataType::List(_) => list::<i32>(array)?,
        DataType::LargeList(_) => list::<i64>(array)?,
        DataType::FixedSizeList(_, _) => fixed_size_list(array)?,
        DataType::Struct(_) => object(array)?,
        DataType::Dictionary(_, _) => dictionary(array)?,
        other => match number(array).or_else(|| moment(array)).or_else(|| decimal(array)) {
            Some(cell) => cell,
            None => {
                let what = format!("{other} columns cannot be written as JSON; leave it out");
                return Err(Error::invalid(what));
            }
        },
    })
}

fn number(array: &ArrayRef) -> Option<WriteCell<'_>> {
    Some(match array.data_type() {
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::UInt64 => integers::<UInt64Type>(array),
        DataType::Float16 => floats::<Float16Type>(array, |out, value| short(out, value.to_f32())),
        DataType::Float32 => floats::<Float32Type>(array, short),
        DataType::Float64 => floats::<Float64Type>(array, double),
        _ => return None,
    })
}

fn moment(array: &ArrayRef) -> Option<WriteCell<'_>> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match array.data_type() {
        DataType::Timestamp(Second, _) => integers::<TimestampSecondType>(array),
        DataType::Timestamp(Millisecond, _) => integers::<TimestampMillisecondType>(array),
        DataType::Timestamp(Microsecond, _) => integers::<TimestampMicrosecondType>(array),
        DataType::Timestamp(Nanosecond, _) => integers::<TimestampNanosecondType>(array),
        DataType::Duration(Second) => integers::<DurationSecondType>(array),
        DataType::Duration(Millisecond) => integers::<DurationMillisecondType>(array),
        DataType::Duration(Microsecond) => integers::<DurationMicrosecondType>(array),
        DataType::Duration(Nanosecond) => integers::<DurationNanosecondType>(array),
        DataType::Time32(Second) => integers::<Time32SecondType>(array),
        DataType::Time32(_) => integers::<Time32MillisecondType>(array),
        DataType::Time64(Microsecond) => integers::<Time64MicrosecondType>(array),
        DataType::Time64(_) => integers::<Time64NanosecondType>(array),
        DataType::Date32 => integers::<Date32Type>(array),
        DataType::Date64 => integers::<Date64Type>(array),
        _ => return None,
    })
}

fn decimal(array: &ArrayRef) -> Option<WriteCell<'_>> {
    fn digits<T: DecimalType>(array: &ArrayRef) -> WriteCell<'_> {
        let array = array.as_primitive::<T>();
        Box::new(|row, out| string(out, &array.value_as_string(row)))
    }
    Some(match array.data_type() {
        DataType::Decimal32(_, _) => digits::<Decimal32Type>(array),
        DataType::Decimal64(_, _) => digits::<Decimal64Type>(array),
        DataType::Decimal128(_, _) => digits::<Decimal128Type>(array),
        DataType::Decimal256(_, _) => digits::<Decimal256Type>(array),
        _ => return None,
    })
}

fn null() -> WriteCell<'static> {
    Box::new(|_, out| out.extend_from_slice(b"null"))
}

fn boolean(array: &ArrayRef) -> WriteCell<'_> {
    let array = array.as_boolean();
    Box::new(|row, out| {
        out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
    })
}

fn integers<T: ArrowPrimitiveType<Native: itoa::Integer>>(array: &ArrayRef) -> WriteCell<'_> {
    let values = array.as_primitive::<T>().values();
    Box::new(|row, out| integer(out, values[row]))
}

fn floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    write: impl Fn(&mut Vec<u8>, T::Native) + 'static,
) -> WriteCell<'_> {
    let values = array.as_primitive::<T>().values();
    Box::new(move |row, out| write(out, values[row]))
}

/// The shortest digits that parse to the same `f32`.
fn short(out: &mut Vec<u8>, value: f32) {
    match value.is_finite() {
        true => out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes()),
        false => double(out, f64::from(value)),
    }
}

fn double(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        return out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
    out.extend_from_slice(match value {
        f64::INFINITY => b"\"Infinity\"".as_slice(),
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => b"\"NaN\"",
    });
}

fn strings<'c>(array: impl arrow_array::ArrayAccessor<Item = &'c str> + 'c) -> WriteCell<'c> {
    Box::new(move |row, out| string(out, array.value(row)))
}

fn bytes<'c>(array: impl arrow_array::ArrayAccessor<Item = &'c [u8]> + 'c) -> WriteCell<'c> {
    Box::new(move |row, out| {
        out.push(b'"');
        base64(out, array.value(row));
        out.push(b'"');
    })
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    let array = array.as_list::<O>();
    let (offsets, value) = (array.value_offsets(), cell(array.values())?);
    Ok(Box::new(move |row, out| {
        array_of(&value, offsets[row].as_usize()..offsets[row + 1].as_usize(), out);
    }))
}

fn fixed_size_list(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    let array = array.as_fixed_size_list();
    let (len, value) = (array.value_length().as_usize(), cell(array.values())?);
    Ok(Box::new(move |row, out| array_of(&value, row * len..(row + 1) * len, out)))
}

fn array_of(value: &WriteCell<'_>, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (n, at) in range.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        value(at, out);
    }
    out.push(b']');
}

fn object(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    let array = array.as_struct();
    let names = array.fields().iter().map(|field| field.name());
    let fields = JsonRows::from_columns(names.zip(array.columns()))?;
    Ok(Box::new(move |row, out| fields.write(row, out)))
}

fn dictionary(array: &ArrayRef) -> Result<WriteCell<'_>, Error> {
    let array = array.as_any_dictionary();
    if array.values().is_empty() {
        return Ok(null());
    }
    let (keys, value) = (array.normalized_keys(), cell(array.values())?);
    Ok(Box::new(move |row, out| value(keys[row], out)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow_array::builder::*;
    use arrow_array::*;
    use serde_json::{Value, json};

    fn objects(columns: &RecordBatch) -> Vec<Value> {
        let fields = JsonRows::new(columns).unwrap();
        let object = |row| {
            let mut out = Vec::new();
            fields.write(row, &mut out);
            serde_json::from_slice(&out).unwrap()
        };
        (0..columns.num_rows()).map(object).collect()
    }

    fn values(array: impl Array + 'static) -> Vec<Value> {
        let column: ArrayRef = Arc::new(array);
        let columns = RecordBatch::try_from_iter([("v", column)]).unwrap();
        objects(&columns).into_iter().map(|mut object| object["v"].take()).collect()
    }

    #[test]
    fn numbers_are_numbers_and_nulls_are_null() {
        assert_eq!(values(Int8Array::from(vec![Some(-1), None])), [json!(-1), json!(null)]);
        assert_eq!(values(UInt64Array::from(vec![u64::MAX])), [json!(u64::MAX)]);
        assert_eq!(values(Int64Array::from(vec![i64::MIN])), [json!(i64::MIN)]);
        assert_eq!(values(BooleanArray::from(vec![true, false])), [json!(true), json!(false)]);
        assert_eq!(values(NullArray::new(1)), [json!(null)]);
    }

    #[test]
    fn floats_read_back_as_they_were_and_others_have_names() {
        let floats = vec![0.1, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let wanted = json!([0.1, -0.0, 1e300, "NaN", "Infinity", "-Infinity"]);
        assert_eq!(Value::from(values(Float64Array::from(floats))), wanted);
        let short = values(Float32Array::from(vec![0.1, f32::NAN]));
        assert_eq!(short, [json!(0.1), json!("NaN")]);
    }

    #[test]
    fn times_are_whole_numbers_of_their_unit() {
        let times = TimestampMicrosecondArray::from(vec![5]).with_timezone("UTC");
        assert_eq!(values(times), [json!(5)]);
        assert_eq!(values(Date32Array::from(vec![7])), [json!(7)]);
        assert_eq!(values(DurationNanosecondArray::from(vec![9])), [json!(9)]);
        assert_eq!(values(Time32SecondArray::from(vec![3])), [json!(3)]);
    }

    #[test]
    fn decimals_are_strings_of_their_digits() {
        let decimals = Decimal128Array::from(vec![12345]).with_precision_and_scale(9, 2).unwrap();
        assert_eq!(values(decimals), [json!("123.45")]);
    }

    #[test]
    fn text_is_escaped_and_binary_is_base64() {
        let odd = "a\"b\\c\n\u{1}ü\u{7f}\u{202e}";
        assert_eq!(values(StringArray::from(vec![odd])), [json!(odd)]);
        assert_eq!(values(LargeStringArray::from(vec![odd])), [json!(odd)]);
        assert_eq!(values(StringViewArray::from(vec![odd])), [json!(odd)]);
        let bytes: &[u8] = &[0, 255, 16];
        assert_eq!(values(BinaryArray::from(vec![bytes])), [json!("AP8Q")]);
        assert_eq!(values(LargeBinaryArray::from(vec![bytes])), [json!("AP8Q")]);
        assert_eq!(values(BinaryViewArray::from(vec![bytes])), [json!("AP8Q")]);
        let fixed = FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).unwrap();
        assert_eq!(values(fixed), [json!("AP8Q")]);
    }

    #[test]
    fn dictionaries_show_their_values() {
        let words: DictionaryArray<Int8Type> = [Some("b"), None, Some("a")].into_iter().collect();
        assert_eq!(values(words), [json!("b"), json!(null), json!("a")]);
        let empty: DictionaryArray<Int8Type> = [None::<&str>].into_iter().collect();
        assert_eq!(values(empty), [json!(null)]);
    }

    #[test]
    fn lists_are_arrays_also_in_slices() {
        let lists = || {
            let rows =
                [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(4), Some(5)])];
            (ListArray::from_iter_primitive::<Int32Type, _, _>(rows.clone()), rows)
        };
        let wanted = [json!([1, null]), json!(null), json!([]), json!([4, 5])];
        assert_eq!(values(lists().0), wanted);
        assert_eq!(values(lists().0.slice(2, 2)), wanted[2..]);
        let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists().1);
        assert_eq!(values(large), wanted);
        let rows = [[1, 2], [3, 4], [5, 6]].map(|row| Some(row.map(Some)));
        let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(rows, 2);
        assert_eq!(values(fixed.slice(1, 2)), [json!([3, 4]), json!([5, 6])]);
    }

    #[test]
    fn structs_are_objects_at_any_depth() {
        let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let inner = StructArray::try_from(vec![("x \"y\"", Arc::clone(&x))]).unwrap();
        let mut names = ListBuilder::new(StringBuilder::new());
        names.append_value([Some("a"), Some("b")]);
        names.append_null();
        let columns: Vec<(&str, ArrayRef)> =
            vec![("pos", Arc::new(inner)), ("names", Arc::new(names.finish())), ("x", x)];
        let found = objects(&RecordBatch::try_from_iter(columns).unwrap());
        let wanted = [
            json!({ "pos": { "x \"y\"": 1 }, "names": ["a", "b"], "x": 1 }),
            json!({ "pos": { "x \"y\"": 2 }, "names": null, "x": 2 }),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_message_without_fields_is_an_empty_object() {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let schema = Arc::new(arrow_schema::Schema::empty());
        let columns = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        assert_eq!(objects(&columns), [json!({})]);
    }

    #[test]
    fn a_type_without_a_form_is_named_with_its_field() {
        let column: ArrayRef = Arc::new(IntervalYearMonthArray::from(vec![1]));
        let columns = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let error = JsonRows::new(&columns).unwrap_err().to_string();
        for part in ["Interval", "`v`", "leave it out"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
