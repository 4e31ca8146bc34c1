//! Prunes nodes whose condition fails, and the nodes that depend on them. Works on the graph of the
//! whole file; mistakes in pruned nodes are reported elsewhere.

use std::collections::BTreeSet;

use sluice_model::PluginKind;

use super::PrunedNode;
use super::check::Check;
use super::links::Links;
use super::node::NodeDraft;
use super::when::Condition;

/// The maximum number of conditions to quote in one message.
const MAX_QUOTED: usize = 8;

/// Why a node is pruned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its own condition fails.
    Fails,
    /// Everything it reads from is pruned.
    Unfed,
    /// Everything that reads from it is pruned.
    Unread,
}

impl Check<'_> {
    /// For each node whether it remains, and the pruned nodes.
    pub(super) fn prune(
        &mut self,
        nodes: &[NodeDraft],
        links: &Links,
    ) -> (Vec<bool>, Vec<PrunedNode>) {
        let fails = |node: &NodeDraft| node.when.as_ref().is_some_and(|when| !when.holds());
        let mut kept: Vec<bool> = nodes.iter().map(|node| !fails(node)).collect();
        if !nodes.iter().any(fails) {
            return (kept, Vec::new());
        }
        let mut causes = vec![None; nodes.len()];
        let readers = readers(links);
        note(Cause::Fails, &kept, &mut causes);
        drop_unfed(nodes, links, &mut kept);
        note(Cause::Unfed, &kept, &mut causes);
        drop_unread(&readers, &mut kept);
        note(Cause::Unread, &kept, &mut causes);
        self.expect_sink_left(nodes, &kept);
        let left_out = Pruning { nodes, links, readers: &readers, causes }.describe_pruned();
        (kept, left_out)
    }

    /// Reports that no sink is left, if conditions are the reason.
    fn expect_sink_left(&mut self, nodes: &[NodeDraft], kept: &[bool]) {
        let is_sink = |node: &&NodeDraft| node.kind == Some(PluginKind::Sink);
        let left = nodes.iter().zip(kept).filter(|(_, kept)| **kept).map(|(node, _)| node);
        if left.into_iter().any(|node| is_sink(&node)) || !nodes.iter().any(|node| is_sink(&node)) {
            return;
        }
        let failing: Vec<(&str, &Condition)> = nodes
            .iter()
            .filter_map(|node| Some((node.name.as_str(), node.when.as_ref()?)))
            .filter(|(_, when)| !when.holds())
            .collect();
        let Some((_, first)) = failing.first() else { return };
        let quoted: Vec<String> = failing
            .iter()
            .take(MAX_QUOTED)
            .map(|(name, when)| format!("`{name}` has `when = {when}`"))
            .collect();
        let more = if failing.len() > MAX_QUOTED { ", …" } else { "" };
        let values: BTreeSet<String> = failing.iter().flat_map(|(_, when)| when.values()).collect();
        let values: String = values.iter().map(|value| format!("; {value}")).collect();
        let message = format!("no sink is left: {}{more}{values}", quoted.join(", "));
        let help = "give the variables in them other values, with --set or in the environment";
        self.mistake_at(first.span.clone(), message, Some(help.to_owned()));
    }
}

/// The pruned nodes, and their neighbours.
struct Pruning<'n> {
    nodes: &'n [NodeDraft],
    links: &'n Links,
    readers: &'n Links,
    /// By node; `None` for those that stay.
    causes: Vec<Option<Cause>>,
}

