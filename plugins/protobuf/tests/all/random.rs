//! Random columns of any type that protobuf can hold.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, StringBuilder};
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use sluice_model::cast::cast;

/// A generator of numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Often zero, small or extreme.
    fn word(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => self.next() % 300,
            2 => (self.next() % 300).wrapping_neg(),
            3 => 1 << self.below(64),
            _ => self.next(),
        }
    }

    pub(crate) fn schema(&mut self) -> SchemaRef {
        let count = self.below(6);
        Arc::new(Schema::new(self.fields(count, 3)))
    }

    fn fields(&mut self, count: usize, depth: usize) -> Vec<FieldRef> {
        // Names that descriptors do not take as they are, or not side by side.
        let names = ["a_b", "aB", "_x", "x", "1st", "größe", "a-b", "message", ""];
        let name = |n: usize| format!("{}{}", names[n % names.len()], n / names.len());
        let first = self.below(9);
        (0..count).map(|n| Arc::new(self.field(&name(first + n), depth))).collect()
    }

    fn field(&mut self, name: &str, depth: usize) -> Field {
        let (data_type, nullable) = (self.data_type(depth), self.below(3) == 0);
        let field = Field::new(name, data_type, nullable);
        if self.below(8) == 0 {
            return field.with_metadata(HashMap::from([("k".into(), "v".into())]));
        }
        field
    }

    fn data_type(&mut self, depth: usize) -> DataType {
        use DataType::*;
        let item = |random: &mut Self| Arc::new(random.field("item", depth - 1));
        match self.below(if depth == 0 { 15 } else { 19 }) {
            0 => Boolean,
            1 => Int8,
            2 => Int16,
            3 => Int32,
            4 => Int64,
            5 => UInt8,
            6 => UInt16,
            7 => UInt32,
            8 => UInt64,
            9 => Float32,
            10 => Float64,
            11 => Utf8,
            12 => Binary,
            13 => FixedSizeBinary(self.below(5) as i32),
            14 => self.time(),
            15 | 16 => List(item(self)),
            17 => {
                // Arrow loses the number of lists without elements where it casts these.
                let (item, len) = (item(self), self.below(4) as i32);
                let has_time =
                    ["Time", "Date", "Duration"].map(|word| item.to_string().contains(word));
                FixedSizeList(item, len.max(has_time.contains(&true).into()))
            }
            _ => {
                let count = self.below(4);
                Struct(self.fields(count, depth - 1).into())
            }
        }
    }

    fn time(&mut self) -> DataType {
        use DataType::*;
        use TimeUnit::*;
        let unit = [Second, Millisecond, Microsecond, Nanosecond][self.below(4)];
        match self.below(7) {
            0 => Timestamp(unit, None),
            1 => Timestamp(unit, Some("Europe/Berlin".into())),
            2 => Date32,
            3 => Date64,
            4 => Time32(Millisecond),
            5 => Time64(Nanosecond),
            _ => Duration(unit),
        }
    }

    pub(crate) fn columns(&mut self, schema: &SchemaRef, rows: usize) -> RecordBatch {
        let columns = schema.fields().iter().map(|field| self.array(field, rows));
        let columns = columns.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).unwrap()
    }

    fn array(&mut self, field: &Field, len: usize) -> ArrayRef {
        use DataType::*;
        let valid: Vec<bool> =
            (0..len).map(|_| !field.is_nullable() || self.below(3) > 0).collect();
        let nulls = field.is_nullable().then(|| NullBuffer::from(valid.clone()));
        macro_rules! numbers {
            ($array:ident, $word:expr) => {{
                let word: fn(u64) -> _ = $word;
                let values = valid.iter().map(|valid| valid.then(|| word(self.word())));
                Arc::new(values.collect::<$array>())
            }};
        }
        match field.data_type() {
            Boolean => {
                let mut values = BooleanBuilder::new();
                valid.iter().for_each(|v| values.append_option(v.then(|| self.below(2) == 1)));
                Arc::new(values.finish())
            }
            Int8 => numbers!(Int8Array, |word| word as i8),
            Int16 => numbers!(Int16Array, |word| word as i16),
            Int32 => numbers!(Int32Array, |word| word as i32),
            Int64 => numbers!(Int64Array, |word| word as i64),
            UInt8 => numbers!(UInt8Array, |word| word as u8),
            UInt16 => numbers!(UInt16Array, |word| word as u16),
            UInt32 => numbers!(UInt32Array, |word| word as u32),
            UInt64 => numbers!(UInt64Array, |word| word),
            Float32 => numbers!(Float32Array, |word| f32::from_bits(word as u32)),
            Float64 => numbers!(Float64Array, f64::from_bits),
            Utf8 => {
                let texts = ["", "x", "größe\0", "a longer text"];
                let mut values = StringBuilder::new();
                valid.iter().for_each(|v| values.append_option(v.then(|| texts[self.below(4)])));
                Arc::new(values.finish())
            }
            Binary => {
                let mut values = BinaryBuilder::new();
                for valid in &valid {
                    let len = self.below(200);
                    values.append_option(valid.then(|| vec![self.next() as u8; len]));
                }
                Arc::new(values.finish())
            }
            FixedSizeBinary(width) => {
                let mut values = FixedSizeBinaryBuilder::new(*width);
                for valid in &valid {
                    match valid {
                        true => {
                            values.append_value(vec![self.next() as u8; *width as usize]).unwrap()
                        }
                        false => values.append_null(),
                    }
                }
                Arc::new(values.finish())
            }
            List(item) => {
                let lens = valid.iter().map(|valid| if *valid { self.below(4) } else { 0 });
                let offsets = OffsetBuffer::from_lengths(lens.collect::<Vec<_>>());
                let items = self.array(item, offsets[len] as usize);
                Arc::new(ListArray::new(Arc::clone(item), offsets, items, nulls))
            }
            FixedSizeList(item, width) => {
                let items = self.array(item, len * *width as usize);
                let item = Arc::clone(item);
                let list = FixedSizeListArray::try_new_with_length(item, *width, items, nulls, len);
                Arc::new(list.unwrap())
            }
            Struct(fields) => {
                let columns = fields.iter().map(|field| self.array(field, len)).collect();
                let fields = fields.clone();
                Arc::new(StructArray::try_new_with_length(fields, columns, nulls, len).unwrap())
            }
            time @ (Date32 | Time32(_)) => {
                cast(&self.array(&field.clone().with_data_type(Int32), len), time).unwrap()
            }
            time => cast(&self.array(&field.clone().with_data_type(Int64), len), time).unwrap(),
        }
    }
}
