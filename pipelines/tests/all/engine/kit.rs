//! A made-up source, a sink that collects lines, and pipelines of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sluice_kit::playback::{PlaybackClock, PlaybackSpeed};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, DynSink, Encoding, Error, Input, Name, PluginKind,
    PrepareContext, Query, ReadContext, Reader, Sink, SinkContext, SinkTraits, Source, Split,
    SplitStart, Stage, Written,
};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::spec::StageFactory;
use sluice_pipeline::{OnDamage, Pipeline, PipelineNode, PluginInstance, Report};

pub(crate) const SECOND: i64 = 1_000_000_000;

/// Events on A, B and C in turn, one split per second or per several seconds. Skips what the query
/// excludes.
#[derive(Clone, Default)]
pub(crate) struct MadeUpSource {
    pub(crate) seconds: i64,
    pub(crate) per_second: i64,
    /// The payload length.
    pub(crate) payload: usize,
    /// The seconds per split; 0 means one.
    pub(crate) split: i64,
    /// Whether times step back, again and again.
    pub(crate) steps_back: bool,
    /// The number of splits read.
    pub(crate) read: Arc<AtomicUsize>,
    /// The size of splits that it was asked for.
    pub(crate) target: Arc<AtomicU64>,
}

impl Source for MadeUpSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(Vec::new())
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.target.store(target, Ordering::Relaxed);
        let step = self.split.max(1);
        let wanted =
            |second: &i64| query.wants_times(second * SECOND, (second + step) * SECOND - 1);
        let split = |second: i64| Split { start: second as u64, ..Split::whole("made", Some(1)) };
        Ok((0..self.seconds).step_by(step as usize).filter(wanted).map(split).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let intern = |name| {
            let channel = Channel::new(Name::from_text(name), "made", Encoding::Unknown);
            context.channels.intern(channel)
        };
        let channels = [intern("A")?, intern("B")?, intern("C")?];
        let wanted = ["A", "B", "C"].map(|name| context.query.channels.may_want(name));
        let (mut halves, payload) = (Vec::new(), vec![7; self.payload]);
        let events = (self.seconds - split.start as i64).min(self.split.max(1)) * self.per_second;
        for half in 0..2 {
            let mut batch = BatchBuilder::default();
            for n in half * events / 2..(half + 1) * events / 2 {
                let number = split.start as i64 * self.per_second + n;
                let channel = number as usize % 3;
                let time = if self.steps_back { number * 37 % 101 } else { number };
                let time = time * SECOND / self.per_second;
                if wanted[channel] {
                    batch.push_copy(time, number, channels[channel], &payload);
                }
            }
            halves.push(Ok(batch.finish()));
        }
        Ok(Box::new(halves.into_iter()))
    }
}

/// Collects one line per event.
#[derive(Clone, Default)]
pub(crate) struct LineSink {
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    /// How often to play everything.
    pub(crate) rounds: u64,
    /// Whether it is to be treated like one that sends.
    pub(crate) is_live: bool,
}

impl Sink for LineSink {
    type Block = Batch;
    type Unit = Batch;
    type Output = (PlaybackClock, Arc<Channels>, u64);

    fn traits(&self) -> SinkTraits {
        SinkTraits { rounds: self.rounds, is_live: self.is_live, ..SinkTraits::default() }
    }

    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error> {
        let tempo = PlaybackSpeed { speed: 0.0, max_gap: None };
        let pace = PlaybackClock::new(context.run.shared(), context.run.clone(), tempo);
        Ok((pace, Arc::clone(&context.channels), 0))
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        Ok(batch)
    }

    fn write(&self, output: &mut Self::Output, batch: Batch) -> Result<Written, Error> {
        let (pace, channels, written) = output;
        let mut lines = self.lines.lock().unwrap();
        for event in batch.iter() {
            pace.wait(Some(event.timestamp));
            let name = channels.get(event.channel).name.text().to_owned();
            let payload = String::from_utf8_lossy(event.payload.get(..12).unwrap_or(event.payload));
            lines.push(format!("{name} {} {} {payload}", event.sequence, event.timestamp));
        }
        *written += batch.len() as u64;
        Ok(Written::events(batch.len() as u64))
    }

    fn finish(&self, _: Self::Output) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

pub(crate) fn node(
    name: &str,
    from: &[usize],
    part: PluginInstance,
    again: Option<StageFactory>,
) -> PipelineNode {
    let kind = match part {
        PluginInstance::Source(_) => PluginKind::Source,
        PluginInstance::Stage(_) => PluginKind::Stage,
        PluginInstance::Sink(_) => PluginKind::Sink,
    };
    PipelineNode {
        name: name.to_owned(),
        plugin: "toy",
        kind,
        from: from.to_vec(),
        instance: part,
        options: serde_json::Value::Null,
        stage_factory: again,
        program: None,
        damage: OnDamage::Skip,
        source_name: None,
        span: 0..0,
        names: Vec::new(),
    }
}

/// The source, these stages in sequence, and the sink.
pub(crate) fn chain_of(
    source: &MadeUpSource,
    stages: Vec<(&str, Stage)>,
    sink: &LineSink,
) -> Pipeline {
    let mut nodes = vec![node("made", &[], PluginInstance::Source(Box::new(source.clone())), None)];
    for (name, stage) in stages {
        nodes.push(node(name, &[nodes.len() - 1], PluginInstance::Stage(stage), None));
    }
    nodes.push(node(
        "out",
        &[nodes.len() - 1],
        PluginInstance::Sink(DynSink::new(sink.clone())),
        None,
    ));
    Pipeline { nodes, ..Pipeline::default() }
}

pub(crate) fn run(pipeline: Pipeline, jobs: usize) -> Report {
    run::run(pipeline, &Options { jobs: Some(jobs), ..Options::default() }).unwrap()
}

/// The events with these payloads.
pub(crate) fn with_payloads(batch: &Batch, mut payload: impl FnMut(usize) -> String) -> Batch {
    let mut builder = BatchBuilder::default();
    for (row, event) in batch.iter().enumerate() {
        builder.push_copy(event.timestamp, event.sequence, event.channel, payload(row).as_bytes());
    }
    builder.finish()
}
