//! Implements [`PayloadType`] on top of a [`PayloadForm`], in both variants: for valid payloads,
//! and for those that need a raw column.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use sluice_model::raw::{self, RawColumn};
use sluice_model::{
    Batch, BatchBuilder, ChannelId, Error, MessageType, PayloadType, Payloads, Rows, TypeKey,
};

use crate::columns::{as_fields, binary_column};

/// Decodes and encodes payloads of one type, with or without a raw column.
pub trait PayloadForm: Send + Sync + 'static {
    /// Its columns, without the raw column.
    fn schema(&self) -> &SchemaRef;

    /// Like [`PayloadType::decode`]; returns the events that could be decoded, and their columns.
    ///
    /// With `raw`, it also decodes payloads that [`PayloadType::with_raw_column`] is for, and
    /// appends what [`RawColumn`] says of each decoded payload; for [`RawColumn::Payload`] the
    /// caller does.
    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error>;

    /// Like [`PayloadType::encode`]. With `raw`, booleans are written with the raw bytes of their
    /// row, if these mean the same values; a form with [`RawColumn::Payload`] is never given one.
    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String>;
}

/// How payloads are handled whose columns cannot say all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OddPayloads {
    /// They are refused.
    Refused,
    /// They are decoded as the type with this key, which has this raw column.
    Elsewhere(RawColumn, TypeKey),
    /// They are decoded, with this raw column as the last one.
    Kept(RawColumn),
}

/// A payload type implemented by a [`PayloadForm`].
pub struct FormType<F> {
    message_type: Arc<MessageType>,
    schema: SchemaRef,
    form: Arc<F>,
    odd_payloads: OddPayloads,
}

impl<F: PayloadForm> FormType<F> {
    /// The type with this description.
    pub fn new(described: Arc<MessageType>, form: F) -> Self {
        let schema = Arc::clone(form.schema());
        Self {
            message_type: described,
            schema,
            form: Arc::new(form),
            odd_payloads: OddPayloads::Refused,
        }
    }

    /// Also decodes payloads whose columns cannot say all of them, with a raw column, as rows of
    /// the type `key`, which the codec must be able to adopt.
    pub fn with_raw_column_as(mut self, column: RawColumn, key: TypeKey) -> Self {
        self.odd_payloads = OddPayloads::Elsewhere(column, key);
        self
    }
}

impl<F: PayloadForm> FormType<F> {
    /// The type with this key: itself, or that of its rows with a raw column.
    pub fn with_key(self, key: TypeKey) -> Arc<dyn PayloadType> {
        let raw = self.with_raw_column().filter(|raw| raw.message_type().key == key);
        raw.unwrap_or_else(|| Arc::new(self))
    }
}

impl<F> fmt::Debug for FormType<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.message_type.name, self.message_type.key, self.odd_payloads)
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
        let kept = self.kept_column();
        let mut raw = kept.map(|_| BinaryBuilder::new());
        let (events, mut columns) = self.form.decode(batch, events, bad, raw.as_mut())?;
        if let Some(mut raw) = raw {
            if kept == Some(RawColumn::Payload) {
                let payloads = events.iter().map(|event| batch.payload(*event as usize));
                payloads.for_each(|payload| raw.append_value(payload));
            }
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
        let raw = |kept| raw_column(&self.schema, columns, kept);
        match self.kept_column() {
            None => self.form.encode(columns, bad, None),
            Some(RawColumn::Payload) => self.restore(columns, bad, &raw(RawColumn::Payload)?),
            Some(kept) => self.form.encode(columns, bad, Some(&raw(kept)?)),
        }
    }

    fn with_raw_column(&self) -> Option<Arc<dyn PayloadType>> {
        let OddPayloads::Elsewhere(column, key) = self.odd_payloads else { return None };
        Some(Arc::new(Self {
            message_type: raw::raw_type(&self.message_type, key),
            schema: column.append_to(&self.schema, self.message_type.key),
            form: Arc::clone(&self.form),
            odd_payloads: OddPayloads::Kept(column),
        }))
    }
}

impl<F: PayloadForm> FormType<F> {
    fn kept_column(&self) -> Option<RawColumn> {
        match self.odd_payloads {
            OddPayloads::Kept(column) => Some(column),
            OddPayloads::Refused | OddPayloads::Elsewhere(..) => None,
        }
    }

    /// The payloads of rows: the raw ones if they still say what the other columns do, which stages
    /// may have changed, or else those columns encoded.
    fn restore(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: &BinaryArray,
    ) -> Result<BinaryArray, String> {
        let (decoded, said) = self.raw_rows(raw)?;
        let mut unfit = vec![false; columns.num_rows()];
        let found = as_fields(columns, self.form.schema().fields(), &mut unfit)?;
        let is_same = |at: usize, row: usize| {
            let each = found.iter().zip(said.columns());
            let mut pairs = each.map(|(found, said)| (found.slice(row, 1), said.slice(at, 1)));
            pairs.all(|(found, said)| *found == *said)
        };
        let is_whole = decoded.len() == columns.num_rows() && raw.null_count() == 0;
        let is_fit = !unfit.contains(&true);
        let mut pairs = found.iter().zip(said.columns());
        if is_whole && is_fit && pairs.all(|(found, said)| **found == **said) {
            return Ok(raw.clone());
        }
        let mut same = vec![false; columns.num_rows()];
        for (at, row) in decoded.iter().map(|row| *row as usize).enumerate() {
            same[row] = !unfit[row] && raw.is_valid(row) && is_same(at, row);
        }
        let mut refused = Vec::new();
        let encoded = self.form.encode(columns, &mut refused, None)?;
        bad.extend(refused.into_iter().filter(|(row, _)| !same[*row as usize]));
        let payload = |(row, same): (usize, &bool)| match same {
            true => Some(raw.value(row)),
            false => encoded.is_valid(row).then(|| encoded.value(row)),
        };
        Ok(same.iter().enumerate().map(payload).collect())
    }

    /// The rows of raw payloads that can be decoded, as their indices and columns.
    fn raw_rows(&self, raw: &BinaryArray) -> Result<(Vec<u32>, RecordBatch), String> {
        let mut batch = BatchBuilder::with_capacity(raw.len());
        (0..raw.len())
            .for_each(|row| batch.push_copy(0, 0, ChannelId(0), raw::raw_value(raw, row)));
        let all: Vec<u32> = (0..).take(raw.len()).collect();
        let (mut bad, mut other) = (Vec::new(), BinaryBuilder::new());
        let rows = self.form.decode(&batch.finish(), &all, &mut bad, Some(&mut other));
        rows.map_err(|e| e.to_string())
    }
}

/// The raw column of rows that are to be encoded with this schema.
///
/// `Err` says why there is no such column.
fn raw_column(
    schema: &Schema,
    columns: &RecordBatch,
    kept: RawColumn,
) -> Result<BinaryArray, String> {
    let name = schema.fields().last().map_or(kept.name(), |field| field.name());
    binary_column(columns, name)
}
