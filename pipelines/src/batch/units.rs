//! The units of a batch: inputs, outputs and pipeline of each. Runs none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_io::files::{self, FileIdentity, NOT_UTF8, refuse_repeated_streams};
use sluice_io::output::canonical_path;
use sluice_model::options::ByteSize;
use sluice_model::{Error, Input, PluginKind, Registry, Source};

use super::{FailurePolicy, is_batch_record};
use crate::spec::options::make;
use crate::spec::{OnDamage, Pipeline, PipelineNode, PluginInstance, TemplateSlot, TemplateTarget};

/// One input and its outputs.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The input.
    pub input: Input,
    /// The files and folders that are named after it.
    pub outputs: Vec<PathBuf>,
    /// Its index among the inputs.
    pub index: usize,
    /// The folders of its outputs into which other units write files, by their canonical paths.
    pub shared_folders: Vec<PathBuf>,
    /// Why it fails, if that is known before it runs.
    pub failure: Option<String>,
}

/// A pipeline before its plugins are created. Any number can be built from it, on any thread or
/// machine.
///
/// Plain data. The text, its file and the spans, which only serve error messages, are not
/// serialized; nor are the templates, see [`fills`](Self::fills).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    name: Option<String>,
    pub(crate) memory: Option<ByteSize>,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    file: Option<String>,
    nodes: Vec<NodeBlueprint>,
    #[serde(skip)]
    slots: Vec<TemplateSlot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct NodeBlueprint {
    name: String,
    plugin: String,
    #[serde(with = "super::exact_json::kind")]
    kind: PluginKind,
    from: Vec<usize>,
    #[serde(with = "super::exact_json::exact")]
    options: Value,
    damage: OnDamage,
    source_name: Option<String>,
    #[serde(skip)]
    span: std::ops::Range<usize>,
}

/// A template filled in for one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FilledSlot {
    node: usize,
    place: TemplateTarget,
    text: String,
}

impl Blueprint {
    pub(crate) fn from_pipeline(pipeline: &Pipeline) -> Self {
        let draft = |node: &PipelineNode| NodeBlueprint {
            name: node.name.clone(),
            plugin: node.plugin.to_owned(),
            kind: node.kind,
            from: node.from.clone(),
            options: node.options.clone(),
            damage: node.damage.clone(),
            source_name: node.source_name.clone(),
            span: node.span.clone(),
        };
        Self {
            name: pipeline.name.clone(),
            memory: pipeline.memory,
            text: pipeline.text.clone(),
            file: pipeline.file.clone(),
            nodes: pipeline.nodes.iter().map(draft).collect(),
            slots: pipeline.templates.clone(),
        }
    }

    /// The pipeline for the input at this index.
    pub(super) fn pipeline(
        &self,
        input: &Path,
        index: usize,
        registry: &Registry,
    ) -> Result<Pipeline, Error> {
        self.build(Some(input), &self.fills(input, index)?, registry)
    }

    /// Builds the pipeline that reads `input`, or its own input if `None`, with these templates
    /// filled in.
    pub(crate) fn build(
        &self,
        input: Option<&Path>,
        fills: &[FilledSlot],
        registry: &Registry,
    ) -> Result<Pipeline, Error> {
        let drafts = self.filled_nodes(input, fills)?;
        let nodes = drafts.into_iter().map(|draft| draft.node(registry, self.nodes.len()));
        Ok(Pipeline {
            name: self.name.clone(),
            memory: self.memory,
            nodes: nodes.collect::<Result<_, Error>>()?,
            text: self.text.clone(),
            file: self.file.clone(),
            ..Pipeline::default()
        })
    }

    /// Its templates, filled in for the input at this index.
    pub(crate) fn fills(&self, input: &Path, index: usize) -> Result<Vec<FilledSlot>, Error> {
        let fill = |TemplateSlot { node, target: place, template }: &TemplateSlot| {
            let (place, text) = (place.clone(), template.fill(input, index)?);
            Ok(FilledSlot { node: *node, place, text })
        };
        self.slots.iter().map(fill).collect()
    }

    /// The folders that contain the outputs of all inputs, as far as templates say.
    pub(super) fn output_folders(&self) -> BTreeSet<PathBuf> {
        self.slots.iter().map(|slot| slot.template.folder()).collect()
    }

