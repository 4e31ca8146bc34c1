//! Joins failures of several channels that have one cause, and bounds their number.

use std::collections::BTreeMap;

use sluice_model::UnmetExpectation;

use super::ExpectationFailure;

/// Silences have one cause if they share this much of the longer one.
const SHARED: f64 = 0.8;

/// The most failures listed for one rule; hostile logs have any number of channels.
const MOST_PER_RULE: usize = 50;

/// Joins silences at the same time by the same kind of rule, and sorts by place in the file.
pub(super) fn joined(found: Vec<ExpectationFailure>) -> Vec<UnmetExpectation> {
    let mut groups: Vec<ExpectationFailure> = Vec::new();
    for next in found {
        let same = next.silence.and_then(|silence| {
            groups.iter_mut().find(|group| {
                group.unmet.rule == next.unmet.rule
                    && group.silence.is_some_and(|other| is_same(other, silence))
                    && group.unmet.channels.len() < MOST_PER_RULE
            })
        });
        match same {
            Some(group) => add(&mut group.unmet, next.unmet),
            None => groups.push(next),
        }
    }
    // Rules of the log come first, whatever their place.
    groups.sort_by_key(|group| (!group.unmet.channels.is_empty(), group.offset));
    groups.into_iter().map(|group| group.unmet).collect()
}

/// Whether two silences overlap so much that they have one cause.
fn is_same(one: (i64, i64), other: (i64, i64)) -> bool {
    let length = |(start, end): (i64, i64)| end.abs_diff(start) as f64;
    let both = (one.0.max(other.0), one.1.min(other.1));
    both.1 > both.0 && length(both) >= SHARED * length(one).max(length(other))
}

/// Adds the failure of another channel.
fn add(group: &mut UnmetExpectation, next: UnmetExpectation) {
    let is_new = |channel: &String| !group.channels.contains(channel);
    let new: Vec<String> = next.channels.into_iter().filter(is_new).collect();
    group.channels.extend(new);
    if !group.expected.split(" or ").any(|expected| expected == next.expected) {
        group.expected = format!("{} or {}", group.expected, next.expected);
    }
    if let (Some(ours), Some(theirs)) = (&mut group.when, next.when) {
        ours.start = ours.start.min(theirs.start);
        ours.after = ours.after.min(theirs.after);
        ours.end = ours.end.max(theirs.end);
    }
}

/// At most so many failures per rule, then one that counts the rest.
pub(super) fn bounded(all: Vec<UnmetExpectation>) -> Vec<UnmetExpectation> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let key = |unmet: &UnmetExpectation| (unmet.place.clone(), unmet.rule.clone());
    all.iter().for_each(|unmet| *counts.entry(key(unmet)).or_default() += 1);
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for unmet in all {
        let key = key(&unmet);
        let place = seen.entry(key.clone()).or_default();
        *place += 1;
        let more = counts[&key] - MOST_PER_RULE.min(counts[&key]);
        if *place <= MOST_PER_RULE {
            kept.push(unmet);
        } else if *place == MOST_PER_RULE + 1 {
            let found = format!("{more} more failures of this rule");
            kept.push(UnmetExpectation { channels: Vec::new(), found, when: None, ..unmet });
        }
    }
    kept
}
