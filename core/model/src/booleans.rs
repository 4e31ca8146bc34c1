//! Booleans encoded as bytes other than 0 and 1: every byte but 0 is true, and rows keep the raw
//! bytes in an extra column, so that the payload can be encoded again. Codecs read payloads, not
//! this module.
//!
//! Only payloads with such booleans are decoded to a type with this column
//! ([`PayloadType::with_raw_booleans`]).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{Batch, Error, MessageType, PayloadType, Rows, TypeKey};

/// The reason for refusing a payload with a boolean that is neither 0 nor 1.
pub const ODD_BOOLEAN: &str = "a boolean is neither 0 nor 1";

/// The name of the column of raw booleans.
pub const RAW_BOOLEANS: &str = "raw_booleans";
/// The key in that column's metadata that holds the key of the base type.
const BASE: &str = "sluice.raw_booleans";

/// Whether this is the column of raw booleans, which is hidden from users and text formats.
pub fn is_raw(field: &Field) -> bool {
    field.metadata().contains_key(BASE)
}

/// These columns, followed by the column of raw booleans.
pub fn with_column(columns: &SchemaRef, base: TypeKey) -> SchemaRef {
    let mut name = RAW_BOOLEANS.to_owned();
    while columns.column_with_name(&name).is_some() {
        name.push('_');
    }
    let metadata = HashMap::from([(BASE.to_owned(), base.to_string())]);
    let field = Field::new(name, DataType::Binary, false).with_metadata(metadata);
    let fields = columns.fields().iter().cloned().chain([Arc::new(field)]);
    Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()))
}

/// The type of rows with raw booleans. `key` must differ from that of the base type.
pub fn raw_type(base: &MessageType, key: TypeKey) -> Arc<MessageType> {
    Arc::new(MessageType { key, ..base.clone() })
}

/// A key for the type of rows with raw booleans, for codecs that have none of their own.
pub fn raw_key(base: TypeKey) -> TypeKey {
    TypeKey::from_parts([RAW_BOOLEANS.as_bytes(), &base.0.to_be_bytes()])
}

/// The raw booleans of a row; empty for null.
pub fn raw_value(column: &BinaryArray, row: usize) -> &[u8] {
    if row < column.len() && column.is_valid(row) { column.value(row) } else { &[] }
}

/// Whether these bytes are a true boolean.
pub fn is_true(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != 0)
}

/// The batch without its columns of raw booleans, for code that encodes no payloads.
pub fn drop_raw_columns(batch: Batch) -> Batch {
    let has_raw = |rows: &Rows| rows.columns.schema_ref().fields().iter().any(|f| is_raw(f));
    if !batch.rows().iter().any(has_raw) {
        return batch;
    }
    let rows = batch.rows().iter().map(Rows::without_raw_booleans).collect();
    batch.with_rows(rows)
}

/// Decodes events of one type. Payloads that are refused only because of a boolean become rows of
/// their own, with raw booleans.
///
/// Like [`PayloadType::decode`], but returns no empty rows.
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
    /// The key of the rows' type, or of its base type if they have raw booleans.
    pub fn base_key(&self) -> TypeKey {
        let schema = self.columns.schema_ref();
        let last = schema.fields().last().and_then(|field| field.metadata().get(BASE));
        last.and_then(|key| TypeKey::parse(key)).unwrap_or(self.message.key)
    }

    /// The rows without raw booleans, as rows of their base type.
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
