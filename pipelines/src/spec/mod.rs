//! What a pipeline file says: text in, a [`Pipeline`] with every plugin made, or all its [`Mistakes`].
//!
//! Opens no input and touches nothing on disk but the pipeline file itself.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sluice_core::options::ByteSize;
use sluice_core::programs::Program;
use sluice_core::{
    DynSink, OptionsError, Plugin, PluginFactory, PluginKind, Registry, Source, Stage,
};

use crate::mistake::Mistakes;
use crate::names::NameOption;

mod check;
mod document;
mod keys;
mod left_out;
mod links;
mod node;
pub(crate) mod options;
mod outline;
pub(crate) mod reference;
mod relocation;
pub(crate) mod shape;
mod syntax;
pub(crate) mod templates;
mod values;
mod variables;
mod when;
pub(crate) mod wording;

pub use document::Document;
pub use left_out::LeftOut;
pub use outline::{Outline, OutlineNode};
pub use relocation::{quoted, string_literal};
pub use templates::Slot;
pub use variables::Variables;

/// The groups of nodes of a pipeline file, with the kind of plugin they hold.
pub(crate) const GROUPS: [(&str, PluginKind); 3] =
    [("sources", PluginKind::Source), ("stages", PluginKind::Stage), ("sinks", PluginKind::Sink)];

/// A pipeline file that makes sense: its graph is whole and its plugins took their options.
#[derive(Debug, Default)]
pub struct Pipeline {
    /// What it calls itself.
    pub name: Option<String>,
    /// How much memory a run may use.
    pub memory: Option<ByteSize>,
    /// Its sources, stages and sinks, in the order of the file; without those that conditions leave out.
    pub nodes: Vec<Node>,
    /// The nodes that conditions leave out, in the order of the file.
    pub left_out: Vec<LeftOut>,
    /// The file as it was read.
    pub text: String,
    /// The output paths that are filled in for each input. If there are any, the pipeline is run as a
    /// batch: see [`crate::batch`].
    pub templates: Vec<Slot>,
}

impl Pipeline {
    /// Reads a pipeline file. `Err` holds every mistake in it.
    pub fn read(
        document: &Document,
        variables: &Variables,
        registry: &Registry,
    ) -> Result<Self, Mistakes> {
        check::Check::new(document, variables, registry).run()
    }
}

/// A source, stage or sink of a pipeline.
#[derive(Debug)]
pub struct Node {
    /// Its name: letters, digits, `_` and `-`; unique in its pipeline.
    pub name: String,
    /// The name of its plugin.
    pub plugin: &'static str,
    /// The kind of its plugin.
    pub kind: PluginKind,
    /// The nodes it reads from, as positions in [`Pipeline::nodes`]; none for sources.
    pub from: Vec<usize>,
    /// The plugin, made from its options.
    pub part: Part,
    /// The options it was made from: variables filled in, paths resolved.
    pub options: serde_json::Value,
    /// Makes a stage from its options again, for when the sources are read once more.
    pub again: Option<MakeStage>,
    /// What it runs, if it runs a program.
    pub program: Option<Program>,
    /// What happens to damaged input; means something on sources only.
    pub damage: OnDamage,
    /// What the source of its events is called, with placeholders; means something on sources only.
    pub source_name: Option<String>,
    /// Where the node begins in [`Pipeline::text`], for what can only be judged later.
    pub span: Range<usize>,
    /// The names in its options that something has to match.
    pub names: Vec<NameOption>,
}

impl Node {
    /// What is to be told of it before any event.
    pub fn notes(&self) -> Vec<String> {
        match &self.part {
            Part::Stage(stage) => stage.notes(),
            Part::Source(_) | Part::Sink(_) => Vec::new(),
        }
    }
}

/// Makes a stage from its options.
pub type MakeStage = fn(serde_json::Value) -> Result<Stage, OptionsError>;

/// What makes this plugin again, if it is a stage.
pub(crate) fn again(plugin: &Plugin) -> Option<MakeStage> {
    match plugin.make {
        PluginFactory::Stage(make) => Some(make),
        _ => None,
    }
}

/// A plugin at work in a pipeline.
pub enum Part {
    /// Reads events.
    Source(Box<dyn Source>),
    /// Changes events.
    Stage(Stage),
    /// Writes events.
    Sink(Box<dyn DynSink>),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source(_) => "Source",
            Self::Stage(_) => "Stage",
            Self::Sink(_) => "Sink",
        })
    }
}

/// What a run does with input that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDamage {
    /// Reports it and goes on.
    #[default]
    Skip,
    /// Ends the run.
    Stop,
    /// Reports it, writes its bytes to a file (this one, if one is named) and goes on.
    Quarantine(Option<PathBuf>),
}
