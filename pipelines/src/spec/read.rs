//! One pass over a pipeline file: from its top level to the pipeline.

use std::collections::BTreeMap;

use sluice_model::options::ByteSize;
use sluice_model::{PluginKind, Registry};
use toml::de::{DeTable, DeValue};

use super::check::{Check, TextEdit, TomlKey, TomlValue};
use super::links::Links;
use super::messages::{nearest, plainly, suggest};
use super::node::NodeDraft;
use super::prune::remaining;
use super::reference::TOP_LEVEL;
use super::schema_view::SchemaView;
use super::syntax::{self, SyntaxFault};
use super::templates::TemplateUse;
use super::{Document, GROUPS, Outline, Pipeline, PrunedNode, TemplateSlot, Variables};
use crate::mistake::{Mistake, Mistakes};
use crate::names::{GraphNode, undeclared};
use crate::report::Note;

const NO_TOML: &str = "this is not a pipeline file; if it is a log, `sluice convert` reads it";

const DESCRIPTION_HELP: &str =
    "`sluice info LOG --describe FILE` uses it; in a pipeline, it belongs below `[sources.NAME]`";

impl Pipeline {
    /// Reads a pipeline file. `Err` holds every mistake in it.
    pub fn read(
        document: &Document,
        variables: &Variables,
        registry: &Registry,
    ) -> Result<Self, Mistakes> {
        Check::new(document, variables, registry).run()
    }
}

/// The content of a file, as far as it could be read.
struct Graph {
    name: Option<String>,
    memory: Option<ByteSize>,
    nodes: Vec<NodeDraft>,
    links: Links,
    left_out: Vec<PrunedNode>,
    notes: Vec<Note>,
}

/// The content of the top level.
#[derive(Default)]
struct TopLevel {
    name: Option<String>,
    memory: Option<ByteSize>,
    nodes: Vec<NodeDraft>,
    /// Whether there are unknown tables, in which nodes may be.
    has_unknown_tables: bool,
}

