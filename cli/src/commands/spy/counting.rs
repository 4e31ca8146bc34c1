//! Counts what comes: a sink that keeps of each channel its numbers and its last event, and nothing else.
//!
//! What is received waits for nobody here: batches are counted on any thread, the sums are put together
//! in order, and whoever looks at them takes a copy. Messages are decoded by who looks, one of each
//! channel at most.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_core::{Batch, Channel, ChannelId, Channels, EncodeContext, Error, Sink, SinkContext};

use super::rates::{Gaps, Rates, Window};

/// Channels of which something is kept: what has more invents them.
const MOST_CHANNELS: usize = 10_000;

/// What has come, shared by who counts and who looks.
#[derive(Debug)]
pub(super) struct Books(Mutex<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    /// When counting began, since then.
    counting: Duration,
    /// How long what rates are of is.
    window: Duration,
    all: Window,
    events: u64,
    bytes: u64,
    /// By the number of the channel.
    channels: Vec<Option<Box<Entry>>>,
    known: usize,
    /// Where channels get their numbers; nothing before the run.
    table: Option<Arc<Channels>>,
}

/// A channel.
#[derive(Debug)]
struct Entry {
    channel: Arc<Channel>,
    events: u64,
    bytes: u64,
    window: Window,
    /// The last gap, and what came at its end.
    last_gap: Gaps,
    /// When the last event came.
    seen: Duration,
    last: Last,
}

/// The last event of a channel.
#[derive(Clone, Debug)]
pub(super) struct Last {
    batch: Batch,
    row: usize,
    /// Whether it is alone in its batch, and keeps nothing else alive.
    alone: bool,
}

impl Last {
    pub(super) fn time(&self) -> i64 {
        self.batch.timestamps()[self.row]
    }

    pub(super) fn sequence(&self) -> i64 {
        self.batch.sequences()[self.row]
    }

    pub(super) fn payload(&self) -> &[u8] {
        self.batch.payload(self.row)
    }

    /// A batch that has only this event.
    pub(super) fn batch(&self) -> Batch {
        self.batch.slice(self.row, 1)
    }
}

/// What there is to see of a channel at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: ChannelId,
    pub(super) channel: Arc<Channel>,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) rates: Rates,
    /// How long ago the last event came.
    pub(super) age: Duration,
    pub(super) last: Last,
}

/// What there is to see at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Since the run began.
    pub(super) elapsed: Duration,
    /// How long has been counted.
    pub(super) counted: Duration,
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) events_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// By name.
    pub(super) channels: Vec<Seen>,
    /// Channels that came beyond those.
    pub(super) more_channels: usize,
    /// Where channels get their numbers.
    pub(super) table: Option<Arc<Channels>>,
}

impl Books {
    /// Empty books, with rates over about that long.
    pub(super) fn new(window: Duration) -> Self {
        Self(Mutex::new(State {
            began: Instant::now(),
            counting: Duration::ZERO,
            window,
            all: Window::of(window),
            events: 0,
            bytes: 0,
            channels: Vec::new(),
            known: 0,
            table: None,
        }))
    }

