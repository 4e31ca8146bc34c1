//! One `[group.name]` table of a pipeline file: name, plugin and keys.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_io::store::is_address;
use sluice_io::{FULL_PROGRAM, files};
use sluice_model::{DynSink, Plugin, PluginKind, Registry};
use toml::de::{DeTable, DeValue};

use super::check::{Check, TomlKey, TomlValue};
use super::keys::FromNames;
use super::messages::{joined, suggest};
use super::options::CheckedOptions;
use super::outline::OutlineNode;
use super::reference;
use super::schema_view::SchemaView;
use super::templates::TemplateUse;
use super::when::Condition;
use super::{OnDamage, PipelineNode, PluginInstance};
use crate::names::{NameOption, names_in_options};
use crate::report::Note;

/// A node as far as it could be read. Mistakes leave gaps, so that later checks can go on.
pub(super) struct NodeDraft {
    pub(super) name: String,
    pub(super) name_span: Range<usize>,
    /// The kind of its group; `None` if the group is unknown or the plugin has another kind.
    pub(super) kind: Option<PluginKind>,
    /// What it reads from; `None` if that could not be read.
    pub(super) from: Option<FromNames>,
    /// The condition for the node.
    pub(super) when: Option<Condition>,
    header: Range<usize>,
    plugin: Option<Plugin>,
    instance: Option<(PluginInstance, Value)>,
    /// The schema of the plugin's options.
    schema: Value,
    /// The plugin, and the options as far as variables have values.
    written: (String, Value),
    pub(super) damage: OnDamage,
    source_name: Option<String>,
    pub(super) templates: Vec<TemplateUse>,
    /// Positions of the values of `path` and `quarantine`.
    spans: [Option<Range<usize>>; 2],
    /// Positions of the values of all keys.
    option_spans: BTreeMap<String, Range<usize>>,
}

impl NodeDraft {
    /// The node; `None` only after a mistake.
    pub(super) fn finish(self, from: Vec<usize>, registry: &Registry) -> Option<PipelineNode> {
        let Self { name, damage, header, option_spans, .. } = self;
        let places = (header, |option: &str| option_spans.get(option).cloned());
        let node = PipelineNode::new(name, (registry, &self.plugin?), self.instance?, places);
        let node = PipelineNode { from, damage, ..node };
        node.with_source_name(self.source_name).ok()
    }
}

impl NodeDraft {
    /// How to write its condition, if that has an outdated form.
    pub(super) fn condition_note(&self) -> Option<Note> {
        let what = self.when.as_ref()?.note.clone()?;
        Some(Note { node: self.name.clone(), what, count: 0 })
    }

    /// The node as far as it could be read. `None` only after a mistake other than a variable
    /// without a value.
    pub(super) fn outline(self, from: Vec<usize>) -> Option<OutlineNode> {
        let (plugin, options) = self.written;
        let options = self.instance.map_or(options, |(_, options)| options);
        Some(OutlineNode { name: self.name, plugin, kind: self.kind?, from, options })
    }

    /// The files that its options name, if it reads them: all but those of a sink.
    pub(super) fn files_read(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some((_, options)) = self.instance.as_ref()
            && self.kind != Some(PluginKind::Sink)
        {
            add_files(options, &SchemaView::from_schema(&self.schema), &mut files);
        }
        files
    }

    /// The names in its options; none after a mistake in them.
    pub(super) fn names(&self) -> Vec<NameOption> {
        let Some((instance, options)) = &self.instance else { return Vec::new() };
        let span = |option: &str| self.option_spans.get(option).unwrap_or(&self.header).clone();
        names_in_options(&self.schema, options, instance, span)
    }

    /// Its plugin instance.
    pub(super) fn instance(&self) -> Option<&PluginInstance> {
        self.instance.as_ref().map(|(part, _)| part)
    }

    /// The sink that it would be without this option; `None` if the option is not given.
    pub(super) fn sink_without(&self, option: &str, registry: &Registry) -> Option<DynSink> {
        let (_, options) = self.instance.as_ref()?;
        let mut options = options.clone();
        options.as_object_mut()?.remove(option)?;
        registry.sink(self.plugin.as_ref()?.name, options).ok()
    }

    /// Whether its plugin has an option of that name. An unknown plugin may have any.
    pub(super) fn takes(&self, option: &str) -> bool {
        let options = self.schema.get("properties");
        self.plugin.is_none() || options.is_some_and(|options| options.get(option).is_some())
    }

    /// The position of its path, otherwise of the node.
    pub(super) fn path_span(&self) -> Range<usize> {
        self.spans[0].clone().unwrap_or(self.header.clone())
    }

    /// The position of its quarantine file, otherwise of the node.
    pub(super) fn quarantine_span(&self) -> Range<usize> {
        self.spans[1].clone().unwrap_or(self.header.clone())
    }
}

/// Adds the paths in a value of this shape.
fn add_files(value: &Value, shape: &SchemaView<'_>, files: &mut Vec<PathBuf>) {
    match value {
        Value::String(text) if shape.is_path() => files.push(text.into()),
        Value::String(text) if shape.is_types() && !shape.is_word(text) => {
            files.extend(type_files(Path::new(text)))
        }
        Value::Array(values) => {
            let shape = shape.element();
            values.iter().for_each(|value| add_files(value, &shape, files));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| add_files(value, &shape.property(key), files));
        }
        _ => {}
    }
}

