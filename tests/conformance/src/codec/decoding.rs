//! Decodes payloads, encodes the rows again, and checks both. Changes no payload.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::FieldRef;
use sluice_model::raw::is_raw;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Codec, KeyOf, PayloadType, Rows, TypeKey,
};

use super::columns;
use crate::Promise;
use crate::finding::Fault;

/// The result of decoding some payloads.
pub(super) struct DecodedPayloads {
    pub(super) rows: Rows,
    pub(super) bad: Vec<(u32, &'static str)>,
}

/// Decodes payloads as one batch.
pub(super) fn decode_payloads(
    form: &PayloadType,
    payloads: &[&[u8]],
) -> Result<DecodedPayloads, Fault> {
    let (batch, mut bad) = (batch(payloads), Vec::new());
    let events: Vec<u32> = (0..payloads.len() as u32).collect();
    let rows = form.decode(&batch, &events, &mut bad).map_err(|error| {
        let kind = "decoding fails instead of reporting which payloads are bad";
        Fault::new(Promise::WholeRows, kind, error.to_string())
    })?;
    let decoded = DecodedPayloads { rows, bad };
    decoded.fault(form, payloads).map_or(Ok(decoded), Err)
}

fn batch(payloads: &[&[u8]]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (number, payload) in (0..).zip(payloads) {
        builder.push_copy(number, number, ChannelId(0), payload);
    }
    builder.finish()
}

/// The maximum column bytes per payload byte, and the allowance on top.
const MAX_COLUMN_BYTES: usize = 512;
const SLACK: usize = 4 << 20;

impl DecodedPayloads {
    /// What is wrong with the result, whatever the payloads are.
    fn fault(&self, form: &PayloadType, payloads: &[&[u8]]) -> Option<Fault> {
        let Self { rows, bad } = self;
        let fault = |promise, kind: &str, what: String| Some(Fault::new(promise, kind, what));
        if rows.columns.schema() != *form.schema() {
            let kind = "rows have other columns than the type says";
            return fault(Promise::WholeRows, kind, String::new());
        }
        let (many, few) = (rows.events.len(), rows.columns.num_rows());
        if many != few {
            let what = format!("{few} rows for {many} events");
            return fault(Promise::WholeRows, "there is not one row per event", what);
        }
        let mut told: Vec<u32> =
            rows.events.iter().copied().chain(bad.iter().map(|b| b.0)).collect();
        let is_sorted = rows.events.is_sorted();
        told.sort_unstable();
        if !is_sorted || !told.into_iter().eq(0..payloads.len() as u32) {
            let what = format!("rows of events {:?}, bad ones {bad:?}", rows.events);
            let kind = "a payload has neither a row nor a reason, or both";
            return fault(Promise::WholeRows, kind, what);
        }
        let (takes, given) = (rows.memory(), payloads.iter().map(|p| p.len()).sum::<usize>());
        if takes > given * MAX_COLUMN_BYTES + SLACK {
            let what = format!("{takes} bytes for payloads of {given}");
            return fault(Promise::Memory, "columns take more than payloads can fill", what);
        }
        None
    }

    /// The row of one event.
    fn row(&self, event: u32) -> Option<RecordBatch> {
        let row = self.rows.events.binary_search(&event).ok()?;
        Some(self.rows.pick(&[row as u32]).columns)
    }
}

/// A payload that the codec can decode.
pub(super) struct ValidPayload<'p> {
    pub(super) bytes: &'p [u8],
    pub(super) key: TypeKey,
    pub(super) form: PayloadType,
    keys: KeyOf,
    row: RecordBatch,
}

impl<'p> ValidPayload<'p> {
    /// Decodes a valid payload. `Err` if the codec cannot.
    pub(super) fn decode(
        codec: &dyn Codec,
        channel: &Channel,
        bytes: &'p [u8],
    ) -> Result<Self, Fault> {
        let unknown =
            |what: &str| Err(Fault::new(Promise::Identity, "a payload is not decoded", what));
        let (known, keys) = if let Some(known) = codec.embedded(channel) {
            let key = known.message_type.key;
            (known, Arc::new(move |_: &[u8]| Some(key)) as KeyOf)
        } else {
            let Some(keys) = codec.keys(channel) else {
                return unknown("its channel has no payloads of these types");
            };
            let Some(key) = keys(bytes) else { return unknown("it has no type") };
            let Some(known) = codec.types().iter().find(|k| k.message_type.key == key) else {
                return unknown("its type is not known");
            };
            (known.clone(), keys)
        };
        let key = known.message_type.key;
        let mut form = match known.payload_type {
            Ok(form) => form,
            Err(why) => return unknown(&why),
        };
        let mut decoded = decode_payloads(&form, &[bytes])?;
        // What columns cannot say all of is of the type with a raw column.
        if let (None, Some(raw)) = (decoded.row(0), form.raw_variant()) {
            (decoded, form) = (decode_payloads(raw, &[bytes])?, raw.clone());
        }
        match decoded.row(0) {
            Some(row) => Ok(Self { bytes, key, form, keys, row }),
            None => unknown(decoded.bad.first().map_or("", |bad| bad.1)),
        }
    }

