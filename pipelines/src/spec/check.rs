//! One pass over a pipeline file: the top level, and the list of mistakes that all checks share.

use std::collections::BTreeSet;
use std::ops::Range;

use sluice_core::options::ByteSize;
use sluice_core::{PluginKind, Registry};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::node::Draft;
use super::reference::TOP_LEVEL;
use super::relocation::Edit;
use super::shape::Shape;
use super::syntax::{self, Broken};
use super::templates::{Slot, TemplateUse};
use super::variables::Variables;
use super::wording::{kind_of, nearest, plain, suggest};
use super::{Document, GROUPS, LeftOut, Outline, Pipeline};
use crate::mistake::{Mistake, Mistakes};
use crate::names::undeclared;

pub(super) type Key<'t> = Spanned<DeString<'t>>;
pub(super) type Given<'t> = Spanned<DeValue<'t>>;

const NO_TOML: &str = "this is no pipeline file; if it is a log, `sluice convert` reads it";

/// What all checks of a file share.
pub(super) struct Check<'c> {
    pub(super) document: &'c Document,
    pub(super) variables: &'c Variables,
    pub(super) registry: &'c Registry,
    mistakes: Vec<Mistake>,
    /// The variables without a value, and how many of the mistakes are these.
    unset: (BTreeSet<String>, usize),
    /// Whether paths are read as templates, in which braces mean something.
    pub(super) reads_templates: bool,
    /// What would make every path of the file absolute.
    pub(super) edits: Vec<Edit>,
    /// The lines where the text is no TOML. Nothing else is judged there.
    broken: Vec<Range<usize>>,
}

/// What a file says, as far as it could be read.
struct Graph {
    name: Option<String>,
    memory: Option<ByteSize>,
    nodes: Vec<Draft>,
    /// What each node reads from, as positions among these.
    links: Vec<Vec<usize>>,
    left_out: Vec<LeftOut>,
}

/// What the top level says.
#[derive(Default)]
struct Top {
    name: Option<String>,
    memory: Option<ByteSize>,
    nodes: Vec<Draft>,
    /// Whether there are tables that belong to no group, so that nodes may be missing elsewhere.
    strays: bool,
}

impl<'c> Check<'c> {
    pub(super) fn new(
        document: &'c Document,
        variables: &'c Variables,
        registry: &'c Registry,
    ) -> Self {
        let (mistakes, unset, broken) = (Vec::new(), Default::default(), Vec::new());
        let (reads_templates, edits) = (false, Vec::new());
        Self { document, variables, registry, mistakes, unset, reads_templates, edits, broken }
    }

    /// Does everything.
    pub(super) fn run(mut self) -> Result<Pipeline, Mistakes> {
        let graph = self.graph();
        let Some(graph) = graph.filter(|_| self.mistakes.is_empty()) else {
            return Err(Mistakes::new(self.document.clone(), self.mistakes));
        };
        let Graph { name, memory, nodes, links, left_out } = graph;
        let templates = slots(&nodes);
        let nodes = nodes.into_iter().zip(links).filter_map(|(node, from)| node.finish(from));
        let (nodes, text): (Vec<_>, _) = (nodes.collect(), self.document.text.clone());
        let undeclared = undeclared(&nodes);
        if !undeclared.is_empty() {
            return Err(Mistakes::new(self.document.clone(), undeclared));
        }
        Ok(Pipeline { name, memory, nodes, left_out, text, templates })
    }

    /// The same for what may have variables without values.
    pub(super) fn outline(mut self) -> Result<Outline, Mistakes> {
        let graph = self.graph();
        let Some(graph) = graph.filter(|_| self.mistakes.len() == self.unset.1) else {
            return Err(Mistakes::new(self.document.clone(), self.mistakes));
        };
        let Graph { name, nodes, links, left_out, .. } = graph;
        let nodes = nodes.into_iter().zip(links).filter_map(|(node, from)| node.outline(from));
        let unset = self.unset.0.into_iter().collect();
        Ok(Outline { name, nodes: nodes.collect(), left_out, unset })
    }

    /// What makes every path of the file absolute, if its folder is.
    pub(super) fn edits(mut self) -> Result<Vec<Edit>, Mistakes> {
        let is_right = self.graph().is_some() && self.mistakes.is_empty();
        if is_right {
            Ok(self.edits)
        } else {
            Err(Mistakes::new(self.document.clone(), self.mistakes))
        }
    }

    /// The nodes of the file and what they read from; nothing if it is no TOML.
    fn graph(&mut self) -> Option<Graph> {
        let (text, mut broken) = syntax::repair(&self.document.text);
        let (table, errors) = DeTable::parse_recoverable(&text);
        broken.extend(syntax::judge(&text, &errors));
        if broken.len() > syntax::MOST {
            broken.truncate(1);
            self.not_toml(broken, Some(NO_TOML));
            return None;
        }
        self.not_toml(broken, None);
        let mut top = self.top(table.get_ref());
        top.nodes.sort_by_key(|node| node.name_span.start);
        if !top.strays {
            self.both_ends(table.get_ref());
        }
        let links = self.links(&top.nodes);
        let (nodes, links, left_out) = self.without_left_out(top.nodes, links);
        self.batch(&nodes);
        let Top { name, memory, .. } = top;
        Some(Graph { name, memory, nodes, links, left_out })
    }

