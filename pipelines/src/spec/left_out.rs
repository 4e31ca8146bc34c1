//! Nodes that are left out because a condition does not hold, and what goes with them. Looks at the graph
//! as the whole file has it; mistakes in what is left out have been noted before.

use sluice_core::Kind;

use super::check::Check;
use super::node::Draft;
use super::when::Condition;

/// More conditions are not quoted in one message.
const MOST_QUOTED: usize = 8;

/// What a node reads from, as positions in the list of nodes.
type Links = Vec<Vec<usize>>;

impl Check<'_> {
    /// The nodes that stay, and what they read from as positions among these.
    pub(super) fn without_left_out(
        &mut self,
        nodes: Vec<Draft>,
        links: Links,
    ) -> (Vec<Draft>, Links) {
        let fails = |node: &Draft| node.when.as_ref().is_some_and(|when| !when.holds());
        if !nodes.iter().any(fails) {
            return (nodes, links);
        }
        let mut kept: Vec<bool> = nodes.iter().map(|node| !fails(node)).collect();
        drop_unfed(&nodes, &links, &mut kept);
        drop_unread(&nodes, &links, &mut kept);
        self.some_sink(&nodes, &kept);
        renumbered(nodes, links, &kept)
    }

    /// Notes that nothing would be written, if that is because of conditions.
    fn some_sink(&mut self, nodes: &[Draft], kept: &[bool]) {
        let is_sink = |node: &&Draft| node.kind == Some(Kind::Sink);
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
fn drop_unread(nodes: &[Draft], links: &Links, kept: &mut [bool]) {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (reader, from) in links.iter().enumerate() {
        from.iter().for_each(|from| readers[*from].push(reader));
    }
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
