//! Encodes rows as messages, in the one form that all writers of a descriptor could agree on:
//! fields by number, nothing that its default says, lists packed as declared.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::plan::{FieldPlan, MessagePlan, Presence, Scalar, Storage, ValuePlan};
use crate::wire::{PayloadFault, put_bytes, put_delimited, put_varint, zigzag};

const TWO_MEMBERS: PayloadFault = "two members of a oneof are set";
const NULL: PayloadFault = "a value is null that cannot be unset";

/// Writes the rows of columns.
#[derive(Debug)]
pub(crate) struct RowWriter<'p> {
    message: MessageWriter<'p>,
}

#[derive(Debug)]
struct MessageWriter<'p> {
    fields: Vec<FieldWriter<'p>>,
    oneofs: usize,
}

#[derive(Debug)]
struct FieldWriter<'p> {
    plan: &'p FieldPlan,
    /// The tag as bytes.
    tag: Vec<u8>,
    nulls: Option<NullBuffer>,
    values: Values<'p>,
}

/// The values of a column.
#[derive(Debug)]
enum Values<'p> {
    Scalar(ScalarWriter),
    Message(MessageWriter<'p>),
    Wrapper(Box<FieldWriter<'p>>),
    /// The elements of lists, with their nulls.
    List(OffsetBuffer<i32>, Box<Values<'p>>, Option<NullBuffer>),
    FixedList(usize, Box<Values<'p>>, Option<NullBuffer>),
}

#[derive(Debug)]
struct ScalarWriter {
    scalar: Scalar,
    column: ScalarColumn,
}

#[derive(Debug)]
enum ScalarColumn {
    Bool(BooleanArray),
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    F32(ScalarBuffer<f32>),
    F64(ScalarBuffer<f64>),
    Bytes(OffsetBuffer<i32>, arrow_buffer::Buffer),
    FixedBytes(FixedSizeBinaryArray),
}

impl<'p> RowWriter<'p> {
    /// A writer of these columns, which are those of the plan in its order.
    pub(crate) fn new(plan: &'p MessagePlan, columns: &RecordBatch) -> Result<Self, String> {
        Ok(Self { message: MessageWriter::new(plan, columns.columns())? })
    }

    /// Appends the message of a row. After `Err`, the bytes appended are undefined.
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        self.message.write(row, out)
    }
}

impl<'p> MessageWriter<'p> {
    fn new(plan: &'p MessagePlan, columns: &[ArrayRef]) -> Result<Self, String> {
        if plan.fields.len() != columns.len() {
            return Err("the columns are not those of the type".to_owned());
        }
        let fields = plan.fields.iter().zip(columns);
        let fields = fields.map(|(plan, column)| FieldWriter::new(plan, column));
        Ok(Self { fields: fields.collect::<Result<_, String>>()?, oneofs: plan.oneofs })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        if self.oneofs > 0 {
            self.check_oneofs(row)?;
        }
        self.fields.iter().try_for_each(|field| field.write(row, out))
    }

    fn check_oneofs(&self, row: usize) -> Result<(), PayloadFault> {
        let mut is_set = vec![false; self.oneofs];
        for field in &self.fields {
            let Some(is_set) = field.plan.oneof.and_then(|oneof| is_set.get_mut(oneof)) else {
                continue;
            };
            let is_valid = field.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            if is_valid && std::mem::replace(is_set, true) {
                return Err(TWO_MEMBERS);
            }
        }
        Ok(())
    }
}

fn type_mismatch(plan: &FieldPlan, column: &ArrayRef) -> String {
    let (wanted, found) = (plan.column.data_type(), column.data_type());
    format!("column `{}`: expected {wanted}, found {found}", plan.column.name())
}

impl<'p> FieldWriter<'p> {
    fn new(plan: &'p FieldPlan, column: &ArrayRef) -> Result<Self, String> {
        let mismatch = || type_mismatch(plan, column);
        let values = match plan.presence {
            Presence::List { len: None, .. } => {
                let list = column.as_list_opt::<i32>().ok_or_else(mismatch)?;
                let items = Values::new(plan, list.values())?;
                Values::List(list.offsets().clone(), Box::new(items), nulls(list.values()))
            }
            Presence::List { len: Some(len), .. } => {
                let list = column.as_fixed_size_list_opt().ok_or_else(mismatch)?;
                if list.value_length() as usize != len {
                    return Err(mismatch());
                }
                let items = Values::new(plan, list.values())?;
                Values::FixedList(len, Box::new(items), nulls(list.values()))
            }
            _ => Values::new(plan, column)?,
        };
        let mut tag = Vec::new();
        put_varint(u64::from(plan.tag), &mut tag);
        Ok(Self { plan, tag, nulls: nulls(column), values })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return if self.plan.presence == Presence::Optional { Ok(()) } else { Err(NULL) };
        }
        let is_implicit = self.plan.presence == Presence::Implicit;
        match &self.values {
            Values::Scalar(values) if is_implicit && values.is_default(row) => Ok(()),
            Values::List(offsets, items, nulls) => {
                let range = offsets.get(row..).and_then(|ends| ends.first_chunk::<2>());
                let [start, end] = range.map_or([0, 0], |ends| ends.map(|end| end as usize));
                self.list(items, start..end, nulls.as_ref(), out)
            }
            Values::FixedList(len, items, nulls) => {
                self.list(items, row * len..(row + 1) * len, nulls.as_ref(), out)
            }
            values => {
                out.extend_from_slice(&self.tag);
                values.write(row, out)
            }
        }
    }

    fn list(
        &self,
        items: &Values<'_>,
        range: std::ops::Range<usize>,
        nulls: Option<&NullBuffer>,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        if range.is_empty() {
            return Ok(());
        }
        // A wrapper says of its element whether it is null.
        let is_wrapped = matches!(items, Values::Wrapper(_));
        if !is_wrapped && nulls.is_some_and(|nulls| range.clone().any(|row| nulls.is_null(row))) {
            return Err(NULL);
        }
        match (self.plan.presence, items) {
            (Presence::List { is_packed: true, .. }, Values::Scalar(items)) => {
                out.extend_from_slice(&self.tag);
                items.write_packed(range, out)
            }
            _ => range.into_iter().try_for_each(|row| {
                out.extend_from_slice(&self.tag);
                items.write(row, out)
            }),
        }
    }
}

fn nulls(column: &ArrayRef) -> Option<NullBuffer> {
    column.nulls().filter(|nulls| nulls.null_count() > 0).cloned()
}

impl<'p> Values<'p> {
    /// The values of a field, or of the elements of its lists.
    fn new(plan: &'p FieldPlan, column: &ArrayRef) -> Result<Self, String> {
        Ok(match &plan.value {
            ValuePlan::Scalar(scalar, storage) => {
                let scalars = ScalarColumn::new(*storage, column);
                let column = scalars.ok_or_else(|| type_mismatch(plan, column))?;
                Self::Scalar(ScalarWriter { scalar: *scalar, column })
            }
            ValuePlan::Message(message) => {
                let column = column.as_struct_opt().ok_or_else(|| type_mismatch(plan, column))?;
                Self::Message(MessageWriter::new(message, column.columns())?)
            }
            ValuePlan::Wrapper(inner) => Self::Wrapper(Box::new(FieldWriter::new(inner, column)?)),
        })
    }

    /// Writes a value behind its tag.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        match self {
            Self::Scalar(values) => {
                values.write(row, out);
                Ok(())
            }
            Self::Message(message) => put_delimited(out, |out| message.write(row, out)),
            Self::Wrapper(field) => put_delimited(out, |out| field.write(row, out)),
            // A list is never the value of a field: it has a wrapper around it.
            Self::List(..) | Self::FixedList(..) => Err(NULL),
        }
    }
}

