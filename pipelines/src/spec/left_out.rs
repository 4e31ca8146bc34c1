//! Nodes that are left out because a condition does not hold, and what goes with them. Looks at the graph
//! as the whole file has it; mistakes in what is left out have been noted before.

use std::fmt;

use sluice_core::PluginKind;

use super::check::Check;
use super::node::Draft;
use super::when::Condition;

/// More conditions are not quoted in one message.
const MOST_QUOTED: usize = 8;

/// A node that is left out because of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub node: String,
    /// Why, as a clause that begins with `since`.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.node, self.why)
    }
}

/// Why a node goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its own condition does not hold.
    Fails,
    /// None of those that it reads from are left.
    Unfed,
    /// None of those that read from it are left.
    Unread,
}

/// What a node reads from, as positions in the list of nodes.
type Links = Vec<Vec<usize>>;

impl Check<'_> {
    /// The nodes that stay, what they read from as positions among these, and the others.
    pub(super) fn without_left_out(
        &mut self,
        nodes: Vec<Draft>,
        links: Links,
    ) -> (Vec<Draft>, Links, Vec<LeftOut>) {
        let fails = |node: &Draft| node.when.as_ref().is_some_and(|when| !when.holds());
        if !nodes.iter().any(fails) {
            return (nodes, links, Vec::new());
        }
        let mut kept: Vec<bool> = nodes.iter().map(|node| !fails(node)).collect();
        let mut causes = vec![None; nodes.len()];
        let readers = readers(&links);
        note(Cause::Fails, &kept, &mut causes);
        drop_unfed(&nodes, &links, &mut kept);
        note(Cause::Unfed, &kept, &mut causes);
        drop_unread(&readers, &mut kept);
        note(Cause::Unread, &kept, &mut causes);
        self.some_sink(&nodes, &kept);
        let left_out = Going { nodes: &nodes, links: &links, readers: &readers, causes }.told();
        let (nodes, links) = renumbered(nodes, links, &kept);
        (nodes, links, left_out)
    }

    /// Notes that nothing would be written, if that is because of conditions.
    fn some_sink(&mut self, nodes: &[Draft], kept: &[bool]) {
        let is_sink = |node: &&Draft| node.kind == Some(PluginKind::Sink);
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
            .take(MOST_QUOTED)
            .map(|(name, when)| format!("`when` of `{name}` is `{when}`"))
            .collect();
        let more = if failing.len() > MOST_QUOTED { ", …" } else { "" };
        let message = format!("no sink is left: {}{more}", quoted.join(", "));
        let help = "give the variables in them other values, with --set or in the environment";
        self.wrong(first.span.clone(), message, Some(help.to_owned()));
    }
}

/// Nodes that go, and those around them.
struct Going<'n> {
    nodes: &'n [Draft],
    links: &'n Links,
    readers: &'n Links,
    /// By node; nothing for those that stay.
    causes: Vec<Option<Cause>>,
}

impl Going<'_> {
    fn told(&self) -> Vec<LeftOut> {
        let going = (0..self.nodes.len()).filter(|at| self.causes[*at].is_some());
        let told = |at: usize| LeftOut { node: self.nodes[at].name.clone(), why: self.why(at) };
        going.map(told).collect()
    }

    fn why(&self, at: usize) -> String {
        let condition = self.condition(at);
        let condition = condition.map(|when| format!(" (when: {when})")).unwrap_or_default();
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

    /// The condition that began it. Every cause went before what it takes along.
    fn condition(&self, mut at: usize) -> Option<&Condition> {
        loop {
            at = match self.causes[at]? {
                Cause::Fails => return self.nodes[at].when.as_ref(),
                Cause::Unfed => *self.links[at].first()?,
                Cause::Unread => *self.readers[at].first()?,
            };
        }
    }

    /// Their names, and whether they are one or several.
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

/// Notes why those went that went last.
fn note(cause: Cause, kept: &[bool], causes: &mut [Option<Cause>]) {
    let gone = causes.iter_mut().zip(kept).filter(|(known, kept)| known.is_none() && !**kept);
    gone.for_each(|(known, _)| *known = Some(cause));
}

/// For each node, those that read from it.
fn readers(links: &Links) -> Links {
    let mut readers: Links = vec![Vec::new(); links.len()];
    for (reader, from) in links.iter().enumerate() {
        from.iter().for_each(|from| readers[*from].push(reader));
    }
    readers
}

/// Drops what reads from others of which none is left.
fn drop_unfed(nodes: &[Draft], links: &Links, kept: &mut [bool]) {
    settle(kept, |at, kept| {
        let from = &links[at];
        // What could not be read of `from` may be there.
        let known = nodes[at].from.as_ref().is_some_and(|names| names.len() == from.len());
        !known || from.is_empty() || from.iter().any(|from| kept[*from])
    });
}

/// Drops what only nodes read from that are left out.
fn drop_unread(readers: &Links, kept: &mut [bool]) {
    settle(kept, |at, kept| {
        // What nobody reads anyway is a mistake, or a sink.
        readers[at].is_empty() || readers[at].iter().any(|reader| kept[*reader])
    });
}

/// Drops what does not stay, until all that is left does.
fn settle(kept: &mut [bool], stays: impl Fn(usize, &[bool]) -> bool) {
    loop {
        let going = |at: &usize| kept[*at] && !stays(*at, kept);
        let going: Vec<usize> = (0..kept.len()).filter(going).collect();
        if going.is_empty() {
            return;
        }
        going.into_iter().for_each(|at| kept[at] = false);
    }
}

fn renumbered(nodes: Vec<Draft>, links: Links, kept: &[bool]) -> (Vec<Draft>, Links) {
    let mut places = vec![None; kept.len()];
    let stay = (0..kept.len()).filter(|at| kept[*at]);
    stay.enumerate().for_each(|(place, at)| places[at] = Some(place));
    let each = nodes.into_iter().zip(links).zip(kept).filter(|(_, kept)| **kept);
    let renumber = |from: Vec<usize>| from.into_iter().filter_map(|at| places[at]).collect();
    each.map(|((node, from), _)| (node, renumber(from))).unzip()
}
