//! Predicate pushdown: which events each source and stage can skip, derived from the filters and
//! needs of everything after it. Only a hint; stages still check every event.

use sluice_model::time::TimePoint;
use sluice_model::{ChannelQuery, Error, MapQuery, Query, Stage};

use super::node_calls::NodeCalls;
use crate::spec::{PipelineNode, PluginInstance};

/// The pushed-down query of each node.
#[derive(Debug)]
pub(super) struct Pushdown {
    of_nodes: Vec<Query>,
    of_parts: Vec<Vec<Query>>,
}

impl Pushdown {
    /// Visits each node once. `origins` holds, for each node, the time of the first event it can
    /// see.
    pub(super) fn compute(
        nodes: &[PipelineNode],
        origins: &[Option<i64>],
        labels: &NodeCalls,
    ) -> Result<Self, Error> {
        let of_nodes = vec![None::<Query>; nodes.len()];
        let mut found =
            PushdownSearch { nodes, origins, of_nodes, of_parts: vec![Vec::new(); nodes.len()] };
        for node in consumers_first(nodes) {
            labels.call(node, || {
                found.settle(node);
                Ok(())
            })?;
        }
        let of_nodes = found.of_nodes.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Self { of_nodes, of_parts: found.of_parts })
    }

    /// The query for a node's events: what any later node wants.
    pub(super) fn query_for(&self, node: usize) -> Query {
        self.of_nodes.get(node).cloned().unwrap_or_default()
    }

    /// What any node wants after this part of a stage.
    pub(super) fn query_after(&self, node: usize, part: usize) -> Query {
        let query = self.of_parts.get(node).and_then(|parts| parts.get(part));
        query.cloned().unwrap_or_default()
    }
}

/// The nodes, each after all nodes that read from it.
fn consumers_first(nodes: &[PipelineNode]) -> Vec<usize> {
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

struct PushdownSearch<'n> {
    nodes: &'n [PipelineNode],
    origins: &'n [Option<i64>],
    /// `None` until a reader has been visited.
    of_nodes: Vec<Option<Query>>,
    of_parts: Vec<Vec<Query>>,
}

impl PushdownSearch<'_> {
    /// Adds a node's needs to the nodes that it reads from. All its readers have been visited.
    fn settle(&mut self, node: usize) {
        let needs = match &self.nodes[node].instance {
            PluginInstance::Stage(stage) => {
                let after = self.of_nodes[node].clone().unwrap_or_default();
                let (needs, queries) = before(stage, after, self.origins[node]);
                self.of_parts[node] = queries;
                needs
            }
            PluginInstance::Source(_) | PluginInstance::Sink(_) => Query::default(),
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

/// The query before a stage, given the query after it; and the queries after each of its parts.
pub(super) fn before(stage: &Stage, after: Query, origin: Option<i64>) -> (Query, Vec<Query>) {
    let parts: Vec<_> = stage.parts().into_iter().zip(stage.origins(origin)).collect();
    let mut queries = Vec::new();
    let query = parts.into_iter().rev().fold(after, |after, (part, origin)| {
        queries.push(after.clone());
        match part {
            Stage::Map(map) => before_map(map.query(), after, origin),
            Stage::Fold(fold) => fold.query().before(after),
            Stage::Chain(_) => Query::default(),
        }
    });
    queries.reverse();
    (query, queries)
}

fn before_map(own: MapQuery, mut after: Query, origin: Option<i64>) -> Query {
    if !own.keeps_times {
        (after.start, after.end) = (None, None);
    }
    if !own.keeps_channels {
        after.channels = ChannelQuery::default();
    }
    narrow(own, after, origin)
}

fn narrow(own: MapQuery, after: Query, origin: Option<i64>) -> Query {
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
