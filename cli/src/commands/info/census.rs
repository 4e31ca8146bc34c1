//! The census of a log: a sink that counts events, and keeps nothing of them.
//!
//! Batches are counted on any thread; what that gives is put together in the order of the events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::{
    Batch, Channel, ChannelId, Channels, CodecOptions, Codecs, EncodeContext, Encoding, Error,
    KeyOf, KnownType, Payloads, PerChannel, Sink, SinkContext, TypeKey, TypePaths, TypesByKey,
};

use crate::ending::Failure;
use crate::shell::Shell;

/// What there is in a log.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// All events, whatever their channel.
    pub(super) all: Times,
    /// How often an event's number is not the one after that of the event before.
    pub(super) number_jumps: u64,
    /// Every channel, by name and source.
    pub(super) channels: Vec<(Arc<Channel>, Tally)>,
    /// The names of the types, as far as they are known.
    pub(super) types: BTreeMap<TypeKey, Arc<str>>,
}

/// The events of a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Bytes of payload.
    pub(super) bytes: u64,
    /// Their times.
    pub(super) times: Times,
    /// How many have a time that 64 bits of nanoseconds cannot hold.
    pub(super) wide_times: u64,
    /// The types of their payloads, and how many events are of each.
    pub(super) types: BTreeMap<TypeKey, u64>,
}

/// More types than these are not counted of a channel: a damaged log may have one for each event.
const MOST_TYPES: usize = 1024;

impl Tally {
    fn add_type(&mut self, key: TypeKey, events: u64) {
        if self.types.len() < MOST_TYPES || self.types.contains_key(&key) {
            *self.types.entry(key).or_default() += events;
        }
    }

    /// The types that most events are of, and how many these are.
    pub(super) fn common_types(&self) -> Vec<(TypeKey, u64)> {
        const SHOWN: usize = 8;
        let mut types: Vec<_> = self.types.iter().map(|(key, events)| (*key, *events)).collect();
        types.sort_by_key(|(key, events)| (Reverse(*events), *key));
        types.truncate(SHOWN);
        types
    }
}

/// The types that payloads and rows may be of.
#[derive(Default)]
pub(crate) struct Types {
    codecs: Codecs,
    names: Arc<BTreeMap<TypeKey, Arc<str>>>,
}

impl Types {
    /// Those that these files declare; built-in ones have names where the files have none. Warns of
    /// what cannot be used of the files.
    pub(crate) fn named(paths: &[PathBuf], shell: &Shell) -> Result<Self, Failure> {
        let all = TypePaths([paths, &TypePaths::built_in().0].concat());
        let all = Self::declared(&all, shell)?;
        if paths.is_empty() {
            return Ok(all);
        }
        // A number that the files have a type for is of that type, whatever is built in.
        let own = Self::declared(&TypePaths(paths.to_vec()), shell)?;
        let of_files: BTreeSet<TypeKey> =
            own.codecs.types().map(|known| known.described.key).collect();
        let mut names = BTreeMap::clone(&all.names);
        names.retain(|key, _| !of_files.contains(key));
        names.extend(own.names.iter().map(|(key, name)| (*key, Arc::clone(name))));
        Ok(Self { codecs: all.codecs, names: Arc::new(names) })
    }

    fn declared(paths: &TypePaths, shell: &Shell) -> Result<Self, Failure> {
        let codecs = Codecs::of(&shell.registry, paths, &CodecOptions::default());
        let codecs = codecs.map_err(|error| Failure::WrongUse(error.message))?;
        if let Some(refusal) = codecs.refusal() {
            return Err(Failure::WrongUse(refusal));
        }
        codecs.unusable().iter().for_each(|unusable| shell.warn_once(unusable));
        Ok(Self::of(codecs))
    }

    /// Those that these codecs know.
    pub(crate) fn of(codecs: Codecs) -> Self {
        let types = TypesByKey::of(&codecs);
        let name = |(key, known): (_, &KnownType)| (key, Arc::clone(&known.described.name));
        let names = Arc::new(types.names().map(name).collect());
        Self { codecs, names }
    }

    /// The name of a type, if it is known.
    pub(crate) fn name(&self, key: TypeKey) -> Option<&str> {
        self.names.get(&key).map(|name| &**name)
    }

    /// Gives the number of the type that a payload of this channel is of. Where its encoding is not
    /// known, only if its type is.
    pub(crate) fn keys(&self, channel: &Channel) -> KeyOf {
        let able: Vec<KeyOf> = self.codecs.iter().filter_map(|codec| codec.keys(channel)).collect();
        let is_told = channel.encoding != Encoding::Unknown;
        let names = Arc::clone(&self.names);
        Arc::new(move |payload| {
            let mut keys = able.iter().filter_map(|key_of| key_of(payload));
            keys.find(|key| is_told || names.contains_key(key))
        })
    }
}

