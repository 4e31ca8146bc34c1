//! What stages that look things up for a moment do alike: which of what is known counts, how far it is looked
//! for, and what is said where there is none. Remembers nothing.

use std::collections::BTreeMap;

use sluice_core::{Batch, ChannelId, Rows, StageContext};

use super::options::{MaxAge, in_words};
use super::{Miss, Timed};

/// How much later than its message an event may be in the log.
const LATE: i64 = 1_000_000_000;

/// How far in the log something may be from what needs it, if it may be `most` from its moment and is waited
/// for so long; nothing: any far.
pub(crate) fn reach(most: Option<i64>, wait: Option<i64>) -> Option<i64> {
    most.map(|most| most.saturating_add(wait.unwrap_or(0)).saturating_add(LATE))
}

/// What is known, if it is near enough to `time`.
pub(crate) fn near<K: Timed + Clone>(
    known: Option<&K>,
    time: i64,
    max_age: MaxAge,
) -> Result<K, Miss> {
    let known = known.ok_or(Miss::Before)?;
    if max_age.allows(known.time().abs_diff(time)) { Ok(known.clone()) } else { Err(Miss::Far) }
}

/// What is said of events for which there is no `what`.
pub(crate) fn say(miss: Miss, what: &str, max_age: MaxAge, max_gap: i64) -> String {
    match miss {
        Miss::Before => format!("came before any {what}"),
        Miss::After => format!("came after the last {what}"),
        Miss::Far => {
            let most = max_age.0.map_or(0, |age| age.0);
            format!("have no {what} within {} of their time", in_words(most))
        }
        Miss::Gap => {
            format!("lie between {what}s that are more than {} apart", in_words(max_gap))
        }
        Miss::Several => format!("are of a source without a {what}, and several others have some"),
    }
}

/// Tells of events that were asked for by the name of their channel, and in which there is nothing to do.
pub(crate) fn tell_idle(
    batch: &Batch,
    is_asked: impl Fn(u32) -> bool,
    is_work: impl Fn(&Rows) -> bool,
    (without, context): (&str, &mut StageContext<'_>),
) {
    let mut is_idle: Vec<bool> = (0..batch.len() as u32).map(is_asked).collect();
    for rows in batch.rows().iter().filter(|rows| is_work(rows)) {
        rows.events.iter().for_each(|event| is_idle[*event as usize] = false);
    }
    let mut idle: BTreeMap<ChannelId, u64> = BTreeMap::new();
    let channels = batch.channels().iter().zip(is_idle).filter(|(_, is_idle)| *is_idle);
    channels.for_each(|(channel, _)| *idle.entry(ChannelId(*channel)).or_default() += 1);
    for (channel, count) in idle {
        let channel = context.channels.get(channel);
        let name = channel.name.text();
        context.note(format!("{name}: events without {without} pass as they are"), count);
    }
}
