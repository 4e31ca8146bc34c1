//! Columns as they are collected value by value, and the Arrow arrays made of them. Reads no
//! message.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray,
    FixedSizeListArray, ListArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use crate::plan::{FieldPlan, MessagePlan, Presence, Storage, ValuePlan};
use crate::wire::PayloadFault;

const OUT_OF_RANGE: PayloadFault = "a number does not fit its column";
const TOO_LONG: PayloadFault = "its lists or texts are too long for one batch";
const TOO_MANY: PayloadFault = "it expands to too many values";
const WRONG_LENGTH: PayloadFault = "bytes or a list have not their fixed length";

/// The values of a column.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    pub(crate) data: ColumnData,
    /// Which values are not null, if some may be.
    pub(crate) valid: Option<Vec<bool>>,
}

#[derive(Debug)]
pub(crate) enum ColumnData {
    Bool(Vec<bool>),
    Numbers(Storage, NumberColumn),
    Bytes { offsets: Vec<i32>, bytes: Vec<u8> },
    FixedBytes { width: usize, bytes: Vec<u8>, len: usize },
    List { offsets: Vec<i32>, item: Box<ColumnBuilder> },
    FixedList { width: usize, item: Box<ColumnBuilder>, len: usize },
    Struct { children: Vec<ColumnBuilder>, len: usize },
}

/// Numbers by their width.
#[derive(Debug)]
pub(crate) enum NumberColumn {
    W1(Vec<u8>),
    W2(Vec<u16>),
    W4(Vec<u32>),
    W8(Vec<u64>),
}

/// How many values may be added that no byte of the payload stands for.
#[derive(Debug)]
pub(crate) struct EmptyBudget(usize);

impl EmptyBudget {
    /// The budget of a payload of that length.
    pub(crate) fn for_payload(len: usize) -> Self {
        Self(len.saturating_mul(16).saturating_add(1 << 16))
    }

    pub(crate) fn spend(&mut self, values: usize) -> Result<(), PayloadFault> {
        self.0 = self.0.checked_sub(values).ok_or(TOO_MANY)?;
        Ok(())
    }
}

/// The columns of a message's fields.
pub(crate) fn builders(plan: &MessagePlan) -> Vec<ColumnBuilder> {
    plan.fields.iter().map(ColumnBuilder::for_field).collect()
}

/// Keeps the first `len` rows of these columns.
pub(crate) fn truncate(columns: &mut [ColumnBuilder], len: usize) {
    columns.iter_mut().for_each(|column| column.truncate(len));
}

impl ColumnBuilder {
    fn for_field(plan: &FieldPlan) -> Self {
        let value = || Self::for_value(&plan.value);
        let data = match plan.presence {
            Presence::List { len: None, .. } => {
                ColumnData::List { offsets: vec![0], item: Box::new(value()) }
            }
            Presence::List { len: Some(width), .. } => {
                ColumnData::FixedList { width, item: Box::new(value()), len: 0 }
            }
            Presence::Optional => return Self { valid: Some(Vec::new()), ..value() },
            Presence::Implicit | Presence::Always => return value(),
        };
        Self { data, valid: None }
    }

    fn for_value(value: &ValuePlan) -> Self {
        let data = match value {
            ValuePlan::Message(plan) => ColumnData::Struct { children: builders(plan), len: 0 },
            ValuePlan::Wrapper(inner) => return Self::for_field(inner),
            ValuePlan::Scalar(_, storage) => match storage {
                Storage::Bool => ColumnData::Bool(Vec::new()),
                Storage::Text | Storage::Bytes => {
                    ColumnData::Bytes { offsets: vec![0], bytes: Vec::new() }
                }
                Storage::FixedBytes(width) => {
                    ColumnData::FixedBytes { width: *width, bytes: Vec::new(), len: 0 }
                }
                of => ColumnData::Numbers(*of, NumberColumn::new(*of)),
            },
        };
        Self { data, valid: None }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.data {
            ColumnData::Bool(values) => values.len(),
            ColumnData::Numbers(_, words) => words.len(),
            ColumnData::Bytes { offsets, .. } | ColumnData::List { offsets, .. } => {
                offsets.len() - 1
            }
            ColumnData::FixedBytes { len, .. }
            | ColumnData::FixedList { len, .. }
            | ColumnData::Struct { len, .. } => *len,
        }
    }

