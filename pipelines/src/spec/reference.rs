//! The keys of pipeline files that do not depend on plugins: one list for the checks, the schema,
//! the help and the documentation. Values are checked elsewhere.

use serde_json::{Value, json};
use sluice_model::PluginKind;
use sluice_model::options::PATH_FORMAT;

/// The ways to handle damage, in the order of [`super::OnDamage`].
pub(crate) const DAMAGE_WORDS: [&str; 3] = ["skip", "stop", "quarantine"];

/// The keys of sources that say what happens to damage.
pub const DAMAGE_KEYS: [&str; 2] = ["on_damage", "quarantine"];

/// A key that plugins do not declare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileKey {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) required: bool,
    value: ValueForm,
    /// The node kinds that have it; empty for top-level keys.
    kinds: &'static [PluginKind],
}

/// The value of a key.
#[derive(Clone, Copy, Debug)]
enum ValueForm {
    Text,
    Path,
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
    /// A number of bytes, with this default.
    Size(&'static str),
    /// A name, or a list of names.
    Names,
    /// Values of variables.
    Condition,
    /// The nodes of this kind.
    Nodes(PluginKind),
}

const NODES: &[PluginKind] = &[PluginKind::Source, PluginKind::Stage, PluginKind::Sink];
const CONSUMERS: &[PluginKind] = &[PluginKind::Stage, PluginKind::Sink];
const SOURCES: &[PluginKind] = &[PluginKind::Source];

/// The top-level keys.
pub(crate) const TOP_LEVEL: [FileKey; 5] = [
    FileKey {
        name: "name",
        about: "The name of the pipeline, in reports and manifests.",
        required: false,
        value: ValueForm::Text,
        kinds: &[],
    },
    FileKey {
        name: "memory",
        about: "The memory cap of a run; `--memory` overrides it.",
        required: false,
        value: ValueForm::Size("512MiB"),
        kinds: &[],
    },
    FileKey {
        name: "sources",
        about: "The sources: nodes `[sources.NAME]`, with names of your choice.",
        required: true,
        value: ValueForm::Nodes(PluginKind::Source),
        kinds: &[],
    },
    FileKey {
        name: "stages",
        about: "The stages: nodes `[stages.NAME]`.",
        required: false,
        value: ValueForm::Nodes(PluginKind::Stage),
        kinds: &[],
    },
    FileKey {
        name: "sinks",
        about: "The sinks: nodes `[sinks.NAME]`.",
        required: true,
        value: ValueForm::Nodes(PluginKind::Sink),
        kinds: &[],
    },
];

/// The keys that nodes have besides the options of their plugin.
pub(crate) const NODE_KEYS: [FileKey; 6] = [
    FileKey {
        name: "plugin",
        about: "The plugin of the node. `sluice plugins` lists all.",
        required: true,
        value: ValueForm::Text,
        kinds: NODES,
    },
    FileKey {
        name: "from",
        about: "The source or stage to read from, or a list of them: several sources are merged by \
                time, branches of one in its order.",
        required: true,
        value: ValueForm::Names,
        kinds: CONSUMERS,
    },
    FileKey {
        name: "when",
        about: "The values of variables for which the node is there, such as { FORMAT = \"text\" }. \
                Words in a list are alternatives, { not = \"text\" } stands for any other, and \
                \"\" for an unset variable. Of a list of such tables, one has to hold. A string, \
                such as \"${FORMAT:-} == text\", is an outdated form.",
        required: false,
        value: ValueForm::Condition,
        kinds: NODES,
    },
    FileKey {
        name: DAMAGE_KEYS[0],
        about: "How to treat input that cannot be read: report and skip it, stop, or skip it and \
                write its bytes to a file.",
        required: false,
        value: ValueForm::Word(&DAMAGE_WORDS),
        kinds: SOURCES,
    },
    FileKey {
        name: DAMAGE_KEYS[1],
        about: "The file for damaged bytes, with `on_damage = \"quarantine\"`; by default \
                `NAME.quarantine`, after the source, in the folder of the pipeline file.",
        required: false,
        value: ValueForm::Path,
        kinds: SOURCES,
    },
    FileKey {
        name: "source_name",
        about: "The source name of the events, such as \"{name}\" for the name of their input \
                file; {stem}, {ext}, {parent} and {path} stand for parts of its path, {source} for \
                the default name.",
        required: false,
        value: ValueForm::Text,
        kinds: SOURCES,
    },
];

/// The keys of nodes of this kind besides their options; none if the kind is not a node.
pub(crate) fn node_keys(kind: PluginKind) -> impl Iterator<Item = &'static FileKey> + Clone {
    NODE_KEYS.iter().filter(move |key| key.kinds.contains(&kind))
}

/// Whether nodes of this kind have this key; of any kind, if it is unknown.
pub fn is_node_key(name: &str, kind: Option<PluginKind>) -> bool {
    let is_of = |key: &FileKey| kind.is_none_or(|kind| key.kinds.contains(&kind));
    NODE_KEYS.iter().any(|key| key.name == name && is_of(key))
}

/// Where this key belongs, in words; `None` if no node or file has it.
pub(crate) fn right_place(name: &str) -> Option<String> {
    if TOP_LEVEL.iter().any(|key| key.name == name) {
        return Some(format!("`{name}` is a key of the file: write it above the first table"));
    }
    let key = NODE_KEYS.iter().find(|key| key.name == name)?;
    let kinds: Vec<String> = key.kinds.iter().map(|kind| format!("{kind}s")).collect();
    Some(format!("`{name}` belongs on {}", kinds.join(" and ")))
}

impl FileKey {
    /// The JSON Schema of its value, with its description and default.
    pub(crate) fn schema(&self) -> Value {
        let text = json!({ "type": "string" });
        let mut schema = match self.value {
            ValueForm::Text => text,
            ValueForm::Path => json!({ "type": "string", "format": PATH_FORMAT }),
            ValueForm::Word(words) => json!({ "enum": words, "default": words.first() }),
            ValueForm::Size(default) => {
                json!({ "type": ["string", "integer"], "default": default })
            }
            ValueForm::Names => {
                let list = json!({ "type": "array", "items": text, "minItems": 1 });
                json!({ "anyOf": [text, list] })
            }
            ValueForm::Condition => condition(&text),
            ValueForm::Nodes(kind) => json!({
                "type": "object",
                "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" },
                "additionalProperties": { "$ref": format!("#/$defs/{kind}") },
            }),
        };
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("description".to_owned(), self.about.into());
        }
        schema
    }
}

/// The schema of [`ValueForm::Condition`]: tables, and the string that was the form before.
fn condition(text: &Value) -> Value {
    let words = json!([text, { "type": "array", "items": text }]);
    let negated = json!({
        "type": "object",
        "properties": { "not": { "anyOf": words } },
        "required": ["not"],
        "additionalProperties": false,
    });
    let table = json!({
        "type": "object",
        "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
        "additionalProperties": { "anyOf": [words[0], words[1], negated] },
    });
    let former = json!({ "type": "string", "deprecated": true });
    json!({ "anyOf": [table, { "type": "array", "items": table }, former] })
}
