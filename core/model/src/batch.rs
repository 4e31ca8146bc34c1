//! Batches: a few thousand events in order, as columns, with payloads as views into shared
//! segments.
//!
//! A payload is not copied between the block it was read into and the sink that writes it: a batch
//! holds views in the layout of Arrow's `BinaryView`, and a reference to each segment. Batches are
//! immutable; cloning one increments a handful of reference counts.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{Array, BinaryArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use crate::column::{Element, column, recycle, vector};
use crate::{ChannelId, Payloads, Rows};

mod builder;
mod places;
#[cfg(test)]
mod tests;

pub use builder::{BatchBuilder, PayloadOffset};

/// A few thousand events, in order.
///
/// Cloning is cheap: all columns are shared. Methods that change events return a new batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) timestamps: ScalarBuffer<i64>,
    /// 128-bit times, if some lie outside the range of timestamps.
    pub(crate) wide_times: Option<ScalarBuffer<i128>>,
    pub(crate) sequences: ScalarBuffer<i64>,
    pub(crate) channels: ScalarBuffer<u32>,
    /// The channels as read, if a stage has renamed some.
    pub(crate) origins: Option<ScalarBuffer<u32>>,
    /// Where the events were in the stream that was split, if its branches are merged again.
    pub(crate) places: Option<ScalarBuffer<i64>>,
    pub(crate) payloads: ScalarBuffer<u128>,
    pub(crate) segments: Arc<[Buffer]>,
    pub(crate) rows: Vec<Rows>,
}

/// One event of a batch, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'b> {
    /// Nanoseconds since the Unix epoch, or since the start of the recording if the channel's clock
    /// is relative.
    pub timestamp: i64,
    /// The sequence number its origin assigned.
    pub sequence: i64,
    /// Its channel.
    pub channel: ChannelId,
    /// Its payload.
    pub payload: &'b [u8],
}

/// Payloads up to this length are stored in the view itself.
const INLINE: u32 = 12;
const VIEW_LEN: usize = size_of::<u128>();

impl Batch {
    /// The events at these positions, which may repeat, without rows. Payloads that are not kept
    /// become empty.
    #[must_use]
    pub fn repeated(&self, events: &[u32], keeps_payload: impl Fn(u32) -> bool) -> Self {
        let keeps_some = events.iter().any(|event| keeps_payload(*event));
        let payload = |event: &u32| match keeps_payload(*event) {
            true => self.payloads[*event as usize],
            false => 0,
        };
        // Zeros that nobody reads or writes take no memory.
        let payloads = match keeps_some {
            true => events.iter().map(payload).collect(),
            false => vec![0; events.len()].into(),
        };
        Self {
            timestamps: gather(&self.timestamps, events),
            wide_times: None,
            sequences: gather(&self.sequences, events),
            channels: gather(&self.channels, events),
            origins: self.origins.as_ref().map(|origins| gather(origins, events)),
            places: self.places.as_ref().map(|places| gather(places, events)),
            payloads,
            segments: if keeps_some { Arc::clone(&self.segments) } else { Vec::new().into() },
            rows: Vec::new(),
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

    /// The timestamps in nanoseconds, one per event.
    pub fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    /// The times in nanoseconds, if some do not fit into 64 bits; `None` if all do. The timestamp
    /// of such an event is clamped.
    pub fn wide_times(&self) -> Option<&[i128]> {
        self.wide_times.as_deref()
    }

    /// The time of event `row` in nanoseconds, if it differs from its timestamp.
    ///
    /// # Panics
    ///
    /// If there is no such event.
    pub fn wide_time(&self, row: usize) -> Option<i128> {
        let time = self.wide_times.as_ref()?[row];
        (time != i128::from(self.timestamps[row])).then_some(time)
    }

    /// The sequence numbers, one per event.
    pub fn sequences(&self) -> &[i64] {
        &self.sequences
    }

    /// The events' channels, as [`ChannelId`] numbers.
    pub fn channels(&self) -> &[u32] {
        &self.channels
    }

    /// The channels as read. They differ from [`channels`](Self::channels) after a stage renamed
    /// some.
    pub fn origins(&self) -> &[u32] {
        self.origins.as_ref().unwrap_or(&self.channels)
    }

    /// The payload of event `row`.
    ///
    /// # Panics
    ///
    /// If there is no such event.
    #[inline]
    pub fn payload(&self, row: usize) -> &[u8] {
        let view = self.payloads[row];
        let len = view as u32;
        if len <= INLINE {
            let start = row * VIEW_LEN + size_of::<u32>();
            return &self.payloads.inner().as_slice()[start..start + len as usize];
        }
        let offset = (view >> 96) as u32 as usize;
        &self.segments[segment_of(view)].as_slice()[offset..offset + len as usize]
    }

    /// The length of the payload of event `row`.
    #[inline]
    pub fn payload_len(&self, row: usize) -> usize {
        self.payloads[row] as u32 as usize
    }

    /// Where the payload of event `row` lies; `None` if it is so short that it is in no segment.
    ///
    /// # Panics
    ///
    /// If there is no such event.
    #[inline]
    pub fn payload_offset(&self, row: usize) -> Option<PayloadOffset> {
        let view = self.payloads[row];
        let (segment, offset) = (segment_of(view) as u32, (view >> 96) as u32);
        (view as u32 > INLINE).then_some(PayloadOffset { segment, offset })
    }

    /// The segments that payloads lie in, which may hold more than payloads: mostly the blocks of a
    /// log.
    pub fn segments(&self) -> &[Buffer] {
        &self.segments
    }

    /// Event `row`.
    ///
    /// # Panics
    ///
    /// If there is no such event.
    #[inline]
    pub fn event(&self, row: usize) -> Event<'_> {
        Event {
            timestamp: self.timestamps[row],
            sequence: self.sequences[row],
            channel: ChannelId(self.channels[row]),
            payload: self.payload(row),
        }
    }

    /// The events, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        (0..self.len()).map(|row| self.event(row))
    }

