//! The units of a batch: what each reads, what each writes, and the pipeline of each. Runs none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::files::FileIdentity;
use sluice_core::options::ByteSize;
use sluice_core::output::canonical_path;
use sluice_core::{Error, PluginKind, Registry};

use super::Unit;
use crate::source_name;
use crate::spec::options::make;
use crate::spec::templates::{Place, Slot};
use crate::spec::{Node, OnDamage, Part, Pipeline};

/// A pipeline before its plugins are made: as many as are wanted can be made from it, on any thread or machine.
///
/// Plain data. What only serves to show mistakes is not sent on: the text, and where nodes stand in it. Neither are
/// the templates: see [`fills`](Self::fills).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    name: Option<String>,
    pub(crate) memory: Option<ByteSize>,
    #[serde(skip)]
    text: String,
    nodes: Vec<Draft>,
    #[serde(skip)]
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Draft {
    name: String,
    plugin: String,
    #[serde(with = "super::plain::kind")]
    kind: PluginKind,
    from: Vec<usize>,
    #[serde(with = "super::plain::exact")]
    options: Value,
    damage: OnDamage,
    source_name: Option<String>,
    #[serde(skip)]
    span: std::ops::Range<usize>,
}

/// What a template comes to for one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    node: usize,
    place: Place,
    text: String,
}

impl Blueprint {
    pub(crate) fn of(pipeline: &Pipeline) -> Self {
        let draft = |node: &Node| Draft {
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
            nodes: pipeline.nodes.iter().map(draft).collect(),
            slots: pipeline.templates.clone(),
        }
    }

    /// The pipeline for the input at this place in the list.
    pub(super) fn pipeline(
        &self,
        input: &Path,
        index: usize,
        registry: &Registry,
    ) -> Result<Pipeline, Error> {
        self.made(Some(input), &self.fills(input, index)?, registry)
    }

    /// The pipeline that reads `input`, or what it always reads, with templates filled in so.
    pub(crate) fn made(
        &self,
        input: Option<&Path>,
        fills: &[Fill],
        registry: &Registry,
    ) -> Result<Pipeline, Error> {
        let drafts = self.filled(input, fills)?;
        let nodes = drafts.into_iter().map(|draft| draft.node(registry, self.nodes.len()));
        Ok(Pipeline {
            name: self.name.clone(),
            memory: self.memory,
            nodes: nodes.collect::<Result<_, Error>>()?,
            text: self.text.clone(),
            ..Pipeline::default()
        })
    }

    /// What its templates come to for the input at this place in the list.
    pub(crate) fn fills(&self, input: &Path, index: usize) -> Result<Vec<Fill>, Error> {
        let fill = |Slot { node, place, template }: &Slot| {
            let (place, text) = (place.clone(), template.fill(input, index)?);
            Ok(Fill { node: *node, place, text })
        };
        self.slots.iter().map(fill).collect()
    }

    /// Whether a sink writes to standard output.
    pub(super) fn prints(&self) -> bool {
        let is_stdout = |draft: &Draft| draft.options.get("path").is_some_and(|path| path == "-");
        self.nodes.iter().any(|draft| draft.kind == PluginKind::Sink && is_stdout(draft))
    }

    /// What is written for the input at this place in the list; `-` is left out.
    fn outputs(
        &self,
        input: &Path,
        index: usize,
        registry: &Registry,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut outputs = Vec::new();
        for draft in self.filled(Some(input), &self.fills(input, index)?)? {
            if let OnDamage::Quarantine(Some(path)) = &draft.damage {
                outputs.push(path.clone());
            }
            if draft.kind == PluginKind::Sink
                && let Part::Sink(sink) = draft.node(registry, self.nodes.len())?.part
            {
                outputs.extend(sink.targets().into_iter().filter(|path| path != Path::new("-")));
            }
        }
        Ok(outputs)
    }

    fn filled(&self, input: Option<&Path>, fills: &[Fill]) -> Result<Vec<Draft>, Error> {
        let mut drafts = self.nodes.clone();
        if let Some(input) = input {
            let path = input.to_str().ok_or_else(|| {
                Error::refused(format!("this path is not UTF-8: {}", input.display()))
            })?;
            let sources = drafts.iter_mut().filter(|draft| draft.kind == PluginKind::Source);
            sources.for_each(|source| source.options["path"] = path.into());
        }
        for Fill { node, place, text } in fills {
            let Some(draft) = drafts.get_mut(*node) else { continue };
            match place {
                Place::Option(at) => put(&mut draft.options, at, text),
                Place::Quarantine => draft.damage = OnDamage::Quarantine(Some(text.into())),
            }
        }
        Ok(drafts)
    }
}

