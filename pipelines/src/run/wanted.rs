//! What is wanted of a source: what everything after it lets through and needs, put together. A hint only;
//! stages look at every event that comes.

use sluice_core::time::When;
use sluice_core::{ChannelQuery, MapQuery, Query, Stage};

use crate::spec::{Node, Part};

/// What of a node's events anybody after it wants. `origins` holds, for each node, the time of the first
/// event it can see.
pub(super) fn wanted(nodes: &[Node], node: usize, origins: &[Option<i64>]) -> Query {
    let users = nodes.iter().enumerate().filter(|(_, user)| user.from.contains(&node));
    let wants = users.map(|(place, user)| match &user.part {
        Part::Stage(stage) => before(stage, wanted(nodes, place, origins), origins[place]),
        Part::Source(_) | Part::Sink(_) => Query::default(),
    });
    wants.reduce(Query::or).unwrap_or_default()
}

/// What is wanted before a stage, where this is wanted after it.
fn before(stage: &Stage, after: Query, origin: Option<i64>) -> Query {
    stage.parts().into_iter().rev().fold(after, |after, part| match part {
        Stage::Map(map) => before_map(map.query(), after, origin),
        Stage::Fold(fold) => fold.query().before(after),
        Stage::Chain(_) => Query::default(),
    })
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
    let resolve = |when: Option<When>| {
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
