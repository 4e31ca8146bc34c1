//! Building batches event by event, with views into segments or copied payloads.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_buffer::{Buffer, ScalarBuffer};
use bytes::Bytes;

use super::{Batch, INLINE, nearest, segment_of};
use crate::ChannelId;
use crate::column::{column, vector};

/// The start of a payload: a segment of the builder and an offset in it.
#[derive(Clone, Copy, Debug)]
pub struct PayloadOffset {
    /// The segment, as returned by [`BatchBuilder::segment`].
    pub segment: u32,
    /// The offset in it. Segments stay below 4 GiB.
    pub offset: u32,
}

/// A batch that is being built.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    timestamps: Vec<i64>,
    /// 128-bit times of the events up to the last one whose timestamp is clamped.
    wide_times: Vec<i128>,
    sequences: Vec<i64>,
    channels: Vec<u32>,
    payloads: Vec<u128>,
    segments: Vec<Buffer>,
    copied: Vec<u8>,
    /// The segment number reserved for `copied`.
    copies: Option<u32>,
}

impl BatchBuilder {
    /// A builder with capacity for `events` events.
    pub fn with_capacity(events: usize) -> Self {
        Self {
            timestamps: vector(events),
            sequences: vector(events),
            channels: vector(events),
            payloads: vector(events),
            ..Self::default()
        }
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Adds a segment that payloads may lie in, and returns its number.
    pub fn segment(&mut self, bytes: Bytes) -> u32 {
        self.segments.push(Buffer::from(bytes));
        (self.segments.len() - 1) as u32
    }

    /// Adds an event whose payload lies at `place`. `payload` must be the bytes there: only the
    /// view's prefix is taken from them. The segment may be added later.
    #[inline]
    pub fn push(
        &mut self,
        timestamp: i64,
        sequence: i64,
        channel: ChannelId,
        payload: &[u8],
        place: PayloadOffset,
    ) {
        self.timestamps.push(timestamp);
        self.sequences.push(sequence);
        self.channels.push(channel.0);
        self.payloads.push(make_view(payload, place.segment, place.offset));
    }

    /// Like [`push`](Self::push), for a time that may not fit into 64 bits.
    pub fn push_wide(
        &mut self,
        time: i128,
        sequence: i64,
        channel: ChannelId,
        payload: &[u8],
        place: PayloadOffset,
    ) {
        if i64::try_from(time).is_err() {
            self.fill_wide_times();
            self.wide_times.push(time);
        }
        self.push(nearest(time), sequence, channel, payload, place);
    }

    /// Fills in the 128-bit times of events whose timestamp is exact.
    fn fill_wide_times(&mut self) {
        let rest = self.timestamps.iter().skip(self.wide_times.len()).map(|time| i128::from(*time));
        self.wide_times.extend(rest);
    }

    /// Adds an event and copies its payload. For formats that have to build payloads.
    pub fn push_copy(&mut self, timestamp: i64, sequence: i64, channel: ChannelId, payload: &[u8]) {
        self.timestamps.push(timestamp);
        self.sequences.push(sequence);
        self.channels.push(channel.0);
        self.push_payload_copy(payload);
    }

    /// The payloads of a batch, copied into one segment.
    pub(super) fn copy_payloads(batch: &Batch) -> (ScalarBuffer<u128>, Arc<[Buffer]>) {
        let mut copy = Self { payloads: vector(batch.len()), ..Self::default() };
        copy.copied.reserve(batch.payload_bytes() as usize);
        for row in 0..batch.len() {
            copy.push_payload_copy(batch.payload(row));
        }
        copy.finish_payloads()
    }

    fn push_payload_copy(&mut self, payload: &[u8]) {
        let segment = match self.copies {
            Some(segment) => segment,
            None => {
                let segment = self.segment(Bytes::new());
                *self.copies.insert(segment)
            }
        };
        self.payloads.push(make_view(payload, segment, self.copied.len() as u32));
        if payload.len() > INLINE as usize {
            self.copied.extend_from_slice(payload);
        }
    }

    /// The batch.
    ///
    /// # Panics
    ///
    /// If a payload lies outside its segment: a bug in the plugin that built the batch.
    pub fn finish(mut self) -> Batch {
        let is_wide = !self.wide_times.is_empty();
        if is_wide {
            self.fill_wide_times();
        }
        let wide_times = is_wide.then(|| column(std::mem::take(&mut self.wide_times)));
        let [timestamps, sequences] =
            [&mut self.timestamps, &mut self.sequences].map(std::mem::take);
        let channels = std::mem::take(&mut self.channels);
        let (payloads, segments) = self.finish_payloads();
        Batch {
            timestamps: column(timestamps),
            wide_times,
            sequences: column(sequences),
            channels: column(channels),
            origins: None,
            places: None,
            payloads,
            segments,
            rows: Vec::new(),
        }
    }

    fn finish_payloads(mut self) -> (ScalarBuffer<u128>, Arc<[Buffer]>) {
        if let Some(slot) = self.copies.and_then(|at| self.segments.get_mut(at as usize)) {
            *slot = Buffer::from_vec(self.copied);
        }
        let inside = |view: &u128| {
            let (len, offset) = (*view as u32, (*view >> 96) as u32);
            len <= INLINE
                || self
                    .segments
                    .get(segment_of(*view))
                    .is_some_and(|s| offset as usize + len as usize <= s.len())
        };
        assert!(self.payloads.iter().all(inside), "payloads lie in the segments of their batch");
        (column(self.payloads), self.segments.into())
    }
}
