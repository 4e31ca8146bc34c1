//! Runs a source in the engine, into the kit's own sink.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use sluice_model::Registry;
use sluice_model::options::ByteSize;
use sluice_pipeline::report::{DamageReport, Note};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Pipeline, Variables};

use crate::kit_plugins::{KEEP, new_place, take_kept};
use crate::reading::{DamageRange, NAME, ReadResult};

/// Threads, and the memory cap in MiB.
pub(crate) const RUN_CONFIGS: [(usize, u64); 4] = [(1, 512), (2, 512), (8, 512), (8, 16)];

/// Reads a source with the engine. `Err` if the pipeline is refused.
pub(crate) fn run(
    plugin: &str,
    options: &Value,
    limits: (usize, u64),
    registry: &Registry,
) -> Result<ReadResult, String> {
    let document = |place| {
        text(plugin, options, place).map(|text| Document::generated("conformance.toml", text))
    };
    Ok(run_document(document, limits, registry)?.0)
}

/// Runs a pipeline that ends in the kit's own sink with the place it is given. Also returns its
/// notes.
pub(crate) fn run_document(
    document: impl FnOnce(u64) -> Result<Document, String>,
    (jobs, memory): (usize, u64),
    registry: &Registry,
) -> Result<(ReadResult, Vec<String>), String> {
    let place = new_place();
    let pipeline = read_document(&document(place)?, registry)?;
    let (jobs, memory) = (Some(jobs), Some(ByteSize(memory << 20)));
    // What a plugin runs is up to its test.
    let options = Options { jobs, memory, allow_exec: true, ..Options::default() };
    let ran = run::run(pipeline, &options);
    let (mut read, mut notes) =
        (ReadResult { events: take_kept(place), ..ReadResult::default() }, Vec::new());
    match ran {
        Ok(report) => {
            read.damage = report.damage.into_iter().map(damage_range).collect();
            let counted = |note: Note| match note.count {
                0 => format!("{}: {}", note.node, note.what),
                count => format!("{}: {} ({count})", note.node, note.what),
            };
            notes = report.notes.into_iter().map(counted).collect();
        }
        Err(error) => read.error = Some(error.to_string()),
    }
    Ok((read.in_reported_order(), notes))
}

/// Reads a pipeline without variables: paths are literal, braces in them are not variables.
pub(crate) fn read_document(document: &Document, registry: &Registry) -> Result<Pipeline, String> {
    let variables = Variables { set: BTreeMap::new(), environment: false };
    Pipeline::read(document, &variables, registry).map_err(|mistakes| mistakes.to_string())
}

fn damage_range(damage: DamageReport) -> DamageRange {
    let DamageReport { input, offset, length, reason, .. } = damage;
    DamageRange { input, offset, length, reason }
}

fn text(plugin: &str, options: &Value, place: u64) -> Result<String, String> {
    let mut source = toml::Table::try_from(options).map_err(|error| error.to_string())?;
    source.insert("plugin".to_owned(), plugin.into());
    let node =
        |name: &str, node: toml::Table| toml::Table::from_iter([(name.to_owned(), node.into())]);
    let mut sink = toml::Table::new();
    sink.insert("plugin".to_owned(), KEEP.into());
    sink.insert("from".to_owned(), NAME.into());
    sink.insert("place".to_owned(), toml::Value::Integer(place as i64));
    let groups = [("sources", node(NAME, source)), ("sinks", node("kept", sink))];
    let groups = groups.map(|(group, nodes)| (group.to_owned(), toml::Value::Table(nodes)));
    toml::to_string(&toml::Table::from_iter(groups)).map_err(|error| error.to_string())
}

/// The options with `${DIR}` filled in and `path` in this folder; `first` is the default path.
pub(crate) fn resolve_options(options: &Value, folder: &Path, first: Option<&str>) -> Value {
    let mut options = fill_dir(options, &folder.display().to_string());
    if let (Some(first), Some(table)) = (first, options.as_object_mut()) {
        let path = table.entry("path").or_insert_with(|| first.into());
        if let Some(relative) = path.as_str().filter(|path| !path.starts_with('/')) {
            *path = format!("{}/{relative}", folder.display()).into();
        }
    }
    options
}

/// Options with `${DIR}` filled in.
pub(crate) fn fill_dir(value: &Value, folder: &str) -> Value {
    match value {
        Value::String(text) => text.replace("${DIR}", folder).into(),
        Value::Array(list) => list.iter().map(|value| fill_dir(value, folder)).collect(),
        Value::Object(table) => {
            table.iter().map(|(key, value)| (key.clone(), fill_dir(value, folder))).collect()
        }
        other => other.clone(),
    }
}
