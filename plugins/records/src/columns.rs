//! Turns valid records into columns, one per field and kind.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use sluice_kit::columns::{
    Extent, FieldShape, NumberView, PayloadField, PayloadPlan, SpanKind, WireRules,
};
use sluice_model::{Batch, Error, Payloads, Rows};

use crate::column::{Arity, RecordColumn, ValueKind};
use crate::format::{RecordFormat, RecordKind};
use crate::options::FieldType;
use crate::walk::WalkSize;
use crate::wire::{BinaryNumber, Endian, NumberType};

/// The metadata key for a column's unit.
pub(crate) const UNIT: &str = "sluice.unit";

/// The rules of described records.
const WIRE: WireRules =
    WireRules { max_columns: usize::MAX, max_fixed_len: usize::MAX, ..WireRules::LITTLE_ENDIAN };

/// The shape of a field of this size. `member` is the index of the member of a register, and the
/// tail after the fields has `tail_len` bytes.
pub(crate) fn shape(
    (kind, word): (FieldType, Option<BinaryNumber>),
    (size, arity): (WalkSize, Arity),
    columns: &[RecordColumn],
    member: impl Fn(usize) -> usize,
    tail_len: usize,
) -> FieldShape {
    let extent = match size {
        WalkSize::Fixed(len) => Extent::Fixed(len),
        WalkSize::Counted { by, .. } => Extent::Counted(member(by)),
        WalkSize::Rest { .. } => Extent::Rest(tail_len),
    };
    let views = columns.iter().filter_map(|column| match column.value {
        ValueKind::Number(kind) => Some(NumberView { name: column.name.clone(), kind }),
        ValueKind::Text | ValueKind::Bytes => None,
    });
    let (of, endian) = match (word, kind) {
        (Some(word), _) => (word.number, word.endian),
        (None, FieldType::Bool) => (NumberType::U8, Endian::Little),
        _ => {
            let kind = match columns.first().map(|column| column.value) {
                Some(ValueKind::Text) => SpanKind::TrimmedText,
                Some(_) => SpanKind::Bytes,
                None => SpanKind::Skipped,
            };
            return FieldShape::Span(kind, extent);
        }
    };
    let number = FieldShape::Number(of);
    let numbers = match (extent, arity) {
        (Extent::Fixed(len), _) if columns.is_empty() => {
            return FieldShape::Span(SpanKind::Skipped, Extent::Fixed(len));
        }
        (Extent::Fixed(_), Arity::Fixed(count)) => FieldShape::Fixed(Box::new(number), count),
        (Extent::Fixed(_), _) => number,
        (Extent::Counted(by), _) => FieldShape::Counted(Box::new(number), by),
        (Extent::Rest(tail), _) => FieldShape::RestList(Box::new(number), tail),
    };
    FieldShape::Views(Box::new(FieldShape::InOrder(endian, Box::new(numbers))), views.collect())
}

/// The plan and the schema of records with these fields.
pub(crate) fn compile(
    fields: &[PayloadField],
    columns: &[RecordColumn],
) -> Result<(PayloadPlan, SchemaRef), String> {
    let plan = PayloadPlan::compile(WIRE, fields)?;
    let unit = |name: &str| columns.iter().find(|column| column.name == name)?.unit.clone();
    let fields = plan.schema().fields().iter().map(|field| match unit(field.name()) {
        Some(unit) => {
            let metadata = [(UNIT.to_owned(), unit)].into();
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        }
        None => Arc::clone(field),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok((plan, schema))
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
        if events.is_empty() || kind.schema.fields().is_empty() {
            continue;
        }
        rows.push(decode(kind, &events, |event| batch.payload(event as usize))?);
    }
    Ok(batch.with_rows(rows))
}

/// The row of one record.
pub(crate) fn row(kind: &RecordKind, record: &[u8]) -> Result<Rows, Error> {
    decode(kind, &[0], |_| record)
}

fn decode<'b>(
    kind: &'b RecordKind,
    events: &[u32],
    record: impl Fn(u32) -> &'b [u8],
) -> Result<Rows, Error> {
    let mut bad = Vec::new();
    let total_len = events.iter().map(|event| record(*event).len()).sum();
    let record = |event| Ok(record(event));
    let (events, columns) = kind.plan.decode(events, total_len, record, &mut bad, None)?;
    debug_assert!(bad.is_empty(), "a classified record does not fit its fields: {bad:?}");
    let options = RecordBatchOptions::new().with_row_count(Some(columns.num_rows()));
    let (schema, arrays) = (Arc::clone(&kind.schema), columns.columns().to_vec());
    let columns = RecordBatch::try_new_with_options(schema, arrays, &options);
    let columns = columns.map_err(|e| Error::internal(e.to_string()))?;
    Ok(Rows { message: Arc::clone(&kind.message), payloads: Payloads::Kept, events, columns })
}

/// The bytes of a field that are its text.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default().trim_ascii_end()
}
