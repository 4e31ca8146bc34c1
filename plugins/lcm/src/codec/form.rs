//! The payload form of an LCM type: a fingerprint, and the fields of the type.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::SchemaRef;
use sluice_kit::columns::{PayloadFault, PayloadPlan};
use sluice_kit::payload_form::PayloadForm;
use sluice_model::{Batch, Error};

/// Bytes of the fingerprint.
const FINGERPRINT_LEN: usize = 8;

/// An LCM type with its compiled plan.
pub(crate) struct LcmForm {
    pub(crate) fingerprint: u64,
    pub(crate) plan: PayloadPlan,
}

impl PayloadForm for LcmForm {
    fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let body = |event| {
            let payload = batch.payload(event as usize);
            Ok(payload.get(FINGERPRINT_LEN..).unwrap_or_default())
        };
        self.plan.decode(events, body, bad, raw)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        self.plan.encode(columns, bad, |rows, row, out| {
            out.extend(self.fingerprint.to_be_bytes());
            rows.write(row, raw, out)
        })
    }
}
