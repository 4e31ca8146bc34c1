//! Counts received messages: a sink that keeps the numbers and the last event of each channel.
//!
//! Receiving never blocks here: batches are counted on any thread, counts are combined in order,
//! and viewers take a copy. Viewers decode at most one message per channel.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_model::{
    Batch, Channel, ChannelId, Channels, Error, PrepareContext, Sink, SinkContext, SinkTraits,
    Written,
};

use super::rates::{ChannelRates, GapSums, RateWindow};

/// The maximum number of channels counted. A network with more has garbage names.
const MOST_CHANNELS: usize = 10_000;

/// Counters shared by the sink and the viewers.
#[derive(Debug)]
pub(super) struct SpyCounters(Mutex<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    /// When counting was last reset, relative to `began`.
    counting: Duration,
    /// The window of rates.
    window: Duration,
    all: RateWindow,
    events: u64,
    bytes: u64,
    /// Indexed by channel number.
    channels: Vec<Option<Box<ChannelCounter>>>,
    known: usize,
    /// The channel table; `None` before the run.
    table: Option<Arc<Channels>>,
}

/// The counters of a channel.
#[derive(Debug)]
struct ChannelCounter {
    channel: Arc<Channel>,
    events: u64,
    bytes: u64,
    window: RateWindow,
    /// The last gap, and the bytes of the event at its end.
    last_gap: GapSums,
    /// When the last event was received.
    seen: Duration,
    last: LastEvent,
}

/// The last event of a channel.
#[derive(Clone, Debug)]
pub(super) struct LastEvent {
    batch: Batch,
    row: usize,
    /// Whether it is the only event in its batch, so that it keeps no other memory alive.
    is_alone: bool,
}

impl LastEvent {
    pub(super) fn time(&self) -> i64 {
        self.batch.timestamps()[self.row]
    }

    pub(super) fn sequence(&self) -> i64 {
        self.batch.sequences()[self.row]
    }

    pub(super) fn payload(&self) -> &[u8] {
        self.batch.payload(self.row)
    }

    /// A batch of only this event.
    pub(super) fn batch(&self) -> Batch {
        self.batch.slice(self.row, 1)
    }
}

/// A snapshot of a channel.
#[derive(Clone, Debug)]
pub(super) struct ChannelView {
    pub(super) id: ChannelId,
    pub(super) channel: Arc<Channel>,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) rates: ChannelRates,
    /// The age of the last event.
    pub(super) age: Duration,
    pub(super) last: LastEvent,
}

/// A snapshot of all channels.
#[derive(Clone, Debug, Default)]
pub(super) struct SpyView {
    /// Time since the run started.
    pub(super) elapsed: Duration,
    /// Time since counting was reset.
    pub(super) counted: Duration,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) events_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// Sorted by name.
    pub(super) channels: Vec<ChannelView>,
    /// The number of channels beyond the maximum.
    pub(super) more_channels: usize,
    /// The channel table.
    pub(super) table: Option<Arc<Channels>>,
}

impl SpyCounters {
    /// Creates counters with rates over about `window`.
    pub(super) fn new(window: Duration) -> Self {
        Self(Mutex::new(State {
            began: Instant::now(),
            counting: Duration::ZERO,
            window,
            all: RateWindow::with_length(window),
            events: 0,
            bytes: 0,
            channels: Vec::new(),
            known: 0,
            table: None,
        }))
    }

