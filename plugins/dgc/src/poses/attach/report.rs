//! Notes about events without a value, and about values that look wrong.

use std::collections::{BTreeMap, BTreeSet};

use sluice_model::StageContext;

use super::{AttachFold, AttachedValue, InputSeen};
use crate::poses::LookupMiss;

/// Maximum number of channels that are noted individually.
const MAX_NAMED_CHANNELS: usize = 3;

const ARE_OUT_OF_ORDER: &str = "are older than a previous one";

impl<K: AttachedValue> AttachFold<K> {
    /// Notes what happened during the run.
    pub(super) fn report(&mut self, context: &mut StageContext<'_>) {
        if !self.missed.is_empty() && self.sources.is_empty() {
            let channel = self.plan.reader.channel().as_name().unwrap_or("…");
            let what = K::PLURAL;
            let note =
                format!("no {what} on `{channel}`: is the channel filtered out before this stage?");
            context.note(note, 0);
        }
        let mut by_miss: BTreeMap<LookupMiss, Vec<(String, u64, u64)>> = BTreeMap::new();
        for ((channel, miss), (events, points)) in std::mem::take(&mut self.missed) {
            by_miss.entry(miss).or_default().push((channel, events, points));
        }
        for (miss, mut channels) in by_miss {
            if channels.len() > MAX_NAMED_CHANNELS {
                channels = vec![combine_channels(&channels)];
            }
            for (channel, events, points) in channels {
                let s = if events == 1 { "" } else { "s" };
                let points = match points {
                    0 => String::new(),
                    1 => " with 1 point".to_owned(),
                    points => format!(" with {points} points"),
                };
                let why = (self.plan.describe_miss)(miss);
                context.note(format!("{channel}: {events} event{s}{points} {why}"), 0);
            }
        }
        for (channel, count) in std::mem::take(&mut self.out_of_order) {
            let what = K::PLURAL;
            let are = if count == 1 { "is older than a previous one" } else { ARE_OUT_OF_ORDER };
            context.note(format!("{channel}: {count} of the {what} {are}"), 0);
        }
        self.report_borrowed(context);
        if let (InputSeen::Events, Some((_, idle))) = (self.input_seen, &self.plan.work) {
            context.note(*idle, 0);
        }
    }

    /// Notes sources whose first events used values of another source although they have their own
    /// later: the recordings may be unrelated.
    fn report_borrowed(&mut self, context: &mut StageContext<'_>) {
        let borrowed = std::mem::take(&mut self.borrowed).into_iter();
        let borrowed =
            borrowed.filter(|((source, _), _)| !self.sources.history(*source).is_empty());
        let notes = borrowed.map(|((source, owner), count)| {
            let (source, owner) = (self.sources.name(source), self.sources.name(owner));
            let (what, s) = (K::PLURAL, if count == 1 { "" } else { "s" });
            format!(
                "{count} event{s} of `{source}` used {what} of `{owner}` before its own arrived"
            )
        });
        // The order of sources depends on thread timing, so sorts the notes.
        notes.collect::<BTreeSet<String>>().into_iter().for_each(|note| context.note(note, 0));
    }
}

/// Combines the misses of several channels into one note: the start and end of a log affect all of
/// them.
fn combine_channels(channels: &[(String, u64, u64)]) -> (String, u64, u64) {
    let named: Vec<&str> =
        channels.iter().take(MAX_NAMED_CHANNELS).map(|(name, ..)| &**name).collect();
    let name = format!("{} and {} more", named.join(", "), channels.len() - named.len());
    let sum = |of: fn(&(String, u64, u64)) -> u64| channels.iter().map(of).sum();
    (name, sum(|channel| channel.1), sum(|channel| channel.2))
}
