//! What is wanted of sources and stages: what everything after them lets through and needs, put together. A
//! hint only; stages look at every event that comes.

use sluice_core::time::TimePoint;
use sluice_core::{ChannelQuery, MapQuery, Query, Stage, TimeWindow};

use crate::spec::{Node, Part};

/// What is wanted of each node of a graph.
#[derive(Debug)]
pub(super) struct Wanted {
    of_nodes: Vec<Query>,
    of_parts: Vec<Vec<TimeWindow>>,
}

impl Wanted {
    /// Looks at each node once. `origins` holds, for each, the time of the first event it can see.
    pub(super) fn of(nodes: &[Node], origins: &[Option<i64>]) -> Self {
        let of_nodes = vec![None::<Query>; nodes.len()];
        let mut found =
            DemandSearch { nodes, origins, of_nodes, of_parts: vec![Vec::new(); nodes.len()] };
        for node in from_the_end(nodes) {
            found.settle(node);
        }
        let of_nodes = found.of_nodes.into_iter().map(Option::unwrap_or_default).collect();
        Self { of_nodes, of_parts: found.of_parts }
    }

    /// What of a node's events anybody after it wants.
    pub(super) fn of_node(&self, node: usize) -> Query {
        self.of_nodes.get(node).cloned().unwrap_or_default()
    }

    /// When the events happened that anybody wants after this part of a stage.
    pub(super) fn of_part(&self, node: usize, part: usize) -> TimeWindow {
        let window = self.of_parts.get(node).and_then(|parts| parts.get(part));
        window.copied().unwrap_or_default()
    }
}

/// The nodes, each after all that read from it.
fn from_the_end(nodes: &[Node]) -> Vec<usize> {
    let mut readers = vec![0usize; nodes.len()];
    nodes.iter().flat_map(|node| &node.from).for_each(|from| readers[*from] += 1);
    let mut order: Vec<usize> = (0..nodes.len()).filter(|node| readers[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done).copied() {
        done += 1;
        for from in &nodes[node].from {
            readers[*from] -= 1;
            if readers[*from] == 0 {
                order.push(*from);
            }
        }
    }
    order
}

struct DemandSearch<'n> {
    nodes: &'n [Node],
    origins: &'n [Option<i64>],
    /// Nothing where nobody has asked yet.
    of_nodes: Vec<Option<Query>>,
    of_parts: Vec<Vec<TimeWindow>>,
}

impl DemandSearch<'_> {
    /// Tells those that a node reads from what it needs. All that read from it have had their say.
    fn settle(&mut self, node: usize) {
        let needs = match &self.nodes[node].part {
            Part::Stage(stage) => {
                let after = self.of_nodes[node].clone().unwrap_or_default();
                let (needs, windows) = before(stage, after, self.origins[node]);
                self.of_parts[node] = windows;
                needs
            }
            Part::Source(_) | Part::Sink(_) => Query::default(),
        };
        for from in &self.nodes[node].from {
            let known = self.of_nodes[*from].take();
            self.of_nodes[*from] = Some(match known {
                Some(known) => known.or(needs.clone()),
                None => needs.clone(),
            });
        }
    }
}

/// What is wanted before a stage, where this is wanted after it; and the times that are wanted after each of
/// its parts.
fn before(stage: &Stage, after: Query, origin: Option<i64>) -> (Query, Vec<TimeWindow>) {
    let mut windows = Vec::new();
    let query = stage.parts().into_iter().rev().fold(after, |after, part| {
        windows.push(after.window());
        match part {
            Stage::Map(map) => before_map(map.query(), after, origin),
            Stage::Fold(fold) => fold.query().before(after),
            Stage::Chain(_) => Query::default(),
        }
    });
    windows.reverse();
    (query, windows)
}

fn before_map(own: MapQuery, mut after: Query, origin: Option<i64>) -> Query {
    if !own.keeps_times {
        (after.start, after.end) = (None, None);
    }
    if !own.keeps_channels {
        after.channels = ChannelQuery::default();
    }
    narrowed(own, after, origin)
}

fn narrowed(own: MapQuery, after: Query, origin: Option<i64>) -> Query {
    let resolve = |when: Option<TimePoint>| {
        let when = when?;
        if when.is_relative() {
            origin.map(|origin| when.resolve(origin))
        } else {
            Some(when.resolve(0))
        }
    };
    let later = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).max();
    let earlier = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
    Query {
        start: later(resolve(own.start), after.start),
        end: earlier(resolve(own.end), after.end),
        channels: own.channels.and(&after.channels),
    }
}
