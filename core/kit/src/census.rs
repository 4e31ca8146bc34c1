//! The census of a log: the times, sizes and types of its events by channel, batch by batch.
//!
//! Keeps no events, and identifies channels by number only.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{Batch, Channel, Encoding, KeyOf, Payloads, TypeKey};

use crate::Codecs;

/// The events of a channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelCensus {
    /// Bytes of the payloads that are there.
    pub bytes: u64,
    /// The number of events that are decoded and have no payload.
    pub without_payload: u64,
    /// Their times.
    pub times: TimeStatistics,
    /// The number of events whose time does not fit into 64 bits.
    pub wide_times: u64,
    /// The number of events by payload type.
    pub types: BTreeMap<TypeKey, u64>,
}

/// The most types counted per channel: a damaged log may have one per event.
const MAX_TYPES: usize = 1024;

impl ChannelCensus {
    fn add_type(&mut self, key: TypeKey, events: u64) {
        if self.types.len() < MAX_TYPES || self.types.contains_key(&key) {
            *self.types.entry(key).or_default() += events;
        }
    }

    /// Bytes of payload; `None` if some events have none, so that it is unknown.
    pub fn payload_bytes(&self) -> Option<u64> {
        (self.without_payload == 0).then_some(self.bytes)
    }

    /// The most common types, with their number of events.
    pub fn common_types(&self) -> Vec<(TypeKey, u64)> {
        const SHOWN: usize = 8;
        let mut types: Vec<_> = self.types.iter().map(|(key, events)| (*key, *events)).collect();
        types.sort_by_key(|(key, events)| (Reverse(*events), *key));
        types.truncate(SHOWN);
        types
    }
}

/// The times of some events, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeStatistics {
    /// The number of events. The other fields are meaningless if it is 0.
    pub events: u64,
    /// The time of the first event.
    pub first: i64,
    /// The time of the last event.
    pub last: i64,
    /// The earliest time.
    pub earliest: i64,
    /// The latest time.
    pub latest: i64,
    /// The longest time between consecutive events.
    pub largest_gap: u64,
    /// The time of the event before the first such gap.
    pub largest_gap_start: i64,
    /// The number of events that are earlier than the one before them.
    pub steps_back: u64,
    /// The largest such step, in nanoseconds.
    pub largest_step_back: u64,
    /// The time of the event before the first step of that size.
    pub largest_step_back_start: i64,
}

impl TimeStatistics {
    /// Adds the next event.
    fn push(&mut self, time: i64) {
        if self.events == 0 {
            (self.first, self.earliest, self.latest) = (time, time, time);
        } else {
            self.add_distance(time);
        }
        self.events += 1;
        self.last = time;
        self.earliest = self.earliest.min(time);
        self.latest = self.latest.max(time);
    }

    fn add_distance(&mut self, next: i64) {
        let distance = self.last.abs_diff(next);
        if next < self.last {
            self.steps_back += 1;
            self.note_step_back(distance, self.last);
        } else {
            self.note_gap(distance, self.last);
        }
    }

    fn note_gap(&mut self, length: u64, start: i64) {
        if length > self.largest_gap {
            (self.largest_gap, self.largest_gap_start) = (length, start);
        }
    }

    fn note_step_back(&mut self, length: u64, start: i64) {
        if length > self.largest_step_back {
            (self.largest_step_back, self.largest_step_back_start) = (length, start);
        }
    }

    /// Adds the events that follow.
    fn append(&mut self, next: &Self) {
        if self.events == 0 || next.events == 0 {
            if self.events == 0 {
                *self = next.clone();
            }
            return;
        }
        self.add_distance(next.first);
        self.note_gap(next.largest_gap, next.largest_gap_start);
        self.note_step_back(next.largest_step_back, next.largest_step_back_start);
        self.steps_back += next.steps_back;
        self.events += next.events;
        self.last = next.last;
        self.earliest = self.earliest.min(next.earliest);
        self.latest = self.latest.max(next.latest);
    }

    /// The time from the earliest to the latest event.
    pub fn span(&self) -> u64 {
        self.latest.abs_diff(self.earliest)
    }

    /// Events per second; `None` for fewer than two distinct times.
    pub fn rate(&self) -> Option<f64> {
        let span = self.span();
        (self.events > 1 && span > 0).then(|| (self.events - 1) as f64 / (span as f64 / 1e9))
    }
}

