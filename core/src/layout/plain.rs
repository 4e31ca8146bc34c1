//! Payloads that are a layout as they stand, as a type of a codec.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::{Layout, LayoutColumns, LayoutRows, Reason};
use crate::booleans;
use crate::{Batch, Error, MessageType, PayloadType, Payloads, Rows, TypeKey};

/// A type whose payloads are its layout, with nothing around it.
#[derive(Debug)]
pub struct PlainType {
    described: Arc<MessageType>,
    layout: Arc<Layout>,
    raw: Option<Arc<RawBooleansType>>,
}

/// The same type for payloads whose booleans are any bytes, with a column of these.
#[derive(Debug)]
pub struct RawBooleansType {
    described: Arc<MessageType>,
    layout: Arc<Layout>,
    schema: SchemaRef,
}

impl PlainType {
    /// The type that is described like this.
    pub fn new(described: Arc<MessageType>, layout: Layout) -> Self {
        Self { described, layout: Arc::new(layout), raw: None }
    }

    /// Has payloads with booleans that are neither 0 nor 1 decoded, too: to rows of the type `key`, which the codec
    /// must be able to adopt.
    pub fn with_raw_booleans_as(mut self, key: TypeKey) -> Self {
        self.raw = Some(Arc::new(RawBooleansType {
            described: booleans::described(&self.described, key),
            layout: Arc::clone(&self.layout),
            schema: booleans::with_column(self.layout.schema(), self.described.key),
        }));
        self
    }
}

impl PayloadType for PlainType {
    fn described(&self) -> &Arc<MessageType> {
        &self.described
    }

    fn schema(&self) -> &SchemaRef {
        self.layout.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, Reason)>,
    ) -> Result<Rows, Error> {
        decode(&self.layout, &self.described, batch, events, bad, |rows, payload| {
            rows.push(payload)
        })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, Reason)>,
    ) -> Result<BinaryArray, String> {
        encode(&self.layout, columns, bad, |columns, row, out| columns.write(row, out))
    }

    fn with_raw_booleans(&self) -> Option<Arc<dyn PayloadType>> {
        Some(Arc::clone(self.raw.as_ref()?) as _)
    }
}

impl PayloadType for RawBooleansType {
    fn described(&self) -> &Arc<MessageType> {
        &self.described
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, Reason)>,
    ) -> Result<Rows, Error> {
        let mut raw = BinaryBuilder::new();
        let push = |rows: &mut LayoutRows<'_>, payload: &[u8]| {
            raw.append_value(rows.push_with_raw_booleans(payload)?);
            Ok(())
        };
        let mut rows = decode(&self.layout, &self.described, batch, events, bad, push)?;
        let mut columns = rows.columns.columns().to_vec();
        columns.push(Arc::new(raw.finish()));
        let columns = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        rows.columns = columns.map_err(|e| Error::broken(e.to_string()))?;
        Ok(rows)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, Reason)>,
    ) -> Result<BinaryArray, String> {
        let raw = booleans::column_of(&self.schema, columns)?;
        encode(&self.layout, columns, bad, |columns, row, out| {
            columns.write_with_raw_booleans(row, booleans::of_row(&raw, row), out)
        })
    }
}

/// The rows of events whose payloads `push` can add, which says why not of others.
pub fn decode<'l>(
    layout: &'l Layout,
    described: &Arc<MessageType>,
    batch: &Batch,
    events: &[u32],
    bad: &mut Vec<(u32, Reason)>,
    mut push: impl FnMut(&mut LayoutRows<'l>, &[u8]) -> Result<(), Reason>,
) -> Result<Rows, Error> {
    let mut rows = layout.rows();
    let mut good = Vec::with_capacity(events.len());
    for event in events {
        match push(&mut rows, batch.payload(*event as usize)) {
            Ok(()) => {
                good.push(*event);
                // Payloads of a batch are mostly alike: the first tells how much room all of them need.
                if good.len() == 1 {
                    rows.expect_alike(events.len() - 1, likely_bytes(batch, events));
                }
            }
            Err(reason) => bad.push((*event, reason)),
        }
    }
    let columns = rows.finish().map_err(|e| Error::broken(e.to_string()))?;
    let message = Arc::clone(described);
    Ok(Rows { message, payloads: Payloads::Kept, events: good, columns })
}

/// What the columns of these payloads rarely need more than: twice what the payloads do, as places of texts and
/// lists take more in columns.
fn likely_bytes(batch: &Batch, events: &[u32]) -> usize {
    let bytes = events.iter().map(|event| batch.payload_len(*event as usize)).sum::<usize>();
    bytes.saturating_mul(2).saturating_add(64 << 10)
}

/// The payloads that `write` appends for each row, which says why there is none of others: these are
/// null.
pub fn encode<'l>(
    layout: &'l Layout,
    columns: &RecordBatch,
    bad: &mut Vec<(u32, Reason)>,
    mut write: impl FnMut(&mut LayoutColumns<'l>, usize, &mut Vec<u8>) -> Result<(), Reason>,
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