impl ScalarColumn {
    fn new(storage: Storage, column: &ArrayRef) -> Option<Self> {
        fn numbers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<ScalarBuffer<T::Native>> {
            Some(column.as_primitive_opt::<T>()?.values().clone())
        }
        Some(match storage {
            Storage::Bool => Self::Bool(column.as_boolean_opt()?.clone()),
            Storage::I8 => Self::I8(numbers::<Int8Type>(column)?),
            Storage::I16 => Self::I16(numbers::<Int16Type>(column)?),
            Storage::I32 => Self::I32(numbers::<Int32Type>(column)?),
            Storage::I64 => Self::I64(numbers::<Int64Type>(column)?),
            Storage::U8 => Self::U8(numbers::<UInt8Type>(column)?),
            Storage::U16 => Self::U16(numbers::<UInt16Type>(column)?),
            Storage::U32 => Self::U32(numbers::<UInt32Type>(column)?),
            Storage::U64 => Self::U64(numbers::<UInt64Type>(column)?),
            Storage::F32 => Self::F32(numbers::<Float32Type>(column)?),
            Storage::F64 => Self::F64(numbers::<Float64Type>(column)?),
            Storage::Text => {
                let column = column.as_string_opt::<i32>()?;
                Self::Bytes(column.offsets().clone(), column.values().clone())
            }
            Storage::Bytes => {
                let column = column.as_binary_opt::<i32>()?;
                Self::Bytes(column.offsets().clone(), column.values().clone())
            }
            Storage::FixedBytes(len) => {
                let column = column.as_fixed_size_binary_opt()?;
                let fits = column.value_length() as usize == len;
                Self::FixedBytes(fits.then(|| column.clone())?)
            }
        })
    }

