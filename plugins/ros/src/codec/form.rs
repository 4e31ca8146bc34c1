//! A type's payloads as columns. Those that encoding does not reproduce, such as big-endian ones
//! and those with other padding than zeros, get a further column with what differs.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_arrays;
use sluice_kit::columns::{Endian, PayloadFault, binary_column};
use sluice_model::raw::{self, NOT_CANONICAL, RawColumn};
use sluice_model::{Batch, Error, MessageType, PayloadType, Payloads, Rows, TypeKey};

use super::difference::{append_difference, restore};
use super::wire::Plans;

/// A type of ROS messages.
#[derive(Debug)]
pub(super) struct RosType {
    message_type: Arc<MessageType>,
    schema: SchemaRef,
    plans: Arc<Plans>,
    has_differences: bool,
}

impl RosType {
    /// The type for the payloads that encoding reproduces.
    pub(super) fn new(message_type: Arc<MessageType>, plans: Plans) -> Self {
        let schema = Arc::clone(plans.exact.schema());
        Self { message_type, schema, plans: Arc::new(plans), has_differences: false }
    }

    /// The type with this key: itself, or that of its rows with differences.
    pub(super) fn with_key(self, key: TypeKey) -> Arc<dyn PayloadType> {
        if key == self.message_type.key { Arc::new(self) } else { Arc::new(self.differing()) }
    }

    fn differing(&self) -> Self {
        let base = self.message_type.key;
        Self {
            message_type: raw::raw_type(&self.message_type, RawColumn::Difference.key(base)),
            schema: RawColumn::Difference.append_to(&self.schema, base),
            plans: Arc::clone(&self.plans),
            has_differences: true,
        }
    }
}

impl PayloadType for RosType {
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
        let payload = |event: u32| batch.payload(event as usize);
        let (events, columns) = if self.has_differences {
            self.plans.decode_differing(events, payload, bad, &self.schema)?
        } else {
            let mut refused = Vec::new();
            let decoded = self.plans.decode_exact(events, payload, &mut refused)?;
            // The other variant says what is wrong with them, if anything.
            bad.extend(refused.into_iter().map(|(event, _)| (event, NOT_CANONICAL)));
            decoded
        };
        let message = Arc::clone(&self.message_type);
        Ok(Rows { message, payloads: Payloads::Kept, events, columns })
    }

    fn with_raw_column(&self) -> Option<Arc<dyn PayloadType>> {
        (!self.has_differences).then(|| Arc::new(self.differing()) as _)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        let payloads = self.plans.encode(columns, bad)?;
        if !self.has_differences {
            return Ok(payloads);
        }
        let differences = last_column(&self.schema, columns)?;
        self.plans.restore(&payloads, &differences)
    }
}

/// The column of differences of rows that are to be encoded with this schema.
fn last_column(schema: &SchemaRef, columns: &RecordBatch) -> Result<BinaryArray, String> {
    let name = schema.fields().last().map_or("", |field| field.name());
    binary_column(columns, name)
}

type DecodedRows = (Vec<u32>, RecordBatch);

/// The bytes of these payloads.
fn total_len<'b>(events: &[u32], payload: impl Fn(u32) -> &'b [u8]) -> usize {
    events.iter().map(|event| payload(*event).len()).sum()
}

