//! Events outside of any run: made by the kit or by a pipeline, fed to a run in batches of any
//! size, collected from a run, and compared. Checks no plugin.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Channels, Encoding, Error, Input, Name,
    PrepareContext, Query, ReadContext, Reader, Rows, Sink, SinkContext, SinkTraits, Source, Split,
    SplitStart, Written,
};

use crate::hostile::SeededRandom;

/// Events with their channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    pub(crate) channels: Arc<Channels>,
    pub(crate) batch: Batch,
}

/// An event without its decoded rows, for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparableEvent {
    pub(crate) timestamp: i64,
    pub(crate) sequence: i64,
    pub(crate) channel: Arc<Channel>,
    /// The original channel.
    pub(crate) origin: Arc<Channel>,
    pub(crate) payload: Vec<u8>,
}

/// The time of the kit's first event: 2007-11-03T14:00:00Z.
const START_TIME: i64 = 1_194_098_400_000_000_000;

/// The number of events in the kit's mix.
const MIXED: i64 = 240;
/// The number of them, at the end, with unusual names and times.
const ODD: i64 = 24;
/// Names that are special to file systems, text formats or C, or are not text.
const ODD_NAMES: [&[u8]; 6] =
    [b"..", b"", b"../up/and\\away", b"a\0b", b"two\nlines\t\"'", b"\xff\xfe"];
/// The last moments before 1970, 1900, the epoch and the year 2200.
const ODD_TIMES: [i64; 4] = [-1_000, -2_208_988_800_000_000_000, 0, 7_258_118_400_000_000_000];