    /// A number as 64 bits: signed ones extended, floats as their bits.
    #[inline]
    fn word(&self, row: usize) -> u64 {
        match self {
            Self::Bool(values) => u64::from(values.value(row)),
            Self::I8(values) => i64::from(values[row]).cast_unsigned(),
            Self::I16(values) => i64::from(values[row]).cast_unsigned(),
            Self::I32(values) => i64::from(values[row]).cast_unsigned(),
            Self::I64(values) => values[row].cast_unsigned(),
            Self::U8(values) => u64::from(values[row]),
            Self::U16(values) => u64::from(values[row]),
            Self::U32(values) => u64::from(values[row]),
            Self::U64(values) => values[row],
            Self::F32(values) => u64::from(values[row].to_bits()),
            Self::F64(values) => values[row].to_bits(),
            Self::Bytes(..) | Self::FixedBytes(_) => 0,
        }
    }

    fn bytes(&self, row: usize) -> &[u8] {
        match self {
            Self::Bytes(offsets, bytes) => {
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                bytes.get(range).unwrap_or_default()
            }
            Self::FixedBytes(values) => values.value(row),
            _ => &[],
        }
    }
}

impl ScalarWriter {
    fn is_default(&self, row: usize) -> bool {
        match &self.column {
            ScalarColumn::Bytes(offsets, _) => offsets[row] == offsets[row + 1],
            // Its length is not written anywhere else.
            ScalarColumn::FixedBytes(values) => values.value_length() == 0,
            column => column.word(row) == 0,
        }
    }

    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self.scalar {
            Scalar::Text | Scalar::Bytes => put_bytes(self.column.bytes(row), out),
            _ => self.write_number(self.column.word(row), out),
        }
    }

    #[inline]
    fn write_number(&self, word: u64, out: &mut Vec<u8>) {
        match self.scalar {
            Scalar::SInt32 | Scalar::SInt64 => put_varint(zigzag(word.cast_signed()), out),
            Scalar::Float | Scalar::Fixed32 | Scalar::SFixed32 => {
                out.extend_from_slice(&(word as u32).to_le_bytes());
            }
            Scalar::Double | Scalar::Fixed64 | Scalar::SFixed64 => {
                out.extend_from_slice(&word.to_le_bytes());
            }
            _ => put_varint(word, out),
        }
    }

    fn write_packed(
        &self,
        range: std::ops::Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        use crate::wire::WireType::{Fixed32, Fixed64};
        macro_rules! fixed {
            ($values:expr, $width:literal) => {{
                let values = $values.get(range).unwrap_or_default();
                put_varint(size_of_val(values) as u64, out);
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                let bytes = out.get_mut(start..).unwrap_or_default();
                for (bytes, value) in bytes.chunks_exact_mut($width).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                Ok(())
            }};
        }
        match (&self.column, self.scalar.wire_type()) {
            (ScalarColumn::F64(values), _) => fixed!(values, 8),
            (ScalarColumn::U64(values), Fixed64) => fixed!(values, 8),
            (ScalarColumn::I64(values), Fixed64) => fixed!(values, 8),
            (ScalarColumn::F32(values), _) => fixed!(values, 4),
            (ScalarColumn::U32(values), Fixed32) => fixed!(values, 4),
            (ScalarColumn::I32(values), Fixed32) => fixed!(values, 4),
            (column, _) => put_delimited(out, |out| {
                range.into_iter().for_each(|row| self.write_number(column.word(row), out));
                Ok(())
            }),
        }
    }
}
