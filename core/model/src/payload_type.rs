//! Converting payloads of a type to Arrow columns and back, with a raw column for those whose
//! columns cannot say all of them. Knows no format.

use std::fmt;
use std::sync::Arc;

use crate::cast::cast;
use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::SchemaRef;

use crate::cast::{as_fields, binary_column};
use crate::raw::{self, RawColumn};
use crate::{Batch, BatchBuilder, ChannelId, Error, MessageType, Payloads, Rows, TypeKey};

/// Turns payloads of one form into Arrow columns, and back.
///
/// [`decode`](Self::decode) and [`encode`](Self::encode) are called on any thread, once per batch
/// and type. They are inverse: a payload that `encode` would not reproduce byte for byte must be
/// refused by `decode`. The schema never changes during a run.
///
/// A payload that does not match its type is not an error: it gets no row, and its position and a
/// reason are added to `bad`. Reasons are fixed strings, without data of the payload, so that they
/// can be counted. `Err` means that no payload of the batch can be handled, and ends the run.
///
/// Most codecs do not implement this trait but describe their payloads with
/// `sluice_kit::columns::PayloadPlan`, which does:
///
/// ```
/// use std::sync::Arc;
///
/// use sluice_kit::columns::{FieldShape, NumberType, PayloadField, PayloadPlan, WireRules};
/// use sluice_model::{BatchBuilder, ChannelId, MessageType, PayloadType, TypeKey};
///
/// let count = PayloadField::new("count", FieldShape::Number(NumberType::U32));
/// let plan = PayloadPlan::compile(WireRules::LITTLE_ENDIAN, &[count]).unwrap();
/// let counter = PayloadType::new(Arc::new(MessageType::named("counter", TypeKey(1))), plan);
///
/// let mut batch = BatchBuilder::default();
/// batch.push_copy(0, 0, ChannelId(0), &7u32.to_le_bytes());
/// batch.push_copy(1, 1, ChannelId(0), b"cut");
/// let mut bad = Vec::new();
/// let rows = counter.decode(&batch.finish(), &[0, 1], &mut bad).unwrap();
/// assert_eq!((rows.events, bad.len()), (vec![0], 1));
///
/// let payloads = counter.encode(&rows.columns, &mut bad).unwrap();
/// assert_eq!(payloads.value(0), 7u32.to_le_bytes());
/// ```
pub trait PayloadForm: Send + Sync + 'static {
    /// Its columns, without the raw column.
    fn schema(&self) -> &SchemaRef;

    /// Decodes the payloads of `events` (positions in `batch`, ascending) into one row each.
    /// Returns the events that could be decoded, and their columns.
    ///
    /// With `raw`, it also decodes payloads that it refuses without, with [`raw::ODD_BOOLEAN`] or
    /// [`raw::NOT_CANONICAL`] as the reason. It appends what the [`RawColumn`] of its
    /// [`PayloadType`] holds of each decoded payload; for [`RawColumn::Payload`] the caller does.
    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error>;

    /// Encodes rows as payloads, one per row; null for a row that cannot be encoded, whose number
    /// and reason are added to `bad`.
    ///
    /// With `raw`, payloads are written with the raw bytes of their row, if these mean the same
    /// values; a form with [`RawColumn::Payload`] is never given one.
    ///
    /// `Err` if no row can be encoded: a column is missing or has the wrong type.
    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String>;
}

/// A type of payloads: its description and the [`PayloadForm`] that decodes and encodes them.
///
/// Clones share everything.
#[derive(Clone)]
pub struct PayloadType {
    message_type: Arc<MessageType>,
    schema: SchemaRef,
    form: Arc<dyn PayloadForm>,
    /// The last column, if it is a raw one.
    raw_column: Option<RawColumn>,
    /// The variant with a raw column.
    raw_variant: Option<Arc<PayloadType>>,
}

impl PayloadType {
    /// The type with this description.
    pub fn new(message_type: Arc<MessageType>, form: impl PayloadForm) -> Self {
        let schema = Arc::clone(form.schema());
        Self { message_type, schema, form: Arc::new(form), raw_column: None, raw_variant: None }
    }

