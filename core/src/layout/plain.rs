//! Payloads that consist of a layout and nothing else, and helpers for formats with more around it.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::{LayoutColumns, LayoutError, LayoutRows, PayloadLayout};
use crate::payload_form::{FormType, PayloadForm};
use crate::{Batch, Error, booleans};

/// A type whose payloads consist of a layout and nothing else.
pub type PlainType = FormType<PayloadLayout>;

impl PayloadForm for PayloadLayout {
    fn schema(&self) -> &SchemaRef {
        self.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, LayoutError)>,
        mut raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        decode(self, batch, events, bad, |rows, payload| {
            rows.push_keeping(payload, raw.as_deref_mut())
        })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, LayoutError)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        encode(self, columns, bad, |columns, row, out| columns.write_keeping(row, raw, out))
    }
}

impl LayoutRows<'_> {
    /// Like [`push`](Self::push); with `raw`, accepts booleans of any bytes, and appends these to
    /// it.
    pub fn push_keeping(
        &mut self,
        payload: &[u8],
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(), LayoutError> {
        match raw {
            None => self.push(payload)?,
            Some(raw) => raw.append_value(self.push_with_raw_booleans(payload)?),
        }
        Ok(())
    }
}

impl LayoutColumns<'_> {
    /// Like [`write`](Self::write); with `raw`, uses the raw booleans of that row.
    pub fn write_keeping(
        &mut self,
        row: usize,
        raw: Option<&BinaryArray>,
        out: &mut Vec<u8>,
    ) -> Result<(), LayoutError> {
        match raw {
            None => self.write(row, out),
            Some(raw) => self.write_with_raw_booleans(row, booleans::raw_value(raw, row), out),
        }
    }
}

/// Decodes events with `push`; returns those that succeeded, and their columns. The reasons for
/// others are added to `bad`.
pub fn decode<'l>(
    layout: &'l PayloadLayout,
    batch: &Batch,
    events: &[u32],
    bad: &mut Vec<(u32, LayoutError)>,
    mut push: impl FnMut(&mut LayoutRows<'l>, &[u8]) -> Result<(), LayoutError>,
) -> Result<(Vec<u32>, RecordBatch), Error> {
    let mut rows = layout.rows();
    let mut good = Vec::with_capacity(events.len());
    for event in events {
        match push(&mut rows, batch.payload(*event as usize)) {
            Ok(()) => {
                good.push(*event);
                // Payloads of a batch are mostly alike: the first one predicts the capacity for
                // all.
                if good.len() == 1 {
                    rows.reserve_alike(events.len() - 1, likely_bytes(batch, events));
                }
            }
            Err(reason) => bad.push((*event, reason)),
        }
    }
    let columns = rows.finish().map_err(|e| Error::internal(e.to_string()))?;
    Ok((good, columns))
}

/// An upper estimate of the columns' size: twice the payloads, as offsets of text and lists take
/// more space in columns.
fn likely_bytes(batch: &Batch, events: &[u32]) -> usize {
    let bytes = events.iter().map(|event| batch.payload_len(*event as usize)).sum::<usize>();
    bytes.saturating_mul(2).saturating_add(64 << 10)
}

/// Encodes rows with `write`. Rows that fail are null, and their reasons are added to `bad`.
pub fn encode<'l>(
    layout: &'l PayloadLayout,
    columns: &RecordBatch,
    bad: &mut Vec<(u32, LayoutError)>,
    mut write: impl FnMut(&mut LayoutColumns<'l>, usize, &mut Vec<u8>) -> Result<(), LayoutError>,
) -> Result<BinaryArray, String> {
    let mut given = layout.columns(columns)?;
    let (mut out, mut ends, mut valid) = (Vec::new(), vec![0], Vec::new());
    for row in 0..columns.num_rows() {
        let start = out.len();
        let written = write(&mut given, row, &mut out);
        if let Err(reason) = written {
            out.truncate(start);
            bad.push((row as u32, reason));
        }
        valid.push(written.is_ok());
        let end = i32::try_from(out.len());
        ends.push(end.map_err(|_| "the payloads of one batch are longer than 2 GiB")?);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    BinaryArray::try_new(offsets, out.into(), nulls).map_err(|e| e.to_string())
}
