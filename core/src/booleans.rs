//! Booleans that are neither 0 nor 1: every byte but 0 is true, and rows keep the bytes beside the values, so that
//! the same payload can be made again. Reads no payload: codecs do.
//!
//! Only payloads that have such booleans are decoded to a type with this column
//! ([`PayloadType::with_raw_booleans`]); all others have the columns they would have without it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::layout::as_type;
use crate::{Batch, Error, MessageType, PayloadType, Rows, TypeKey};

/// Why a payload is refused of which a boolean is neither 0 nor 1.
pub const ODD_BOOLEAN: &str = "a boolean is neither 0 nor 1";

/// The name of the column with the booleans' bytes.
const NAME: &str = "raw_booleans";
/// The key of that column's metadata under which the number of the type without it stands.
const BASE: &str = "sluice.raw_booleans";

/// Whether this is the column of the booleans' bytes: people and texts are not shown it.
pub fn is_raw(field: &Field) -> bool {
    field.metadata().contains_key(BASE)
}

/// These columns, and the one of the booleans' bytes behind them.
pub fn with_column(columns: &SchemaRef, base: TypeKey) -> SchemaRef {
    let mut name = NAME.to_owned();
    while columns.column_with_name(&name).is_some() {
        name.push('_');
    }
    let metadata = HashMap::from([(BASE.to_owned(), base.to_string())]);
    let field = Field::new(name, DataType::Binary, false).with_metadata(metadata);
    let fields = columns.fields().iter().cloned().chain([Arc::new(field)]);
    Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()))
}

/// The type of rows with the booleans' bytes. `key` is its number, another one than that of the base type.
pub fn raw_type(base: &MessageType, key: TypeKey) -> Arc<MessageType> {
    Arc::new(MessageType { key, ..base.clone() })
}

/// A number for the type of rows with the booleans' bytes, where a codec has none of its own for it.
pub fn raw_key(base: TypeKey) -> TypeKey {
    TypeKey::from_parts([NAME.as_bytes(), &base.0.to_be_bytes()])
}

/// The booleans' bytes of rows that a type with this schema is to make payloads of.
///
/// `Err` says why they cannot be those.
pub fn raw_column(schema: &Schema, columns: &RecordBatch) -> Result<BinaryArray, String> {
    let name = schema.fields().last().map_or(NAME, |field| field.name());
    let column =
        columns.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    let mut unfit = vec![false; columns.num_rows()];
    let column = as_type(column, &DataType::Binary, &mut unfit);
    let column = column.map_err(|reason| format!("column `{name}`: {reason}"))?;
    Ok(column.as_binary::<i32>().clone())
}

/// The booleans' bytes of a row; none where there is null.
pub fn raw_value(column: &BinaryArray, row: usize) -> &[u8] {
    if row < column.len() && column.is_valid(row) { column.value(row) } else { &[] }
}

/// Whether these bytes are a boolean that is true.
pub fn is_true(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != 0)
}

/// The batch with rows as they would be without the booleans' bytes, for whoever makes no payloads of them.
pub fn drop_raw_columns(batch: Batch) -> Batch {
    let has_raw = |rows: &Rows| rows.columns.schema_ref().fields().iter().any(|f| is_raw(f));
    if !batch.rows().iter().any(has_raw) {
        return batch;
    }
    let rows = batch.rows().iter().map(Rows::without_raw_booleans).collect();
    batch.with_rows(rows)
}

/// The rows of events with their type; those of which only a boolean keeps them from being decoded are rows of
/// their own, with the booleans' bytes.
///
/// As [`PayloadType::decode`], and never with rows of no events.
pub fn decode(
    form: &dyn PayloadType,
    batch: &Batch,
    events: &[u32],
    bad: &mut Vec<(u32, &'static str)>,
) -> Result<Vec<Rows>, Error> {
    let mut refused = Vec::new();
    let mut all = vec![form.decode(batch, events, &mut refused)?];
    let (odd, other): (Vec<_>, _) = refused.into_iter().partition(|(_, why)| *why == ODD_BOOLEAN);
    bad.extend(other);
    if !odd.is_empty() {
        match form.with_raw_booleans() {
            Some(raw) => {
                let events: Vec<u32> = odd.iter().map(|(event, _)| *event).collect();
                all.push(raw.decode(batch, &events, bad)?);
            }
            None => bad.extend(odd),
        }
    }
    all.retain(|rows| !rows.events.is_empty());
    Ok(all)
}

impl Rows {
    /// The number of the rows' type, without the booleans' bytes if they have them.
    pub fn base_key(&self) -> TypeKey {
        let schema = self.columns.schema_ref();
        let last = schema.fields().last().and_then(|field| field.metadata().get(BASE));
        last.and_then(|key| TypeKey::parse(key)).unwrap_or(self.message.key)
    }

    /// The rows without the booleans' bytes, as those of their base type; as they are if they have none.
    pub fn without_raw_booleans(&self) -> Self {
        let fields = self.columns.num_columns();
        let kept: Vec<usize> =
            (0..fields).filter(|at| !is_raw(self.columns.schema_ref().field(*at))).collect();
        if kept.len() == fields {
            return self.clone();
        }
        let message = raw_type(&self.message, self.base_key());
        let columns = self.columns.project(&kept).unwrap_or_else(|_| self.columns.clone());
        Self { message, columns, events: self.events.clone(), payloads: self.payloads }
    }
}
