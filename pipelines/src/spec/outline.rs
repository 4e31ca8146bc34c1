//! A pipeline file as far as it can be read without values for its variables: enough to draw it and
//! to tell what it does, not enough to run it.

use serde_json::{Map, Value};
use sluice_core::{PluginKind, Registry};
use toml::de::DeValue;

use super::check::Check;
use super::{Document, LeftOut, Pipeline, Variables};
use crate::mistake::Mistakes;

/// What a pipeline consists of. Where a value depends on a variable that has none, it is as the
/// file has it.
#[derive(Debug, Default)]
pub struct Outline {
    /// What it calls itself.
    pub name: Option<String>,
    /// Its sources, stages and sinks, in the order of the file; without those that conditions leave
    /// out. Conditions that depend on a variable without a value leave out nothing.
    pub nodes: Vec<OutlineNode>,
    /// The nodes that conditions leave out.
    pub left_out: Vec<LeftOut>,
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
    /// The nodes it reads from, as positions in [`Outline::nodes`].
    pub from: Vec<usize>,
    /// Its options: a string with a variable that has no value stands for itself.
    pub options: Value,
}

impl Outline {
    /// Reads a pipeline file. `Err` holds every mistake in it, if any is there but for variables
    /// without values.
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
            left_out: pipeline.left_out.clone(),
            unset: Vec::new(),
        }
    }
}

/// A value as the file has it, with no variable filled in.
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
            let field = |(key, value): (&super::check::Key<'_>, &super::check::Given<'_>)| {
                (key.get_ref().to_string(), as_written(value.get_ref()))
            };
            Value::Object(table.iter().map(field).collect::<Map<_, _>>())
        }
    }
}
