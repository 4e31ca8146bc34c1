//! Plugins that panic or count wrong: the run fails, and names them.

use std::path::Path;

use sluice_model::{
    Batch, BatchBuilder, ChannelId, DynSink, Error, ErrorKind, Fold, Input, LiveBatches,
    LiveSender, Map, MapQuery, PrepareContext, ReadContext, Reader, Sink, SinkContext, SinkTraits,
    Source, Split, SplitStart, Stage, StageContext, Written,
};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Pipeline, PipelineNode, PluginInstance};

use crate::engine::kit::{MadeUpSource, node};

/// Where a plugin is faulty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Read,
    /// While a split is read whose length is unknown, which has a thread of its own.
    ReadUnsized,
    /// After the first batch of such a split.
    NextBatch,
    /// A channel that the source has not interned.
    Channel,
    /// In the thread of a live source.
    Listen,
    Inputs,
    Splits,
    Query,
    Map,
    Fold,
    FoldMore,
    Open,
    Prepare,
    Write,
    Count,
}

struct FaultySource(MadeUpSource, Fault);

impl Source for FaultySource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        assert!(self.1 != Fault::Inputs, "no inputs");
        Ok(vec![Input { path: "made".into(), bytes: Some(1) }])
    }

    fn splits(&self, target: u64, query: &sluice_model::Query) -> Result<Vec<Split>, Error> {
        let splits = self.0.splits(target, query)?.into_iter();
        assert!(self.1 != Fault::Splits, "no splits");
        if self.1 == Fault::Listen {
            return Ok(vec![Split::live("made")]);
        }
        let is_sized = !matches!(self.1, Fault::ReadUnsized | Fault::NextBatch);
        Ok(splits.map(|split| Split { bytes: split.bytes.filter(|_| is_sized), ..split }).collect())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let fails = split.start >= 3;
        assert!(!fails || !matches!(self.1, Fault::Read | Fault::ReadUnsized), "no more");
        let mut reader = self.0.read(split, entry, context)?;
        if self.1 == Fault::Channel {
            let mut batch = BatchBuilder::default();
            batch.push_copy(0, 0, ChannelId(3), b"");
            return Ok(Box::new(std::iter::once(Ok(batch.finish()))));
        }
        if !fails || self.1 != Fault::NextBatch {
            return Ok(reader);
        }
        let mut batches = 0;
        Ok(Box::new(std::iter::from_fn(move || {
            assert!(batches == 0, "no more");
            batches += 1;
            reader.next_batch().transpose()
        })))
    }

    fn listen(&self, _: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        let (sender, batches) = LiveSender::bounded(1);
        let (made, context) = (self.0.clone(), context.clone());
        sender.start_thread(move |sender| {
            let split = Split::whole("made", Some(1));
            let mut reader = made.read(&split, SplitStart::At(0), &context)?;
            assert!(sender.send(reader.next_batch()?.unwrap_or_default()));
            panic!("no more");
        })?;
        Ok(batches)
    }
}

struct FaultyStage(Fault);

impl Map for FaultyStage {
    fn query(&self) -> MapQuery {
        assert!(self.0 != Fault::Query, "no query");
        MapQuery::default()
    }

    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        assert!(self.0 != Fault::Map, "no map");
        Ok(batch)
    }
}

impl Fold for FaultyStage {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        assert!(self.0 != Fault::Fold, "no fold");
        Ok(vec![batch])
    }

    fn more(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        assert!(self.0 != Fault::FoldMore, "no more");
        Ok(Vec::new())
    }
}

struct FaultySink(Fault);

impl Sink for FaultySink {
    type Block = Batch;
    type Unit = Batch;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits::default()
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        assert!(self.0 != Fault::Open, "no open");
        Ok(())
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        assert!(self.0 != Fault::Prepare, "no prepare");
        Ok(batch)
    }

    fn write(&self, (): &mut (), batch: Batch) -> Result<Written, Error> {
        assert!(self.0 != Fault::Write, "no write");
        Ok(Written::events(if self.0 == Fault::Count { 0 } else { batch.len() as u64 }))
    }

    fn finish(&self, (): ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

fn error_of(fault: Fault) -> Error {
    let made = MadeUpSource { seconds: 5, per_second: 6, ..MadeUpSource::default() };
    let map = Stage::Map(Box::new(FaultyStage(fault)));
    let fold = Stage::Fold(Box::new(FaultyStage(fault)));
    let nodes: Vec<PipelineNode> = vec![
        node("made", &[], PluginInstance::Source(Box::new(FaultySource(made, fault))), None),
        node("mapped", &[0], PluginInstance::Stage(map), None),
        node("folded", &[1], PluginInstance::Stage(fold), None),
        node("out", &[2], PluginInstance::Sink(DynSink::new(FaultySink(fault))), None),
    ];
    let pipeline = Pipeline { nodes, ..Pipeline::default() };
    let ran = run::run(pipeline, &Options { jobs: Some(2), ..Options::default() });
    ran.unwrap_err()
}

fn message_of(fault: Fault) -> String {
    error_of(fault).to_string().split_once("; this is a bug").unwrap().0.to_owned()
}

#[test]
fn a_panic_on_what_comes_from_an_input_names_that_as_its_file() {
    let input = |fault| match error_of(fault).kind() {
        ErrorKind::Internal { input, .. } => input.clone(),
        other => panic!("{other}"),
    };
    // What folds and sinks are given may come from any input: here, there is only one.
    for fault in [Fault::Read, Fault::NextBatch, Fault::Map, Fault::Fold, Fault::Write] {
        assert_eq!(input(fault).as_deref(), Some(Path::new("made")));
    }
}

#[test]
fn a_plugin_that_panics_is_named_with_what_it_reads() {
    let source = "internal: source `made` (plugin `toy`), reading made: ";
    let panicked = "a task panicked: no";
    for fault in [Fault::Read, Fault::ReadUnsized, Fault::NextBatch, Fault::Listen] {
        assert_eq!(message_of(fault), format!("{source}{panicked} more"));
    }
    let map = format!("{source}stage `mapped` (plugin `toy`): {panicked} map");
    assert_eq!(message_of(Fault::Map), map);
    for (fault, node, what) in [
        (Fault::Inputs, "source `made`", "inputs"),
        (Fault::Splits, "source `made`", "splits"),
        (Fault::Query, "stage `mapped`", "query"),
        (Fault::Fold, "stage `folded`", "fold"),
        (Fault::FoldMore, "stage `folded`", "more"),
        (Fault::Open, "sink `out`", "open"),
        (Fault::Prepare, "sink `out`", "prepare"),
        (Fault::Write, "sink `out`", "write"),
    ] {
        let message = format!("internal: {node} (plugin `toy`): {panicked} {what}");
        assert_eq!(message_of(fault), message);
    }
}

#[test]
fn a_source_that_does_not_name_its_channels_is_named() {
    let due = "source `made` (plugin `toy`), reading made: an event of a channel that its source \
               did not name";
    assert_eq!(message_of(Fault::Channel), format!("internal: {due}"));
}

#[test]
fn a_sink_that_counts_wrong_is_named() {
    let due = "sink `out` (plugin `toy`): a sink was handed 30 events, left out 0 and wrote 0";
    assert_eq!(message_of(Fault::Count), format!("internal: {due}"));
}
