//! Merges of a live source that is busy with what other branches take.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, DynSink, Encoding, Error, Fold, Input, LiveBatches,
    LiveSender, Map, Name, Query, ReadContext, Reader, Source, Split, SplitStart, Stage,
    StageContext,
};
use sluice_pipeline::{Pipeline, PluginInstance};

use crate::engine::kit::{LineSink, node};
use crate::engine::merges::{only, ran, stage, times};

/// Live events of channels `A`, `C` and `X`, as they are sent to it.
#[derive(Clone, Default)]
struct FedSource(Arc<Mutex<Option<OpenFeed>>>);

struct OpenFeed {
    batches: LiveSender,
    channels: [(&'static str, ChannelId); 3],
}

impl FedSource {
    fn send(&self, name: &str, time: i64) {
        let feed = self.0.lock().unwrap();
        let OpenFeed { batches, channels } = feed.as_ref().unwrap();
        let (_, channel) = channels.iter().find(|(known, _)| *known == name).unwrap();
        let mut batch = BatchBuilder::default();
        batch.push_copy(time, 0, *channel, b"");
        assert!(batches.send(batch.finish()));
    }

    fn end(&self) {
        self.0.lock().unwrap().take();
    }
}

impl Source for FedSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::live("live")])
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(self.listen(split, context)?))
    }

    fn listen(&self, _: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let (sender, batches) = LiveSender::unbounded();
        let intern = |name| {
            let channel = Channel::new(Name::from_text(name), "live", Encoding::Unknown);
            context.channels.intern(channel).map(|id| (name, id))
        };
        let channels = [intern("A")?, intern("C")?, intern("X")?];
        *self.0.lock().unwrap() = Some(OpenFeed { batches: sender, channels });
        Ok(batches)
    }
}

/// What happens at a step of the busy source, given both sources.
type AtStep = dyn Fn(usize, &FedSource, &FedSource) + Send + Sync;

/// Keeps a source busy with X: each step sends the next one, and does more. Ends both sources.
struct Feeder {
    busy: FedSource,
    other: FedSource,
    at_step: Box<AtStep>,
    steps: AtomicUsize,
}

/// The last step.
const LAST: usize = 60;

impl Map for Feeder {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if step < LAST {
            (self.at_step)(step, &self.busy, &self.other);
            self.busy.send("X", 0);
        } else if step == LAST {
            self.busy.end();
            self.other.end();
        }
        Ok(batch)
    }
}

/// The times of A and C in the order in which they come out of a merge. X of the source of A is for
/// another branch.
fn merged(at_step: impl Fn(usize, &FedSource, &FedSource) + Send + Sync + 'static) -> Vec<i64> {
    let at_step = Box::new(at_step);
    let (busy, other) = (FedSource::default(), FedSource::default());
    let feeder =
        Feeder { busy: busy.clone(), other: other.clone(), at_step, steps: AtomicUsize::new(0) };
    let lines = LineSink::default();
    let nodes = vec![
        node("live", &[], PluginInstance::Source(Box::new(Begun(busy))), None),
        node("other", &[], PluginInstance::Source(Box::new(other)), None),
        stage("keep", &[0], only(&["A"])),
        stage("all", &[1, 2], Stage::Chain(Vec::new())),
        node("out", &[3], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        stage("feeder", &[0], Stage::Map(Box::new(feeder))),
        node("rest", &[5], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    times(&ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64).0)
}

/// A source whose first event is X.
struct Begun(FedSource);

impl Source for Begun {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.0.inputs()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.0.splits(target, query)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        start: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.0.read(split, start, context)
    }

    fn listen(&self, split: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let batches = self.0.listen(split, context)?;
        self.0.send("X", 0);
        Ok(batches)
    }
}

/// Long enough that a merge no longer waits for A.
fn without_a(step: usize) {
    thread::sleep(Duration::from_millis(if step < 30 { 5 } else { 1 }));
}

#[test]
fn a_branch_is_waited_for_again_once_something_has_arrived() {
    for _ in 0..5 {
        let times = merged(|step, busy, other| {
            without_a(step);
            if step == 40 {
                busy.send("A", 1);
                thread::sleep(Duration::from_millis(5));
                other.send("C", 2);
            }
        });
        assert_eq!(times, [1, 2]);
    }
}

#[test]
fn a_branch_is_waited_for_as_long_as_a_receiver_gathers_messages() {
    let sent = Arc::new(Mutex::new(Instant::now()));
    for _ in 0..5 {
        let (since, gathered) = (Arc::clone(&sent), Arc::new(AtomicBool::new(false)));
        let in_time = Arc::clone(&gathered);
        let times = merged(move |step, busy, other| {
            without_a(step);
            if step == 40 {
                *since.lock().unwrap() = Instant::now();
                other.send("C", 2);
            } else if step == 44 {
                // It had arrived before.
                busy.send("A", 1);
                let gathered = since.lock().unwrap().elapsed() <= Duration::from_millis(10);
                in_time.store(gathered, Ordering::Relaxed);
            }
        });
        // A receiver would not have kept it for longer.
        if gathered.load(Ordering::Relaxed) {
            assert_eq!(times, [1, 2]);
        }
    }
}

/// Keeps the driver from delivering anything, while A arrives behind X, then C, and nothing else
/// for longer than a merge waits for a silent source.
struct SlowFold([FedSource; 3]);

impl Fold for SlowFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let [other, live, _] = &self.0;
        live.send("X", 0);
        live.send("A", 1);
        other.send("C", 2);
        thread::sleep(Duration::from_millis(100));
        self.0.iter().for_each(FedSource::end);
        Ok(vec![batch])
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(Vec::new())
    }
}

#[test]
fn a_branch_is_not_silent_while_what_has_arrived_waits_to_be_read() {
    let sources = [FedSource::default(), FedSource::default(), FedSource::default()];
    let fold = SlowFold(sources.clone());
    let [other, live, slow] = sources;
    let lines = LineSink::default();
    // Of the sources that have had no turn, the first is asked first: C is at the merge before X.
    let nodes = vec![
        node("other", &[], PluginInstance::Source(Box::new(other)), None),
        node("live", &[], PluginInstance::Source(Box::new(live)), None),
        node("slow", &[], PluginInstance::Source(Box::new(Begun(slow))), None),
        stage("keep", &[1], only(&["A"])),
        stage("all", &[0, 3], Stage::Chain(Vec::new())),
        node("out", &[4], PluginInstance::Sink(DynSink::new(lines.clone())), None),
        stage("fold", &[2], Stage::Fold(Box::new(fold))),
        node("rest", &[6], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    let (lines, _) = ran(Pipeline { nodes, ..Pipeline::default() }, &lines, 2, 64);
    assert_eq!(times(&lines), [1, 2]);
}
