//! Reports events without a file, or with an incomplete one: counts by channel, formatted at the
//! end. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_io::escape::printable;
use sluice_model::{ChannelId, Channels, FieldPath};

use crate::file_name::{NameError, NameFault};

/// Maximum number of notes of each kind.
const MAX_NOTES: usize = 40;
/// Maximum number of channels named in one note.
const MAX_NAMED_CHANNELS: usize = 5;

/// Counts of skipped and incomplete files.
#[derive(Debug, Default)]
pub(crate) struct SkipReport {
    /// Number of events by channel, fault, and whether they were skipped.
    checked: BTreeMap<(ChannelId, &'static str, bool), u64>,
    /// The first invalid name by channel and fault.
    unnamed: BTreeMap<(ChannelId, NameFault), String>,
    /// Channels with at least one event that has the field.
    present: BTreeSet<ChannelId>,
    /// Number of events without the field, by channel.
    missing: BTreeMap<ChannelId, u64>,
}

impl SkipReport {
    /// Records an event with the field.
    pub(crate) fn note_present(&mut self, channel: ChannelId) {
        self.present.insert(channel);
    }

    /// Records an event without the field, which is skipped.
    pub(crate) fn note_missing(&mut self, channel: ChannelId) {
        *self.missing.entry(channel).or_default() += 1;
    }

    /// Records a fault in the bytes of an event.
    pub(crate) fn note_checked(
        &mut self,
        channel: ChannelId,
        what: &'static str,
        is_left_out: bool,
    ) {
        *self.checked.entry((channel, what, is_left_out)).or_default() += 1;
    }

    /// Records an event without a valid name.
    pub(crate) fn note_unnamed(&mut self, channel: ChannelId, unnamed: NameError) {
        let NameError { fault, detail } = unnamed;
        self.unnamed.entry((channel, fault)).or_insert(detail);
    }

    /// Adds the counts of a later batch.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self { checked, unnamed, present, missing } = later;
        checked.into_iter().for_each(|(about, n)| *self.checked.entry(about).or_default() += n);
        missing.into_iter().for_each(|(channel, n)| *self.missing.entry(channel).or_default() += n);
        self.present.extend(present);
        for (about, detail) in unnamed {
            self.unnamed.entry(about).or_insert(detail);
        }
    }

    /// Formats the notes, errors first. `field` is the option of the sink.
    pub(crate) fn notes(
        &self,
        channels: &Channels,
        field: Option<&FieldPath>,
    ) -> Vec<(String, u64)> {
        let named = |id: &ChannelId| printable(channels.get(*id).name.text()).into_owned();
        // Channel numbers depend on timing, so notes are sorted by text.
        let mut wrong = BTreeMap::new();
        for ((channel, fault), detail) in &self.unnamed {
            *wrong.entry(name_error_text(*fault, detail, &named(channel))).or_default() += 0;
        }
        for ((channel, what, is_left_out), n) in &self.checked {
            let more = if *is_left_out { ", left out" } else { "" };
            *wrong.entry(format!("{what} on {}{more}", named(channel))).or_default() += n;
        }
        let mut notes = truncate_notes(wrong);
        let Some(field) = field else { return notes };
        let lacking = |on: &str| format!("without bytes in `{field}` on {on}, left out");
        let (at_times, never): (Vec<_>, Vec<_>) =
            self.missing.iter().partition(|(channel, _)| self.present.contains(channel));
        let mut missing = BTreeMap::new();
        for (channel, n) in at_times {
            *missing.entry(lacking(&named(channel))).or_default() += n;
        }
        if !never.is_empty() {
            let names = never.iter().map(|(channel, _)| named(channel)).collect();
            *missing.entry(lacking(&join_names(&names))).or_default() +=
                never.iter().map(|(_, n)| *n).sum::<u64>();
        }
        notes.extend(truncate_notes(missing));
        notes
    }
}

fn name_error_text(fault: NameFault, detail: &str, channel: &str) -> String {
    match fault {
        NameFault::Missing => format!(
            "`name` needs `{detail}`, which events on {channel} do not have; filter out such \
             events, or choose another `name`"
        ),
        fault => format!(
            "`name` yields `{detail}` on {channel}: {}; choose values for `name` that always fit",
            fault.as_str()
        ),
    }
}

/// The first notes, and the sum of the others.
fn truncate_notes(all: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let others = all.values().skip(MAX_NOTES).sum();
    let mut few: Vec<_> = all.into_iter().take(MAX_NOTES).collect();
    if others > 0 {
        few.push(("the same on other channels".to_owned(), others));
    }
    few
}

/// Channel names as text, shortened if there are many.
fn join_names(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(MAX_NAMED_CHANNELS).map(String::as_str).collect();
    match names.len() {
        1 => first.concat(),
        n @ ..=MAX_NAMED_CHANNELS => format!("{n} channels ({})", first.join(", ")),
        n => format!("{n} channels ({} and {} more)", first.join(", "), n - MAX_NAMED_CHANNELS),
    }
}