/// Returns a function that identifies the type of payloads of this channel: the one that the log
/// declares for it (`embedded`), or the one that a codec recognises. If the channel's encoding is
/// unknown, only types with a name are recognised.
pub fn key_lookup(
    codecs: &Codecs,
    channel: &Channel,
    embedded: Option<TypeKey>,
    names: &Arc<BTreeMap<TypeKey, Arc<str>>>,
) -> KeyOf {
    if embedded.is_some() {
        return Arc::new(move |_| embedded);
    }
    let functions: Vec<KeyOf> = codecs.iter().filter_map(|codec| codec.keys(channel)).collect();
    let has_encoding = channel.encoding != Encoding::Unknown;
    let names = Arc::clone(names);
    Arc::new(move |payload| {
        let mut keys = functions.iter().filter_map(|key_of| key_of(payload));
        keys.find(|key| has_encoding || names.contains_key(key))
    })
}

/// The census of one batch, or of all so far. Channels are in order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct BatchCensus {
    /// The times of all events of all channels.
    pub all: TimeStatistics,
    /// The sequence numbers of the first and the last event.
    numbers: Option<(i64, i64)>,
    /// The number of events whose sequence number does not follow that of the event before.
    pub sequence_jumps: u64,
    /// The events of each channel, by its number.
    pub channels: BTreeMap<u32, ChannelCensus>,
    /// Names of types that came with decoded rows.
    pub named: BTreeMap<TypeKey, Arc<str>>,
}

impl BatchCensus {
    /// The census of a batch. `keys` has one function per channel number that identifies types; if
    /// it is empty, only decoded events have types. Events of the channels for which `views` is
    /// true repeat the sequence numbers of others.
    pub fn from_batch(batch: &Batch, keys: &[KeyOf], views: &[bool]) -> Self {
        let mut part = Self::default();
        // A slot per channel of the batch, so that events need no lookup.
        let mut places: Vec<u32> = Vec::new();
        let mut tallies: Vec<(u32, ChannelCensus)> = Vec::new();
        for (row, (time, channel)) in batch.timestamps().iter().zip(batch.channels()).enumerate() {
            part.all.push(*time);
            if !views.get(*channel as usize).is_some_and(|is_view| *is_view) {
                part.number(batch.sequences()[row]);
            }
            let tally = tally_of(*channel, &mut places, &mut tallies);
            tally.times.push(*time);
            tally.wide_times += u64::from(batch.wide_time(row).is_some());
            tally.bytes += batch.payload_len(row) as u64;
            let key_of = keys.get(*channel as usize);
            if let Some(key) = key_of.and_then(|key_of| key_of(batch.payload(row))) {
                tally.add_type(key, 1);
            }
        }
        for rows in batch.rows() {
            part.named.insert(rows.base_key(), Arc::clone(&rows.message.name));
            let is_counted = rows.payloads == Payloads::Gone || keys.is_empty();
            let mut events = vec![0; tallies.len()];
            for event in rows.events.iter().filter(|_| is_counted) {
                let channel = batch.channels()[*event as usize];
                events[places[channel as usize] as usize] += 1;
            }
            for ((_, tally), events) in tallies.iter_mut().zip(events).filter(|(_, n)| *n > 0) {
                tally.add_type(rows.base_key(), events);
                tally.without_payload += if rows.payloads == Payloads::Gone { events } else { 0 };
            }
        }
        part.channels = tallies.into_iter().collect();
        part
    }

    fn number(&mut self, number: i64) {
        let (first, before) = self.numbers.unwrap_or((number, number.wrapping_sub(1)));
        self.sequence_jumps += u64::from(before.wrapping_add(1) != number);
        self.numbers = Some((first, number));
    }

    /// Adds the events that follow.
    pub fn append(&mut self, next: Self) {
        self.all.append(&next.all);
        if let (Some((first, before)), Some((after, last))) = (self.numbers, next.numbers) {
            self.sequence_jumps += u64::from(before.wrapping_add(1) != after);
            self.numbers = Some((first, last));
        } else {
            self.numbers = self.numbers.or(next.numbers);
        }
        self.sequence_jumps += next.sequence_jumps;
        self.named.extend(next.named);
        for (channel, tally) in next.channels {
            let ours = self.channels.entry(channel).or_default();
            ours.bytes += tally.bytes;
            ours.without_payload += tally.without_payload;
            ours.times.append(&tally.times);
            ours.wide_times += tally.wide_times;
            tally.types.into_iter().for_each(|(key, events)| ours.add_type(key, events));
        }
    }
}