    /// Also decodes payloads whose columns cannot say all of them, with a raw column, as rows of
    /// the type `key`, which the codec must be able to adopt.
    pub fn with_raw_column(self, column: RawColumn, key: TypeKey) -> Self {
        let raw = Self {
            message_type: raw::raw_type(&self.message_type, key),
            schema: column.append_to(&self.schema, self.message_type.key),
            form: Arc::clone(&self.form),
            raw_column: Some(column),
            raw_variant: None,
        };
        Self { raw_variant: Some(Arc::new(raw)), ..self }
    }

    /// The type with this key: itself, or its variant with a raw column.
    pub fn with_key(self, key: TypeKey) -> Self {
        let raw = self.raw_variant().filter(|raw| raw.message_type.key == key);
        raw.cloned().unwrap_or(self)
    }

    /// Its description.
    pub fn message_type(&self) -> &Arc<MessageType> {
        &self.message_type
    }

    /// Its columns. They never change during a run.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The variant of this type for payloads that [`decode`](Self::decode) refuses because their
    /// columns cannot say all of them, with [`raw::ODD_BOOLEAN`] or [`raw::NOT_CANONICAL`] as the
    /// reason: it has an additional column of raw bytes, from which `encode` restores the payload.
    /// `None` if this is that variant, or if columns say all of every payload.
    pub fn raw_variant(&self) -> Option<&Self> {
        self.raw_variant.as_deref()
    }

    /// Like [`PayloadForm::decode`], without the payloads that only the
    /// [variant with a raw column](Self::raw_variant) decodes.
    pub fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error> {
        let mut raw = self.raw_column.map(|_| BinaryBuilder::new());
        let (events, mut columns) = self.form.decode(batch, events, bad, raw.as_mut())?;
        if let Some(mut raw) = raw {
            if self.raw_column == Some(RawColumn::Payload) {
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

    /// Decodes events of one type. Payloads that are refused only because columns cannot say all of
    /// them become rows of their own, with a raw column.
    ///
    /// Like [`decode`](Self::decode), but returns no empty rows.
    pub fn decode_all(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Vec<Rows>, Error> {
        let mut refused = Vec::new();
        let mut all = vec![self.decode(batch, events, &mut refused)?];
        let is_odd = |why: &str| [raw::ODD_BOOLEAN, raw::NOT_CANONICAL].contains(&why);
        let (odd, other): (Vec<_>, _) = refused.into_iter().partition(|(_, why)| is_odd(why));
        bad.extend(other);
        if !odd.is_empty() {
            match &self.raw_variant {
                Some(raw) => {
                    let mut events: Vec<u32> = odd.iter().map(|(event, _)| *event).collect();
                    // A form may refuse some before it refuses others.
                    events.sort_unstable();
                    all.push(raw.decode(batch, &events, bad)?);
                }
                None => bad.extend(odd),
            }
        }
        all.retain(|rows| !rows.events.is_empty());
        Ok(all)
    }

    /// Like [`PayloadForm::encode`]; a raw column is among the columns.
    pub fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        let Some(column) = self.raw_column else { return self.form.encode(columns, bad, None) };
        let name = self.schema.fields().last().map_or(column.name(), |field| field.name());
        let raw = binary_column(columns, name)?;
        match column {
            RawColumn::Payload => self.restore(columns, bad, &raw),
            RawColumn::Booleans | RawColumn::Difference => {
                self.form.encode(columns, bad, Some(&raw))
            }
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
        // Nested fields of what was cast are nullable, and arrays of other types are never equal.
        let each = said.columns().iter().zip(&found);
        let said = each.map(|(said, found)| cast(said, found.data_type()));
        let said = said.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        let is_same = |at: usize, row: usize| {
            let each = found.iter().zip(&said);
            let mut pairs = each.map(|(found, said)| (found.slice(row, 1), said.slice(at, 1)));
            pairs.all(|(found, said)| *found == *said)
        };
        let is_whole = decoded.len() == columns.num_rows() && raw.null_count() == 0;
        let is_fit = !unfit.contains(&true);
        let mut pairs = found.iter().zip(&said);
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

impl fmt::Debug for PayloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.message_type.name, self.message_type.key, self.raw_column)
    }
}
