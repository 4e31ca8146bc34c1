//! A pipeline file as far as it can be read without values for its variables: enough to draw and
//! describe it, not to run it.

use serde_json::{Map, Value};
use sluice_model::{PluginKind, Registry};
use toml::de::DeValue;

use super::check::Check;
use super::{Document, Pipeline, PrunedNode, Variables};
use crate::mistake::Mistakes;

/// The structure of a pipeline. A value that depends on an unset variable is kept as written.
#[derive(Debug, Default)]
pub struct Outline {
    /// Its name.
    pub name: Option<String>,
    /// Its sources, stages and sinks, in file order, without pruned nodes. Conditions that depend
    /// on an unset variable prune nothing.
    pub nodes: Vec<OutlineNode>,
    /// The nodes that conditions remove.
    pub pruned: Vec<PrunedNode>,
    /// The variables without a value, sorted.
    pub unset: Vec<String>,
}

/// A source, stage or sink.
#[derive(Clone, Debug)]
pub struct OutlineNode {
    /// Its name.
    pub name: String,
    /// The name of its plugin.
    pub plugin: String,
    /// The kind of its plugin.
    pub kind: PluginKind,
    /// The nodes it reads from, as indices of [`Outline::nodes`].
    pub from: Vec<usize>,
    /// Its options; a string with an unset variable is kept as written.
    pub options: Value,
}

impl Outline {
    /// Reads a pipeline file. `Err` holds every mistake in it other than unset variables.
    pub fn read(
        document: &Document,
        variables: &Variables,
        registry: &Registry,
    ) -> Result<Self, Mistakes> {
        Check::new(document, variables, registry).outline()
    }
}

impl From<&Pipeline> for Outline {
    fn from(pipeline: &Pipeline) -> Self {
        let nodes = pipeline.nodes.iter().map(|node| OutlineNode {
            name: node.name.clone(),
            plugin: node.plugin.to_owned(),
            kind: node.kind,
            from: node.from.clone(),
            options: node.options.clone(),
        });
        Self {
            name: pipeline.name.clone(),
            nodes: nodes.collect(),
            pruned: pipeline.pruned.clone(),
            unset: Vec::new(),
        }
    }
}

/// A value as written, without variables filled in.
pub(super) fn as_written(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(&**text),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            number.map_or_else(|_| Value::from(integer.as_str()), Value::from)
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            number.map_or_else(|| Value::from(float.as_str()), Value::from)
        }
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(datetime) => Value::from(datetime.to_string()),
        DeValue::Array(list) => list.iter().map(|value| as_written(value.get_ref())).collect(),
        DeValue::Table(table) => {
            let field =
                |(key, value): (&super::check::TomlKey<'_>, &super::check::TomlValue<'_>)| {
                    (key.get_ref().to_string(), as_written(value.get_ref()))
                };
            Value::Object(table.iter().map(field).collect::<Map<_, _>>())
        }
    }
}