/// The files of types that a path means: a file, a glob, or a folder; none for built-in sets.
fn type_files(path: &Path) -> Vec<PathBuf> {
    if is_address(path) {
        return vec![path.to_owned()];
    }
    let pattern = if path.is_dir() { path.join("**/*") } else { path.to_owned() };
    let found = files::expand(&[pattern]).unwrap_or_default();
    found.into_iter().map(|input| input.path).collect()
}

/// What `plugin = …` refers to.
enum PluginChoice {
    Plugin(Box<Plugin>),
    /// A plugin of another kind: the node is in the wrong group.
    Misplaced,
    Unknown,
}

impl Check<'_> {
    /// Reads one node.
    pub(super) fn node(
        &mut self,
        kind: Option<PluginKind>,
        key: &TomlKey<'_>,
        header: Range<usize>,
        table: &DeTable<'_>,
    ) -> NodeDraft {
        self.node_name(key);
        let choice = self.plugin(kind, key, &header, table);
        let judged = kind.filter(|_| !matches!(choice, PluginChoice::Misplaced));
        let from = self.from(judged, &header, table);
        let when = self.when(table);
        let is_source = kind == Some(PluginKind::Source);
        let mut damage =
            if is_source { self.on_damage(key.get_ref(), table) } else { OnDamage::default() };
        let source_name = if is_source { self.source_name(table) } else { None };
        let spans = ["path", "quarantine"].map(|key| table.get(key).map(TomlValue::span));
        let quarantine = spans[1].clone().unwrap_or(header.clone());
        let mut templates: Vec<TemplateUse> =
            self.quarantine_template(&mut damage, quarantine).into_iter().collect();
        // A `from` on a source has been reported already.
        let reserved = |key: &str| key == "from" || reference::is_node_key(key, kind);
        let option_spans =
            table.iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
        let options: Vec<_> = table.iter().filter(|(key, _)| !reserved(key.get_ref())).collect();
        let plugin = if let PluginChoice::Plugin(plugin) = choice { Some(*plugin) } else { None };
        let CheckedOptions { made, shown, schema } =
            self.options(plugin.as_ref(), &header, &options, &mut templates);
        let named = table.get("plugin").and_then(|name| name.get_ref().as_str());
        let name = plugin.as_ref().map_or(named.unwrap_or_default(), |plugin| plugin.name);
        let written = (name.to_owned(), shown);
        let (name, name_span) = (key.get_ref().to_string(), key.span());
        NodeDraft {
            name,
            name_span,
            kind: judged,
            from,
            when,
            header,
            plugin,
            instance: made,
            schema,
            written,
            damage,
            source_name,
            templates,
            spans,
            option_spans,
        }
    }

    fn node_name(&mut self, key: &TomlKey<'_>) {
        let name = key.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(allowed) {
            let message = format!("`{name}` cannot name a node");
            self.mistake_at(key.span(), message, Some("use letters, digits, _ and -".to_owned()));
        }
    }

    fn plugin(
        &mut self,
        kind: Option<PluginKind>,
        key: &TomlKey<'_>,
        header: &Range<usize>,
        table: &DeTable<'_>,
    ) -> PluginChoice {
        let Some(given) = table.get("plugin") else {
            self.no_plugin(kind, key, header);
            return PluginChoice::Unknown;
        };
        let DeValue::String(text) = given.get_ref() else {
            self.expected("the name of a plugin", given);
            return PluginChoice::Unknown;
        };
        let Some(name) = self.expand(text, given.span()) else { return PluginChoice::Unknown };
        kind.map_or(PluginChoice::Unknown, |kind| self.named(kind, &name.text, key, given))
    }

    fn no_plugin(&mut self, kind: Option<PluginKind>, key: &TomlKey<'_>, header: &Range<usize>) {
        let name = key.get_ref();
        let message = format!("`{name}` has no `plugin`");
        let help = kind.map(|kind| {
            let names = self.registry.names(kind);
            format!("add `plugin = \"…\"`, one of {}", joined(&names, "and"))
        });
        self.missing(header.clone(), message, help);
    }

    fn named(
        &mut self,
        kind: PluginKind,
        name: &str,
        key: &TomlKey<'_>,
        given: &TomlValue<'_>,
    ) -> PluginChoice {
        if let Some(plugin) = self.registry.get(kind, name) {
            return PluginChoice::Plugin(Box::new(*plugin));
        }
        let Some(other) = self.registry.iter().find(|plugin| plugin.name == name) else {
            let message = format!("{kind} plugin `{name}` is not linked into this program");
            let help = if let Some(help) = other_program_help(kind, name) {
                help
            } else {
                let names = self.registry.names(kind);
                suggest(name, &names, &format!("the {kind}s of this program are"))
            };
            self.mistake_at(given.span(), message, Some(help));
            return PluginChoice::Unknown;
        };
        let message = format!("`{name}` is a {}, not a {kind}", other.kind());
        let help = match other.kind() {
            PluginKind::Codec => {
                Some("stages such as `decode` find codecs by themselves".to_owned())
            }
            PluginKind::Service => None,
            right => Some(format!("write `[{right}s.{}]`", key.get_ref())),
        };
        self.mistake_at(given.span(), message, help);
        PluginChoice::Misplaced
    }
}

/// How to get a plugin that another program has, if it is one of those.
fn other_program_help(kind: PluginKind, name: &str) -> Option<String> {
    match (kind, name) {
        (PluginKind::Stage, "sql") => {
            Some(format!("this program was built without `{name}`; {FULL_PROGRAM}"))
        }
        (_, "python") => Some(
            "Python has it: run the file with `sluice run --python plugins.py`, or with \
             `python3 -m sluice run`, where `sluice-logs` is installed"
                .to_owned(),
        ),
        _ => None,
    }
}