impl Pruning<'_> {
    fn describe_pruned(&self) -> Vec<PrunedNode> {
        let going = (0..self.nodes.len()).filter(|at| self.causes[*at].is_some());
        let told = |at: usize| PrunedNode { node: self.nodes[at].name.clone(), why: self.why(at) };
        going.map(told).collect()
    }

    fn why(&self, at: usize) -> String {
        let condition = self.condition(at);
        let condition = condition.map(|when| format!(" (when = {when})")).unwrap_or_default();
        match self.causes[at] {
            Some(Cause::Unfed) => {
                let (names, verb) = self.names(&self.links[at]);
                let inputs = if verb == "is" { "input" } else { "inputs" };
                format!("since its {inputs} {names} {verb} left out{condition}")
            }
            Some(Cause::Unread) => {
                let (names, verb) = self.names(&self.readers[at]);
                let reads = if verb == "is" { "reads" } else { "read" };
                format!("since only {names} {reads} from it, which {verb} left out{condition}")
            }
            _ => format!("since its condition fails{condition}"),
        }
    }

    /// The condition that started it. Every node is pruned after its cause.
    fn condition(&self, mut at: usize) -> Option<&Condition> {
        loop {
            at = match self.causes[at]? {
                Cause::Fails => return self.nodes[at].when.as_ref(),
                Cause::Unfed => *self.links[at].first()?,
                Cause::Unread => *self.readers[at].first()?,
            };
        }
    }

    /// Their names, and the verb in the right number.
    fn names(&self, nodes: &[usize]) -> (String, &'static str) {
        let names: Vec<&str> = nodes.iter().map(|at| self.nodes[*at].name.as_str()).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => {
                (format!("{} and {last}", rest.join(", ")), verb)
            }
            _ => (names.concat(), verb),
        }
    }
}

/// Records the cause of the nodes pruned last.
fn note(cause: Cause, kept: &[bool], causes: &mut [Option<Cause>]) {
    let gone = causes.iter_mut().zip(kept).filter(|(known, kept)| known.is_none() && !**kept);
    gone.for_each(|(known, _)| *known = Some(cause));
}

/// For each node, its readers.
fn readers(links: &Links) -> Links {
    let mut readers: Links = vec![Vec::new(); links.len()];
    for (reader, from) in links.iter().enumerate() {
        from.iter().for_each(|from| readers[*from].push(reader));
    }
    readers
}

/// Prunes nodes whose inputs are all pruned.
fn drop_unfed(nodes: &[NodeDraft], links: &Links, kept: &mut [bool]) {
    drop_until_stable(kept, |at, kept| {
        let from = &links[at];
        // Unreadable names in `from` may refer to nodes that stay.
        let known = nodes[at].from.as_ref().is_some_and(|names| names.len() == from.len());
        !known || from.is_empty() || from.iter().any(|from| kept[*from])
    });
}

/// Prunes nodes whose readers are all pruned.
fn drop_unread(readers: &Links, kept: &mut [bool]) {
    drop_until_stable(kept, |at, kept| {
        // A node without readers is a sink or a mistake.
        readers[at].is_empty() || readers[at].iter().any(|reader| kept[*reader])
    });
}

/// Prunes until nothing changes.
fn drop_until_stable(kept: &mut [bool], stays: impl Fn(usize, &[bool]) -> bool) {
    loop {
        let going = |at: &usize| kept[*at] && !stays(*at, kept);
        let going: Vec<usize> = (0..kept.len()).filter(going).collect();
        if going.is_empty() {
            return;
        }
        going.into_iter().for_each(|at| kept[at] = false);
    }
}

/// The remaining nodes, and their links renumbered.
pub(super) fn remaining(
    nodes: Vec<NodeDraft>,
    links: Links,
    kept: &[bool],
) -> (Vec<NodeDraft>, Links) {
    let mut places = vec![None; kept.len()];
    let stay = (0..kept.len()).filter(|at| kept[*at]);
    stay.enumerate().for_each(|(place, at)| places[at] = Some(place));
    let each = nodes.into_iter().zip(links).zip(kept).filter(|(_, kept)| **kept);
    let renumber = |from: Vec<usize>| from.into_iter().filter_map(|at| places[at]).collect();
    each.map(|((node, from), _)| (node, renumber(from))).unzip()
}
