//! Turns valid records into columns, one per field and kind.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use sluice_io::escape::escaped;
use sluice_model::{Batch, Error, Payloads, Rows};

use crate::column::{Arity, FieldPlace, RecordColumn, ValueKind};
use crate::format::{RecordFormat, RecordKind};
use crate::walk::WalkResult;
use crate::wire::{BinaryNumber, Endian, Number};

/// The metadata key for a column's unit.
pub(crate) const UNIT: &str = "sluice.unit";

impl ValueKind {
    /// Bytes per value; 0 if the value is the whole field.
    fn width(self) -> usize {
        match self {
            Self::Number(word)
            | Self::Scaled(word, ..)
            | Self::Flag(word, _)
            | Self::Bits(word, ..) => word.number.width(),
            Self::Bool => 1,
            Self::Text | Self::Bytes => 0,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Number(word) => match word.number {
                Number::U8 => DataType::UInt8,
                Number::I8 => DataType::Int8,
                Number::U16 => DataType::UInt16,
                Number::I16 => DataType::Int16,
                Number::U24 | Number::U32 => DataType::UInt32,
                Number::I24 | Number::I32 => DataType::Int32,
                Number::U64 => DataType::UInt64,
                Number::I64 => DataType::Int64,
                Number::F32 => DataType::Float32,
                Number::F64 => DataType::Float64,
            },
            Self::Scaled(..) => DataType::Float64,
            Self::Flag(..) | Self::Bool => DataType::Boolean,
            Self::Bits(..) => DataType::UInt64,
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
        }
    }
}

impl RecordColumn {
    /// Its field in an Arrow schema.
    pub(crate) fn field(&self) -> Field {
        let item = || element(self.value.data_type());
        let data_type = match self.arity {
            Arity::One => self.value.data_type(),
            Arity::Fixed(count) => DataType::FixedSizeList(item(), count as i32),
            Arity::List => DataType::List(item()),
        };
        let field = Field::new(&self.name, data_type, false);
        match &self.unit {
            Some(unit) => field.with_metadata([(UNIT.to_owned(), unit.clone())].into()),
            None => field,
        }
    }

    fn array(&self, records: &RecordCells<'_>) -> Result<ArrayRef, ArrowError> {
        let values = || values(self.value, records, self.at);
        Ok(match self.arity {
            Arity::One => values(),
            Arity::Fixed(count) => {
                let item = element(self.value.data_type());
                Arc::new(FixedSizeListArray::try_new(item, count as i32, values(), None)?)
            }
            Arity::List => {
                let width = self.value.width().max(1);
                let lengths = records.cells(self.at).map(|cell| cell.len() / width);
                let offsets = OffsetBuffer::from_lengths(lengths);
                let item = element(self.value.data_type());
                Arc::new(ListArray::try_new(item, offsets, values(), None)?)
            }
        })
    }
}

fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, false))
}

/// `batch` with the rows of its events, all of which are records of this format.
pub(crate) fn with_rows(format: &RecordFormat, batch: Batch) -> Result<Batch, Error> {
    let mut events: Vec<Vec<u32>> = vec![Vec::new(); format.kinds.len()];
    for row in 0..batch.len() {
        let kind = format.kind_of(batch.payload(row)).and_then(|kind| events.get_mut(kind));
        if let Some(events) = kind {
            events.push(row as u32);
        }
    }
    let mut rows = Vec::new();
    for (kind, events) in format.kinds.iter().zip(events) {
        if events.is_empty() || kind.columns.is_empty() {
            continue;
        }
        let records = events.iter().map(|event| batch.payload(*event as usize)).collect();
        let columns = columns(format, kind, records).map_err(|e| Error::internal(e.to_string()))?;
        let message = Arc::clone(&kind.message);
        rows.push(Rows { message, payloads: Payloads::Kept, events, columns });
    }
    Ok(batch.with_rows(rows))
}

/// The row of one record.
pub(crate) fn row(format: &RecordFormat, kind: &RecordKind, record: &[u8]) -> Result<Rows, Error> {
    let columns =
        columns(format, kind, vec![record]).map_err(|e| Error::internal(e.to_string()))?;
    let message = Arc::clone(&kind.message);
    Ok(Rows { message, payloads: Payloads::Kept, events: vec![0], columns })
}

fn columns(
    format: &RecordFormat,
    kind: &RecordKind,
    records: Vec<&[u8]>,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
    let records = RecordCells::new(format, kind, records);
    let arrays = kind.columns.iter().map(|column| column.array(&records));
    let arrays = arrays.collect::<Result<_, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(&kind.schema), arrays, &options)
}

/// Records of one kind and the places of their fields.
struct RecordCells<'r> {
    records: Vec<&'r [u8]>,
    /// Offset and length of each field of the walk, record by record.
    places: Vec<(u32, u32)>,
    steps: usize,
}

