//! A pipeline as it was read: its nodes, each with its plugin created.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_kit::mistake::line_at;
use sluice_model::options::ByteSize;
use sluice_model::programs::Program;
use sluice_model::{
    DynSink, Error, Input, OptionsError, Plugin, PluginKind, Registry, Source, Stage,
};

use super::instance::PluginInstance;
use crate::batch::template::Template;
use crate::names::{NameOption, names_in_options};
use crate::note::Note;
use crate::source_name::NamedSource;

/// The node groups of a pipeline file, with the plugin kind of each.
pub(crate) const GROUPS: [(&str, PluginKind); 3] =
    [("sources", PluginKind::Source), ("stages", PluginKind::Stage), ("sinks", PluginKind::Sink)];

/// A valid pipeline: its graph is complete and its plugins accepted their options.
#[derive(Debug, Default)]
pub struct Pipeline {
    /// Its name.
    pub name: Option<String>,
    /// The memory cap for a run.
    pub memory: Option<ByteSize>,
    /// Its sources, stages and sinks, in file order, without pruned nodes.
    pub nodes: Vec<PipelineNode>,
    /// The nodes that conditions remove, in file order.
    pub pruned: Vec<PrunedNode>,
    /// What has an outdated form in the file, also of pruned nodes.
    pub notes: Vec<Note>,
    /// The text of the file.
    pub text: String,
    /// The name of the file in messages, if the text is in one.
    pub file: Option<String>,
    /// The files it is made from, and those that options of sources and stages name. No output may
    /// replace one.
    pub files: Vec<PathBuf>,
    /// The output paths with placeholders. If there are any, the pipeline runs as a batch; see
    /// [`crate::batch`].
    pub templates: Vec<TemplateSlot>,
    /// The inputs of a batch that are known to be unreadable, with the reasons: their units fail.
    pub unreadable: BTreeMap<PathBuf, String>,
}

/// A source, stage or sink of a pipeline.
#[derive(Debug)]
pub struct PipelineNode {
    /// Its name: letters, digits, `_` and `-`; unique in its pipeline.
    pub name: String,
    /// The name of its plugin.
    pub plugin: &'static str,
    /// The kind of its plugin.
    pub kind: PluginKind,
    /// The nodes it reads from, as indices of [`Pipeline::nodes`]; none for sources.
    pub from: Vec<usize>,
    /// The plugin instance, created from its options.
    pub instance: PluginInstance,
    /// The options it was created from: variables filled in, paths resolved.
    pub options: Value,
    /// Recreates a stage from its options, for reading the sources once more.
    pub stage_factory: Option<StageFactory>,
    /// The program it runs, if any.
    pub program: Option<Program>,
    /// How to handle damaged input; sources only.
    pub damage: OnDamage,
    /// The source name of its events, with placeholders; sources only.
    pub source_name: Option<String>,
    /// The node's position in [`Pipeline::text`], for checks that come later.
    pub span: Range<usize>,
    /// The names in its options that have to match something.
    pub names: Vec<NameOption>,
}

impl Pipeline {
    /// What errors call one of its nodes: its label, after its line if it is written in a file.
    pub(crate) fn place_of(&self, node: &PipelineNode) -> String {
        match &self.file {
            Some(file) => {
                let line = line_at(&self.text, node.span.start);
                format!("{file}:{line}: {}", node.label())
            }
            None => node.label(),
        }
    }

    /// All files that it reads.
    pub(crate) fn input_files(&self) -> Result<Vec<Input>, Error> {
        let sources = self.nodes.iter().filter_map(PipelineNode::source);
        Ok(sources.map(Source::files).collect::<Result<Vec<_>, Error>>()?.concat())
    }
}

impl PipelineNode {
    /// Its kind, name and plugin, as messages call it.
    pub(crate) fn label(&self) -> String {
        format!("{} `{}` (plugin `{}`)", self.kind, self.name, self.plugin)
    }

