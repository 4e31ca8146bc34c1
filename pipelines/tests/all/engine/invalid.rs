//! Options and data that plugins find to be invalid once a run has begun: errors name the node.

use sluice_model::{
    Batch, DynSink, Error, Fold, Input, Map, PrepareContext, Query, ReadContext, Reader, Sink,
    SinkContext, SinkTraits, Source, Split, SplitStart, Stage, StageContext, Written,
};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Pipeline, PipelineNode, PluginInstance};

use crate::engine::kit::{MadeUpSource, node};

/// The call that refuses what it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Files,
    Splits,
    Read,
    Map,
    Fold,
    Open,
    Prepare,
    Write,
    Finish,
}

impl Call {
    fn refuse_in(self, call: Self) -> Result<(), Error> {
        if self == call { Err(Error::invalid("`interface`: no such interface")) } else { Ok(()) }
    }
}

struct RefusingSource(MadeUpSource, Call);

impl Source for RefusingSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.1.refuse_in(Call::Files)?;
        self.0.inputs()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        self.1.refuse_in(Call::Splits)?;
        self.0.splits(target, query)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.1.refuse_in(Call::Read)?;
        self.0.read(split, entry, context)
    }
}

struct RefusingNode(Call);

impl Map for RefusingNode {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        self.0.refuse_in(Call::Map).map(|()| batch)
    }
}

impl Fold for RefusingNode {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.0.refuse_in(Call::Fold).map(|()| vec![batch])
    }
}

impl Sink for RefusingNode {
    type Block = Batch;
    type Unit = Batch;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits::default()
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        self.0.refuse_in(Call::Open)
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        self.0.refuse_in(Call::Prepare).map(|()| batch)
    }

    fn write(&self, (): &mut (), batch: Batch) -> Result<Written, Error> {
        self.0.refuse_in(Call::Write).map(|()| Written::events(batch.len() as u64))
    }

    fn finish(&self, (): ()) -> Result<Written, Error> {
        self.0.refuse_in(Call::Finish).map(|()| Written::default())
    }
}

const TEXT: &str = "[sources.made]\n\n[stages.mapped]\n[stages.folded]\n[sinks.out]\n";

fn refusing(call: Call) -> Pipeline {
    let made = MadeUpSource { seconds: 5, per_second: 6, ..MadeUpSource::default() };
    let map = Stage::Map(Box::new(RefusingNode(call)));
    let fold = Stage::Fold(Box::new(RefusingNode(call)));
    let nodes = [
        node("made", &[], PluginInstance::Source(Box::new(RefusingSource(made, call))), None),
        node("mapped", &[0], PluginInstance::Stage(map), None),
        node("folded", &[1], PluginInstance::Stage(fold), None),
        node("out", &[2], PluginInstance::Sink(DynSink::new(RefusingNode(call))), None),
    ];
    let nodes = nodes.map(|node| {
        let start = TEXT.find(&format!("{}]", node.name)).unwrap();
        PipelineNode { span: start..start + 1, ..node }
    });
    Pipeline { nodes: nodes.into(), text: TEXT.to_owned(), ..Pipeline::default() }
}

#[test]
fn what_a_plugin_refuses_names_its_node_once() {
    let places = [
        (Call::Files, "source `made` (plugin `toy`)"),
        (Call::Splits, "source `made` (plugin `toy`)"),
        (Call::Read, "source `made` (plugin `toy`)"),
        (Call::Map, "stage `mapped` (plugin `toy`)"),
        (Call::Fold, "stage `folded` (plugin `toy`)"),
        (Call::Open, "sink `out` (plugin `toy`)"),
        (Call::Prepare, "sink `out` (plugin `toy`)"),
        (Call::Write, "sink `out` (plugin `toy`)"),
        (Call::Finish, "sink `out` (plugin `toy`)"),
    ];
    for (call, place) in places {
        let options = Options { jobs: Some(2), ..Options::default() };
        let error = run::run(refusing(call), &options).unwrap_err().to_string();
        assert_eq!(error, format!("{place}: `interface`: no such interface"));
    }
}

#[test]
fn what_a_plugin_refuses_names_the_line_of_its_node_in_a_file() {
    let in_file = |call| Pipeline { file: Some("live.toml".to_owned()), ..refusing(call) };
    let said = "`interface`: no such interface";
    let error = run::plan(&in_file(Call::Splits), &Options::default()).unwrap_err();
    let place = "live.toml:1: source `made` (plugin `toy`)";
    assert_eq!(error.to_string(), format!("{place}: {said}"));
    let error = run::run(in_file(Call::Open), &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("live.toml:5: sink `out` (plugin `toy`): {said}"));
}