impl Draft {
    /// The node, of a pipeline of so many.
    fn node(self, registry: &Registry, nodes: usize) -> Result<Node, Error> {
        let Self { name, plugin, kind, from, options, damage, source_name, span } = self;
        let found = registry.get(kind, &plugin);
        let found = found.ok_or_else(|| Error::internal(format!("no {kind} `{plugin}`")))?;
        if let Some(missing) = from.iter().find(|from| **from >= nodes) {
            return Err(Error::internal(format!("{kind} `{name}` reads from node {missing}")));
        }
        let part = make(found, options.clone())
            .map_err(|e| Error::invalid(format!("{kind} `{name}`: {e}")))?;
        let again = crate::spec::again(found);
        let program = found.program.map(|program| program(&options));
        let (plugin, schema) = (found.name, Value::from((found.schema)()));
        let names = crate::names::of_node(&schema, &options, &part, |_| span.clone());
        let part = source_name::named(part, source_name.as_deref())?;
        Ok(Node {
            name,
            plugin,
            kind,
            from,
            part,
            options,
            again,
            program,
            damage,
            source_name,
            span,
            names,
        })
    }
}

/// Puts a text where these keys and list positions lead to.
fn put(options: &mut Value, at: &[String], text: &str) {
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

/// The folder that has the record: that of everything the first template gives.
pub(super) fn folder(pipeline: &Pipeline) -> PathBuf {
    let of_sinks = pipeline.templates.iter().find(|slot| slot.place != Place::Quarantine);
    of_sinks.map(|slot| slot.template.folder()).unwrap_or_default()
}

/// The units of a pipeline, in the order of its source's inputs.
pub(super) fn all(
    pipeline: &Pipeline,
    blueprint: &Blueprint,
    registry: &Registry,
) -> Result<Vec<Unit>, Error> {
    let sources = pipeline.nodes.iter().filter_map(|node| match &node.part {
        Part::Source(source) => Some(source.inputs()),
        _ => None,
    });
    let inputs = sources.collect::<Result<Vec<_>, Error>>()?.concat();
    let units = inputs.into_iter().enumerate().map(|(index, input)| {
        let outputs = blueprint.outputs(&input.path, index, registry)?;
        Ok(Unit { input, outputs, index })
    });
    let units = units.collect::<Result<Vec<_>, Error>>()?;
    apart(&units)?;
    beside_inputs(&units)?;
    Ok(units)
}

/// Refuses units of which one writes where another one does.
fn apart(units: &[Unit]) -> Result<(), Error> {
    let mut taken: BTreeMap<PathBuf, &Unit> = BTreeMap::new();
    for unit in units {
        for output in &unit.outputs {
            let other = taken.insert(canonical_path(output), unit);
            if let Some(other) = other.filter(|other| other.index != unit.index) {
                return Err(collision(other, unit, output));
            }
        }
    }
    for (path, unit) in &taken {
        // A file of one unit in the folder of another one would not be in its manifest.
        let around = path.ancestors().skip(1).find_map(|folder| taken.get(folder));
        if let Some(other) = around.filter(|other| other.index != unit.index) {
            return Err(collision(other, unit, path));
        }
    }
    Ok(())
}

fn collision(one: &Unit, other: &Unit, output: &Path) -> Error {
    let (one, other) = (&one.input.path, &other.input.path);
    let remedy = if one.file_name() == other.file_name() {
        "put `{parent}` or `{index}` into its path"
    } else {
        "put `{name}` into its path, which is an input's whole name, in the place of `{stem}`"
    };
    Error::refused(format!(
        "two inputs, {} and {}, would be written to the same place: {remedy}: {}",
        one.display(),
        other.display(),
        output.display()
    ))
}

/// What the units read, with the files that belong to their inputs. Those of an input that cannot be looked into are left
/// to whoever reads it, and says why.
pub(super) fn identities(pipeline: &Pipeline, units: &[Unit]) -> BTreeSet<FileIdentity> {
    let sources = pipeline.nodes.iter().filter_map(|node| match &node.part {
        Part::Source(source) => source.files().ok(),
        _ => None,
    });
    let files = sources.flatten().map(|input| input.path);
    let inputs = units.iter().map(|unit| unit.input.path.clone());
    files.chain(inputs).filter_map(|path| FileIdentity::read(&path)).collect()
}

/// Refuses units that write to an input, their own or that of another.
fn beside_inputs(units: &[Unit]) -> Result<(), Error> {
    let known =
        |unit: &Unit| Some((FileIdentity::read(&unit.input.path)?, unit.input.path.clone()));
    let inputs: BTreeMap<FileIdentity, PathBuf> = units.iter().filter_map(known).collect();
    for output in units.iter().flat_map(|unit| &unit.outputs) {
        if let Some(input) = FileIdentity::read(output).and_then(|identity| inputs.get(&identity)) {
            return Err(Error::refused(format!(
                "the output is also an input ({}); write elsewhere: {}",
                input.display(),
                output.display()
            )));
        }
    }
    Ok(())
}
