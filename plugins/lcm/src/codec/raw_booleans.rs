//! Messages of which a boolean is neither 0 nor 1, with a column of the booleans' bytes beside those of their type.
//! Decodes and encodes nothing itself: it makes the booleans 0 and 1 before, and what they were after.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::SchemaRef;
use sluice_core::{
    Batch, BatchBuilder, ChannelId, Error, MessageType, PayloadType, Payloads, Rows, booleans,
};

use super::decode::{Decoder, FINGERPRINT};
use super::encode;
use super::plan::{Op, Plan, Program};
use super::wire::{Cursor, Reason};
use crate::types::Library;

/// A type whose booleans may be any bytes, and its plan.
pub(crate) struct RawBooleans {
    described: Arc<MessageType>,
    /// The fingerprint of its messages.
    fingerprint: u64,
    library: Arc<Library>,
    plan: Arc<Plan>,
    schema: SchemaRef,
}

impl RawBooleans {
    pub(crate) fn new(base: &MessageType, library: Arc<Library>, plan: Arc<Plan>) -> Self {
        let described = booleans::described(base, booleans::key_of(base.key));
        let schema = booleans::with_column(&plan.schema, base.key);
        Self { described, fingerprint: base.key.0, library, plan, schema }
    }

    /// The message with every boolean as 0 or 1, and what they were.
    fn tamed(&self, payload: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Reason> {
        let (mut tame, mut raw) = (payload.to_vec(), Vec::new());
        for place in places(&self.plan, &self.library, payload)? {
            for byte in tame.get_mut(place).unwrap_or_default() {
                raw.push(*byte);
                *byte = u8::from(*byte != 0);
            }
        }
        Ok((tame, raw))
    }

    /// Puts the bytes of booleans where they stand for the same values. If there are more or fewer of them than
    /// booleans, they are those of another message.
    fn untame(&self, payload: &mut [u8], raw: &[u8]) -> Result<(), Reason> {
        let places: Vec<usize> =
            places(&self.plan, &self.library, payload)?.into_iter().flatten().collect();
        if places.len() == raw.len() {
            for (place, raw) in places.into_iter().zip(raw) {
                match payload.get_mut(place) {
                    Some(byte) if (*byte != 0) == (*raw != 0) => *byte = *raw,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for RawBooleans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} with raw booleans", self.described.name, self.described.key)
    }
}

impl PayloadType for RawBooleans {
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
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error> {
        let (mut tame, mut raws, mut tamed) = (BatchBuilder::default(), Vec::new(), Vec::new());
        for event in events {
            match self.tamed(batch.payload(*event as usize)) {
                Ok((payload, raw)) => {
                    tame.push_copy(0, i64::from(*event), ChannelId(0), &payload);
                    raws.push(raw);
                    tamed.push(*event);
                }
                Err(reason) => bad.push((*event, reason)),
            }
        }
        let event_of = |at: u32| tamed.get(at as usize).copied().unwrap_or_default();
        let (all, mut refused) = ((0..tamed.len() as u32).collect::<Vec<_>>(), Vec::new());
        let tame = tame.finish();
        let decoded = Decoder::new(&self.plan, &self.library).decode(&tame, &all, &mut refused);
        let (good, columns) = decoded.map_err(|e| Error::broken(e.to_string()))?;
        bad.extend(refused.into_iter().map(|(at, reason)| (event_of(at), reason)));
        let mut raw = BinaryBuilder::new();
        let raw_of = |at: &u32| raws.get(*at as usize).map(Vec::as_slice).unwrap_or_default();
        good.iter().for_each(|at| raw.append_value(raw_of(at)));
        let mut columns = columns.columns().to_vec();
        columns.push(Arc::new(raw.finish()));
        let columns = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let columns = columns.map_err(|e| Error::broken(e.to_string()))?;
        let events = good.into_iter().map(event_of).collect();
        let message = Arc::clone(&self.described);
        Ok(Rows { message, payloads: Payloads::Kept, events, columns })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        let raw = booleans::column_of(&self.schema, columns)?;
        let tame = encode::encode(&self.plan, &self.library, self.fingerprint, columns, bad)?;
        let mut payloads = BinaryBuilder::new();
        for row in 0..tame.len() {
            if tame.is_null(row) {
                payloads.append_null();
                continue;
            }
            let mut payload = tame.value(row).to_vec();
            match self.untame(&mut payload, booleans::of_row(&raw, row)) {
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

/// Where the booleans of a message lie that become columns.
fn places(plan: &Plan, library: &Library, payload: &[u8]) -> Result<Vec<Range<usize>>, Reason> {
    let cursor = Cursor::new(payload.get(FINGERPRINT..).unwrap_or_default(), plan.program.empty);
    let registers = vec![0; plan.registers];
    let mut walk = Walk { library, cursor, end: payload.len(), registers, places: Vec::new() };
    walk.program(&plan.program)?;
    Ok(walk.places)
}

/// A walk over a message.
struct Walk<'w> {
    library: &'w Library,
    cursor: Cursor<'w>,
    /// How long the message is.
    end: usize,
    registers: Vec<i64>,
    places: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn program(&mut self, program: &Program) -> Result<(), Reason> {
        program.ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), Reason> {
        let at = self.end - self.cursor.left();
        match op {
            Op::Region(region) => {
                let record = self.cursor.take(region.size)?;
                let booleans = region.booleans.iter();
                self.places.extend(booleans.map(|place| at + place.start..at + place.end));
                for count in &region.counts {
                    if let Some(register) = self.registers.get_mut(count.register) {
                        *register = count.read(record);
                    }
                }
            }
            Op::Text { .. } => drop(self.cursor.text()?),
            Op::Bytes { count, .. } => {
                let count = self.count(*count, 1)?;
                self.cursor.take(count)?;
            }
            Op::Numbers { leaf, count, .. } => {
                let size = leaf.per * leaf.width;
                let taken = self.count(*count, size)?.saturating_mul(size);
                self.cursor.take(taken)?;
                if leaf.are_booleans {
                    self.places.push(at..at + taken);
                }
            }
            Op::List { count, item, .. } => {
                let count = self.count(*count, item.least)?;
                (0..count).try_for_each(|_| self.program(item))?;
            }
            Op::Repeat { count, item } => {
                self.cursor.check(*count, item.least)?;
                (0..*count).try_for_each(|_| self.program(item))?;
            }
            // What is kept as bytes keeps its booleans.
            Op::Wire { of, .. } => drop(self.cursor.skip(self.library, *of)?),
        }
        Ok(())
    }

    fn count(&mut self, register: usize, least: usize) -> Result<usize, Reason> {
        let said = self.registers.get(register).copied().unwrap_or_default();
        self.cursor.count(said, least)
    }
}
