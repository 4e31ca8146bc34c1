//! The graph of a pipeline file: every name resolves, every node is used, and there are no cycles.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sluice_model::PluginKind;

use super::check::Check;
use super::messages::{joined, nearest, suggest};
use super::node::NodeDraft;

/// What each node reads from, as indices of nodes.
pub(super) type Links = Vec<Vec<usize>>;

/// The maximum depth of the graph. Each level takes some of a thread's stack.
const MAX_DEPTH: usize = 200;

impl Check<'_> {
    /// Resolves what every node reads from, and checks the resulting graph.
    pub(super) fn links(&mut self, nodes: &[NodeDraft]) -> Links {
        let doubles = self.duplicates(nodes);
        let links: Links = nodes.iter().map(|node| self.link(node, nodes)).collect();
        if !self.cycles(nodes, &links) {
            self.check_depth(nodes, &links);
        }
        // A node with an unreadable `from` may be the reader of a seemingly unused node.
        let complete = nodes
            .iter()
            .zip(&links)
            .all(|(node, links)| node.from.as_ref().is_some_and(|from| from.len() == links.len()));
        if complete {
            self.unused(nodes, &links, &doubles);
        }
        links
    }

    /// Nodes with the name of an earlier one.
    fn duplicates(&mut self, nodes: &[NodeDraft]) -> BTreeSet<usize> {
        let (mut first, mut doubles) = (BTreeMap::new(), BTreeSet::new());
        for (at, node) in nodes.iter().enumerate() {
            let Some(earlier) = first.insert(node.name.as_str(), node.kind) else { continue };
            let what = earlier.map_or("node".to_owned(), |kind| kind.to_string());
            let message = format!("the name `{}` is taken by a {what}", node.name);
            let help = "names are unique across sources, stages and sinks".to_owned();
            self.mistake_at(node.name_span.clone(), message, Some(help));
            doubles.insert(at);
        }
        doubles
    }

    fn link(&mut self, node: &NodeDraft, nodes: &[NodeDraft]) -> Vec<usize> {
        let (mut links, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, span) in node.from.iter().flatten() {
            if !seen.insert(name) {
                self.mistake_at(span.clone(), format!("`{name}` is listed twice"), None);
            }
            links.extend(self.target(node, name, span, nodes));
        }
        links
    }

    /// The node with that name, otherwise the one most likely meant, so that it does not seem
    /// unused.
    fn target(
        &mut self,
        reader: &NodeDraft,
        name: &str,
        span: &Range<usize>,
        nodes: &[NodeDraft],
    ) -> Option<usize> {
        let same = |name: &str, sinks: bool| {
            nodes.iter().position(|node| node.name == name && (sinks || !is_sink(node)))
        };
        let Some(at) = same(name, false).or_else(|| same(name, true)) else {
            let others = nodes.iter().filter(|node| !is_sink(node) && node.name != reader.name);
            let names: Vec<&str> = others.map(|node| node.name.as_str()).collect();
            let help = suggest(name, &names, "sources and stages are");
            self.missing(span.clone(), format!("there is no source or stage `{name}`"), Some(help));
            return nearest(name, &names).and_then(|meant| same(meant, false));
        };
        if nodes.get(at).is_some_and(is_sink) {
            let help = "read from what the sink reads from".to_owned();
            self.mistake_at(
                span.clone(),
                format!("`{name}` is a sink and has no output"),
                Some(help),
            );
        }
        Some(at)
    }

    fn unused(&mut self, nodes: &[NodeDraft], links: &Links, doubles: &BTreeSet<usize>) {
        let used: BTreeSet<usize> = links.iter().flatten().copied().collect();
        for (at, node) in nodes.iter().enumerate() {
            let ends = matches!(node.kind, Some(PluginKind::Sink) | None);
            if ends || used.contains(&at) || doubles.contains(&at) {
                continue;
            }
            let kind = node.kind.map(|kind| kind.to_string()).unwrap_or_default();
            let message = format!("nothing reads from the {kind} `{}`", node.name);
            let help =
                format!("add it to the `from` of a stage or sink, or remove `{}`", node.name);
            self.missing(node.name_span.clone(), message, Some(help));
        }
    }

    /// Reports all cycles. Returns whether there are any.
    fn cycles(&mut self, nodes: &[NodeDraft], links: &Links) -> bool {
        let mut done = BTreeSet::new();
        for at in 0..nodes.len() {
            let Some(ring) = cycle_through(at, links) else { continue };
            if ring.iter().any(|member| done.contains(member)) {
                continue;
            }
            done.extend(ring.iter().copied());
            let names: Vec<&str> = ring
                .iter()
                .filter_map(|at| nodes.get(*at))
                .map(|node| node.name.as_str())
                .collect();
            self.note_cycle(nodes.get(at), &names);
        }
        !done.is_empty()
    }

    /// Reports the first node that is too deep. There must be no cycles.
    fn check_depth(&mut self, nodes: &[NodeDraft], links: &Links) {
        let Some(node) = nodes.get(too_deep(links).unwrap_or(usize::MAX)) else { return };
        let message =
            format!("`{}` is the end of a chain of more than {MAX_DEPTH} nodes", node.name);
        let help = "put several stages into one, or write a file between two pipelines".to_owned();
        self.mistake_at(node.name_span.clone(), message, Some(help));
    }

    fn note_cycle(&mut self, first: Option<&NodeDraft>, names: &[&str]) {
        let Some(first) = first else { return };
        let from = first.from.iter().flatten();
        let span =
            from.filter(|(name, _)| names.contains(&name.as_str())).map(|(_, span)| span.clone());
        let message = match names {
            [alone] => format!("`{alone}` reads from itself"),
            _ => format!("{} read from each other in a cycle", joined(names, "and")),
        };
        let help =
            "events flow from sources to sinks: let one of them read from elsewhere".to_owned();
        self.mistake_at(
            span.into_iter().next().unwrap_or(first.name_span.clone()),
            message,
            Some(help),
        );
    }
}