impl Plans {
    fn decode_exact<'b>(
        &'b self,
        events: &[u32],
        payload: impl Fn(u32) -> &'b [u8],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<DecodedRows, Error> {
        let head = self.generation.head();
        let body = |event| payload(event).strip_prefix(head).ok_or(NOT_CANONICAL);
        let total_len = total_len(events, &payload);
        self.exact.decode(events, total_len, body, bad, None)
    }

    /// Decodes payloads of both byte orders, and with any padding.
    fn decode_lenient<'b>(
        &'b self,
        events: &[u32],
        payload: impl Fn(u32) -> &'b [u8],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<DecodedRows, Error> {
        let mut by_order = [(Endian::Little, Vec::new()), (Endian::Big, Vec::new())];
        for event in events {
            match self.generation.body(payload(*event)) {
                Ok((Endian::Little, _)) => by_order[0].1.push(*event),
                Ok((Endian::Big, _)) => by_order[1].1.push(*event),
                Err(why) => bad.push((*event, why)),
            }
        }
        let mut decoded = Vec::new();
        for (endian, events) in by_order.into_iter().filter(|(_, events)| !events.is_empty()) {
            let body = |event| self.generation.body(payload(event)).map(|(_, body)| body);
            let total_len = total_len(&events, &payload);
            decoded.push(self.lenient(endian).decode(&events, total_len, body, bad, None)?);
        }
        match <[DecodedRows; 2]>::try_from(decoded) {
            Ok([little, big]) => merged(little, big),
            Err(mut one) => Ok(one.pop().unwrap_or_else(|| {
                (Vec::new(), RecordBatch::new_empty(Arc::clone(self.exact.schema())))
            })),
        }
    }

    /// Decodes payloads of both byte orders, with what differs from those that encoding gives.
    fn decode_differing<'b>(
        &'b self,
        events: &[u32],
        payload: impl Fn(u32) -> &'b [u8],
        bad: &mut Vec<(u32, PayloadFault)>,
        schema: &SchemaRef,
    ) -> Result<DecodedRows, Error> {
        let internal = |e: String| Error::internal(e);
        let (mut events, mut columns) = self.decode_lenient(events, &payload, bad)?;
        let mut failed = Vec::new();
        let encoded = self.encode(&columns, &mut failed).map_err(internal)?;
        if !failed.is_empty() {
            let good: Vec<u32> =
                (0..events.len() as u32).filter(|row| encoded.is_valid(*row as usize)).collect();
            bad.extend(failed.iter().map(|(row, why)| (events[*row as usize], *why)));
            events = good.iter().map(|row| events[*row as usize]).collect();
            columns = picked(&columns, good)?;
        }
        let (mut differences, mut difference) = (BinaryBuilder::new(), Vec::new());
        for (event, encoded) in events.iter().zip(encoded.iter().flatten()) {
            difference.clear();
            append_difference(encoded, payload(*event), &mut difference);
            differences.append_value(&difference);
        }
        let mut all = columns.columns().to_vec();
        all.push(Arc::new(differences.finish()));
        let columns = RecordBatch::try_new(Arc::clone(schema), all);
        Ok((events, columns.map_err(|e| internal(e.to_string()))?))
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<BinaryArray, String> {
        let head = self.generation.head();
        self.exact.encode(columns, bad, |rows, row, out| {
            out.extend_from_slice(head);
            rows.write(row, None, out)
        })
    }

    /// The payloads that differences restore, as far as they still mean the same values.
    fn restore(
        &self,
        encoded: &BinaryArray,
        differences: &BinaryArray,
    ) -> Result<BinaryArray, String> {
        let restored = |(row, encoded): (usize, Option<&[u8]>)| {
            let has_one = row < differences.len() && differences.is_valid(row);
            let difference = has_one.then(|| differences.value(row));
            restore(encoded?, difference?).unwrap_or_default().into()
        };
        let restored: Vec<Option<Vec<u8>>> = encoded.iter().enumerate().map(restored).collect();
        let (events, mut bad): (Vec<u32>, _) = ((0..restored.len() as u32).collect(), Vec::new());
        let payload =
            |row: u32| restored.get(row as usize).and_then(Option::as_deref).unwrap_or_default();
        let decoded = self.decode_lenient(&events, payload, &mut bad);
        let (rows, columns) = decoded.map_err(|e| e.to_string())?;
        let again = self.encode(&columns, &mut bad)?;
        let mut same = vec![false; restored.len()];
        for (row, again) in rows.iter().zip(again.iter()) {
            let at = *row as usize;
            same[at] = encoded.is_valid(at) && again == Some(encoded.value(at));
        }
        let rows = encoded.iter().zip(&restored).zip(same);
        Ok(rows
            .map(|((encoded, restored), same)| if same { restored.as_deref() } else { encoded })
            .collect())
    }
}

/// Rows of two decodings in the order of their events.
fn merged(a: DecodedRows, b: DecodedRows) -> Result<DecodedRows, Error> {
    let columns =
        concat_batches(&a.1.schema(), [&a.1, &b.1]).map_err(|e| Error::internal(e.to_string()))?;
    let mut order: Vec<(u32, u32)> = a.0.into_iter().chain(b.0).zip(0..).collect();
    order.sort_unstable();
    let (events, rows): (Vec<u32>, Vec<u32>) = order.into_iter().unzip();
    Ok((events, picked(&columns, rows)?))
}

/// These rows. A message without fields has rows but no columns.
fn picked(columns: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let arrays = take_arrays(columns.columns(), &UInt32Array::from(rows), None);
    let picked = arrays
        .and_then(|arrays| RecordBatch::try_new_with_options(columns.schema(), arrays, &options));
    picked.map_err(|e| Error::internal(e.to_string()))
}
