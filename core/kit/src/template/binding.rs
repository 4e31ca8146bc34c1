//! Templates bound to the rows of one type, and writing the text of events.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use sluice_io::escape::printable;
use sluice_model::cast::cast;
use sluice_model::{Channel, Clock, Event, FieldPath, Rows, time};

use crate::json::{self, integer};
use crate::lists::ListColumn;

use super::decimals::{write_double, write_fraction, write_signed, write_single, write_unsigned};
use super::language::{FieldPart, TemplatePart};

/// The longest text of an event, not counting its last value: a list of bytes, each padded, would
/// take many times the memory of the event.
pub const MAX_TEXT: usize = 64 << 20;

/// A template whose fields are resolved in the rows of one type.
#[derive(Debug)]
pub struct BoundTemplate<'t> {
    parts: Vec<(&'t TemplatePart, Option<NullableValues>)>,
}

impl<'t> BoundTemplate<'t> {
    /// Binds the parts of a template to the rows of one type.
    pub(super) fn new(parts: &'t [TemplatePart], rows: Option<&Rows>) -> Self {
        let parts = parts.iter().map(|part| match part {
            TemplatePart::Field(inserted) => {
                let array = rows.and_then(|rows| inserted.path.resolve(&rows.columns));
                let values =
                    array.and_then(|array| NullableValues::from_array(&array, inserted.depth));
                (part, values)
            }
            _ => (part, None),
        });
        Self { parts: parts.collect() }
    }
}

impl BoundTemplate<'_> {
    /// Appends the text of an event of `channel`, whose fields are in row `row` of the bound rows.
    ///
    /// Returns false and appends nothing if a field is missing or null, or the text would be longer
    /// than [`MAX_TEXT`]. Only allocates for `timestamp`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn write(
        &self,
        channel: &Channel,
        event: &Event<'_>,
        row: Option<usize>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let most = start.saturating_add(MAX_TEXT);
        let is_whole = self.parts.iter().all(|(part, values)| {
            let before = out.len();
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Channel(width) => {
                    write_text(channel.name.text(), out);
                    fill_text(before, *width, out);
                }
                TemplatePart::Source(width) => {
                    write_text(&channel.source, out);
                    fill_text(before, *width, out);
                }
                TemplatePart::Sequence(format) => write_signed(event.sequence, *format, out),
                TemplatePart::Timestamp(width) => {
                    write_time(channel.clock, event.timestamp, out);
                    fill_text(before, *width, out);
                }
                TemplatePart::TimestampNs(format) => write_signed(event.timestamp, *format, out),
                TemplatePart::Field(inserted) => {
                    let found = values.as_ref().zip(row);
                    let write = |(values, row): (&NullableValues, _)| {
                        values.write(row, inserted, most, out)
                    };
                    return found.is_some_and(write);
                }
            }
            out.len() <= most
        });
        if !is_whole {
            out.truncate(start);
        }
        is_whole
    }

    /// The first field that is missing or null in row `row`, after [`write`](Self::write) returned
    /// false. `None` if the text would be too long.
    pub fn missing(&self, row: Option<usize>) -> Option<&FieldPath> {
        self.parts.iter().find_map(|(part, values)| {
            let TemplatePart::Field(inserted) = part else { return None };
            let found = values.as_ref().zip(row);
            let is_there = found.is_some_and(|(values, row)| values.is_whole(row));
            (!is_there).then_some(&inserted.path)
        })
    }
}

/// The values of a field, one per row.
#[derive(Debug)]
struct NullableValues {
    nulls: Option<NullBuffer>,
    values: FieldValues,
}

#[derive(Debug)]
enum FieldValues {
    Double(ScalarBuffer<f64>),
    Single(ScalarBuffer<f32>),
    Signed(ScalarBuffer<i64>),
    Unsigned(ScalarBuffer<u64>),
    /// Other types, formatted in advance: the concatenated text, and the end of each value.
    Written {
        text: Vec<u8>,
        ends: Vec<usize>,
    },
    /// Lists: the elements, and the range of each row.
    List {
        ranges: Vec<Range<usize>>,
        elements: Box<NullableValues>,
    },
}

