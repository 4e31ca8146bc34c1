//! The guide to embedding (`docs/embedding.md`): its code is that of this file, and works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_model::{
    Batch, DynSink, Error, PrepareContext, Registry, Sink, SinkContext, SinkTraits, Written,
};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Mistakes, Pipeline, PluginInstance, Report, Variables};
// What the guide does not use.
use sluice_pipeline::run::{Milestone, Progress, Snapshot};

use crate::kit::{COPY, Folder, drive, log, pipeline, root};

const PIPELINE: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${LOG}"

[sinks.out]
plugin = "null"
from = "log"
"#;

fn read_pipeline(log: &str) -> Result<Pipeline, Mistakes> {
    let set = BTreeMap::from([("LOG".to_owned(), log.to_owned())]);
    let variables = Variables { set, environment: false };
    let document = Document::generated("embedded", PIPELINE);
    Pipeline::read(&document, &variables, &Registry::linked())
}

/// Keeps the times of events, in nanoseconds.
struct Times(Arc<Mutex<Vec<i64>>>);

impl Sink for Times {
    type Block = Vec<i64>;
    type Unit = Vec<i64>;
    type Output = ();

    fn traits(&self) -> SinkTraits {
        SinkTraits::default()
    }

    fn open(&self, _: &SinkContext) -> Result<(), Error> {
        Ok(())
    }

    fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Vec<i64>, Error> {
        Ok(batch.timestamps().to_vec())
    }

    fn write(&self, _: &mut (), times: Vec<i64>) -> Result<Written, Error> {
        let written = Written::events(times.len() as u64);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(times);
        Ok(written)
    }

    fn finish(&self, _: ()) -> Result<Written, Error> {
        Ok(Written::default())
    }
}

fn run_into(times: &Arc<Mutex<Vec<i64>>>, mut pipeline: Pipeline) -> Result<Report, Error> {
    for node in pipeline.nodes.iter_mut().filter(|node| node.name == "out") {
        node.instance = PluginInstance::Sink(DynSink::new(Times(Arc::clone(times))));
    }
    run::run(pipeline, &Options { jobs: Some(2), ..Options::default() })
}

#[test]
fn the_code_of_the_guide_reads_a_log_into_the_memory_of_a_program() {
    let folder = Folder::new();
    let events = drive(3, 20);
    folder.write("drive.lcm", log(&events));
    let pipeline = read_pipeline(folder.at("drive.lcm").to_str().unwrap()).unwrap();
    let times = Arc::default();
    let report = run_into(&times, pipeline).unwrap();
    let times = times.lock().unwrap();
    assert_eq!(*times, events.iter().map(|event| event.utime * 1000).collect::<Vec<_>>());
    assert_eq!(report.sinks["out"].events, times.len() as u64);
}

#[test]
fn a_pipeline_whose_outputs_are_named_after_inputs_is_not_run_as_one() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 20)));
    let pipeline = pipeline(&COPY.replace("out.lcm", "{stem}-x.lcm"), folder.path());
    assert_eq!(pipeline.templates.len(), 1);
    let error = run::run(pipeline, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("sink `out`") && error.contains("sluice_pipeline::batch"), "{error}");
    assert_eq!(folder.names(), ["in.lcm"]);
}

#[test]
fn an_embedded_verb_returns_what_it_prints() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 20)));
    let path = folder.at("in.lcm").to_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        let (words, embedding) = (arguments.iter().map(Into::into), Arc::default());
        let words: Vec<_> = words.collect();
        let code = sluice::embedded::run(&words, Registry::linked(), &embedding);
        (code, embedding.take_output().text)
    };
    for (arguments, printed) in [
        (&["info", &path][..], "events   20"),
        (&["info", "--brief", &path], "events"),
        (&["schema"], "$schema"),
        (&["man"], ".TH sluice"),
        (&["completions", "bash"], "complete -F"),
        (&["convert", &path, "--to", "x.csv", "--print-pipeline"], "[sinks."),
        (&["--help"], "Usage:"),
        (&["help", "convert"], "Usage:"),
        (&["--version"], "sluice "),
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code.unwrap(), 0, "{arguments:?}");
        assert!(text.contains(printed), "{arguments:?}: {text}");
    }
    let failure: Box<dyn std::error::Error> = run(&["info", "--nothing"]).0.unwrap_err().into();
    assert!(failure.to_string().contains("--nothing"), "{failure}");
}

/// Panics at every milestone.
struct PanickingListener;

impl Progress for PanickingListener {
    fn update(&self, _: &Snapshot) {}

    fn milestone(&self, milestone: &Milestone<'_>) {
        panic!("no {milestone:?}");
    }
}

#[test]
fn a_panic_of_a_listener_is_an_error_of_the_run() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 20)));
    let progress = Some(Arc::new(PanickingListener) as Arc<dyn Progress>);
    let options = Options { progress, ..Options::default() };
    let error = run::run(pipeline(COPY, folder.path()), &options).unwrap_err().to_string();
    assert!(error.contains("a task panicked: no Planned"), "{error}");
    assert_eq!(folder.names(), ["in.lcm"]);
}

#[test]
fn the_guide_to_embedding_shows_code_that_is_run() {
    let guide = std::fs::read_to_string(root().join("docs/embedding.md")).unwrap();
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert!(blocks.len() > 2, "{} blocks were found", blocks.len());
    for block in blocks {
        let code = block.split("```").next().unwrap();
        assert!(include_str!("embedding.rs").contains(code), "no test runs this:\n{code}");
    }
}