    /// A node whose `instance` was created from `options`, and that reads from none yet. `span` is
    /// its position in the text of the pipeline, and `place` that of an option.
    pub fn new(
        name: String,
        (registry, plugin): (&Registry, &Plugin),
        (instance, options): (PluginInstance, Value),
        (span, place): (Range<usize>, impl Fn(&str) -> Option<Range<usize>>),
    ) -> Self {
        let schema = Value::from((plugin.schema)());
        let place = |option: &str| place(option).unwrap_or_else(|| span.clone());
        Self {
            name,
            plugin: plugin.name,
            kind: plugin.kind(),
            from: Vec::new(),
            stage_factory: stage_factory(registry, plugin, &options),
            program: plugin.program.map(|program| program(&options)),
            damage: OnDamage::default(),
            source_name: None,
            names: names_in_options(&schema, &options, &instance, place),
            span,
            instance,
            options,
        }
    }

    /// Renames the source of its events, if it is a source. `Err` if that is no such name.
    pub(crate) fn with_source_name(self, source_name: Option<String>) -> Result<Self, Error> {
        let instance = match (self.instance, &source_name) {
            (PluginInstance::Source(source), Some(name)) => {
                PluginInstance::Source(Box::new(NamedSource::new(source, name)?))
            }
            (instance, _) => instance,
        };
        Ok(Self { instance, source_name, ..self })
    }

    /// The paths that it reads, if it is a source of files.
    pub fn source_paths(&self) -> Vec<&str> {
        match self.options.get("path").filter(|_| self.kind == PluginKind::Source) {
            Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).collect(),
            path => path.and_then(Value::as_str).into_iter().collect(),
        }
    }

    /// The source, if it is one.
    pub fn source(&self) -> Option<&dyn Source> {
        match &self.instance {
            PluginInstance::Source(source) => Some(&**source),
            _ => None,
        }
    }

    /// The sink, if it is one.
    pub(crate) fn sink(&self) -> Option<&DynSink> {
        match &self.instance {
            PluginInstance::Sink(sink) => Some(sink),
            _ => None,
        }
    }

    /// What it writes: files, folders and addresses; none for sources and stages.
    pub fn targets(&self) -> &[PathBuf] {
        self.sink().map_or(&[], |sink| &sink.traits().targets)
    }

    /// Its notes before the first event.
    pub fn notes(&self) -> Vec<String> {
        match &self.instance {
            PluginInstance::Stage(stage) => stage.notes(),
            _ => Vec::new(),
        }
    }
}

/// Creates a stage again, with empty state.
#[derive(Clone)]
pub struct StageFactory(Arc<dyn Fn() -> Result<Stage, OptionsError> + Send + Sync>);

impl StageFactory {
    /// A factory that calls `make`.
    pub fn new(make: impl Fn() -> Result<Stage, OptionsError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Creates the stage.
    pub fn make(&self) -> Result<Stage, OptionsError> {
        (self.0)()
    }
}

impl fmt::Debug for StageFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StageFactory")
    }
}

/// The factory of this plugin with these options, if it is a stage.
fn stage_factory(registry: &Registry, plugin: &Plugin, options: &Value) -> Option<StageFactory> {
    let (name, registry, options) = (plugin.name, registry.clone(), options.clone());
    (plugin.kind() == PluginKind::Stage)
        .then(|| StageFactory::new(move || registry.stage(name, options.clone())))
}

/// What a run does with damaged input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDamage {
    /// Reports it and goes on.
    #[default]
    Skip,
    /// Ends the run.
    Stop,
    /// Reports it, writes its bytes to this file and goes on.
    Quarantine(PathBuf),
}

/// A node that a condition removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedNode {
    /// Its name.
    pub node: String,
    /// Why, as a clause that starts with `since`.
    pub why: String,
}

impl fmt::Display for PrunedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.node, self.why)
    }
}

/// A template in a pipeline file, and the value it fills.
#[derive(Clone, Debug)]
pub struct TemplateSlot {
    /// The node, as an index of [`Pipeline::nodes`].
    pub(crate) node: usize,
    pub(crate) target: TemplateTarget,
    pub(crate) template: Template,
}

/// The value that a template fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TemplateTarget {
    /// An option of a sink, by the keys and list positions that lead to it.
    Option(Vec<String>),
    /// The file for a source's damaged bytes.
    Quarantine,
}