fn tally_of<'t>(
    channel: u32,
    places: &mut Vec<u32>,
    tallies: &'t mut Vec<(u32, ChannelCensus)>,
) -> &'t mut ChannelCensus {
    let slot = channel as usize;
    if places.len() <= slot {
        places.resize(slot + 1, u32::MAX);
    }
    if places[slot] == u32::MAX {
        places[slot] = tallies.len() as u32;
        tallies.push((channel, ChannelCensus::default()));
    }
    &mut tallies[places[slot] as usize].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::RecordBatch;
    use arrow_schema::Schema;
    use sluice_model::{BatchBuilder, ChannelId, MessageType, Rows};

    /// A batch of events: channel, time, number.
    fn batch(events: &[(u32, i64, i64)]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (channel, time, number) in events {
            builder.push_copy(*time, *number, ChannelId(*channel), &[0; 5]);
        }
        builder.finish()
    }

    fn part(events: &[(u32, i64, i64)]) -> BatchCensus {
        let nothing: KeyOf = Arc::new(|_| None);
        BatchCensus::from_batch(&batch(events), &[Arc::clone(&nothing), nothing], &[])
    }

    const EVENTS: [(u32, i64, i64); 6] =
        [(0, 100, 0), (1, 110, 1), (0, 105, 2), (0, 400, 7), (1, 90, 8), (1, 90, 9)];

    #[test]
    fn gaps_and_steps_back_are_counted_by_channel_and_in_total() {
        let part = part(&EVENTS);
        assert_eq!((part.all.steps_back, part.all.largest_step_back), (2, 310));
        assert_eq!(
            (part.all.first, part.all.last, part.all.earliest, part.all.latest),
            (100, 90, 90, 400)
        );
        assert_eq!(part.sequence_jumps, 1);
        let repeats = [(0, 100, 0), (1, 100, 0), (0, 105, 1), (1, 105, 1), (0, 110, 3)];
        let of_views = BatchCensus::from_batch(&batch(&repeats), &[], &[false, true]);
        assert_eq!((of_views.sequence_jumps, of_views.all.events), (1, 5));
        let (a, b) = (&part.channels[&0], &part.channels[&1]);
        assert_eq!((a.times.largest_gap, a.times.steps_back, a.bytes), (295, 0, 15));
        assert_eq!(
            (b.times.largest_gap, b.times.steps_back, b.times.largest_step_back),
            (0, 1, 20)
        );
    }

    #[test]
    fn how_events_are_cut_into_batches_does_not_matter() {
        let whole = part(&EVENTS);
        for cut in 0..=EVENTS.len() {
            let (front, back) = EVENTS.split_at(cut);
            let mut joined = BatchCensus::default();
            [front, back].into_iter().for_each(|events| joined.append(part(events)));
            assert_eq!((&joined.all, joined.sequence_jumps), (&whole.all, 1), "cut at {cut}");
            assert_eq!(format!("{:?}", joined.channels), format!("{:?}", whole.channels));
        }
    }

    #[test]
    fn the_length_of_payloads_is_unknown_where_some_events_have_none() {
        let columns = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let message = Arc::new(MessageType::named("t", TypeKey(1)));
        let rows = |payloads, events: &[u32]| {
            let message = Arc::clone(&message);
            Rows { message, payloads, events: events.to_vec(), columns: columns.clone() }
        };
        let batch = batch(&EVENTS);
        let rows = vec![rows(Payloads::Kept, &[0]), rows(Payloads::Gone, &[1])];
        let mut census = BatchCensus::from_batch(&batch.with_rows(rows), &[], &[]);
        census.append(part(&EVENTS));
        let lens = census.channels.values().map(ChannelCensus::payload_bytes);
        assert_eq!(lens.collect::<Vec<_>>(), [Some(30), None]);
    }

    #[test]
    fn rates_need_two_times() {
        let rate = |events: &[(u32, i64, i64)]| part(events).all.rate();
        assert_eq!(rate(&[(0, 0, 0), (0, 500_000_000, 1), (0, 1_000_000_000, 2)]), Some(2.0));
        assert_eq!((rate(&[(0, 5, 0)]), rate(&[(0, 5, 0), (0, 5, 1)])), (None, None));
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let part = part(&[(0, i64::MIN, i64::MAX), (0, i64::MAX, i64::MIN)]);
        assert_eq!(
            (part.all.largest_gap, part.all.span(), part.sequence_jumps),
            (u64::MAX, u64::MAX, 0)
        );
    }
}
