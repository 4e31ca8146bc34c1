//! One `[group.name]` table of a pipeline file: its name, its plugin and all that becomes of it.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use sluice_core::{FULL_PROGRAM, Plugin, PluginKind};
use toml::de::{DeTable, DeValue};

use super::check::{Check, Given, Key};
use super::keys::From;
use super::options::Judged;
use super::outline::OutlineNode;
use super::reference;
use super::templates::TemplateUse;
use super::when::Condition;
use super::wording::{joined, suggest};
use super::{Node, OnDamage, Part};
use crate::{names, source_name};

/// A node as far as it could be read. Mistakes leave gaps, so that what follows can still be
/// judged.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) name_span: Range<usize>,
    /// The kind its group asks for; nothing if its group is unknown or its plugin is of another
    /// kind.
    pub(super) kind: Option<PluginKind>,
    /// What it reads from; nothing if that could not be read.
    pub(super) from: Option<From>,
    /// On what it depends whether it is there.
    pub(super) when: Option<Condition>,
    header: Range<usize>,
    plugin: Option<Plugin>,
    made: Option<(Part, Value)>,
    /// The plugin and the options as far as variables have values.
    written: (String, Value),
    pub(super) damage: OnDamage,
    source_name: Option<String>,
    pub(super) templates: Vec<TemplateUse>,
    /// The values of `path` and `quarantine`.
    spans: [Option<Range<usize>>; 2],
    /// The values of all keys.
    option_spans: BTreeMap<String, Range<usize>>,
}

