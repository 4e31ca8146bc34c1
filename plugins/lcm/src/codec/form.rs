//! The payload form of an LCM type: decodes and encodes its messages, including those with booleans
//! other than 0 and 1.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::SchemaRef;
use sluice_core::payload_form::PayloadForm;
use sluice_core::{Batch, BatchBuilder, ChannelId, Error, booleans};

use super::plan::MessagePlan;
use super::wire::PayloadFault;
use super::{decode, encode, raw_booleans};
use crate::types::Library;

/// An LCM type with its compiled plan.
pub(crate) struct LcmForm {
    pub(crate) fingerprint: u64,
    pub(crate) library: Arc<Library>,
    pub(crate) plan: MessagePlan,
}

impl LcmForm {
    fn decode_plain(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let decoder = decode::Decoder::new(&self.plan, &self.library);
        let decoded = decoder.decode(batch, events, bad);
        decoded.map_err(|e| Error::internal(e.to_string()))
    }

    /// Decodes copies of the messages in which every boolean is 0 or 1.
    fn decode_raw(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: &mut BinaryBuilder,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let (mut normalized, mut raws, mut normalized_events) =
            (BatchBuilder::default(), Vec::new(), Vec::new());
        for event in events {
            let payload = batch.payload(*event as usize);
            match raw_booleans::normalize(&self.plan, &self.library, payload) {
                Ok((payload, raw)) => {
                    normalized.push_copy(0, i64::from(*event), ChannelId(0), &payload);
                    raws.push(raw);
                    normalized_events.push(*event);
                }
                Err(reason) => bad.push((*event, reason)),
            }
        }
        let event_of = |at: u32| normalized_events.get(at as usize).copied().unwrap_or_default();
        let (all, mut refused) =
            ((0..normalized_events.len() as u32).collect::<Vec<_>>(), Vec::new());
        let (good, columns) = self.decode_plain(&normalized.finish(), &all, &mut refused)?;
        bad.extend(refused.into_iter().map(|(at, reason)| (event_of(at), reason)));
        let raw_of = |at: &u32| raws.get(*at as usize).map(Vec::as_slice).unwrap_or_default();
        good.iter().for_each(|at| raw.append_value(raw_of(at)));
        Ok((good.into_iter().map(event_of).collect(), columns))
    }
}

impl PayloadForm for LcmForm {
    fn schema(&self) -> &SchemaRef {
        &self.plan.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        match raw {
            None => self.decode_plain(batch, events, bad),
            Some(raw) => self.decode_raw(batch, events, bad, raw),
        }
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let normalized = encode::encode(&self.plan, &self.library, self.fingerprint, columns, bad)?;
        let Some(raw) = raw else { return Ok(normalized) };
        let mut payloads = BinaryBuilder::new();
        for row in 0..normalized.len() {
            if normalized.is_null(row) {
                payloads.append_null();
                continue;
            }
            let mut payload = normalized.value(row).to_vec();
            let raw = booleans::raw_value(raw, row);
            match raw_booleans::restore(&self.plan, &self.library, &mut payload, raw) {
                Ok(()) => payloads.append_value(&payload),
                Err(reason) => {
                    payloads.append_null();
                    bad.push((row as u32, reason));
                }
            }
        }
        Ok(payloads.finish())
    }
}