impl Check<'_> {
    /// Runs all checks.
    pub(super) fn run(mut self) -> Result<Pipeline, Mistakes> {
        let graph = self.graph();
        let Some(graph) = graph.filter(|_| self.mistakes.is_empty()) else {
            return Err(Mistakes::new(self.document.clone(), self.mistakes));
        };
        let Graph { name, memory, nodes, links, left_out: pruned, notes } = graph;
        let templates = slots(&nodes);
        let named = nodes.iter().flat_map(NodeDraft::files_read);
        let files = self.document.file.iter().cloned().chain(named).collect();
        let registry = self.registry;
        let nodes = nodes.into_iter().zip(links);
        let nodes = nodes.filter_map(|(node, from)| node.finish(from, registry));
        let (nodes, text): (Vec<_>, _) = (nodes.collect(), self.document.text.clone());
        Ok(Pipeline {
            name,
            memory,
            nodes,
            pruned,
            notes,
            text,
            file: self.document.file.is_some().then(|| self.document.name.clone()),
            files,
            templates,
            unreadable: BTreeMap::new(),
        })
    }

    /// The same, but variables may lack values.
    pub(super) fn outline(mut self) -> Result<Outline, Mistakes> {
        let graph = self.graph();
        let Some(graph) = graph.filter(|_| self.mistakes.len() == self.unset.1) else {
            return Err(Mistakes::new(self.document.clone(), self.mistakes));
        };
        let Graph { name, nodes, links, left_out, .. } = graph;
        let nodes = nodes.into_iter().zip(links).filter_map(|(node, from)| node.outline(from));
        let unset = self.unset.0.into_iter().collect();
        Ok(Outline { name, nodes: nodes.collect(), pruned: left_out, unset })
    }

    /// The edits that make every path of the file absolute, if its folder is.
    pub(super) fn edits(mut self) -> Result<Vec<TextEdit>, Mistakes> {
        let is_right = self.graph().is_some() && self.mistakes.is_empty();
        if is_right {
            Ok(self.edits)
        } else {
            Err(Mistakes::new(self.document.clone(), self.mistakes))
        }
    }

    /// The nodes of the file and their links; `None` if it is not TOML.
    fn graph(&mut self) -> Option<Graph> {
        let (text, mut broken) = syntax::blank_unclosed(&self.document.text);
        let (table, errors) = DeTable::parse_recoverable(&text);
        broken.extend(syntax::parser_faults(&text, &errors));
        if broken.len() > syntax::MAX_FAULTS {
            broken.truncate(1);
            self.note_syntax_faults(broken, Some(NO_TOML));
            return None;
        }
        self.note_syntax_faults(broken, None);
        if let Some(key) = plugin_of_description(table.get_ref()) {
            let message = "this describes one source, and is not a pipeline".to_owned();
            self.mistake_at(key.span(), message, Some(DESCRIPTION_HELP.to_owned()));
            return None;
        }
        let mut top = self.top(table.get_ref());
        top.nodes.sort_by_key(|node| node.name_span.start);
        if !top.has_unknown_tables {
            self.check_ends(table.get_ref());
        }
        let links = self.links(&top.nodes);
        let notes = top.nodes.iter().filter_map(NodeDraft::condition_note).collect();
        let (kept, left_out) = self.prune(&top.nodes, &links);
        self.check_fields(&top.nodes, &links, &kept);
        let (nodes, links) = remaining(top.nodes, links, &kept);
        self.check_outputs(&nodes);
        self.check_standard_input(&nodes);
        self.check_payloads(&nodes, &links);
        self.check_batch(&nodes);
        let TopLevel { name, memory, .. } = top;
        Some(Graph { name, memory, nodes, links, left_out, notes })
    }

    /// Reports fields in options that no declared type has. Not in pruned nodes: with the variables
    /// that keep them, other types may be declared in front of them.
    fn check_fields(&mut self, nodes: &[NodeDraft], links: &Links, kept: &[bool]) {
        // A type may be declared in a line that cannot be read.
        if !self.broken_lines.is_empty() {
            return;
        }
        let mut graph = Vec::new();
        for ((node, links), is_kept) in nodes.iter().zip(links).zip(kept) {
            let is_complete = node.from.as_ref().is_some_and(|from| from.len() == links.len());
            let feeds = |from: &usize| is_complete && kept.get(*from) == Some(&true);
            let from = links.iter().copied().filter(feeds).collect();
            let names = if *is_kept { node.names() } else { Vec::new() };
            graph.push(GraphNode { from, instance: node.instance(), names });
        }
        undeclared(&graph).into_iter().for_each(|mistake| self.note(mistake));
    }

    fn note_syntax_faults(&mut self, broken: Vec<SyntaxFault>, help: Option<&str>) {
        for SyntaxFault { span, message, area } in broken {
            let help = help.map(str::to_owned);
            self.mistakes.push(Mistake { span, message, help, detail: None });
            self.broken_lines.push(syntax::whole_lines(&self.document.text, &area));
        }
    }

    fn top(&mut self, table: &DeTable<'_>) -> TopLevel {
        let mut top = TopLevel::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => top.name = self.string(value),
                "memory" => top.memory = self.memory(value),
                other => match GROUPS.iter().find(|(group, _)| *group == other) {
                    Some((group, kind)) => top.nodes.extend(self.group(group, Some(*kind), value)),
                    None => self.unknown_key(key, value, &mut top),
                },
            }
        }
        top
    }

    fn string(&mut self, value: &TomlValue<'_>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => self.expand(text, value.span()).map(|expanded| expanded.text),
            _ => {
                self.expected("a string", value);
                None
            }
        }
    }

    fn memory(&mut self, value: &TomlValue<'_>) -> Option<ByteSize> {
        let given = self.value(value, &SchemaView::unknown())?;
        let size = serde_json::from_value(given);
        let size = size.map_err(|error| plainly(&error.to_string(), Some(value.get_ref())));
        match size.and_then(ByteSize::positive) {
            Ok(size) => Some(size),
            Err(message) => {
                self.mistake_at(value.span(), message, None);
                None
            }
        }
    }

    /// An unknown top-level key. If it is most likely a misspelled group, it is read as that group.
    fn unknown_key(&mut self, key: &TomlKey<'_>, value: &TomlValue<'_>, top: &mut TopLevel) {
        let name = key.get_ref();
        let message = format!("unknown key `{name}` at the top level");
        let table = value.get_ref().is_table();
        let groups = GROUPS.map(|(group, _)| group);
        let all = TOP_LEVEL.map(|key| key.name);
        let known = if table { &groups[..] } else { &all[..] };
        self.mistake_at(key.span(), message, Some(suggest(name, known, "known keys are")));
        if !table {
            return;
        }
        let meant = nearest(name, known);
        let kind = GROUPS.iter().find(|(group, _)| Some(*group) == meant).map(|(_, kind)| *kind);
        top.nodes.extend(self.group(name, kind, value));
        top.has_unknown_tables = true;
    }

    fn group(
        &mut self,
        group: &str,
        kind: Option<PluginKind>,
        value: &TomlValue<'_>,
    ) -> Vec<NodeDraft> {
        let Some(table) = value.get_ref().as_table() else {
            self.mistake_at(
                value.span(),
                format!("`{group}` must be a table"),
                Some(node_help(group)),
            );
            return Vec::new();
        };
        let stray = table.iter().find(|(_, value)| !value.get_ref().is_table());
        if let Some((key, _)) = stray.filter(|_| kind.is_some()) {
            let message =
                format!("`{}` is outside of any {}", key.get_ref(), group.trim_end_matches('s'));
            self.mistake_at(key.span(), message, Some(node_help(group)));
        }
        let nodes =
            table.iter().filter_map(|(key, value)| Some((key, value, value.get_ref().as_table()?)));
        nodes.map(|(key, value, table)| self.node(kind, key, value.span(), table)).collect()
    }

    /// A pipeline needs sources and sinks. Groups that contain anything have been checked.
    fn check_ends(&mut self, top: &DeTable<'_>) {
        for (group, does) in [("sources", "reads"), ("sinks", "writes")] {
            let empty =
                |value: &TomlValue<'_>| value.get_ref().as_table().is_some_and(DeTable::is_empty);
            if top.get(group).is_none_or(empty) {
                let message = format!("there are no {group}: nothing {does} events");
                self.missing(0..0, message, Some(node_help(group)));
            }
        }
    }
}

/// The key `plugin` of a file that has the options of one source and no nodes.
fn plugin_of_description<'t>(top: &'t DeTable<'t>) -> Option<&'t TomlKey<'t>> {
    let has_nodes = GROUPS.iter().any(|(group, _)| top.contains_key(*group));
    let (key, _) = top.get_key_value("plugin").filter(|_| !has_nodes)?;
    Some(key)
}

fn slots(nodes: &[NodeDraft]) -> Vec<TemplateSlot> {
    let of = |(node, draft): (usize, &NodeDraft)| {
        let slot = move |found: &TemplateUse| {
            let TemplateUse { target: place, template, span: _ } = found.clone();
            TemplateSlot { node, target: place, template }
        };
        draft.templates.iter().map(slot).collect::<Vec<_>>()
    };
    nodes.iter().enumerate().flat_map(of).collect()
}

fn node_help(group: &str) -> String {
    format!("write `[{group}.NAME]` with a name of your choice, and `plugin = …` below it")
}
