//! Which events a stage declares to need, given what is wanted after it. Tests nothing.

use std::sync::Arc;

use sluice_model::time::TimePoint;
use sluice_model::{
    ChannelId, ChannelQuery, MapQuery, Pattern, Patterns, Query, Stage, TimeWindow,
};

use crate::events::Events;

/// Queries for after a stage with this output: everything, some times, some channels, and both.
pub(super) fn sample_queries(given: &Events) -> Vec<(String, Query)> {
    let mut times = given.batch.timestamps().to_vec();
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 10).copied();
    let windows = [(None, None), (at(4), at(6)), (None, at(3)), (at(8), None)];
    let mut names: Vec<String> = Vec::new();
    for id in given.batch.channels() {
        let name = given.channels.get(ChannelId(*id)).name.text().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let channels = names.iter().take(3).filter_map(|name| {
        let pattern = Pattern::parse(name).ok()?;
        let (named, any) = (Patterns(vec![pattern]), Patterns::default());
        Some((format!("channel `{name}`"), ChannelQuery::from_patterns(&named, &any, &any)))
    });
    let every = ("all channels".to_owned(), ChannelQuery::default());
    let channels: Vec<(String, ChannelQuery)> = std::iter::once(every).chain(channels).collect();
    let of = |(start, end): (Option<i64>, Option<i64>)| {
        channels.iter().map(move |(name, channels)| {
            let channels = channels.clone();
            let told = |time: Option<i64>| time.map_or("..".to_owned(), |time| time.to_string());
            let what = format!("{name} from {} to {} wanted after it", told(start), told(end));
            (what, Query { start, end, channels })
        })
    };
    windows.into_iter().flat_map(of).collect()
}

/// The events that match a query.
pub(super) fn select_events(events: &Events, query: &Query) -> Events {
    let (batch, window) = (&events.batch, query.window());
    let kept = batch.retain(|row| {
        let id = batch.channels().get(row).copied().unwrap_or_default();
        let channel = events.channels.get(ChannelId(id));
        let time = batch.timestamps().get(row).copied().unwrap_or_default();
        window.wants_time(time) && query.channels.wants(channel.name.text(), &channel.source)
    });
    Events { channels: Arc::clone(&events.channels), batch: kept }
}

/// The query before a stage's parts, given the query after them, and the time window after each
/// part; computed like the engine does.
pub(super) fn before(parts: &[Stage], after: &Query, times: &[i64]) -> (Query, Vec<TimeWindow>) {
    let (mut windows, origin) = (Vec::new(), times.first().copied().unwrap_or_default());
    let needs = parts.iter().rev().fold(after.clone(), |after, part| {
        windows.push(after.window());
        match part {
            Stage::Map(map) => before_map(map.query(), after, origin),
            Stage::Fold(fold) => fold.query().before(after),
            Stage::Chain(_) => Query::default(),
        }
    });
    windows.reverse();
    (needs, windows)
}

fn before_map(own: MapQuery, after: Query, origin: i64) -> Query {
    let (start, end) = if own.keeps_times { (after.start, after.end) } else { (None, None) };
    let channels = match own.keeps_channels {
        true => own.channels.and(&after.channels),
        false => own.channels,
    };
    let resolved = |when: Option<TimePoint>| when.map(|when| when.resolve(origin));
    Query {
        start: resolved(own.start).into_iter().chain(start).max(),
        end: resolved(own.end).into_iter().chain(end).min(),
        channels,
    }
}
