//! How much stage output exists at one time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sluice_model::options::ByteSize;
use sluice_model::{
    Batch, BatchBuilder, Channel, DynSink, Encoding, Error, Fold, Input, Map, Name, Query,
    ReadContext, Reader, Source, Split, SplitStart, Stage, StageContext,
};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::{Pipeline, PluginInstance};

use crate::engine::kit::{LineSink, MadeUpSource, chain_of, node};

const CAP: usize = 64 << 20;

/// The split size under this memory cap.
const PIECE: usize = CAP / 256;

/// Live bytes, and their maximum.
#[derive(Default)]
struct LiveBytes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Bytes that count as live until dropped.
struct CountedBytes {
    bytes: Vec<u8>,
    alive: Arc<LiveBytes>,
}

impl CountedBytes {
    fn new(len: usize, alive: &Arc<LiveBytes>) -> Self {
        let now = alive.now.fetch_add(len, Ordering::SeqCst) + len;
        alive.most.fetch_max(now, Ordering::SeqCst);
        Self { bytes: vec![0; len], alive: Arc::clone(alive) }
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.alive.now.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

/// Makes batches this many times as large.
struct SwellingMap(usize, Arc<LiveBytes>);

impl Map for SwellingMap {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut builder = BatchBuilder::default();
        let large = CountedBytes::new(batch.payload_bytes() as usize * self.0, &self.1);
        let segment = builder.segment(Bytes::from_owner(large));
        for event in batch.iter() {
            let place = sluice_model::PayloadOffset { segment, offset: 0 };
            builder.push(event.timestamp, event.sequence, event.channel, &[0; 64], place);
        }
        Ok(builder.finish())
    }
}

/// Passes events through.
struct PassingFold;

impl Fold for PassingFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(vec![batch])
    }
}

/// The maximum of live bytes, if batches grow this many times.
fn most_alive(times: usize, stage: impl Fn(Stage) -> Stage) -> usize {
    let alive = Arc::<LiveBytes>::default();
    let (seconds, per_second) = (80, 16);
    let payload = PIECE / per_second as usize;
    let made = MadeUpSource { seconds, per_second, payload, ..MadeUpSource::default() };
    let swell = Stage::Map(Box::new(SwellingMap(times, Arc::clone(&alive))));
    let lines = LineSink::default();
    let pipeline = chain_of(&made, vec![("swell", stage(swell))], &lines);
    let memory = Some(ByteSize(CAP as u64));
    run::run(pipeline, &Options { jobs: Some(8), memory, ..Options::default() }).unwrap();
    assert_eq!(lines.lines.lock().unwrap().len() as i64, seconds * per_second);
    assert_eq!(alive.now.load(Ordering::SeqCst), 0);
    alive.most.load(Ordering::SeqCst)
}

#[test]
fn batches_that_swell_while_they_are_read_stay_below_the_cap() {
    let most = most_alive(20, |swell| swell);
    assert!(most < CAP, "{most}");
}

#[test]
fn batches_that_swell_behind_a_fold_stay_below_the_cap() {
    let most =
        most_alive(40, |swell| Stage::Chain(vec![Stage::Fold(Box::new(PassingFold)), swell]));
    assert!(most < CAP, "{most}");
}

#[test]
fn batches_that_swell_before_a_fold_stay_below_the_cap() {
    let most =
        most_alive(20, |swell| Stage::Chain(vec![swell, Stage::Fold(Box::new(PassingFold))]));
    assert!(most < CAP, "{most}");
}

/// Makes up much more than the size that it states.
struct UnderstatedSource {
    splits: u64,
    /// The batches of a split.
    batches: usize,
    alive: Arc<LiveBytes>,
    /// Requested at the first batch, if there is one.
    stop: Option<Arc<Stop>>,
    made: Arc<AtomicUsize>,
}

/// The size of a batch.
const UNDERSTATED: usize = 1 << 20;

impl Source for UnderstatedSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let split = |start| Split { start, ..Split::whole("made", Some(1)) };
        Ok((0..self.splits).map(split).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let channel = Channel::new(Name::from_text("A"), "made", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let start = split.start as i64;
        Ok(Box::new((0..self.batches as i64).map(move |n| {
            self.made.fetch_add(1, Ordering::Relaxed);
            if let Some(stop) = self.stop.as_ref().filter(|stop| !stop.is_requested()) {
                stop.request();
            }
            let mut builder = BatchBuilder::default();
            let bytes = CountedBytes::new(UNDERSTATED, &self.alive);
            let segment = builder.segment(Bytes::from_owner(bytes));
            let place = sluice_model::PayloadOffset { segment, offset: 0 };
            builder.push(start, n, channel, &[0; UNDERSTATED], place);
            Ok(builder.finish())
        })))
    }
}

impl UnderstatedSource {
    fn new(splits: u64, batches: usize) -> Self {
        let (alive, made) = (Arc::default(), Arc::default());
        Self { splits, batches, alive, stop: None, made }
    }

    /// Runs it into a sink with a cap on memory. Returns what was written.
    fn run(self) -> Result<Vec<String>, Error> {
        let (lines, stop) = (LineSink::default(), self.stop.clone().unwrap_or_default());
        let nodes = vec![
            node("made", &[], PluginInstance::Source(Box::new(self)), None),
            node("out", &[0], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        ];
        let memory = Some(ByteSize(CAP as u64));
        let options = Options { jobs: Some(2), memory, stop, ..Options::default() };
        run::run(Pipeline { nodes, ..Pipeline::default() }, &options)?;
        let written = lines.lines.lock().unwrap().clone();
        Ok(written)
    }
}

#[test]
fn splits_that_are_larger_than_they_state_stay_below_the_cap() {
    let source = UnderstatedSource::new(4, 100);
    let alive = Arc::clone(&source.alive);
    let lines = source.run().unwrap();
    let place = |line: &String| {
        let words: Vec<i64> = line.split(' ').skip(1).take(2).map(|n| n.parse().unwrap()).collect();
        (words[1], words[0])
    };
    let places: Vec<_> = lines.iter().map(place).collect();
    let expected: Vec<_> = (0..4).flat_map(|split| (0..100).map(move |n| (split, n))).collect();
    assert_eq!(places, expected, "each event is written once, in order");
    let most = alive.most.load(Ordering::SeqCst);
    assert!(most < CAP, "{most}");
}

#[test]
fn a_stop_request_ends_a_split_that_is_larger_than_it_states() {
    let stop = Some(Arc::default());
    let source = UnderstatedSource { stop, ..UnderstatedSource::new(1, 10_000) };
    let made = Arc::clone(&source.made);
    let error = source.run().unwrap_err();
    assert!(matches!(error.kind(), sluice_model::ErrorKind::Interrupted), "{error}");
    let made = made.load(Ordering::Relaxed);
    assert!(made < 10, "{made}");
}
