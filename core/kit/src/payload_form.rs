//! Implements [`PayloadType`] on top of a [`PayloadForm`], in both variants: for valid payloads,
//! and for those with raw booleans.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use sluice_model::booleans::{self, RAW_BOOLEANS};
use sluice_model::{Batch, Error, MessageType, PayloadType, Payloads, Rows, TypeKey};

use crate::columns::as_type;

/// Decodes and encodes payloads of one type, with or without raw booleans.
pub trait PayloadForm: Send + Sync + 'static {
    /// Its columns, without the column of raw booleans.
    fn schema(&self) -> &SchemaRef;

    /// Like [`PayloadType::decode`]; returns the events that could be decoded, and their columns.
    ///
    /// With `raw`, booleans may be any bytes, and those of each decoded payload are appended to it.
    /// Without it, a payload with a boolean other than 0 and 1 is refused with
    /// [`booleans::ODD_BOOLEAN`].
    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error>;

    /// Like [`PayloadType::encode`]. With `raw`, booleans are written with the raw bytes of their
    /// row, if these mean the same values.
    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String>;
}

/// How payloads with booleans other than 0 and 1 are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OddBooleans {
    /// They are refused.
    Refused,
    /// They are decoded as the type with this key.
    Elsewhere(TypeKey),
    /// They are decoded, with raw booleans in the last column.
    Kept,
}

/// A payload type implemented by a [`PayloadForm`].
pub struct FormType<F> {
    message_type: Arc<MessageType>,
    schema: SchemaRef,
    form: Arc<F>,
    odd_booleans: OddBooleans,
}

impl<F: PayloadForm> FormType<F> {
    /// The type with this description.
    pub fn new(described: Arc<MessageType>, form: F) -> Self {
        let schema = Arc::clone(form.schema());
        Self {
            message_type: described,
            schema,
            form: Arc::new(form),
            odd_booleans: OddBooleans::Refused,
        }
    }

    /// Also decodes payloads with booleans other than 0 and 1, as rows of the type `key`, which the
    /// codec must be able to adopt.
    pub fn with_raw_booleans_as(mut self, key: TypeKey) -> Self {
        self.odd_booleans = OddBooleans::Elsewhere(key);
        self
    }
}

impl<F: PayloadForm> FormType<F> {
    /// The type with this key: itself, or that of its rows with raw booleans.
    pub fn with_key(self, key: TypeKey) -> Arc<dyn PayloadType> {
        let raw = self.with_raw_booleans().filter(|raw| raw.message_type().key == key);
        raw.unwrap_or_else(|| Arc::new(self))
    }
}

impl<F> fmt::Debug for FormType<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.message_type.name, self.message_type.key, self.odd_booleans)
    }
}

impl<F: PayloadForm> PayloadType for FormType<F> {
    fn message_type(&self) -> &Arc<MessageType> {
        &self.message_type
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error> {
        let mut raw = (self.odd_booleans == OddBooleans::Kept).then(BinaryBuilder::new);
        let (events, mut columns) = self.form.decode(batch, events, bad, raw.as_mut())?;
        if let Some(mut raw) = raw {
            let mut all = columns.columns().to_vec();
            all.push(Arc::new(raw.finish()));
            let with_raw = RecordBatch::try_new(Arc::clone(&self.schema), all);
            columns = with_raw.map_err(|e| Error::internal(e.to_string()))?;
        }
        let message = Arc::clone(&self.message_type);
        Ok(Rows { message, payloads: Payloads::Kept, events, columns })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        let is_raw = self.odd_booleans == OddBooleans::Kept;
        let raw = is_raw.then(|| raw_column(&self.schema, columns)).transpose()?;
        self.form.encode(columns, bad, raw.as_ref())
    }

    fn with_raw_booleans(&self) -> Option<Arc<dyn PayloadType>> {
        let OddBooleans::Elsewhere(key) = self.odd_booleans else { return None };
        Some(Arc::new(Self {
            message_type: booleans::raw_type(&self.message_type, key),
            schema: booleans::with_column(&self.schema, self.message_type.key),
            form: Arc::clone(&self.form),
            odd_booleans: OddBooleans::Kept,
        }))
    }
}

/// The column of raw booleans of rows that are to be encoded with this schema.
///
/// `Err` says why there is no such column.
fn raw_column(schema: &Schema, columns: &RecordBatch) -> Result<BinaryArray, String> {
    let name = schema.fields().last().map_or(RAW_BOOLEANS, |field| field.name());
    let column =
        columns.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    let mut unfit = vec![false; columns.num_rows()];
    let column = as_type(column, &DataType::Binary, &mut unfit);
    let column = column.map_err(|reason| format!("column `{name}`: {reason}"))?;
    Ok(column.as_binary::<i32>().clone())
}