    /// Counts from here on. Channels stay, and so do their last events.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.counting = state.began.elapsed();
        (state.events, state.bytes) = (0, 0);
        let fresh = Window::of(state.window);
        state.all = fresh.clone();
        for entry in state.channels.iter_mut().flatten() {
            (entry.events, entry.bytes, entry.last_gap) = (0, 0, Gaps::default());
            entry.window = fresh.clone();
        }
    }

    /// What there is to see now.
    pub(super) fn view(&self) -> View {
        let mut state = self.state();
        let now = state.began.elapsed();
        let view = state.view(now);
        drop(state);
        self.let_go(&view);
        view
    }

    /// Copies the last events of channels that have had no other since the last look: a silent channel
    /// must not keep all the memory that a batch lies in.
    fn let_go(&self, view: &View) {
        for seen in &view.channels {
            if seen.last.alone || seen.age < Duration::from_secs(1) {
                continue;
            }
            let copy = Last { batch: seen.last.batch().owned(), row: 0, alone: true };
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
    fn add(&mut self, part: Part, now: Duration) {
        let Part { all, tallies, batch } = part;
        self.events += all.count;
        self.bytes += all.bytes;
        self.all.add(now, &all);
        for (id, tally) in tallies {
            self.add_channel(id, &tally, &batch, now);
        }
    }

    fn add_channel(&mut self, id: u32, tally: &Tally, batch: &Batch, now: Duration) {
        let place = id as usize;
        if self.channels.len() <= place {
            self.channels.resize_with(place + 1, || None);
        }
        let last = Last { batch: batch.clone(), row: tally.row, alone: false };
        let Some(entry) = &mut self.channels[place] else {
            let (Some(table), true) = (&self.table, self.known < MOST_CHANNELS) else { return };
            let mut window = Window::of(self.window);
            window.add(now, &tally.gaps);
            self.known += 1;
            self.channels[place] = Some(Box::new(Entry {
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
        let mut gaps = Gaps::default();
        gaps.push(entry.last.time(), tally.first.0, tally.first.1);
        entry.last_gap = if tally.last_gap.count > 0 { tally.last_gap } else { gaps };
        gaps.append(&tally.gaps);
        entry.window.add(now, &gaps);
        entry.events += tally.events;
        entry.bytes += tally.bytes;
        (entry.seen, entry.last) = (now, last);
    }

    fn view(&mut self, now: Duration) -> View {
        let all = self.all.sum(now);
        let seconds = self.all.covered(now, self.counting).as_secs_f64();
        let a_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let (events_per_second, bytes_per_second) = (a_second(all.count), a_second(all.bytes));
        let places = self.channels.iter_mut().enumerate();
        let seen = places.filter_map(|(place, entry)| {
            let entry = entry.as_mut()?;
            let age = now.saturating_sub(entry.seen);
            let gaps = entry.window.sum(now);
            Some(Seen {
                id: ChannelId(place as u32),
                channel: Arc::clone(&entry.channel),
                events: entry.events,
                bytes: entry.bytes,
                rates: Rates::of(&gaps, &entry.last_gap, age),
                age,
                last: entry.last.clone(),
            })
        });
        let mut channels: Vec<Seen> = seen.collect();
        channels.sort_by(|a, b| {
            (&a.channel.name, &a.channel.source).cmp(&(&b.channel.name, &b.channel.source))
        });
        let met = self.table.as_ref().map_or(0, |table| table.len());
        View {
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

/// The events of one channel in a batch.
#[derive(Debug)]
struct Tally {
    events: u64,
    bytes: u64,
    /// The time and the bytes of the first one.
    first: (i64, u64),
    /// The time of the last one so far.
    time: i64,
    gaps: Gaps,
    last_gap: Gaps,
    /// Where the last one is.
    row: usize,
}

/// What is counted of one batch.
#[derive(Debug)]
pub(super) struct Part {
    /// Events and bytes of all channels.
    all: Gaps,
    tallies: Vec<(u32, Tally)>,
    batch: Batch,
}

impl Part {
    fn of(batch: Batch) -> Self {
        // A place for each channel of the batch, so that no event needs a search.
        let mut places: Vec<u32> = Vec::new();
        let mut tallies: Vec<(u32, Tally)> = Vec::new();
        let mut all = Gaps::default();
        for (row, (time, channel)) in batch.timestamps().iter().zip(batch.channels()).enumerate() {
            let bytes = batch.payload_len(row) as u64;
            (all.count, all.bytes) = (all.count + 1, all.bytes + bytes);
            let slot = *channel as usize;
            if places.len() <= slot {
                places.resize(slot + 1, u32::MAX);
            }
            if places[slot] == u32::MAX {
                places[slot] = tallies.len() as u32;
                tallies.push((*channel, Tally::first(*time, bytes, row)));
            } else {
                tallies[places[slot] as usize].1.push(*time, bytes, row);
            }
        }
        Self { all, tallies, batch }
    }
}

impl Tally {
    fn first(time: i64, bytes: u64, row: usize) -> Self {
        let (gaps, last_gap) = (Gaps::default(), Gaps::default());
        Self { events: 1, bytes, first: (time, bytes), time, gaps, last_gap, row }
    }

    fn push(&mut self, time: i64, bytes: u64, row: usize) {
        self.events += 1;
        self.bytes += bytes;
        self.last_gap = Gaps::default();
        self.last_gap.push(self.time, time, bytes);
        self.gaps.append(&self.last_gap);
        (self.time, self.row) = (time, row);
    }
}

/// The sink that counts.
pub(super) struct Counting(pub(super) Arc<Books>);

impl Sink for Counting {
    type Block = Part;
    type Output = ();

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wide_times(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<(), Error> {
        self.0.state().table = Some(Arc::clone(&context.channels));
        Ok(())
    }

    fn encode(&self, batch: Batch, _: &mut EncodeContext<'_>) -> Result<Part, Error> {
        Ok(Part::of(batch))
    }

    fn append(&self, (): &mut (), part: Part) -> Result<u64, Error> {
        let events = part.all.count;
        let mut state = self.0.state();
        let now = state.began.elapsed();
        state.add(part, now);
        Ok(events)
    }

    fn finish(&self, (): ()) -> Result<u64, Error> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{BatchBuilder, Encoding, Name};

    const MS: i64 = 1_000_000;

    fn books(names: &[&str]) -> (Books, Arc<Channels>) {
        let table = Arc::<Channels>::default();
        for name in names {
            table.intern(Channel::new(Name::from_text(name), "log", Encoding::Lcm)).unwrap();
        }
        let books = Books::new(Duration::from_secs(5));
        books.state().table = Some(Arc::clone(&table));
        (books, table)
    }

    /// Counts events (channel, time in ms, bytes) that came then.
    fn count(books: &Books, now_ms: u64, events: &[(u32, i64, usize)]) {
        let mut builder = BatchBuilder::default();
        for (channel, time, bytes) in events {
            builder.push_copy(time * MS, 0, ChannelId(*channel), &vec![7; *bytes]);
        }
        books.state().add(Part::of(builder.finish()), Duration::from_millis(now_ms));
    }

    #[test]
    fn channels_are_counted_and_have_their_rates_however_batches_are_cut() {
        let events: Vec<(u32, i64, usize)> =
            (0..20).map(|n| ((n % 2) as u32, n * 50 + n % 2, 10 + (n % 2) as usize)).collect();
        let seen = |cuts: &[usize]| {
            let (books, _) = books(&["B", "A"]);
            let mut from = 0;
            for cut in cuts.iter().chain([&events.len()]) {
                count(&books, 1000, &events[from..*cut]);
                from = *cut;
            }
            let view = books.state().view(Duration::from_millis(1000));
            let line = |seen: &Seen| {
                format!("{} {} {} {:?}", seen.channel.name, seen.events, seen.bytes, seen.rates)
            };
            (view.events, view.bytes, view.channels.iter().map(line).collect::<Vec<_>>())
        };
        let whole = seen(&[]);
        assert_eq!((whole.0, whole.1), (20, 210));
        assert!(
            whole.2[0].starts_with("A 10 110 Rates { hz: Some(10.0), jitter_ms: Some(0.0)"),
            "{whole:?}"
        );
        for cut in 1..20 {
            assert_eq!(seen(&[cut]), whole, "cut at {cut}");
        }
        assert_eq!(seen(&[1, 2, 3, 4, 5]), whole);
    }

    #[test]
    fn the_last_event_is_there_and_a_silent_channel_keeps_it_alone() {
        let (books, _) = books(&["A"]);
        count(&books, 0, &[(0, 1, 100), (0, 2, 3)]);
        let view = books.state().view(Duration::from_secs(3));
        let last = &view.channels[0].last;
        assert_eq!((last.time(), last.payload(), last.alone), (2 * MS, &[7u8; 3][..], false));
        books.let_go(&view);
        let view = books.state().view(Duration::from_secs(3));
        let last = &view.channels[0].last;
        assert_eq!((last.time(), last.payload(), last.alone), (2 * MS, &[7u8; 3][..], true));
        assert_eq!(last.batch().len(), 1);
    }

    #[test]
    fn counting_can_begin_anew_and_channels_stay() {
        let (books, _) = books(&["A"]);
        count(&books, 0, &[(0, 1, 100), (0, 2, 3)]);
        books.reset();
        let view = books.view();
        assert_eq!((view.events, view.bytes), (0, 0));
        assert_eq!((view.channels[0].events, view.channels[0].rates), (0, Rates::default()));
        count(&books, 1, &[(0, 102, 3)]);
        assert_eq!(books.view().channels[0].events, 1);
    }

    #[test]
    fn of_invented_channels_only_the_number_is_told() {
        let names: Vec<String> = (0..MOST_CHANNELS + 5).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (books, table) = books(&names);
        let events: Vec<(u32, i64, usize)> = (0..table.len() as u32).map(|n| (n, 1, 1)).collect();
        count(&books, 0, &events);
        let view = books.view();
        assert_eq!((view.channels.len(), view.more_channels), (MOST_CHANNELS, 5));
        assert_eq!(view.events as usize, MOST_CHANNELS + 5);
    }
}