impl Draft {
    /// The node. Nothing only if a mistake was noted.
    pub(super) fn finish(self, from: Vec<usize>) -> Option<Node> {
        let (plugin, kind, (part, options)) = (self.plugin?, self.kind?, self.made?);
        let Self { name, damage, source_name, header: span, .. } = self;
        let program = plugin.program.map(|program| program(&options));
        let schema = Value::from((plugin.schema)());
        let place = |option: &str| self.option_spans.get(option).unwrap_or(&span).clone();
        let names = names::of_node(&schema, &options, &part, place);
        let (plugin, again) = (plugin.name, super::again(&plugin));
        let part = source_name::named(part, source_name.as_deref()).ok()?;
        Some(Node {
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

impl Draft {
    /// The node as far as it could be read. Nothing only if another mistake than a variable without
    /// a value was noted.
    pub(super) fn outline(self, from: Vec<usize>) -> Option<OutlineNode> {
        let (plugin, options) = self.written;
        let options = self.made.map_or(options, |(_, options)| options);
        Some(OutlineNode { name: self.name, plugin, kind: self.kind?, from, options })
    }

    /// What its plugin became.
    pub(super) fn part(&self) -> Option<&Part> {
        self.made.as_ref().map(|(part, _)| part)
    }

    /// Whether its plugin has an option of that name. One that is not known may have any.
    pub(super) fn takes(&self, option: &str) -> bool {
        self.plugin.is_none_or(|plugin| plugin.option_names().iter().any(|name| name == option))
    }

    /// Where its path is, or else the node.
    pub(super) fn path_span(&self) -> Range<usize> {
        self.spans[0].clone().unwrap_or(self.header.clone())
    }

    /// Where its quarantine file is named, or else the node.
    pub(super) fn quarantine_span(&self) -> Range<usize> {
        self.spans[1].clone().unwrap_or(self.header.clone())
    }
}

/// What `plugin = …` turned out to be.
enum Choice {
    Plugin(Plugin),
    /// A plugin of another kind: the node is in the wrong group.
    Misplaced,
    Unknown,
}

impl Check<'_> {
    /// Reads one node.
    pub(super) fn node(
        &mut self,
        kind: Option<PluginKind>,
        key: &Key<'_>,
        header: Range<usize>,
        table: &DeTable<'_>,
    ) -> Draft {
        self.node_name(key);
        let choice = self.plugin(kind, key, &header, table);
        let judged = kind.filter(|_| !matches!(choice, Choice::Misplaced));
        let from = self.from(judged, &header, table);
        let when = self.when(table);
        let is_source = kind == Some(PluginKind::Source);
        let mut damage = if is_source { self.on_damage(table) } else { OnDamage::default() };
        let source_name = if is_source { self.source_name(table) } else { None };
        let spans = ["path", "quarantine"].map(|key| table.get(key).map(Given::span));
        let quarantine = spans[1].clone().unwrap_or(header.clone());
        let mut templates: Vec<TemplateUse> =
            self.quarantine_template(&mut damage, quarantine).into_iter().collect();
        // What is wrong with `from` on a source has been said.
        let reserved = |key: &str| key == "from" || reference::is_of_node(key, kind);
        let option_spans =
            table.iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
        let options: Vec<_> = table.iter().filter(|(key, _)| !reserved(key.get_ref())).collect();
        let plugin = if let Choice::Plugin(plugin) = choice { Some(plugin) } else { None };
        let Judged { made, shown } =
            self.options(plugin.as_ref(), &header, &options, &mut templates);
        let named = table.get("plugin").and_then(|name| name.get_ref().as_str());
        let name = plugin.as_ref().map_or(named.unwrap_or_default(), |plugin| plugin.name);
        let written = (name.to_owned(), shown);
        let (name, name_span) = (key.get_ref().to_string(), key.span());
        Draft {
            name,
            name_span,
            kind: judged,
            from,
            when,
            header,
            plugin,
            made,
            written,
            damage,
            source_name,
            templates,
            spans,
            option_spans,
        }
    }

    fn node_name(&mut self, key: &Key<'_>) {
        let name = key.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(allowed) {
            let message = format!("`{name}` cannot name a node");
            self.wrong(key.span(), message, Some("use letters, digits, _ and -".to_owned()));
        }
    }

    fn plugin(
        &mut self,
        kind: Option<PluginKind>,
        key: &Key<'_>,
        header: &Range<usize>,
        table: &DeTable<'_>,
    ) -> Choice {
        let Some(given) = table.get("plugin") else {
            self.no_plugin(kind, key, header);
            return Choice::Unknown;
        };
        let DeValue::String(text) = given.get_ref() else {
            self.expected("the name of a plugin", given);
            return Choice::Unknown;
        };
        let Some(name) = self.expand(text, given.span()) else { return Choice::Unknown };
        kind.map_or(Choice::Unknown, |kind| self.named(kind, &name.text, key, given))
    }

    fn no_plugin(&mut self, kind: Option<PluginKind>, key: &Key<'_>, header: &Range<usize>) {
        let name = key.get_ref();
        let message = format!("`{name}` has no `plugin`");
        let help = kind.map(|kind| {
            let names = self.registry.names(kind);
            format!("add `plugin = \"…\"`, one of {}", joined(&names, "and"))
        });
        self.absent(header.clone(), message, help);
    }

    fn named(&mut self, kind: PluginKind, name: &str, key: &Key<'_>, given: &Given<'_>) -> Choice {
        if let Some(plugin) = self.registry.get(kind, name) {
            return Choice::Plugin(*plugin);
        }
        let Some(other) = self.registry.iter().find(|plugin| plugin.name == name) else {
            let message = format!("{kind} plugin `{name}` is not linked into this program");
            let help = if let Some(help) = left_out(kind, name) {
                help
            } else {
                let names = self.registry.names(kind);
                suggest(name, &names, &format!("the {kind}s of this program are"))
            };
            self.wrong(given.span(), message, Some(help));
            return Choice::Unknown;
        };
        let message = format!("`{name}` is a {}, not a {kind}", other.kind());
        let help = match other.kind() {
            PluginKind::Codec | PluginKind::Service => None,
            right => Some(format!("write `[{right}s.{}]`", key.get_ref())),
        };
        self.wrong(given.span(), message, help);
        Choice::Misplaced
    }
}

/// Plugins that the full program has, and others may not.
const OF_FULL_PROGRAM: &[(PluginKind, &str)] = &[(PluginKind::Stage, "sql")];

/// How to come by a plugin that this program was built without, if it is one of those.
fn left_out(kind: PluginKind, name: &str) -> Option<String> {
    OF_FULL_PROGRAM
        .contains(&(kind, name))
        .then(|| format!("this program was built without `{name}`; {FULL_PROGRAM}"))
}