/// The first node deeper than allowed.
///
/// Visits each node once, in topological order.
fn too_deep(links: &Links) -> Option<usize> {
    let mut readers = vec![Vec::new(); links.len()];
    for (node, inputs) in links.iter().enumerate() {
        for input in inputs {
            readers.get_mut(*input)?.push(node);
        }
    }
    let mut unsettled: Vec<usize> = links.iter().map(Vec::len).collect();
    let mut front: Vec<usize> = (0..links.len()).filter(|at| unsettled[*at] == 0).collect();
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for reader in front.iter().flat_map(|at| &readers[*at]) {
            unsettled[*reader] -= 1;
            if unsettled[*reader] == 0 {
                next.push(*reader);
            }
        }
        front = next;
    }
    front.first().copied()
}

fn is_sink(node: &NodeDraft) -> bool {
    node.kind == Some(PluginKind::Sink)
}

/// The shortest cycle through a node, in the direction of events.
fn cycle_through(start: usize, links: &Links) -> Option<Vec<usize>> {
    let mut ways = BTreeMap::from([(start, start)]);
    let mut front = vec![start];
    while !front.is_empty() {
        let mut next = Vec::new();
        for at in front {
            for &source in links.get(at).into_iter().flatten() {
                if source == start {
                    return Some(path_back(at, start, &ways));
                }
                if let Entry::Vacant(way) = ways.entry(source) {
                    way.insert(at);
                    next.push(source);
                }
            }
        }
        front = next;
    }
    None
}

/// The nodes from `start` back via `end`; `ways` maps each node to the one it was reached from.
fn path_back(end: usize, start: usize, ways: &BTreeMap<usize, usize>) -> Vec<usize> {
    let mut way = vec![end];
    let mut at = end;
    while at != start {
        at = ways.get(&at).copied().unwrap_or(start);
        way.push(at);
    }
    way.rotate_right(1);
    way
}