    /// The total length of all payloads, in bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.payloads.iter().map(|view| u64::from(*view as u32)).sum()
    }

    /// An estimate of the memory the batch keeps alive, in bytes.
    pub fn memory(&self) -> usize {
        let numbers = if self.places.is_some() { 3 } else { 2 };
        let columns = self.len() * (numbers * size_of::<i64>() + size_of::<u32>() + VIEW_LEN);
        let rows: usize = self.rows.iter().map(Rows::memory).sum();
        columns + rows + self.segments.iter().map(Buffer::len).sum::<usize>()
    }

    /// The decoded rows that travel with the events.
    pub fn rows(&self) -> &[Rows] {
        &self.rows
    }

    /// Which events have decoded rows: one value per event.
    pub fn decoded_mask(&self) -> Vec<bool> {
        let mut mask = vec![false; self.len()];
        let decoded = self.rows.iter().flat_map(|rows| &rows.events);
        decoded.for_each(|event| mask[*event as usize] = true);
        mask
    }

    /// Which events have decoded rows only, and no payload: one value per event; `None` if all have
    /// a payload.
    pub fn decoded_only_mask(&self) -> Option<Vec<bool>> {
        let mut gone = self.rows.iter().filter(|rows| rows.payloads == Payloads::Gone).peekable();
        gone.peek()?;
        let mut mask = vec![false; self.len()];
        gone.flat_map(|rows| &rows.events).for_each(|event| mask[*event as usize] = true);
        Some(mask)
    }

    /// Replaces the decoded rows.
    pub fn with_rows(mut self, rows: Vec<Rows>) -> Self {
        self.rows = rows;
        self
    }

    /// Replaces the timestamps.
    ///
    /// # Panics
    ///
    /// If there is not one timestamp per event.
    pub fn with_timestamps(mut self, timestamps: Vec<i64>) -> Self {
        assert_eq!(timestamps.len(), self.len(), "one timestamp per event");
        self.timestamps = column(timestamps);
        self.wide_times = None;
        self
    }

    /// Replaces the times, in nanoseconds. Timestamps that do not fit into 64 bits are clamped.
    ///
    /// # Panics
    ///
    /// If there is not one time per event.
    pub fn with_wide_times(mut self, times: Vec<i128>) -> Self {
        assert_eq!(times.len(), self.len(), "one time per event");
        self.timestamps = times.iter().map(|time| nearest(*time)).collect();
        let fit =
            times.iter().zip(&*self.timestamps).all(|(time, near)| *time == i128::from(*near));
        self.wide_times = (!fit).then(|| column(times));
        self
    }

    /// Moves the events to other channels. [`origins`](Self::origins) does not change.
    ///
    /// # Panics
    ///
    /// If there is not one channel per event.
    pub fn with_channels(mut self, channels: Vec<u32>) -> Self {
        assert_eq!(channels.len(), self.len(), "one channel per event");
        self.origins.get_or_insert(self.channels);
        self.channels = column(channels);
        self
    }

    /// Maps the channels, [`origins`](Self::origins) included: `ids` has the new id at the index of
    /// the old one. `None` if one is missing.
    pub fn with_channel_ids(self, ids: &[ChannelId]) -> Option<Self> {
        let id = |old: &u32| ids.get(*old as usize).map(|id| id.0);
        let channels = self.channels.iter().map(id).collect::<Option<Vec<u32>>>()?;
        Some(Self { channels: column(channels), origins: None, ..self })
    }

    /// The events for which `keep` is true, in order. Copies no payload.
    pub fn retain(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let mut kept = vector::<u32>(self.len());
        kept.resize(self.len(), 0);
        let mut count = 0;
        for row in 0..self.len() {
            // Write always, count only if kept: no branch to mispredict.
            kept[count] = row as u32;
            count += usize::from(keep(row));
        }
        kept.truncate(count);
        let batch = if count == self.len() { self.clone() } else { self.take_at(&kept) };
        recycle(kept);
        batch
    }

    /// The events at these positions, in this order. Copies no payload.
    ///
    /// # Panics
    ///
    /// If a position is out of range.
    pub fn take(&self, positions: Vec<u32>) -> Self {
        self.take_at(&positions)
    }

    fn take_at(&self, positions: &[u32]) -> Self {
        let unchanged = positions.len() == self.len()
            && positions.iter().enumerate().all(|(row, at)| row == *at as usize);
        if unchanged {
            return self.clone();
        }
        let rows = self.rows.iter().filter_map(|rows| rows.take(positions, self.len())).collect();
        Self {
            timestamps: gather(&self.timestamps, positions),
            wide_times: self.wide_times.as_ref().map(|times| gather(times, positions)),
            sequences: gather(&self.sequences, positions),
            channels: gather(&self.channels, positions),
            origins: self.origins.as_ref().map(|origins| gather(origins, positions)),
            places: self.places.as_ref().map(|places| gather(places, positions)),
            payloads: gather(&self.payloads, positions),
            segments: Arc::clone(&self.segments),
            rows,
        }
    }

    /// The events `start..start + len`. Copies nothing.
    pub fn slice(&self, start: usize, len: usize) -> Self {
        if start == 0 && len == self.len() {
            return self.clone();
        }
        let rows = self.rows.iter().filter_map(|rows| rows.slice(start..start + len)).collect();
        Self {
            timestamps: self.timestamps.slice(start, len),
            wide_times: self.wide_times.as_ref().map(|times| times.slice(start, len)),
            sequences: self.sequences.slice(start, len),
            channels: self.channels.slice(start, len),
            origins: self.origins.as_ref().map(|origins| origins.slice(start, len)),
            places: self.places.as_ref().map(|places| places.slice(start, len)),
            payloads: self.payloads.slice(start, len),
            segments: Arc::clone(&self.segments),
            rows,
        }
    }

    /// Picks events from several batches, as `(batch, row)`, in this order. Copies no payload.
    ///
    /// # Panics
    ///
    /// If a pick is out of range.
    pub fn interleave(batches: &[Self], picks: &[(u32, u32)]) -> Self {
        let mut segments = Vec::new();
        let firsts: Vec<u32> = batches
            .iter()
            .map(|batch| {
                let first = segments.len() as u32;
                segments.extend(batch.segments.iter().cloned());
                first
            })
            .collect();
        let pick = |&(batch, row): &(u32, u32)| (&batches[batch as usize], batch, row as usize);
        let rows: Vec<(&[Rows], usize)> =
            batches.iter().map(|batch| (batch.rows(), batch.len())).collect();
        let renamed = batches.iter().any(|batch| batch.origins.is_some());
        let origin = |p: &(u32, u32)| pick(p).0.origins()[pick(p).2];
        let is_wide = batches.iter().any(|batch| batch.wide_times.is_some());
        let wide = |p: &(u32, u32)| {
            let (batch, _, row) = pick(p);
            batch.wide_time(row).unwrap_or_else(|| batch.timestamps[row].into())
        };
        Self {
            wide_times: is_wide.then(|| picks.iter().map(wide).collect()),
            timestamps: picks.iter().map(pick).map(|(b, _, r)| b.timestamps[r]).collect(),
            sequences: picks.iter().map(pick).map(|(b, _, r)| b.sequences[r]).collect(),
            channels: picks.iter().map(pick).map(|(b, _, r)| b.channels[r]).collect(),
            origins: renamed.then(|| picks.iter().map(origin).collect()),
            places: places::interleaved(batches, picks),
            payloads: picks
                .iter()
                .map(pick)
                .map(|(b, at, r)| shift_segment(b.payloads[r], firsts[at as usize]))
                .collect(),
            segments: segments.into(),
            rows: Rows::interleave(&rows, picks),
        }
    }

    /// Copies the payloads if they take less than a quarter of the segments they keep alive. For
    /// code that holds batches for long.
    pub fn compact(self) -> Self {
        let kept: usize = self.segments.iter().map(Buffer::len).sum();
        if self.payload_bytes() as usize >= kept / 4 { self } else { self.owned() }
    }

    /// For sinks that gather batches into units of this many bytes: [`compact`](Self::compact), or
    /// [`owned`](Self::owned) for long units, which would block the run's input buffers.
    pub fn gathered_into(self, unit: u64) -> Self {
        const LONG: u64 = 8 << 20;
        if unit >= LONG { self.owned() } else { self.compact() }
    }

    /// Copies the payloads, so that the batch keeps no shared segment alive.
    pub fn owned(self) -> Self {
        let (payloads, segments) = BatchBuilder::copy_payloads(&self);
        Self { payloads, segments, ..self }
    }

    /// Drops the payloads; only decoded rows remain.
    pub fn without_payloads(mut self) -> Self {
        let payloads = vec![0; self.len()].into();
        self.rows.iter_mut().for_each(|rows| rows.payloads = Payloads::Gone);
        Self { payloads, segments: Vec::new().into(), ..self }
    }

    /// Replaces the payloads of the events at `events`.
    ///
    /// # Panics
    ///
    /// If there is not one payload per event, or an index is out of range.
    pub fn with_payloads(self, events: &[u32], payloads: &BinaryArray) -> Self {
        assert_eq!(events.len(), payloads.len(), "one payload per event");
        let segment = self.segments.len() as u32;
        let (mut views, offsets) = (self.payloads.to_vec(), payloads.value_offsets());
        for (row, event) in events.iter().enumerate() {
            views[*event as usize] = make_view(payloads.value(row), segment, offsets[row] as u32);
        }
        let segments = self.segments.iter().cloned().chain([payloads.values().clone()]).collect();
        Self { payloads: views.into(), segments, ..self }
    }
}

/// The time, clamped to 64 bits.
fn nearest(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn gather<T: Element>(from: &[T], positions: &[u32]) -> ScalarBuffer<T> {
    let mut gathered = vector(positions.len());
    gathered.extend(positions.iter().map(|at| from[*at as usize]));
    column(gathered)
}

fn segment_of(view: u128) -> usize {
    (view >> 64) as u32 as usize
}

/// The view with its segment number increased by `by`.
fn shift_segment(view: u128, by: u32) -> u128 {
    if view as u32 <= INLINE { view } else { view + (u128::from(by) << 64) }
}
