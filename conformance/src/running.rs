//! Running a source by the engine into the kit's own sink.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use sluice_core::Registry;
use sluice_core::options::ByteSize;
use sluice_pipeline::report::DamageReport;
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Pipeline, Variables};

use crate::private::{KEEP, kept, new_place};
use crate::reading::{NAME, Read, Told};

/// Threads, and the cap on memory in MiB.
pub(crate) const MANNERS: [(usize, u64); 4] = [(1, 512), (2, 512), (8, 512), (8, 16)];

/// What the engine reads from a source. `Err` if the pipeline is refused.
pub(crate) fn run(
    plugin: &str,
    options: &Value,
    (jobs, memory): (usize, u64),
    registry: &Registry,
) -> Result<Read, String> {
    let place = new_place();
    let text = text(plugin, options, place)?;
    // Paths stand in it as they are; braces in them are no variables.
    let variables = Variables { set: BTreeMap::new(), environment: false };
    let document = Document::generated("conformance.toml", text);
    let pipeline = Pipeline::read(&document, &variables, registry).map_err(|m| m.to_string())?;
    let (jobs, memory) = (Some(jobs), Some(ByteSize(memory << 20)));
    let ran = run::run(pipeline, &Options { jobs, memory, ..Options::default() });
    let mut read = Read { events: kept(place), ..Read::default() };
    match ran {
        Ok(report) => read.damage = report.damage.into_iter().map(told).collect(),
        Err(error) => read.error = Some(error.to_string()),
    }
    Ok(read.in_reported_order())
}

fn told(damage: DamageReport) -> Told {
    let DamageReport { input, offset, length, reason, .. } = damage;
    Told { input, offset, length, reason }
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

/// Options with `${DIR}` filled in and `path` put into this folder; `first` is the path where there is
/// none.
pub(crate) fn resolved(options: &Value, folder: &Path, first: Option<&str>) -> Value {
    let mut options = filled(options, &folder.display().to_string());
    if let (Some(first), Some(table)) = (first, options.as_object_mut()) {
        let path = table.entry("path").or_insert_with(|| first.into());
        if let Some(relative) = path.as_str().filter(|path| !path.starts_with('/')) {
            *path = format!("{}/{relative}", folder.display()).into();
        }
    }
    options
}

/// Options with `${DIR}` filled in.
pub(crate) fn filled(value: &Value, folder: &str) -> Value {
    match value {
        Value::String(text) => text.replace("${DIR}", folder).into(),
        Value::Array(list) => list.iter().map(|value| filled(value, folder)).collect(),
        Value::Object(table) => {
            table.iter().map(|(key, value)| (key.clone(), filled(value, folder))).collect()
        }
        other => other.clone(),
    }
}