    /// Whether a sink writes to standard output.
    pub(super) fn writes_stdout(&self) -> bool {
        let is_stdout =
            |draft: &NodeBlueprint| draft.options.get("path").is_some_and(|path| path == "-");
        self.nodes.iter().any(|draft| draft.kind == PluginKind::Sink && is_stdout(draft))
    }

    /// The outputs for the input at this index, without `-`.
    fn outputs(
        &self,
        input: &Path,
        index: usize,
        registry: &Registry,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut outputs = Vec::new();
        for draft in self.filled_nodes(Some(input), &self.fills(input, index)?)? {
            if let OnDamage::Quarantine(path) = &draft.damage {
                outputs.push(path.clone());
            }
            if draft.kind == PluginKind::Sink
                && let PluginInstance::Sink(sink) = draft.node(registry, self.nodes.len())?.instance
            {
                outputs.extend(
                    sink.traits().targets.iter().filter(|path| *path != Path::new("-")).cloned(),
                );
            }
        }
        Ok(outputs)
    }

    fn filled_nodes(
        &self,
        input: Option<&Path>,
        fills: &[FilledSlot],
    ) -> Result<Vec<NodeBlueprint>, Error> {
        let mut drafts = self.nodes.clone();
        if let Some(input) = input {
            let path = text(input)?;
            let sources = drafts.iter_mut().filter(|draft| draft.kind == PluginKind::Source);
            sources.for_each(|source| source.options["path"] = path.into());
        }
        for FilledSlot { node, place, text } in fills {
            let Some(draft) = drafts.get_mut(*node) else { continue };
            match place {
                TemplateTarget::Option(at) => set_at(&mut draft.options, at, text),
                TemplateTarget::Quarantine => draft.damage = OnDamage::Quarantine(text.into()),
            }
        }
        Ok(drafts)
    }
}

impl NodeBlueprint {
    /// Creates the node; `nodes` is the number of nodes in the pipeline.
    fn node(self, registry: &Registry, nodes: usize) -> Result<PipelineNode, Error> {
        let Self { name, plugin, kind, from, options, damage, source_name, span } = self;
        let found = registry.get(kind, &plugin);
        let found = found.ok_or_else(|| Error::internal(format!("no {kind} `{plugin}`")))?;
        if let Some(missing) = from.iter().find(|from| **from >= nodes) {
            return Err(Error::internal(format!("{kind} `{name}` reads from node {missing}")));
        }
        let part = make(registry, found, options.clone())
            .map_err(|e| Error::invalid(format!("{kind} `{name}`: {e}")))?;
        let node =
            PipelineNode::new(name, (registry, found), (part, options), (span, |_: &str| None));
        PipelineNode { from, damage, ..node }.with_source_name(source_name)
    }
}

/// Sets the option that these keys and list positions lead to.
fn set_at(options: &mut Value, at: &[String], text: &str) {
    let mut place = options;
    for step in at {
        let next = match place {
            Value::Array(list) => step.parse().ok().and_then(|n: usize| list.get_mut(n)),
            other => other.get_mut(step),
        };
        let Some(next) = next else { return };
        place = next;
    }
    *place = text.into();
}

/// The folder of the record: the fixed folder of the first sink's template.
pub(super) fn record_folder(pipeline: &Pipeline) -> PathBuf {
    let of_sinks = pipeline.templates.iter().find(|slot| slot.target != TemplateTarget::Quarantine);
    of_sinks.map(|slot| slot.template.folder()).unwrap_or_default()
}

/// The units of a pipeline, in input order.
pub(super) fn batch_units(
    pipeline: &Pipeline,
    blueprint: &Blueprint,
    registry: &Registry,
    failing: FailurePolicy,
) -> Result<Vec<Unit>, Error> {
    let mut units = Vec::new();
    for (index, (input, failure)) in batch_inputs(pipeline, registry, failing)?.enumerate() {
        let failure = pipeline.unreadable.get(&input.path).cloned().or(failure);
        // Running the others fails. What is there is kept for when they can be read.
        let has_name = input
            .path
            .to_str()
            .is_some_and(|path| failure.is_none() || !files::is_only_glob(Path::new(path)));
        let outputs = match has_name {
            true => blueprint.outputs(&input.path, index, registry)?,
            false => Vec::new(),
        };
        units.push(Unit { input, outputs, index, shared_folders: Vec::new(), failure });
    }
    // A later unit would wait for another writer.
    refuse_repeated_streams(units.iter().map(|unit| &unit.input))?;
    refuse_record_names(&units, &record_folder(pipeline))?;
    refuse_collisions(&units)?;
    find_shared_folders(&mut units);
    refuse_overwritten_inputs(&units)?;
    Ok(units)
}