impl Events {
    /// The kit's mix of events: several channels and sources, names of every kind, payloads from
    /// empty to a hundred kilobytes, simultaneous events, and at the end unusual names and times.
    pub(crate) fn mix() -> Self {
        let (channels, mut dice) = (Arc::new(Channels::default()), SeededRandom::new(7));
        let long = "a long name, as a path through a tree of parts might be / ".repeat(4);
        let usual = [
            ("POSE".as_bytes(), "robot", Encoding::Lcm),
            ("größe/π – \"位置\"".as_bytes(), "robot", Encoding::Unknown),
            (long.as_bytes(), "robot", Encoding::Unknown),
            (b"CAMERA", "robot", Encoding::Unknown),
            (b"POSE.raw", "other", Encoding::Text),
        ];
        let odd = ODD_NAMES.map(|name| (name, "robot", Encoding::Unknown));
        let ids: Vec<ChannelId> = usual
            .iter()
            .chain(&odd)
            .filter_map(|(name, source, encoding)| {
                let channel = Channel::new(Name::from_bytes(name), *source, encoding.clone());
                channels.intern(channel).ok()
            })
            .collect();
        let (mut builder, mut time) = (BatchBuilder::default(), START_TIME);
        for number in 0..MIXED {
            // Three of four events are a little later than the one before.
            time += [0, 1_000, 1_234_567, 20_000_000][dice.below(4)];
            let (channel, len) = match number % 40 {
                _ if number >= MIXED - ODD => {
                    (usual.len() + number as usize % odd.len(), dice.below(40))
                }
                5 => (3, 20_000 + dice.below(80_000)),
                _ => ([0, 1, 2, 4][dice.below(4)], dice.below(300)),
            };
            let time = match number - (MIXED - ODD) {
                odd if odd < 0 => time,
                odd => ODD_TIMES[odd as usize / ODD_NAMES.len() % ODD_TIMES.len()],
            };
            let len = if number % 17 == 3 { 0 } else { len };
            let payload = match channel {
                4 => format!("line {number}: {}", "text ".repeat(len / 5)).into_bytes(),
                _ => dice.bytes(len),
            };
            let channel = ids.get(channel).copied().unwrap_or(ChannelId(0));
            builder.push_copy(time, number, channel, &payload);
        }
        Self { channels, batch: builder.finish() }
    }

    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.batch.len()
    }

    /// The first `count` events that are no longer than `longest`.
    pub(crate) fn few(&self, count: usize, longest: usize) -> Self {
        let mut kept = 0;
        let batch = self.batch.retain(|row| {
            let keep = kept < count && self.batch.payload_len(row) <= longest;
            kept += usize::from(keep);
            keep
        });
        Self { channels: Arc::clone(&self.channels), batch }
    }

    /// A range of the events.
    pub(crate) fn slice(&self, start: usize, len: usize) -> Self {
        Self { channels: Arc::clone(&self.channels), batch: self.batch.slice(start, len) }
    }

    /// All events but one.
    pub(crate) fn without(&self, row: usize) -> Self {
        let batch = self.batch.retain(|other| other != row);
        Self { channels: Arc::clone(&self.channels), batch }
    }

    /// The same events in batches of `size`.
    pub(crate) fn in_batches(&self, size: usize) -> Vec<Batch> {
        let starts = (0..self.len()).step_by(size.max(1));
        starts.map(|at| self.batch.slice(at, size.max(1).min(self.len() - at))).collect()
    }

    /// The events of consecutive batches of a run.
    pub(crate) fn from_batches(channels: Arc<Channels>, batches: &[Batch]) -> Self {
        Self { channels, batch: concat(batches) }
    }

    /// The events without their rows.
    pub(crate) fn comparable(&self) -> Vec<ComparableEvent> {
        let mut known: BTreeMap<u32, Arc<Channel>> = BTreeMap::new();
        let mut channel = |id: u32| {
            Arc::clone(known.entry(id).or_insert_with(|| self.channels.get(ChannelId(id))))
        };
        let each =
            self.batch.iter().zip(self.batch.origins()).map(|(event, origin)| ComparableEvent {
                timestamp: event.timestamp,
                sequence: event.sequence,
                channel: channel(event.channel.0),
                origin: channel(*origin),
                payload: event.payload.to_vec(),
            });
        each.collect()
    }

    /// The first difference to other events, in words; `None` if they are equal.
    pub(crate) fn difference(&self, others: &Self) -> Option<String> {
        let (ours, theirs) = (self.comparable(), others.comparable());
        let first = ours.iter().zip(&theirs).position(|(one, other)| one != other);
        if let Some(at) = first {
            let (one, other) = (ours.get(at)?, theirs.get(at)?);
            return Some(format!(
                "event {at} is {} instead of {}",
                describe_event(other),
                describe_event(one)
            ));
        }
        if ours.len() != theirs.len() {
            return Some(format!("{} events come out instead of {}", theirs.len(), ours.len()));
        }
        rows_differ(&self.batch, &others.batch)
    }

    /// The events as a batch of a run with these channels.
    fn for_run(&self, channels: &Channels, range: std::ops::Range<usize>) -> Result<Batch, Error> {
        let batch = self.batch.slice(range.start, range.len());
        let mut ids: BTreeMap<u32, u32> = BTreeMap::new();
        for id in batch.channels().iter().chain(batch.origins()) {
            if !ids.contains_key(id) {
                let channel = self.channels.get(ChannelId(*id));
                ids.insert(*id, channels.intern(Channel::clone(&channel))?.0);
            }
        }
        let id = |id: &u32| ids.get(id).copied().unwrap_or_default();
        let mut builder = BatchBuilder::with_capacity(batch.len());
        for (event, origin) in batch.iter().zip(batch.origins()) {
            let origin = ChannelId(id(origin));
            builder.push_copy(event.timestamp, event.sequence, origin, event.payload);
        }
        let rebuilt = builder.finish();
        let is_renamed = batch.channels() != batch.origins();
        let named = match is_renamed {
            true => rebuilt.with_channels(batch.channels().iter().map(id).collect()),
            false => rebuilt,
        };
        Ok(named.with_rows(batch.rows().to_vec()))
    }
}

/// An event in words.
pub(crate) fn describe_event(event: &ComparableEvent) -> String {
    let name = event.channel.name.text();
    let short: String = name.chars().take(40).collect();
    let head = event.payload.get(..8).unwrap_or(&event.payload);
    let head: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "number {} on `{short}` at {} with {} bytes [{}]",
        event.sequence,
        event.timestamp,
        event.payload.len(),
        head.join(" ")
    )
}

