//! Shared by the stages that look up values by time: limits and notes. Stateless.

use std::collections::BTreeMap;

use sluice_model::time::TimeSpan;
use sluice_model::{Batch, ChannelId, Rows, StageContext};

use super::Timestamped;
use super::options::{MaxAge, format_duration};

/// Maximum delay between a message's own time and its event in the log, in nanoseconds.
const MAX_LOG_DELAY: i64 = 1_000_000_000;

/// Maximum distance in the log between an event and its value, given the maximum age and the wait.
/// `None`: unlimited.
pub(crate) fn query_reach(limit: Option<i64>, wait: Option<i64>) -> Option<i64> {
    limit.map(|limit| limit.saturating_add(wait.unwrap_or(0)).saturating_add(MAX_LOG_DELAY))
}

/// The value, if it is within `max_age` of `time`.
pub(crate) fn within_max_age<K: Timestamped + Clone>(
    value: Option<&K>,
    time: i64,
    max_age: MaxAge,
) -> Result<K, LookupMiss> {
    let value = value.ok_or(LookupMiss::Before)?;
    if max_age.allows(value.time().abs_diff(time)) {
        Ok(value.clone())
    } else {
        Err(LookupMiss::TooFar)
    }
}

/// Why there is no value for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LookupMiss {
    /// There is none before it.
    Before,
    /// There is none after it.
    After,
    /// The nearest one is too far away.
    TooFar,
    /// The two around it are too far apart.
    GapTooWide,
    /// Its source has none, and several others have.
    AmbiguousSource,
}

/// Describes a miss for notes; `what` is a singular noun.
pub(crate) fn describe_miss(miss: LookupMiss, what: &str, max_age: MaxAge, max_gap: i64) -> String {
    match miss {
        LookupMiss::Before => format!("came before any {what}"),
        LookupMiss::After => format!("came after the last {what}"),
        LookupMiss::TooFar => {
            let limit = max_age.0.map_or(0, TimeSpan::nanos);
            format!("had no {what} within {} of their time", format_duration(limit))
        }
        LookupMiss::GapTooWide => {
            format!("lay between {what}s that are more than {} apart", format_duration(max_gap))
        }
        LookupMiss::AmbiguousSource => {
            format!("came from a source without a {what}, while several other sources have one")
        }
    }
}

/// Notes events on named channels in which there is nothing to do.
pub(crate) fn note_idle_events(
    batch: &Batch,
    is_selected: impl Fn(u32) -> bool,
    is_work: impl Fn(&Rows) -> bool,
    (missing, context): (&str, &mut StageContext<'_>),
) {
    let mut is_idle: Vec<bool> = (0..batch.len() as u32).map(is_selected).collect();
    for rows in batch.rows().iter().filter(|rows| is_work(rows)) {
        rows.events.iter().for_each(|event| is_idle[*event as usize] = false);
    }
    let mut idle: BTreeMap<ChannelId, u64> = BTreeMap::new();
    let channels = batch.channels().iter().zip(is_idle).filter(|(_, is_idle)| *is_idle);
    channels.for_each(|(channel, _)| *idle.entry(ChannelId(*channel)).or_default() += 1);
    for (channel, count) in idle {
        let channel = context.channels.get(channel);
        let name = channel.name.text();
        context.note(format!("{name}: events without {missing}; passed unchanged"), count);
    }
}