/// The times of some events, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// How many events there are. The other fields mean nothing without any.
    pub(super) events: u64,
    /// The time of the first event.
    pub(super) first: i64,
    /// The time of the last event.
    pub(super) last: i64,
    /// The earliest time.
    pub(super) earliest: i64,
    /// The latest time.
    pub(super) latest: i64,
    /// The longest time from an event to the next one.
    pub(super) largest_gap: u64,
    /// How often an event is earlier than the one before.
    pub(super) steps_back: u64,
    /// By how much at most.
    pub(super) largest_step_back: u64,
}

impl Times {
    /// Adds the event that comes next.
    fn push(&mut self, time: i64) {
        let one = Self {
            events: 1,
            first: time,
            last: time,
            earliest: time,
            latest: time,
            ..Self::default()
        };
        self.append(&one);
    }

    /// Adds the events that come next.
    fn append(&mut self, next: &Self) {
        if self.events == 0 || next.events == 0 {
            if self.events == 0 {
                *self = next.clone();
            }
            return;
        }
        let distance = self.last.abs_diff(next.first);
        self.largest_gap = self.largest_gap.max(next.largest_gap);
        self.largest_step_back = self.largest_step_back.max(next.largest_step_back);
        self.steps_back += next.steps_back;
        if next.first < self.last {
            self.steps_back += 1;
            self.largest_step_back = self.largest_step_back.max(distance);
        } else {
            self.largest_gap = self.largest_gap.max(distance);
        }
        self.events += next.events;
        self.last = next.last;
        self.earliest = self.earliest.min(next.earliest);
        self.latest = self.latest.max(next.latest);
    }

    /// The time from the earliest to the latest event.
    pub(super) fn span(&self) -> u64 {
        self.latest.abs_diff(self.earliest)
    }

    /// Events a second; nothing where that has no meaning.
    pub(super) fn rate(&self) -> Option<f64> {
        let span = self.span();
        (self.events > 1 && span > 0).then(|| (self.events - 1) as f64 / (span as f64 / 1e9))
    }
}

/// The census of one batch, or of all so far. Channels are in order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Part {
    all: Times,
    /// The numbers of the first and the last event.
    numbers: Option<(i64, i64)>,
    number_jumps: u64,
    channels: BTreeMap<u32, Tally>,
    /// Names of types that came with decoded rows.
    named: BTreeMap<TypeKey, Arc<str>>,
}

impl Part {
    fn of(batch: &Batch, key_of: impl Fn(ChannelId, &[u8]) -> Option<TypeKey>) -> Self {
        let mut part = Self::default();
        // A place for each channel of the batch, so that no event needs a search.
        let mut places: Vec<u32> = Vec::new();
        let mut tallies: Vec<(u32, Tally)> = Vec::new();
        for (row, (time, channel)) in batch.timestamps().iter().zip(batch.channels()).enumerate() {
            part.all.push(*time);
            part.number(batch.sequences()[row]);
            let tally = tally_of(*channel, &mut places, &mut tallies);
            tally.times.push(*time);
            tally.wide_times += u64::from(batch.wide_time(row).is_some());
            tally.bytes += batch.payload_len(row) as u64;
            if let Some(key) = key_of(ChannelId(*channel), batch.payload(row)) {
                tally.add_type(key, 1);
            }
        }
        for rows in batch.rows() {
            part.named.insert(rows.base_key(), Arc::clone(&rows.message.name));
            for event in rows.events.iter().filter(|_| rows.payloads == Payloads::Gone) {
                let channel = batch.channels()[*event as usize];
                tally_of(channel, &mut places, &mut tallies).add_type(rows.base_key(), 1);
            }
        }
        part.channels = tallies.into_iter().collect();
        part
    }

    fn number(&mut self, number: i64) {
        let (first, before) = self.numbers.unwrap_or((number, number.wrapping_sub(1)));
        self.number_jumps += u64::from(before.wrapping_add(1) != number);
        self.numbers = Some((first, number));
    }

    /// Adds the events that come next.
    fn append(&mut self, next: Self) {
        self.all.append(&next.all);
        if let (Some((first, before)), Some((after, last))) = (self.numbers, next.numbers) {
            self.number_jumps += u64::from(before.wrapping_add(1) != after);
            self.numbers = Some((first, last));
        } else {
            self.numbers = self.numbers.or(next.numbers);
        }
        self.number_jumps += next.number_jumps;
        self.named.extend(next.named);
        for (channel, tally) in next.channels {
            let ours = self.channels.entry(channel).or_default();
            ours.bytes += tally.bytes;
            ours.times.append(&tally.times);
            ours.wide_times += tally.wide_times;
            tally.types.into_iter().for_each(|(key, events)| ours.add_type(key, events));
        }
    }
}