/// The inputs of a pipeline, and why those fail that are not there.
fn batch_inputs(
    pipeline: &Pipeline,
    registry: &Registry,
    failing: FailurePolicy,
) -> Result<impl Iterator<Item = (Input, Option<String>)>, Error> {
    let mut all = Vec::new();
    for (node, source) in sources(pipeline) {
        let listed = match source.logs() {
            // One that is missing hides the others.
            Err(_) if failing == FailurePolicy::Continue && !node.source_paths().is_empty() => {
                inputs_one_by_one(node, registry)
            }
            listed => {
                let listed = listed.map_err(|error| error.at_node(&pipeline.place_of(node)))?;
                listed.into_iter().map(|input| (input, None)).collect()
            }
        };
        all.extend(listed);
    }
    // No option of a source can name these.
    let unnamed = pipeline.unreadable.keys().filter(|path| path.to_str().is_none());
    let is_listed = |path: &PathBuf| all.iter().any(|(input, _)| input.path == *path);
    let unnamed: Vec<PathBuf> = unnamed.filter(|path| !is_listed(path)).cloned().collect();
    all.extend(unnamed.into_iter().map(|path| (Input { path, bytes: None }, None)));
    Ok(all.into_iter())
}

/// The inputs of a source, listed one by one, and why those fail that cannot be.
fn inputs_one_by_one(node: &PipelineNode, registry: &Registry) -> Vec<(Input, Option<String>)> {
    let mut all = Vec::new();
    for name in node.source_paths() {
        let found = files::expand_with_folders(Path::new(name));
        let found = found.unwrap_or_else(|_| vec![Input { path: name.into(), bytes: None }]);
        let is_folder = |input: &Input| input.bytes.is_none() && files::is_folder(&input.path);
        let (folders, files): (Vec<_>, _) = found.into_iter().partition(is_folder);
        // A glob means folders if it matches nothing else.
        for input in if files.is_empty() { folders } else { files } {
            match logs_of(node, &input.path, registry, |source| source.logs()) {
                Ok(logs) => all.extend(logs.into_iter().map(|log| (log, None))),
                Err(error) => all.push((input, Some(error.to_string()))),
            }
        }
    }
    all
}

/// What `list` lists of a source that reads this path only.
fn logs_of(
    node: &PipelineNode,
    path: &Path,
    registry: &Registry,
    list: impl Fn(&dyn Source) -> Result<Vec<Input>, Error>,
) -> Result<Vec<Input>, Error> {
    let mut options = node.options.clone();
    options["path"] = text(path)?.into();
    let source = registry.source(node.plugin, options);
    list(&*source.map_err(|e| Error::invalid(format!("`{}`: {e}", node.name)))?)
}

fn sources(pipeline: &Pipeline) -> impl Iterator<Item = (&PipelineNode, &dyn Source)> {
    pipeline.nodes.iter().filter_map(|node| Some((node, node.source()?)))
}

/// A path as an option. `Err` if it is not text.
fn text(path: &Path) -> Result<&str, Error> {
    let refused = || Error::refused(format!("this path {NOT_UTF8}: {}", path.display()));
    path.to_str().ok_or_else(refused)
}

/// Refuses outputs that would take the place of the batch's record, or of that of another batch.
fn refuse_record_names(units: &[Unit], folder: &Path) -> Result<(), Error> {
    for unit in units {
        for output in &unit.outputs {
            let below = output.ancestors().take_while(|path| *path != folder);
            if let Some(name) = below.filter(|path| is_batch_record(path)).find_map(Path::file_name)
            {
                return Err(Error::refused(format!(
                    "`{}` is the name of a record of batches, and the output of {} would have it; \
                     rename the input, or put more into the path than the placeholder: {}",
                    name.display(),
                    unit.input.path.display(),
                    output.display()
                )));
            }
        }
    }
    Ok(())
}