    /// What is wrong with the payload and its type as they are.
    pub(super) fn faults(&self, codec: &dyn Codec) -> Vec<Fault> {
        let mut faults: Vec<Fault> =
            identity(&self.form, &self.row, self.bytes, "a payload").into_iter().collect();
        match codec.adopt(self.form.message_type(), self.form.schema()) {
            Err(why) => {
                let kind = "it does not accept its own description of a type";
                faults.push(Fault::new(Promise::Identity, kind, why));
            }
            Ok(adopted) if adopted.schema() != self.form.schema() => {
                let kind = "a type made from its own description has other columns";
                faults.push(Fault::new(Promise::Identity, kind, String::new()));
            }
            Ok(adopted) => {
                let whose = "by a type made from its own description, a payload";
                faults.extend(identity(&adopted, &self.row, self.bytes, whose));
            }
        }
        faults
    }

    /// What is wrong if these payloads are interleaved with copies of the valid one.
    pub(super) fn faults_beside(&self, changed: &[Vec<u8>]) -> Vec<Fault> {
        // Payloads of other types never reach this type.
        let is_ours = |payload: &&Vec<u8>| (self.keys)(payload) == Some(self.key);
        let changed: Vec<&[u8]> = changed.iter().filter(is_ours).map(Vec::as_slice).collect();
        let mut payloads: Vec<&[u8]> = changed.iter().flat_map(|c| [self.bytes, *c]).collect();
        payloads.push(self.bytes);
        let decoded = match decode_payloads(&self.form, &payloads) {
            Ok(decoded) => decoded,
            Err(fault) => return vec![fault],
        };
        let each = (0..).zip(&payloads).flat_map(|(event, payload)| {
            if event % 2 == 0 {
                self.unchanged_fault(&decoded, event)
            } else {
                self.changed_fault(&decoded, event, payload)
            }
        });
        let mut faults: Vec<Fault> = each.collect();
        faults.extend(encoded_together(&self.form, &decoded, &payloads));
        faults.truncate(1);
        faults
    }

    /// Invalid variants of the row, with descriptions.
    pub(super) fn rows(&self) -> Vec<(String, RecordBatch)> {
        columns::invalid_rows(&self.row)
    }

    /// What is wrong with the encoding of rows that no payload decodes to.
    pub(super) fn encode_fault(&self, rows: &RecordBatch) -> Option<Fault> {
        // Refusing them is allowed.
        let encoded = self.form.encode(rows, &mut Vec::new()).ok()?;
        if encoded.len() != rows.num_rows() {
            let what = format!("{} payloads for {} rows", encoded.len(), rows.num_rows());
            let kind = "rows do not encode to one payload each, or none";
            return Some(Fault::new(Promise::WholeRows, kind, what));
        }
        let payload = encoded.iter().next()??;
        let kind =
            "a row that no payload decodes to is encoded to a payload that does not decode to it";
        let decoded =
            decode_payloads(&self.form, &[payload]).ok().and_then(|decoded| decoded.row(0));
        let is_same = decoded.is_some_and(|row| {
            let names = row.schema();
            // Columns of another type may be converted, and raw ones give way to the others.
            let same = |(field, column): (&FieldRef, &ArrayRef)| {
                let given = rows.column_by_name(field.name()).filter(|_| !is_raw(field));
                given.is_none_or(|given| given.data_type() != column.data_type() || given == column)
            };
            names.fields().iter().zip(row.columns()).all(same)
        });
        (!is_same).then(|| Fault::new(Promise::Identity, kind, String::new()))
    }

    fn unchanged_fault(&self, decoded: &DecodedPayloads, event: u32) -> Option<Fault> {
        let kind = "a bad payload changes the row of another one";
        match decoded.row(event) {
            Some(row) if row == self.row => None,
            Some(_) => Some(Fault::new(Promise::WholeRows, kind, String::new())),
            None => Some(Fault::new(Promise::WholeRows, kind, "which has none any more")),
        }
    }

    fn changed_fault(
        &self,
        decoded: &DecodedPayloads,
        event: u32,
        payload: &[u8],
    ) -> Option<Fault> {
        let row = decoded.row(event)?;
        identity(&self.form, &row, payload, "a changed payload that it decodes")
    }
}

/// Checks that a row encodes to this payload.
fn identity(form: &PayloadType, row: &RecordBatch, payload: &[u8], whose: &str) -> Option<Fault> {
    let kind = format!("{whose} is not encoded to the bytes it was");
    let fault = |what: String| Some(Fault::new(Promise::Identity, &kind, what));
    let mut bad = Vec::new();
    let encoded = match form.encode(row, &mut bad) {
        Ok(encoded) => encoded,
        Err(why) => return fault(why),
    };
    let Some(Some(encoded)) = encoded.iter().next() else {
        return fault(bad.first().map_or("there is none", |bad| bad.1).to_owned());
    };
    let at = encoded.iter().zip(payload).position(|(one, other)| one != other);
    let at = at.unwrap_or(encoded.len().min(payload.len()));
    let what =
        || format!("{} bytes instead of {}, other from {at} on", encoded.len(), payload.len());
    if encoded == payload { None } else { fault(what()) }
}

/// Checks that all rows of a batch together encode to their payloads.
fn encoded_together(
    form: &PayloadType,
    decoded: &DecodedPayloads,
    payloads: &[&[u8]],
) -> Option<Fault> {
    let kind = "rows of a batch are not encoded to the payloads they are of";
    let fault = |what: String| Some(Fault::new(Promise::Identity, kind, what));
    let encoded = match form.encode(&decoded.rows.columns, &mut Vec::new()) {
        Ok(encoded) => encoded,
        Err(why) => return fault(why),
    };
    let due = decoded.rows.events.iter().map(|event| payloads.get(*event as usize).copied());
    if encoded.iter().eq(due) { None } else { fault(String::new()) }
}
