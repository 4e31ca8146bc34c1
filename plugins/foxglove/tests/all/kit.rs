//! Runs the stage, and reads protobuf by field numbers.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use serde_json::Value;
use sluice_foxglove as _;
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, MessageType, Name, Payloads, Registry, Rows,
    Stage, StageContext, TypeKey,
};

pub(crate) struct StageRun {
    parts: Vec<Stage>,
    pub(crate) channels: Channels,
    pub(crate) notes: Vec<String>,
    /// How often each of them holds.
    pub(crate) note_counts: Vec<u64>,
}

/// An event that came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutEvent {
    pub(crate) time: i64,
    pub(crate) channel: String,
    pub(crate) type_name: String,
    pub(crate) message: Vec<u8>,
}

/// Events of one type on one channel.
pub(crate) struct Messages<'m> {
    pub(crate) channel: &'m str,
    pub(crate) source: &'m str,
    pub(crate) type_name: &'m str,
    /// One row each.
    pub(crate) columns: Vec<(&'m str, ArrayRef)>,
}

impl StageRun {
    pub(crate) fn new(options: Value) -> Self {
        let stage = Registry::linked().stage("foxglove", options).unwrap();
        Self {
            parts: stage.into_parts(),
            channels: Channels::default(),
            notes: Vec::new(),
            note_counts: Vec::new(),
        }
    }

    /// A batch of these messages, a millisecond apart from `start` on.
    pub(crate) fn batch(&self, start: i64, all: &[Messages<'_>]) -> Batch {
        let (mut builder, mut rows) = (BatchBuilder::default(), Vec::new());
        for messages in all {
            let channel = Name::from_text(messages.channel);
            let channel = Channel::new(channel, messages.source, Encoding::Lcm);
            let id = self.channels.intern(channel).unwrap();
            let columns = RecordBatch::try_from_iter(messages.columns.clone()).unwrap();
            let first = builder.len();
            for _ in 0..columns.num_rows() {
                let time = start + builder.len() as i64 * 1_000_000;
                builder.push_copy(time, builder.len() as i64, id, b"payload");
            }
            let message = Arc::new(MessageType::named(messages.type_name, TypeKey(1)));
            let events = (first as u32..builder.len() as u32).collect();
            rows.push(Rows { message, payloads: Payloads::Kept, events, columns });
        }
        builder.finish().with_rows(rows)
    }

    /// What comes out for these batches and the end; checks that no event is lost.
    pub(crate) fn all(&mut self, batches: Vec<Batch>) -> Vec<OutEvent> {
        let (mut batches, mut parts) = (batches, std::mem::take(&mut self.parts));
        let (mut len, mut added) = (batches.iter().map(Batch::len).sum::<usize>(), 0);
        for part in &mut parts {
            let mut out = Vec::new();
            let mut context = StageContext::new(&self.channels, None);
            for batch in batches {
                match part {
                    Stage::Map(map) => out.push(map.apply(batch, &mut context).unwrap()),
                    Stage::Fold(fold) => out.extend(fold.push(batch, &mut context).unwrap()),
                    Stage::Chain(_) => panic!("parts are no chains"),
                }
            }
            if let Stage::Fold(fold) = part {
                out.extend(fold.finish(&mut context).unwrap());
            }
            assert_eq!(context.report.filtered, 0);
            added += context.report.added.len();
            let (notes, counts): (Vec<_>, Vec<_>) = context.report.notes.into_iter().unzip();
            self.notes.extend(notes);
            self.note_counts.extend(counts);
            batches = out;
        }
        len += added;
        assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), len);
        assert!(batches.iter().flat_map(Batch::rows).all(|rows| !rows.message.is_part()));
        batches.iter().flat_map(|batch| self.read(batch)).collect()
    }

    fn read(&self, batch: &Batch) -> Vec<OutEvent> {
        let event = |event: sluice_model::Event<'_>| {
            let channel = self.channels.get(event.channel);
            OutEvent {
                time: event.timestamp,
                channel: channel.name.text().to_owned(),
                type_name: channel.type_name.as_deref().unwrap_or_default().to_owned(),
                message: event.payload.to_vec(),
            }
        };
        batch.iter().map(event).collect()
    }
}

/// The events on a channel.
pub(crate) fn on<'o>(all: &'o [OutEvent], channel: &str) -> Vec<&'o OutEvent> {
    all.iter().filter(|event| event.channel == channel).collect()
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The values of the field with this number.
pub(crate) fn fields(message: &[u8], number: u64) -> Vec<Field> {
    let (mut rest, mut found) = (message, Vec::new());
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut rest)),
            1 => Field::Number(u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
            5 => Field::Number(u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap()).into()),
            2 => {
                let len = varint(&mut rest) as usize;
                Field::Bytes(take(&mut rest, len).to_vec())
            }
            other => panic!("wire type {other}"),
        };
        if tag >> 3 == number {
            found.push(value);
        }
    }
    found
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = take(rest, 1)[0];
        value |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn take<'r>(rest: &mut &'r [u8], len: usize) -> &'r [u8] {
    let (head, tail) = rest.split_at(len);
    *rest = tail;
    head
}

pub(crate) fn number(message: &[u8], field: u64) -> u64 {
    match fields(message, field).as_slice() {
        [] => 0,
        [Field::Number(number)] => *number,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn double(message: &[u8], field: u64) -> f64 {
    f64::from_bits(number(message, field))
}

pub(crate) fn bytes(message: &[u8], field: u64) -> Vec<u8> {
    match fields(message, field).as_slice() {
        [] => Vec::new(),
        [Field::Bytes(bytes)] => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(bytes(message, field)).unwrap()
}

/// A packed list.
pub(crate) fn doubles(message: &[u8], field: u64) -> Vec<f64> {
    let bytes = bytes(message, field);
    bytes.chunks(8).map(|eight| f64::from_le_bytes(eight.try_into().unwrap())).collect()
}

/// The numbers of a vector or quaternion.
pub(crate) fn parts<const N: usize>(message: &[u8], field: u64) -> [f64; N] {
    let inner = bytes(message, field);
    std::array::from_fn(|at| double(&inner, at as u64 + 1))
}