    /// Notes that a variable has no value.
    pub(super) fn unset(&mut self, name: String, mistake: Mistake) {
        let before = self.mistakes.len();
        self.note(mistake);
        self.unset.1 += self.mistakes.len() - before;
        self.unset.0.insert(name);
    }

    /// Notes a mistake that shows nothing but its place.
    pub(super) fn wrong(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.note(Mistake { span, message: message.into(), help, detail: None });
    }

    /// Notes a mistake, unless it follows from another one.
    pub(super) fn note(&mut self, mistake: Mistake) {
        let span = &mistake.span;
        // What the parser made up to go on has no place, and the lines of a broken place are not
        // what they were meant to be.
        let made_up = *span == (0..0) && !self.broken.is_empty();
        let follows = made_up || self.broken.iter().any(|broken| broken.contains(&span.start));
        if !follows {
            self.mistakes.push(mistake);
        }
    }

    /// Notes that something is not there. In a file that is no TOML it may well be there.
    pub(super) fn absent(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        if self.broken.is_empty() {
            self.wrong(span, message, help);
        }
    }

    /// Notes a value of the wrong type.
    pub(super) fn expected(&mut self, what: &str, found: &Given<'_>) {
        let message = format!("expected {what}, found {}", kind_of(found.get_ref()));
        self.wrong(found.span(), message, None);
    }

    fn not_toml(&mut self, broken: Vec<Broken>, help: Option<&str>) {
        for Broken { span, message, area } in broken {
            let help = help.map(str::to_owned);
            self.mistakes.push(Mistake { span, message, help, detail: None });
            self.broken.push(syntax::whole_lines(&self.document.text, &area));
        }
    }

    fn top(&mut self, table: &DeTable<'_>) -> Top {
        let mut top = Top::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => top.name = self.string(value),
                "memory" => top.memory = self.memory(value),
                other => match GROUPS.iter().find(|(group, _)| *group == other) {
                    Some((group, kind)) => top.nodes.extend(self.group(group, Some(*kind), value)),
                    None => self.unknown(key, value, &mut top),
                },
            }
        }
        top
    }

    fn string(&mut self, value: &Given<'_>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => self.expand(text, value.span()).map(|expanded| expanded.text),
            _ => {
                self.expected("a string", value);
                None
            }
        }
    }

    fn memory(&mut self, value: &Given<'_>) -> Option<ByteSize> {
        let given = self.value(value, &Shape::unknown())?;
        match serde_json::from_value(given) {
            Ok(size) => Some(size),
            Err(error) => {
                let message = plain(&error.to_string(), Some(value.get_ref()));
                self.wrong(value.span(), message, None);
                None
            }
        }
    }

    /// A key that the top level does not have. If it is most likely a group, it is read as that
    /// group.
    fn unknown(&mut self, key: &Key<'_>, value: &Given<'_>, top: &mut Top) {
        let name = key.get_ref();
        let message = format!("unknown key `{name}` at the top level");
        let table = value.get_ref().is_table();
        let groups = GROUPS.map(|(group, _)| group);
        let all = TOP_LEVEL.map(|key| key.name);
        let known = if table { &groups[..] } else { &all[..] };
        self.wrong(key.span(), message, Some(suggest(name, known, "known are")));
        if !table {
            return;
        }
        let meant = nearest(name, known);
        let kind = GROUPS.iter().find(|(group, _)| Some(*group) == meant).map(|(_, kind)| *kind);
        top.nodes.extend(self.group(name, kind, value));
        top.strays = true;
    }

    fn group(&mut self, group: &str, kind: Option<PluginKind>, value: &Given<'_>) -> Vec<Draft> {
        let Some(table) = value.get_ref().as_table() else {
            self.wrong(value.span(), format!("`{group}` holds tables"), Some(node_help(group)));
            return Vec::new();
        };
        let stray = table.iter().find(|(_, value)| !value.get_ref().is_table());
        if let Some((key, _)) = stray.filter(|_| kind.is_some()) {
            let message =
                format!("`{}` belongs to no {}", key.get_ref(), group.trim_end_matches('s'));
            self.wrong(key.span(), message, Some(node_help(group)));
        }
        let nodes =
            table.iter().filter_map(|(key, value)| Some((key, value, value.get_ref().as_table()?)));
        nodes.map(|(key, value, table)| self.node(kind, key, value.span(), table)).collect()
    }

    /// A pipeline begins and ends somewhere. Groups that hold anything at all have had their say.
    fn both_ends(&mut self, top: &DeTable<'_>) {
        for (group, does) in [("sources", "reads"), ("sinks", "writes")] {
            let empty =
                |value: &Given<'_>| value.get_ref().as_table().is_some_and(DeTable::is_empty);
            if top.get(group).is_none_or(empty) {
                let message = format!("there are no {group}: nothing {does} events");
                self.absent(0..0, message, Some(node_help(group)));
            }
        }
    }
}

fn slots(nodes: &[Draft]) -> Vec<Slot> {
    let of = |(node, draft): (usize, &Draft)| {
        let slot = move |found: &TemplateUse| {
            let TemplateUse { place, template, span: _ } = found.clone();
            Slot { node, place, template }
        };
        draft.templates.iter().map(slot).collect::<Vec<_>>()
    };
    nodes.iter().enumerate().flat_map(of).collect()
}

fn node_help(group: &str) -> String {
    format!("write `[{group}.NAME]` with a name of your choice, and `plugin = …` below it")
}