impl NullableValues {
    /// The values of `array`, expanding `depth` levels of lists. `None` if they have no text form,
    /// or lists are not nested as deeply.
    fn from_array(array: &ArrayRef, depth: usize) -> Option<Self> {
        let form = if depth == 0 {
            FieldValues::from_array(array)?
        } else {
            FieldValues::from_lists(array, depth)?
        };
        Some(Self { nulls: array.logical_nulls(), values: form })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether neither the value nor any element of it is null.
    fn is_whole(&self, row: usize) -> bool {
        let elements = || match &self.values {
            FieldValues::List { ranges, elements } => {
                ranges[row].clone().all(|place| elements.is_whole(place))
            }
            _ => true,
        };
        !self.is_null(row) && elements()
    }

    /// Appends a value; returns false if it or an element is null, or `out` is longer than `most`.
    fn write(&self, row: usize, inserted: &FieldPart, most: usize, out: &mut Vec<u8>) -> bool {
        if self.is_null(row) {
            return false;
        }
        let format = inserted.format;
        match &self.values {
            FieldValues::Double(values) => write_double(values[row], format, out),
            FieldValues::Single(values) => write_single(values[row], format, out),
            FieldValues::Signed(values) => write_signed(values[row], format, out),
            FieldValues::Unsigned(values) => write_unsigned(values[row], format, out),
            FieldValues::Written { text, ends } => {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                let before = out.len();
                out.extend_from_slice(&text[start..ends[row]]);
                fill_text(before, format.width, out);
            }
            FieldValues::List { ranges, elements } => {
                return ranges[row].clone().enumerate().all(|(n, place)| {
                    if n > 0 {
                        out.extend_from_slice(inserted.separator.as_bytes());
                    }
                    elements.write(place, inserted, most, out)
                });
            }
        }
        out.len() <= most
    }
}

impl FieldValues {
    fn from_array(array: &ArrayRef) -> Option<Self> {
        let as_type = |data_type: &DataType| cast(array, data_type).ok();
        let data_type = array.data_type();
        Some(match data_type {
            DataType::Float64 => Self::Double(array.as_primitive::<Float64Type>().values().clone()),
            DataType::Float32 | DataType::Float16 => {
                let array = as_type(&DataType::Float32)?;
                Self::Single(array.as_primitive::<Float32Type>().values().clone())
            }
            DataType::UInt64 => Self::Unsigned(array.as_primitive::<UInt64Type>().values().clone()),
            _ if data_type.is_integer() || is_time(data_type) => {
                let array = as_type(&DataType::Int64)?;
                Self::Signed(array.as_primitive::<Int64Type>().values().clone())
            }
            DataType::Dictionary(_, values) => return Self::from_array(&as_type(values)?),
            _ => Self::as_text(array)?,
        })
    }

    fn as_text(array: &ArrayRef) -> Option<Self> {
        let write = json::value(array).ok()?;
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(array.len()));
        let (texts, nulls) = (cast_to_text(array), array.logical_nulls());
        for row in 0..array.len() {
            let start = text.len();
            match &texts {
                _ if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => {}
                Some(texts) => write_text(texts.as_string_view().value(row), &mut text),
                None => {
                    write(row, &mut text);
                    unquote(&mut text, start);
                }
            }
            ends.push(text.len());
        }
        Some(Self::Written { text, ends })
    }

    fn from_lists(array: &ArrayRef, depth: usize) -> Option<Self> {
        let ListColumn { elements, mut ranges } = ListColumn::from_array(array)?;
        // A sliced list has elements of other rows before and after its own.
        let (first, last) = (ranges.first()?.start, ranges.last()?.end);
        for range in &mut ranges {
            *range = range.start - first..range.end - first;
        }
        let elements =
            Box::new(NullableValues::from_array(&elements.slice(first, last - first), depth - 1)?);
        Some(Self::List { ranges, elements })
    }
}

fn is_time(data_type: &DataType) -> bool {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    matches!(data_type, Timestamp(..) | Duration(_) | Time32(_) | Time64(_) | Date32 | Date64)
}

fn cast_to_text(array: &ArrayRef) -> Option<ArrayRef> {
    let is_text =
        matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    is_text.then(|| cast(array, &DataType::Utf8View).ok()).flatten()
}

/// Removes the quotes of the JSON string at `start`. It has no escapes.
fn unquote(out: &mut Vec<u8>, start: usize) {
    if out.get(start) == Some(&b'"') {
        out.pop();
        out.remove(start);
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(printable(text).as_bytes());
}

fn write_time(clock: Clock, nanos: i64, out: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    match clock {
        Clock::Utc => out.extend_from_slice(time::format(nanos).as_bytes()),
        Clock::Relative => {
            if nanos < 0 {
                out.push(b'-');
            }
            let nanos = nanos.unsigned_abs();
            integer(out, nanos / SECOND);
            write_fraction(nanos % SECOND, 9, out);
        }
    }
}

/// Pads the text at `start` on the left with spaces, up to a width in characters.
fn fill_text(start: usize, width: usize, out: &mut Vec<u8>) {
    let text = &out[start..];
    if text.len() / MAX_CHARACTER_LEN >= width {
        return;
    }
    let characters = std::str::from_utf8(text).map_or(text.len(), |text| text.chars().count());
    out.splice(start..start, std::iter::repeat_n(b' ', width.saturating_sub(characters)));
}

/// The longest UTF-8 character.
const MAX_CHARACTER_LEN: usize = 4;
