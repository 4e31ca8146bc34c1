//! Payloads that say more than columns can: rows keep the raw bytes in an extra column, so that the
//! payload can be encoded again. Codecs read payloads, not this module.
//!
//! | [`RawColumn`] | payloads |
//! |---|---|
//! | [`Booleans`](RawColumn::Booleans) | with booleans other than 0 and 1, which are true |
//! | [`Payload`](RawColumn::Payload) | not what columns encode to: unknown fields, other orders |
//! | [`Difference`](RawColumn::Difference) | the same, but for few bytes: padding, byte order |
//!
//! Only such payloads are decoded to a type with this column ([`PayloadType::raw_variant`]).
//!
//! [`PayloadType::raw_variant`]: crate::PayloadType::raw_variant

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{Batch, MessageType, Rows, TypeKey};

/// The reason for refusing a payload with a boolean that is neither 0 nor 1.
pub const ODD_BOOLEAN: &str = "a boolean is neither 0 nor 1";

/// The reason for refusing a payload that can be decoded, but whose columns encode to other bytes.
pub const NOT_CANONICAL: &str = "its fields would be encoded as other bytes";

/// What a raw column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawColumn {
    /// The bytes of all booleans, in order; for payloads refused as [`ODD_BOOLEAN`].
    Booleans,
    /// The whole payload; for payloads refused as [`NOT_CANONICAL`].
    Payload,
    /// What differs between the payload and what its columns encode to, in a form of the codec's
    /// own; for payloads refused as [`NOT_CANONICAL`].
    Difference,
}

impl RawColumn {
    const ALL: [Self; 3] = [Self::Booleans, Self::Payload, Self::Difference];

    /// The name of the column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Booleans => "raw_booleans",
            Self::Payload => "raw_payload",
            Self::Difference => "raw_difference",
        }
    }

    /// The key in the column's metadata that holds the key of the base type.
    const fn base(self) -> &'static str {
        match self {
            Self::Booleans => "sluice.raw_booleans",
            Self::Payload => "sluice.raw_payload",
            Self::Difference => "sluice.raw_difference",
        }
    }

    /// These columns, followed by the raw column.
    pub fn append_to(self, columns: &SchemaRef, base: TypeKey) -> SchemaRef {
        let mut name = self.name().to_owned();
        while columns.column_with_name(&name).is_some() {
            name.push('_');
        }
        let metadata = HashMap::from([(self.base().to_owned(), base.to_string())]);
        let field = Field::new(name, DataType::Binary, false).with_metadata(metadata);
        let fields = columns.fields().iter().cloned().chain([Arc::new(field)]);
        Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()))
    }

    /// A key for the type of rows with this column, for codecs that have none of their own.
    pub fn key(self, base: TypeKey) -> TypeKey {
        TypeKey::from_parts([self.name().as_bytes(), &base.0.to_be_bytes()])
    }
}

/// The key of the base type in the metadata of a raw column.
fn base_of(field: &Field) -> Option<&String> {
    RawColumn::ALL.iter().find_map(|column| field.metadata().get(column.base()))
}

/// Whether this is a raw column, which is hidden from users and text formats.
pub fn is_raw(field: &Field) -> bool {
    base_of(field).is_some()
}

/// The type of rows with a raw column. `key` must differ from that of the base type.
pub fn raw_type(base: &MessageType, key: TypeKey) -> Arc<MessageType> {
    Arc::new(MessageType { key, ..base.clone() })
}

/// The raw bytes of a row; empty for null.
pub fn raw_value(column: &BinaryArray, row: usize) -> &[u8] {
    if row < column.len() && column.is_valid(row) { column.value(row) } else { &[] }
}

/// Whether these bytes are a true boolean.
pub fn is_true(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != 0)
}

/// The batch without its raw columns, for code that encodes no payloads.
pub fn drop_raw_columns(batch: Batch) -> Batch {
    let has_raw = |rows: &Rows| rows.columns.schema_ref().fields().iter().any(|f| is_raw(f));
    if !batch.rows().iter().any(has_raw) {
        return batch;
    }
    let rows = batch.rows().iter().map(Rows::without_raw_column).collect();
    batch.with_rows(rows)
}

impl Rows {
    /// The key of the rows' type, or of its base type if they have a raw column.
    pub fn base_key(&self) -> TypeKey {
        let schema = self.columns.schema_ref();
        let last = schema.fields().last().and_then(|field| base_of(field));
        last.and_then(|key| TypeKey::parse(key)).unwrap_or(self.message.key)
    }

    /// The rows without their raw column, as rows of their base type.
    pub fn without_raw_column(&self) -> Self {
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