fn tally_of<'t>(
    channel: u32,
    places: &mut Vec<u32>,
    tallies: &'t mut Vec<(u32, Tally)>,
) -> &'t mut Tally {
    let slot = channel as usize;
    if places.len() <= slot {
        places.resize(slot + 1, u32::MAX);
    }
    if places[slot] == u32::MAX {
        places[slot] = tallies.len() as u32;
        tallies.push((channel, Tally::default()));
    }
    &mut tallies[places[slot] as usize].1
}

/// The sink that counts.
pub(crate) struct Counting {
    /// Where the census is left.
    result: Arc<Mutex<Census>>,
    /// What payloads may be.
    types: Types,
    keys: PerChannel<KeyOf>,
}

impl Counting {
    /// Leaves the census at `result`.
    pub(crate) fn new(result: Arc<Mutex<Census>>, types: Types) -> Self {
        Self { result, types, keys: PerChannel::default() }
    }
}

/// The census in the making.
pub(crate) struct Count {
    channels: Arc<Channels>,
    part: Part,
}

impl Sink for Counting {
    type Block = Part;
    type Output = Count;

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn open(&self, context: &SinkContext) -> Result<Count, Error> {
        Ok(Count { channels: Arc::clone(&context.channels), part: Part::default() })
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wide_times(&self) -> bool {
        true
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Part, Error> {
        let keys = self.keys.table(context.channels, |channel| Ok(self.types.keys(channel)))?;
        Ok(Part::of(&batch, |id, payload| keys[id.index()](payload)))
    }

    fn append(&self, output: &mut Count, block: Part) -> Result<u64, Error> {
        let events = block.all.events;
        output.part.append(block);
        Ok(events)
    }

    fn finish(&self, output: Count) -> Result<u64, Error> {
        let Count { channels, part } = output;
        let all = channels.since(0);
        let named = part
            .channels
            .into_iter()
            .filter_map(|(id, tally)| Some((Arc::clone(all.get(id as usize)?), tally)));
        let mut channels: Vec<_> = named.collect();
        channels.sort_by(|(a, _), (b, _)| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
        let mut names = part.named;
        for key in channels.iter().flat_map(|(_, tally)| tally.types.keys()) {
            if let Some(name) = self.types.names.get(key) {
                // What rows were decoded as they say themselves.
                names.entry(*key).or_insert_with(|| Arc::clone(name));
            }
        }
        let census =
            Census { types: names, all: part.all, number_jumps: part.number_jumps, channels };
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = census;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{BatchBuilder, ChannelId};

    /// A batch of events: channel, time, number.
    fn batch(events: &[(u32, i64, i64)]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (channel, time, number) in events {
            builder.push_copy(*time, *number, ChannelId(*channel), &[0; 5]);
        }
        builder.finish()
    }

    const EVENTS: [(u32, i64, i64); 6] =
        [(0, 100, 0), (1, 110, 1), (0, 105, 2), (0, 400, 7), (1, 90, 8), (1, 90, 9)];

    #[test]
    fn gaps_and_steps_back_are_told_by_channel_and_over_all() {
        let part = Part::of(&batch(&EVENTS), |_, _| None);
        assert_eq!((part.all.steps_back, part.all.largest_step_back), (2, 310));
        assert_eq!(
            (part.all.first, part.all.last, part.all.earliest, part.all.latest),
            (100, 90, 90, 400)
        );
        assert_eq!(part.number_jumps, 1);
        let (a, b) = (&part.channels[&0], &part.channels[&1]);
        assert_eq!((a.times.largest_gap, a.times.steps_back, a.bytes), (295, 0, 15));
        assert_eq!(
            (b.times.largest_gap, b.times.steps_back, b.times.largest_step_back),
            (0, 1, 20)
        );
    }

    #[test]
    fn how_events_are_cut_into_batches_does_not_matter() {
        let whole = Part::of(&batch(&EVENTS), |_, _| None);
        for cut in 0..=EVENTS.len() {
            let (front, back) = EVENTS.split_at(cut);
            let mut joined = Part::default();
            [front, back]
                .into_iter()
                .for_each(|events| joined.append(Part::of(&batch(events), |_, _| None)));
            assert_eq!((&joined.all, joined.number_jumps), (&whole.all, 1), "cut at {cut}");
            assert_eq!(format!("{:?}", joined.channels), format!("{:?}", whole.channels));
        }
    }

    #[test]
    fn rates_need_two_times() {
        let rate = |events: &[(u32, i64, i64)]| Part::of(&batch(events), |_, _| None).all.rate();
        assert_eq!(rate(&[(0, 0, 0), (0, 500_000_000, 1), (0, 1_000_000_000, 2)]), Some(2.0));
        assert_eq!((rate(&[(0, 5, 0)]), rate(&[(0, 5, 0), (0, 5, 1)])), (None, None));
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let part =
            Part::of(&batch(&[(0, i64::MIN, i64::MAX), (0, i64::MAX, i64::MIN)]), |_, _| None);
        assert_eq!(
            (part.all.largest_gap, part.all.span(), part.number_jumps),
            (u64::MAX, u64::MAX, 0)
        );
    }
}