impl<'r> RecordCells<'r> {
    fn new(format: &RecordFormat, kind: &RecordKind, records: Vec<&'r [u8]>) -> Self {
        let Some(walk) = &kind.walk else {
            return Self { records, places: Vec::new(), steps: 0 };
        };
        let steps = walk.steps.len();
        let mut places = Vec::with_capacity(records.len() * steps);
        for record in &records {
            let begin = places.len();
            let end = record.len().checked_sub(format.tail_len);
            let each = |at: usize, len: usize| places.push((at as u32, len as u32));
            let walked = walk.run(record, format.head_len, end, record.len(), each);
            debug_assert!(
                matches!(walked, WalkResult::End(_)),
                "a classified record does not fit its fields"
            );
            places.resize(begin + steps, (0, 0));
        }
        Self { records, places, steps }
    }

    /// The bytes of a field in each record.
    fn cells(&self, at: FieldPlace) -> impl Iterator<Item = &'r [u8]> {
        self.records.iter().enumerate().map(move |(row, record)| {
            let (start, len) = match at {
                FieldPlace::Fixed(spot, len) => {
                    (spot.in_record(record.len()).unwrap_or(usize::MAX), len)
                }
                FieldPlace::Step(step) => {
                    let place = self.places.get(row * self.steps + step);
                    place.map_or((0, 0), |(start, len)| (*start as usize, *len as usize))
                }
            };
            record.get(start..start.saturating_add(len)).unwrap_or_default()
        })
    }
}

/// All values of a field, consecutively.
fn values(value: ValueKind, records: &RecordCells<'_>, at: FieldPlace) -> ArrayRef {
    match value {
        ValueKind::Number(word) => numbers(word, records, at),
        ValueKind::Scaled(word, scale, offset) => {
            let scaled = |bytes: &[u8]| word.float(bytes).unwrap_or_default() * scale + offset;
            primitive::<Float64Type>(records, at, value.width(), scaled)
        }
        ValueKind::Bits(word, low, count) => {
            let mask = u64::MAX >> (64 - count.clamp(1, 64));
            let bits = |bytes: &[u8]| word.bits(bytes).unwrap_or_default() >> low & mask;
            primitive::<UInt64Type>(records, at, value.width(), bits)
        }
        ValueKind::Flag(word, bit) => {
            let flag = |bytes: &[u8]| word.bits(bytes).unwrap_or_default() >> bit & 1 == 1;
            booleans(records, at, value.width(), flag)
        }
        ValueKind::Bool => booleans(records, at, 1, |bytes| bytes.iter().any(|byte| *byte != 0)),
        ValueKind::Text => {
            Arc::new(StringArray::from_iter_values(records.cells(at).map(|c| escaped(text(c)))))
        }
        ValueKind::Bytes => Arc::new(BinaryArray::from_iter_values(records.cells(at))),
    }
}

/// The bytes of a field that are its text.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default().trim_ascii_end()
}

fn booleans(
    records: &RecordCells<'_>,
    at: FieldPlace,
    width: usize,
    read: impl Fn(&[u8]) -> bool,
) -> ArrayRef {
    let each = records.cells(at).flat_map(|cell| cell.chunks_exact(width));
    Arc::new(BooleanArray::from(each.map(read).collect::<Vec<_>>()))
}

fn primitive<T: ArrowPrimitiveType>(
    records: &RecordCells<'_>,
    at: FieldPlace,
    width: usize,
    read: impl Fn(&[u8]) -> T::Native,
) -> ArrayRef {
    let mut values = Vec::with_capacity(records.records.len());
    for cell in records.cells(at) {
        if cell.len() == width {
            values.push(read(cell));
        } else {
            values.extend(cell.chunks_exact(width).map(&read));
        }
    }
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}

fn numbers(word: BinaryNumber, records: &RecordCells<'_>, at: FieldPlace) -> ArrayRef {
    macro_rules! read {
        ($array:ty, $native:ty) => {{
            const WIDTH: usize = size_of::<$native>();
            match word.endian {
                Endian::Little => primitive::<$array>(records, at, WIDTH, |bytes| {
                    <$native>::from_le_bytes(first(bytes))
                }),
                Endian::Big => primitive::<$array>(records, at, WIDTH, |bytes| {
                    <$native>::from_be_bytes(first(bytes))
                }),
            }
        }};
    }
    match word.number {
        Number::U8 => read!(UInt8Type, u8),
        Number::I8 => read!(Int8Type, i8),
        Number::U16 => read!(UInt16Type, u16),
        Number::I16 => read!(Int16Type, i16),
        Number::U32 => read!(UInt32Type, u32),
        Number::I32 => read!(Int32Type, i32),
        Number::U64 => read!(UInt64Type, u64),
        Number::I64 => read!(Int64Type, i64),
        Number::F32 => read!(Float32Type, f32),
        Number::F64 => read!(Float64Type, f64),
        Number::U24 => {
            let read = |bytes: &[u8]| word.bits(bytes).unwrap_or_default() as u32;
            primitive::<UInt32Type>(records, at, 3, read)
        }
        Number::I24 => {
            let read = |bytes: &[u8]| word.whole(bytes).unwrap_or_default() as i32;
            primitive::<Int32Type>(records, at, 3, read)
        }
    }
}

#[inline]
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
