//! Small pipelines around one plugin: as text, with the kit's own source and sink substituted.
//! Checks nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use sluice_model::options::ByteSize;
use sluice_model::{DynSink, Registry, panics};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Pipeline, PluginInstance, Report, Variables};

use crate::events::{Events, GatherSink, ReplaySource};
use crate::kit_plugins::{KEEP, NOTHING};

/// The nodes that provide and collect the events, in pipelines of the kit.
pub(crate) const EVENTS: &str = "events";
pub(crate) const END: &str = "end";

/// How a run failed.
#[derive(Debug)]
pub(crate) enum RunFailure {
    /// It returned an error.
    Error(String),
    /// It panicked.
    Panic(String),
}

impl RunFailure {
    pub(crate) fn what(&self) -> &str {
        match self {
            Self::Error(what) | Self::Panic(what) => what,
        }
    }
}

/// A memory cap that makes buffering sinks write more than once.
pub(crate) const MEMORY: ByteSize = ByteSize(16 << 20);

/// A pipeline file being built.
#[derive(Clone, Debug, Default)]
pub(crate) struct PipelineText(toml::Table);

impl PipelineText {
    /// A pipeline whose source will be substituted.
    pub(crate) fn from_events() -> Self {
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
            // TOML has no null; a null option is not set.
            node.extend(toml::Value::try_from(value).ok().map(|value| (key.clone(), value)));
        }
        let group = self.0.entry(group).or_insert_with(|| toml::Table::new().into());
        if let Some(group) = group.as_table_mut() {
            group.insert(name.to_owned(), node.into());
        }
        self
    }

    /// Adds the sink that will be substituted.
    pub(crate) fn with_end(self, from: &str) -> Self {
        self.with("sinks", END, KEEP, Some(from), &serde_json::json!({ "place": 0 }))
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Reads the pipeline and substitutes the kit's own source and sink. `Err` holds its mistakes.
pub(crate) fn read_pipeline(
    text: &str,
    registry: &Registry,
    replay: Option<ReplaySource>,
    gather: &GatherSink,
) -> Result<Pipeline, String> {
    let document = Document::generated("conformance.toml", text);
    let variables = Variables { set: BTreeMap::new(), environment: false };
    let read = Pipeline::read(&document, &variables, registry);
    let mut pipeline = read.map_err(|mistakes| mistakes.to_string())?;
    for node in &mut pipeline.nodes {
        match (&replay, node.plugin) {
            (Some(replay), NOTHING) => {
                node.instance = PluginInstance::Source(Box::new(replay.clone()))
            }
            (_, KEEP) => node.instance = PluginInstance::Sink(DynSink::new(gather.clone())),
            _ => {}
        }
    }
    Ok(pipeline)
}

/// Runs a pipeline.
pub(crate) fn run(pipeline: Pipeline, options: Options) -> Result<Report, RunFailure> {
    // What a plugin runs is up to its test.
    let options = Options { memory: Some(MEMORY), allow_exec: true, ..options };
    match catch_unwind(AssertUnwindSafe(|| run::run(pipeline, &options))) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => {
            let error = error.to_string();
            // A panicking task only fails the run.
            let is_panic = error.contains("a task panicked");
            Err(if is_panic { RunFailure::Panic(error) } else { RunFailure::Error(error) })
        }
        Err(panic) => Err(RunFailure::Panic(panics::message_of(&*panic).to_owned())),
    }
}

/// The events of a pipeline whose last node is called `events`.
pub(crate) fn gather_events(text: &str, registry: &Registry) -> Result<Events, String> {
    let end = PipelineText::default().with_end(EVENTS).text();
    let gather = GatherSink::default();
    let pipeline = read_pipeline(&format!("{text}\n{end}"), registry, None, &gather)?;
    let ran = run(pipeline, Options { jobs: Some(2), ..Options::default() });
    ran.map_err(|failure| failure.what().to_owned())?;
    gather.take().ok_or_else(|| "the run has not come to its end".to_owned())
}

/// The report without what may differ between equal runs.
pub(crate) fn stable_report(report: &Report) -> Value {
    let mut report = report.to_json();
    if let Some(all) = report.as_object_mut() {
        all.retain(|key, _| !matches!(&**key, "seconds" | "bytes_read"));
    }
    report
}