    /// Adds null, or a zero where that is impossible.
    pub(crate) fn push_empty(&mut self, budget: &mut EmptyBudget) -> Result<(), PayloadFault> {
        budget.spend(1)?;
        if let Some(valid) = &mut self.valid {
            valid.push(false);
        }
        match &mut self.data {
            ColumnData::Bool(values) => values.push(false),
            ColumnData::Numbers(_, words) => words.push(0),
            ColumnData::Bytes { offsets, .. } | ColumnData::List { offsets, .. } => {
                offsets.extend_from_within(offsets.len() - 1..);
            }
            ColumnData::FixedBytes { width, bytes, len } => {
                budget.spend(*width / 8)?;
                bytes.resize(bytes.len() + *width, 0);
                *len += 1;
            }
            ColumnData::FixedList { width, item, len } => {
                (0..*width).try_for_each(|_| item.push_empty(budget))?;
                *len += 1;
            }
            ColumnData::Struct { children, len } => {
                children.iter_mut().try_for_each(|child| child.push_empty(budget))?;
                *len += 1;
            }
        }
        Ok(())
    }

    /// Records that the next value is not null.
    #[inline]
    pub(crate) fn push_valid(&mut self) {
        if let Some(valid) = &mut self.valid {
            valid.push(true);
        }
    }