    /// Resets the counts. Channels and their last events stay.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.counting = state.began.elapsed();
        (state.events, state.bytes) = (0, 0);
        let fresh = RateWindow::with_length(state.window);
        state.all = fresh.clone();
        for entry in state.channels.iter_mut().flatten() {
            (entry.events, entry.bytes, entry.last_gap) = (0, 0, GapSums::default());
            entry.window = fresh.clone();
        }
    }

    /// Takes a snapshot.
    pub(super) fn view(&self) -> SpyView {
        let mut state = self.state();
        let now = state.began.elapsed();
        let view = state.view(now);
        drop(state);
        self.release_batches(&view);
        view
    }

    /// Copies the last events of silent channels, so that they do not keep whole batches in memory.
    fn release_batches(&self, view: &SpyView) {
        for seen in &view.channels {
            if seen.last.is_alone || seen.age < Duration::from_secs(1) {
                continue;
            }
            let copy = LastEvent { batch: seen.last.batch().owned(), row: 0, is_alone: true };
            let mut state = self.state();
            let entry = state.channels.get_mut(seen.id.index()).and_then(Option::as_mut);
            if let Some(entry) = entry.filter(|entry| entry.events == seen.events) {
                entry.last = copy;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, part: BatchCount, now: Duration) {
        let BatchCount { all, tallies, batch } = part;
        self.events += all.count;
        self.bytes += all.bytes;
        self.all.add(now, &all);
        for (id, tally) in tallies {
            self.add_channel(id, &tally, &batch, now);
        }
    }

    fn add_channel(&mut self, id: u32, tally: &ChannelTally, batch: &Batch, now: Duration) {
        let place = id as usize;
        if self.channels.len() <= place {
            self.channels.resize_with(place + 1, || None);
        }
        let last = LastEvent { batch: batch.clone(), row: tally.row, is_alone: false };
        let Some(entry) = &mut self.channels[place] else {
            let (Some(table), true) = (&self.table, self.known < MOST_CHANNELS) else { return };
            let mut window = RateWindow::with_length(self.window);
            window.add(now, &tally.gaps);
            self.known += 1;
            self.channels[place] = Some(Box::new(ChannelCounter {
                channel: table.get(ChannelId(id)),
                events: tally.events,
                bytes: tally.bytes,
                window,
                last_gap: tally.last_gap,
                seen: now,
                last,
            }));
            return;
        };
        let mut gaps = GapSums::default();
        gaps.push(entry.last.time(), tally.first.0, tally.first.1);
        entry.last_gap = if tally.last_gap.count > 0 { tally.last_gap } else { gaps };
        gaps.append(&tally.gaps);
        entry.window.add(now, &gaps);
        entry.events += tally.events;
        entry.bytes += tally.bytes;
        (entry.seen, entry.last) = (now, last);
    }

    fn view(&mut self, now: Duration) -> SpyView {
        let all = self.all.sum(now);
        let seconds = self.all.covered(now, self.counting).as_secs_f64();
        let a_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let (events_per_second, bytes_per_second) = (a_second(all.count), a_second(all.bytes));
        let places = self.channels.iter_mut().enumerate();
        let seen = places.filter_map(|(place, entry)| {
            let entry = entry.as_mut()?;
            let age = now.saturating_sub(entry.seen);
            let gaps = entry.window.sum(now);
            Some(ChannelView {
                id: ChannelId(place as u32),
                channel: Arc::clone(&entry.channel),
                events: entry.events,
                bytes: entry.bytes,
                rates: ChannelRates::from_gaps(&gaps, &entry.last_gap, age),
                age,
                last: entry.last.clone(),
            })
        });
        let mut channels: Vec<ChannelView> = seen.collect();
        channels.sort_by(|a, b| {
            (&a.channel.name, &a.channel.source).cmp(&(&b.channel.name, &b.channel.source))
        });
        let met = self.table.as_ref().map_or(0, |table| table.len());
        SpyView {
            elapsed: now,
            counted: now.saturating_sub(self.counting),
            events: self.events,
            bytes: self.bytes,
            events_per_second,
            bytes_per_second,
            more_channels: if self.known < MOST_CHANNELS { 0 } else { met - self.known },
            channels,
            table: self.table.clone(),
        }
    }
}

/// Counts of one channel in a batch.
#[derive(Debug)]
struct ChannelTally {
    events: u64,
    bytes: u64,
    /// The time and the bytes of the first event.
    first: (i64, u64),
    /// The time of the last event.
    time: i64,
    gaps: GapSums,
    last_gap: GapSums,
    /// The row of the last event.
    row: usize,
}

/// Counts of one batch.
#[derive(Debug)]
pub(super) struct BatchCount {
    /// Events and bytes of all channels.
    all: GapSums,
    tallies: Vec<(u32, ChannelTally)>,
    batch: Batch,
}

impl BatchCount {
    fn from_batch(batch: Batch) -> Self {
        // Indexed by channel, so that no event needs a search.
        let mut places: Vec<u32> = Vec::new();
        let mut tallies: Vec<(u32, ChannelTally)> = Vec::new();
        let mut all = GapSums::default();
        for (row, (time, channel)) in batch.timestamps().iter().zip(batch.channels()).enumerate() {
            let bytes = batch.payload_len(row) as u64;
            (all.count, all.bytes) = (all.count + 1, all.bytes + bytes);
            let slot = *channel as usize;
            if places.len() <= slot {
                places.resize(slot + 1, u32::MAX);
            }
            if places[slot] == u32::MAX {
                places[slot] = tallies.len() as u32;
                tallies.push((*channel, ChannelTally::first(*time, bytes, row)));
            } else {
                tallies[places[slot] as usize].1.push(*time, bytes, row);
            }
        }
        Self { all, tallies, batch }
    }
}

impl ChannelTally {
    fn first(time: i64, bytes: u64, row: usize) -> Self {
        let (gaps, last_gap) = (GapSums::default(), GapSums::default());
        Self { events: 1, bytes, first: (time, bytes), time, gaps, last_gap, row }
    }

    fn push(&mut self, time: i64, bytes: u64, row: usize) {
        self.events += 1;
        self.bytes += bytes;
        self.last_gap = GapSums::default();
        self.last_gap.push(self.time, time, bytes);
        self.gaps.append(&self.last_gap);
        (self.time, self.row) = (time, row);
    }
}

/// The sink that counts.
pub(super) struct CountingSink(pub(super) Arc<SpyCounters>);

impl Sink for CountingSink {
    type Block = BatchCount;
    type Unit = BatchCount;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits { accepts_wide_times: true, ..SinkTraits::default().with_rows(true) }
    }

    fn open(&self, context: &SinkContext) -> Result<(), Error> {
        self.0.state().table = Some(Arc::clone(&context.channels));
        Ok(())
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<BatchCount, Error> {
        Ok(BatchCount::from_batch(batch))
    }

    fn write(&self, (): &mut (), part: BatchCount) -> Result<Written, Error> {
        let events = part.all.count;
        let mut state = self.0.state();
        let now = state.began.elapsed();
        state.add(part, now);
        Ok(Written::events(events))
    }

    fn finish(&self, (): ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{BatchBuilder, Encoding, Name};

    const MS: i64 = 1_000_000;

    fn counters(names: &[&str]) -> (SpyCounters, Arc<Channels>) {
        let table = Arc::<Channels>::default();
        for name in names {
            table.intern(Channel::new(Name::from_text(name), "log", Encoding::Lcm)).unwrap();
        }
        let counters = SpyCounters::new(Duration::from_secs(5));
        counters.state().table = Some(Arc::clone(&table));
        (counters, table)
    }

    /// Counts events (channel, time in ms, bytes) received at `now_ms`.
    fn count(counters: &SpyCounters, now_ms: u64, events: &[(u32, i64, usize)]) {
        let mut builder = BatchBuilder::default();
        for (channel, time, bytes) in events {
            builder.push_copy(time * MS, 0, ChannelId(*channel), &vec![7; *bytes]);
        }
        counters
            .state()
            .add(BatchCount::from_batch(builder.finish()), Duration::from_millis(now_ms));
    }

    #[test]
    fn channels_are_counted_and_have_their_rates_however_batches_are_cut() {
        let events: Vec<(u32, i64, usize)> =
            (0..20).map(|n| ((n % 2) as u32, n * 50 + n % 2, 10 + (n % 2) as usize)).collect();
        let seen = |cuts: &[usize]| {
            let (counters, _) = counters(&["B", "A"]);
            let mut from = 0;
            for cut in cuts.iter().chain([&events.len()]) {
                count(&counters, 1000, &events[from..*cut]);
                from = *cut;
            }
            let view = counters.state().view(Duration::from_millis(1000));
            let line = |seen: &ChannelView| {
                format!("{} {} {} {:?}", seen.channel.name, seen.events, seen.bytes, seen.rates)
            };
            (view.events, view.bytes, view.channels.iter().map(line).collect::<Vec<_>>())
        };
        let whole = seen(&[]);
        assert_eq!((whole.0, whole.1), (20, 210));
        assert!(
            whole.2[0].starts_with("A 10 110 ChannelRates { hz: Some(10.0), jitter_ms: Some(0.0)"),
            "{whole:?}"
        );
        for cut in 1..20 {
            assert_eq!(seen(&[cut]), whole, "cut at {cut}");
        }
        assert_eq!(seen(&[1, 2, 3, 4, 5]), whole);
    }

    #[test]
    fn a_silent_channel_keeps_only_its_last_event() {
        let (counters, _) = counters(&["A"]);
        count(&counters, 0, &[(0, 1, 100), (0, 2, 3)]);
        let view = counters.state().view(Duration::from_secs(3));
        let last = &view.channels[0].last;
        assert_eq!((last.time(), last.payload(), last.is_alone), (2 * MS, &[7u8; 3][..], false));
        counters.release_batches(&view);
        let view = counters.state().view(Duration::from_secs(3));
        let last = &view.channels[0].last;
        assert_eq!((last.time(), last.payload(), last.is_alone), (2 * MS, &[7u8; 3][..], true));
        assert_eq!(last.batch().len(), 1);
    }

    #[test]
    fn counts_can_be_reset_and_channels_stay() {
        let (counters, _) = counters(&["A"]);
        count(&counters, 0, &[(0, 1, 100), (0, 2, 3)]);
        counters.reset();
        let view = counters.view();
        assert_eq!((view.events, view.bytes), (0, 0));
        assert_eq!((view.channels[0].events, view.channels[0].rates), (0, ChannelRates::default()));
        count(&counters, 1, &[(0, 102, 3)]);
        assert_eq!(counters.view().channels[0].events, 1);
    }

    #[test]
    fn channels_beyond_the_maximum_are_only_counted() {
        let names: Vec<String> = (0..MOST_CHANNELS + 5).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (counters, table) = counters(&names);
        let events: Vec<(u32, i64, usize)> = (0..table.len() as u32).map(|n| (n, 1, 1)).collect();
        count(&counters, 0, &events);
        let view = counters.view();
        assert_eq!((view.channels.len(), view.more_channels), (MOST_CHANNELS, 5));
        assert_eq!(view.events as usize, MOST_CHANNELS + 5);
    }
}