/// Batches as one.
pub(crate) fn concat(batches: &[Batch]) -> Batch {
    let rows = |(at, batch): (usize, &Batch)| {
        (0..batch.len() as u32).map(move |row| (at as u32, row)).collect::<Vec<_>>()
    };
    let picks: Vec<(u32, u32)> = batches.iter().enumerate().flat_map(rows).collect();
    Batch::interleave(batches, &picks)
}

/// The first difference of decoded rows.
fn rows_differ(ours: &Batch, theirs: &Batch) -> Option<String> {
    let (ours, theirs) = (by_type(ours), by_type(theirs));
    if ours.len() != theirs.len() {
        let names = |rows: &[&Rows]| {
            rows.iter().map(|rows| rows.message.name.to_string()).collect::<Vec<_>>().join(", ")
        };
        return Some(format!("rows of [{}] instead of [{}]", names(&theirs), names(&ours)));
    }
    ours.into_iter().zip(theirs).find_map(|(one, other)| {
        let name = &one.message.name;
        if one.message != other.message || one.payloads != other.payloads {
            return Some(format!("rows of `{}` instead of `{name}`", other.message.name));
        }
        if one.events != other.events {
            return Some(format!("rows of `{name}` belong to other events"));
        }
        if one.columns.schema() != other.columns.schema() {
            return Some(format!("rows of `{name}` have other columns"));
        }
        (one.columns != other.columns).then(|| format!("rows of `{name}` have other values"))
    })
}

fn by_type(batch: &Batch) -> Vec<&Rows> {
    let mut rows: Vec<&Rows> = batch.rows().iter().filter(|rows| !rows.events.is_empty()).collect();
    rows.sort_by_key(|rows| (rows.message.name.clone(), rows.message.key, rows.events.clone()));
    rows
}

/// A source that replays events in batches of `size`, `each` batches per split.
#[derive(Clone, Debug)]
pub(crate) struct ReplaySource {
    pub(crate) events: Arc<Events>,
    pub(crate) size: usize,
    pub(crate) each: usize,
    /// Whether channels are interned in reverse order.
    pub(crate) reversed: bool,
}

impl Source for ReplaySource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let step = self.size.max(1) * self.each.max(1);
        let split = |start: usize| Split {
            start: start as u64,
            // Adjacent splits would have to agree on their boundary.
            ..Split::whole(PathBuf::from(format!("events-{start}")), Some(step as u64))
        };
        Ok((0..self.events.len()).step_by(step).map(split).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        if self.reversed {
            for channel in self.events.channels.since(0).into_iter().rev() {
                context.channels.intern(Channel::clone(&channel))?;
            }
        }
        let (size, start) = (self.size.max(1), split.start as usize);
        let end = (start + size * self.each.max(1)).min(self.events.len());
        let channels = Arc::clone(&context.channels);
        let batches = (start..end).step_by(size).map(move |at| {
            // A batch without events may come at any time.
            self.events.for_run(&channels, at..(at + size).min(end))
        });
        Ok(Box::new(batches))
    }
}

/// A sink that collects the events of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatherSink(Arc<Mutex<Option<Events>>>);

impl GatherSink {
    /// The collected events, if the run ended.
    pub(crate) fn take(&self) -> Option<Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Sink for GatherSink {
    type Block = Batch;
    type Unit = Batch;
    type Output = (Arc<Channels>, Vec<Batch>);

    fn traits(&self) -> SinkTraits {
        SinkTraits::default().with_rows(true)
    }

    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error> {
        Ok((Arc::clone(&context.channels), Vec::new()))
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        Ok(batch)
    }

    fn write(&self, output: &mut Self::Output, batch: Batch) -> Result<Written, Error> {
        let events = batch.len() as u64;
        output.1.push(batch);
        Ok(Written::events(events))
    }

    fn finish(&self, (channels, batches): Self::Output) -> Result<Written, Error> {
        let gathered = Events::from_batches(channels, &batches);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(gathered);
        Ok(Written::default())
    }
}