    /// Adds a number: signed ones extended, floats as their bits.
    #[inline]
    pub(crate) fn push_word(&mut self, word: u64) -> Result<(), PayloadFault> {
        match &mut self.data {
            ColumnData::Bool(values) => values.push(word != 0),
            ColumnData::Numbers(of, words) => {
                if !fits(*of, word) {
                    return Err(OUT_OF_RANGE);
                }
                words.push(word);
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn push_bytes(&mut self, value: &[u8]) -> Result<(), PayloadFault> {
        match &mut self.data {
            ColumnData::Bytes { offsets, bytes } => {
                let end = i32::try_from(bytes.len() + value.len()).map_err(|_| TOO_LONG)?;
                bytes.extend_from_slice(value);
                offsets.push(end);
            }
            ColumnData::FixedBytes { width, bytes, len } => {
                if value.len() != *width {
                    return Err(WRONG_LENGTH);
                }
                bytes.extend_from_slice(value);
                *len += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a list whose elements were added to its item.
    pub(crate) fn end_list(&mut self) -> Result<(), PayloadFault> {
        match &mut self.data {
            ColumnData::List { offsets, item } => {
                offsets.push(i32::try_from(item.len()).map_err(|_| TOO_LONG)?);
            }
            ColumnData::FixedList { width, item, len } => {
                if item.len() != (*len + 1) * *width {
                    return Err(WRONG_LENGTH);
                }
                *len += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// The elements of a list.
    pub(crate) fn item(&mut self) -> Option<&mut Self> {
        match &mut self.data {
            ColumnData::List { item, .. } | ColumnData::FixedList { item, .. } => Some(item),
            _ => None,
        }
    }

    fn truncate(&mut self, rows: usize) {
        if let Some(valid) = &mut self.valid {
            valid.truncate(rows);
        }
        match &mut self.data {
            ColumnData::Bool(values) => values.truncate(rows),
            ColumnData::Numbers(_, words) => words.truncate(rows),
            ColumnData::Bytes { offsets, bytes } => {
                offsets.truncate(rows + 1);
                bytes.truncate(last(offsets));
            }
            ColumnData::FixedBytes { width, bytes, len } => {
                *len = rows.min(*len);
                bytes.truncate(*len * *width);
            }
            ColumnData::List { offsets, item } => {
                offsets.truncate(rows + 1);
                item.truncate(last(offsets));
            }
            ColumnData::FixedList { width, item, len } => {
                *len = rows.min(*len);
                item.truncate(*len * *width);
            }
            ColumnData::Struct { children, len } => {
                *len = rows.min(*len);
                truncate(children, rows);
            }
        }
    }

    /// The column of this type.
    pub(crate) fn finish(self, of: &DataType) -> Result<ArrayRef, ArrowError> {
        let nulls = self.valid.map(NullBuffer::from).filter(|nulls| nulls.null_count() > 0);
        Ok(match (self.data, of) {
            (ColumnData::Bool(values), _) => Arc::new(BooleanArray::new(values.into(), nulls)),
            (ColumnData::Numbers(_, words), _) => words.finish(of, nulls)?,
            (ColumnData::Bytes { offsets, bytes }, of) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let bytes = Buffer::from_vec(bytes);
                match of {
                    DataType::Utf8 => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
                    _ => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
                }
            }
            (ColumnData::FixedBytes { width, bytes, len }, _) => {
                let bytes = Buffer::from_vec(bytes);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(width as i32, bytes, nulls, len)?)
            }
            (ColumnData::List { offsets, item }, DataType::List(field)) => {
                let items = item.finish(field.data_type())?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(ListArray::try_new(Arc::clone(field), offsets, items, nulls)?)
            }
            (ColumnData::FixedList { width, item, len }, DataType::FixedSizeList(field, _)) => {
                let (field, items) = (Arc::clone(field), item.finish(field.data_type())?);
                let width = width as i32;
                let list =
                    FixedSizeListArray::try_new_with_length(field, width, items, nulls, len)?;
                Arc::new(list)
            }
            (ColumnData::Struct { children, len }, DataType::Struct(fields)) => {
                let children = children.into_iter().zip(fields);
                let children = children.map(|(child, field)| child.finish(field.data_type()));
                let children = children.collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), children, nulls, len)?)
            }
            (_, of) => return Err(mismatch(of)),
        })
    }
}

fn mismatch(of: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("no values of type {of} were collected"))
}

fn last(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| end.unsigned_abs() as usize)
}

#[inline]
fn fits(of: Storage, word: u64) -> bool {
    let signed = word.cast_signed();
    match of {
        Storage::I8 => i8::try_from(signed).is_ok(),
        Storage::I16 => i16::try_from(signed).is_ok(),
        Storage::I32 => i32::try_from(signed).is_ok(),
        Storage::U8 => u8::try_from(word).is_ok(),
        Storage::U16 => u16::try_from(word).is_ok(),
        Storage::U32 | Storage::F32 => u32::try_from(word).is_ok(),
        _ => true,
    }
}

impl NumberColumn {
    fn new(of: Storage) -> Self {
        match of {
            Storage::I8 | Storage::U8 => Self::W1(Vec::new()),
            Storage::I16 | Storage::U16 => Self::W2(Vec::new()),
            Storage::I32 | Storage::U32 | Storage::F32 => Self::W4(Vec::new()),
            _ => Self::W8(Vec::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::W1(words) => words.len(),
            Self::W2(words) => words.len(),
            Self::W4(words) => words.len(),
            Self::W8(words) => words.len(),
        }
    }

    /// The last one.
    pub(crate) fn last(&self) -> u64 {
        let last = match self {
            Self::W1(words) => words.last().map(|word| u64::from(*word)),
            Self::W2(words) => words.last().map(|word| u64::from(*word)),
            Self::W4(words) => words.last().map(|word| u64::from(*word)),
            Self::W8(words) => words.last().copied(),
        };
        last.unwrap_or_default()
    }

    #[inline]
    fn push(&mut self, word: u64) {
        match self {
            Self::W1(words) => words.push(word as u8),
            Self::W2(words) => words.push(word as u16),
            Self::W4(words) => words.push(word as u32),
            Self::W8(words) => words.push(word),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::W1(words) => words.truncate(len),
            Self::W2(words) => words.truncate(len),
            Self::W4(words) => words.truncate(len),
            Self::W8(words) => words.truncate(len),
        }
    }

    fn finish(self, of: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        fn numbers<T: ArrowPrimitiveType>(
            words: Buffer,
            nulls: Option<NullBuffer>,
        ) -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(PrimitiveArray::<T>::try_new(ScalarBuffer::from(words), nulls)?))
        }
        let words = match self {
            Self::W1(words) => Buffer::from_vec(words),
            Self::W2(words) => Buffer::from_vec(words),
            Self::W4(words) => Buffer::from_vec(words),
            Self::W8(words) => Buffer::from_vec(words),
        };
        match of {
            DataType::Int8 => numbers::<Int8Type>(words, nulls),
            DataType::Int16 => numbers::<Int16Type>(words, nulls),
            DataType::Int32 => numbers::<Int32Type>(words, nulls),
            DataType::Int64 => numbers::<Int64Type>(words, nulls),
            DataType::UInt8 => numbers::<UInt8Type>(words, nulls),
            DataType::UInt16 => numbers::<UInt16Type>(words, nulls),
            DataType::UInt32 => numbers::<UInt32Type>(words, nulls),
            DataType::UInt64 => numbers::<UInt64Type>(words, nulls),
            DataType::Float32 => numbers::<Float32Type>(words, nulls),
            DataType::Float64 => numbers::<Float64Type>(words, nulls),
            of => Err(mismatch(of)),
        }
    }
}
