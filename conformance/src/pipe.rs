//! Small pipelines around one plugin: as text, with the kit's own source and sink put in. Judges nothing.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use sluice_core::Registry;
use sluice_core::options::ByteSize;
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Part, Pipeline, Report, Variables};

use crate::events::{Events, Gather, Replay};
use crate::private::{KEEP, NOTHING};

/// The node that gives the events, and the one that takes them, in pipelines of the kit.
pub(crate) const EVENTS: &str = "events";
pub(crate) const END: &str = "end";

/// How a run that was tried went wrong.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It said so.
    Error(String),
    /// It panicked.
    Panic(String),
}

impl Failure {
    pub(crate) fn what(&self) -> &str {
        match self {
            Self::Error(what) | Self::Panic(what) => what,
        }
    }
}

/// A memory cap that makes sinks which hold events write more than once.
pub(crate) const MEMORY: ByteSize = ByteSize(16 << 20);

/// A pipeline in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe(toml::Table);

impl Pipe {
    /// A pipeline whose source is to be put in.
    pub(crate) fn of_events() -> Self {
        Self::default().with("sources", EVENTS, NOTHING, None, &Value::Null)
    }

    /// Adds a node.
    pub(crate) fn with(
        mut self,
        group: &str,
        name: &str,
        plugin: &str,
        from: Option<&str>,
        options: &Value,
    ) -> Self {
        let mut node = toml::Table::new();
        node.insert("plugin".to_owned(), plugin.into());
        node.extend(from.map(|from| ("from".to_owned(), from.into())));
        for (key, value) in options.as_object().into_iter().flatten() {
            // TOML has no null; an option that is null was not given.
            node.extend(toml::Value::try_from(value).ok().map(|value| (key.clone(), value)));
        }
        let group = self.0.entry(group).or_insert_with(|| toml::Table::new().into());
        if let Some(group) = group.as_table_mut() {
            group.insert(name.to_owned(), node.into());
        }
        self
    }

    /// Adds the sink that is to be put in.
    pub(crate) fn ending(self, from: &str) -> Self {
        self.with("sinks", END, KEEP, Some(from), &serde_json::json!({ "place": 0 }))
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Reads the pipeline and puts the kit's own source and sink in. `Err` holds its mistakes.
pub(crate) fn read(
    text: &str,
    registry: &Registry,
    replay: Option<Replay>,
    gather: &Gather,
) -> Result<Pipeline, String> {
    let document = Document::generated("conformance.toml", text);
    let variables = Variables { set: BTreeMap::new(), environment: false };
    let read = Pipeline::read(&document, &variables, registry);
    let mut pipeline = read.map_err(|mistakes| mistakes.to_string())?;
    for node in &mut pipeline.nodes {
        match (&replay, node.plugin) {
            (Some(replay), NOTHING) => node.part = Part::Source(Box::new(replay.clone())),
            (_, KEEP) => node.part = Part::Sink(Box::new(gather.clone())),
            _ => {}
        }
    }
    Ok(pipeline)
}

/// Runs a pipeline on this many threads.
pub(crate) fn run(pipeline: Pipeline, options: Options) -> Result<Report, Failure> {
    let options = Options { memory: Some(MEMORY), ..options };
    match catch_unwind(AssertUnwindSafe(|| run::run(pipeline, &options))) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => {
            let error = error.to_string();
            // A task that panics dies alone; the run fails.
            let is_panic = error.contains("a task panicked");
            Err(if is_panic { Failure::Panic(error) } else { Failure::Error(error) })
        }
        Err(panic) => Err(Failure::Panic(said(&*panic))),
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

/// What a pipeline text gives whose last node is called `events`.
pub(crate) fn gathered(text: &str, registry: &Registry) -> Result<Events, String> {
    let end = Pipe::default().ending(EVENTS).text();
    let gather = Gather::default();
    let pipeline = read(&format!("{text}\n{end}"), registry, None, &gather)?;
    let ran = run(pipeline, Options { jobs: Some(2), ..Options::default() });
    ran.map_err(|failure| failure.what().to_owned())?;
    gather.take().ok_or_else(|| "the run has not come to its end".to_owned())
}

/// The report without what may differ between two runs of one thing.
pub(crate) fn lasting(report: &Report) -> Value {
    let mut report = report.to_json();
    if let Some(all) = report.as_object_mut() {
        all.retain(|key, _| !matches!(&**key, "seconds" | "bytes_read"));
    }
    report
}