/// Refuses units that share an output.
fn refuse_collisions(units: &[Unit]) -> Result<(), Error> {
    let mut taken: BTreeMap<PathBuf, (&Unit, &Path)> = BTreeMap::new();
    for unit in units {
        for output in &unit.outputs {
            let other = taken.insert(written_place(output), (unit, output));
            if let Some(other) = other.filter(|(other, _)| other.index != unit.index) {
                return Err(collision(other, (unit, output)));
            }
        }
    }
    for (path, found) in &taken {
        // A file in the output folder of another unit would be missing from its manifest.
        let around = path.ancestors().skip(1).find_map(|folder| taken.get(folder));
        if let Some(other) = around.filter(|(other, _)| other.index != found.0.index) {
            return Err(collision(*other, *found));
        }
    }
    Ok(())
}

/// The most links that lead to each other: as many as the system follows.
const MAX_LINKS: usize = 40;

/// Where an output is written: what a link leads to is replaced, or created.
fn written_place(output: &Path) -> PathBuf {
    let mut place = output.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = place.read_link() else { break };
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    place.canonicalize().unwrap_or_else(|_| canonical_path(&place))
}

/// Tells units into which folders others write files, too.
fn find_shared_folders(units: &mut [Unit]) {
    let mut by_folder: BTreeMap<PathBuf, BTreeSet<usize>> = BTreeMap::new();
    for (place, unit) in units.iter().enumerate() {
        for output in &unit.outputs {
            if let Some(folder) = canonical_path(output).parent() {
                by_folder.entry(folder.to_owned()).or_default().insert(place);
            }
        }
    }
    for (folder, places) in by_folder.into_iter().filter(|(_, places)| places.len() > 1) {
        places.into_iter().for_each(|place| units[place].shared_folders.push(folder.clone()));
    }
}

fn collision((one, first): (&Unit, &Path), (other, output): (&Unit, &Path)) -> Error {
    let (one, other) = (&one.input.path, &other.input.path);
    let is_link = |output: &Path| written_place(output) != canonical_path(output);
    let remedy = if is_link(first) || is_link(output) {
        "remove the links among the outputs"
    } else if one.file_name() == other.file_name() {
        "put `{parent}` or `{index}` into its path"
    } else {
        "put `{name}` into its path, the full file name"
    };
    Error::refused(format!(
        "two inputs, {} and {}, would be written to the same place: {remedy}: {}",
        one.display(),
        other.display(),
        output.display()
    ))
}

/// The files that the units read, including those that belong to an input, and those that the
/// pipeline is made from. Inputs that cannot be opened are skipped here; reading them reports the
/// error.
pub(super) fn identities(
    pipeline: &Pipeline,
    units: &[Unit],
    registry: &Registry,
) -> BTreeSet<FileIdentity> {
    let files = sources(pipeline).flat_map(|(node, source)| {
        // One that cannot be opened hides those of the others.
        let each = |unit: &Unit| {
            logs_of(node, &unit.input.path, registry, |source| source.files()).unwrap_or_default()
        };
        source.files().unwrap_or_else(|_| units.iter().flat_map(each).collect())
    });
    let files = files.map(|input| input.path);
    let inputs = units.iter().map(|unit| unit.input.path.clone());
    files
        .chain(inputs)
        .chain(pipeline.files.iter().cloned())
        .filter_map(|path| FileIdentity::of_input(&path))
        .collect()
}

/// Refuses units that write to an input of any unit.
fn refuse_overwritten_inputs(units: &[Unit]) -> Result<(), Error> {
    let known =
        |unit: &Unit| Some((FileIdentity::of_input(&unit.input.path)?, unit.input.path.clone()));
    let inputs: BTreeMap<FileIdentity, PathBuf> = units.iter().filter_map(known).collect();
    for output in units.iter().flat_map(|unit| &unit.outputs) {
        if let Some(input) = FileIdentity::read(output).and_then(|identity| inputs.get(&identity)) {
            return Err(Error::refused(format!(
                "the output is also an input ({}); write elsewhere, or leave outputs of an \
                 earlier run out of the inputs: {}",
                input.display(),
                output.display()
            )));
        }
    }
    Ok(())
}
