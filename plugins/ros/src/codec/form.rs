//! A type's payloads as columns. Those that encoding does not reproduce, such as big-endian ones
//! and those with other padding than zeros, get a further column with what differs.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_arrays;
use sluice_kit::columns::{Endian, PayloadFault};
use sluice_model::raw::NOT_CANONICAL;
use sluice_model::{Batch, Error, PayloadForm};

use super::difference::{append_difference, restore};
use super::wire::Plans;

impl PayloadForm for Plans {
    fn schema(&self) -> &SchemaRef {
        self.exact.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<DecodedRows, Error> {
        let payload = |event: u32| batch.payload(event as usize);
        if let Some(differences) = raw {
            return self.decode_differing(events, payload, bad, differences);
        }
        let mut refused = Vec::new();
        let decoded = self.decode_exact(events, payload, &mut refused)?;
        // Decoding with differences says what is wrong with them, if anything.
        bad.extend(refused.into_iter().map(|(event, _)| (event, NOT_CANONICAL)));
        Ok(decoded)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let payloads = self.encode_exact(columns, bad)?;
        match raw {
            Some(differences) => self.restore(&payloads, differences),
            None => Ok(payloads),
        }
    }
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
        differences: &mut BinaryBuilder,
    ) -> Result<DecodedRows, Error> {
        let (mut events, mut columns) = self.decode_lenient(events, &payload, bad)?;
        let mut failed = Vec::new();
        let encoded = self.encode_exact(&columns, &mut failed).map_err(Error::internal)?;
        if !failed.is_empty() {
            let good: Vec<u32> =
                (0..events.len() as u32).filter(|row| encoded.is_valid(*row as usize)).collect();
            bad.extend(failed.iter().map(|(row, why)| (events[*row as usize], *why)));
            events = good.iter().map(|row| events[*row as usize]).collect();
            columns = picked(&columns, good)?;
        }
        let mut difference = Vec::new();
        for (event, encoded) in events.iter().zip(encoded.iter().flatten()) {
            difference.clear();
            append_difference(encoded, payload(*event), &mut difference);
            differences.append_value(&difference);
        }
        Ok((events, columns))
    }

    fn encode_exact(
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
        let again = self.encode_exact(&columns, &mut bad)?;
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
