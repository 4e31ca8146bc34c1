//! What is told of events that are no files, or no whole ones: counted by channel while there are events, and
//! put into words at the end. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::name::printable;
use sluice_core::{ChannelId, Channels, FieldPath};

use crate::name::{Fault, Unnamed};

/// Of so many channels and reasons is told by name.
const MOST_TOLD: usize = 40;
/// So many channels that never have a field are named.
const MOST_NAMED: usize = 5;

/// What happened so far.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// How often bytes were judged so, and whether they were left out.
    judged: BTreeMap<(ChannelId, &'static str, bool), u64>,
    /// The first name of each channel that had the fault.
    unnamed: BTreeMap<(ChannelId, Fault), String>,
    /// Channels with an event that has the field.
    have: BTreeSet<ChannelId>,
    /// How many events of a channel do not have it.
    lack: BTreeMap<ChannelId, u64>,
}

impl Told {
    /// An event has the bytes of a file.
    pub(crate) fn has(&mut self, channel: ChannelId) {
        self.have.insert(channel);
    }

    /// An event has none, and is left out.
    pub(crate) fn lacks(&mut self, channel: ChannelId) {
        *self.lack.entry(channel).or_default() += 1;
    }

    /// This was said of bytes.
    pub(crate) fn judged(&mut self, channel: ChannelId, what: &'static str, is_left_out: bool) {
        *self.judged.entry((channel, what, is_left_out)).or_default() += 1;
    }

    /// An event can have no name.
    pub(crate) fn unnamed(&mut self, channel: ChannelId, unnamed: Unnamed) {
        let Unnamed { fault, said } = unnamed;
        self.unnamed.entry((channel, fault)).or_insert(said);
    }

    /// Adds what happened later.
    pub(crate) fn add(&mut self, later: Self) {
        let Self { judged, unnamed, have, lack } = later;
        judged.into_iter().for_each(|(about, n)| *self.judged.entry(about).or_default() += n);
        lack.into_iter().for_each(|(channel, n)| *self.lack.entry(channel).or_default() += n);
        self.have.extend(have);
        for (about, said) in unnamed {
            self.unnamed.entry(about).or_insert(said);
        }
    }

    /// All of it in words, what is wrong first. `field` is what files are made of.
    pub(crate) fn notes(
        &self,
        channels: &Channels,
        field: Option<&FieldPath>,
    ) -> Vec<(String, u64)> {
        let named = |id: &ChannelId| printable(channels.get(*id).name.text()).into_owned();
        // Numbers of channels depend on timing: what is told is sorted by its words.
        let mut wrong = BTreeMap::new();
        for ((channel, fault), said) in &self.unnamed {
            *wrong.entry(unnamed_text(*fault, said, &named(channel))).or_default() += 0;
        }
        for ((channel, what, is_left_out), n) in &self.judged {
            let more = if *is_left_out { ", left out" } else { "" };
            *wrong.entry(format!("{what} on {}{more}", named(channel))).or_default() += n;
        }
        let mut notes = few(wrong);
        let Some(field) = field else { return notes };
        let lacking = |on: &str| format!("without bytes in `{field}` on {on}, left out");
        let (at_times, never): (Vec<_>, Vec<_>) =
            self.lack.iter().partition(|(channel, _)| self.have.contains(channel));
        let mut lack = BTreeMap::new();
        for (channel, n) in at_times {
            *lack.entry(lacking(&named(channel))).or_default() += n;
        }
        if !never.is_empty() {
            let names = never.iter().map(|(channel, _)| named(channel)).collect();
            *lack.entry(lacking(&listed(&names))).or_default() +=
                never.iter().map(|(_, n)| *n).sum::<u64>();
        }
        notes.extend(few(lack));
        notes
    }
}

fn unnamed_text(fault: Fault, said: &str, channel: &str) -> String {
    match fault {
        Fault::Missing => format!(
            "`name` needs `{said}`, which events on {channel} do not have; keep only those that have it, or \
             choose another `name`"
        ),
        fault => format!(
            "`name` gives `{said}` on {channel}: {}; choose values that always fit in `name`",
            fault.as_str()
        ),
    }
}

/// The first of them, and a sum of the others.
fn few(all: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let others = all.values().skip(MOST_TOLD).sum();
    let mut few: Vec<_> = all.into_iter().take(MOST_TOLD).collect();
    if others > 0 {
        few.push(("the same on other channels".to_owned(), others));
    }
    few
}

/// Names of channels, the first by name.
fn listed(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
    match names.len() {
        1 => first.concat(),
        n @ ..=MOST_NAMED => format!("{n} channels ({})", first.join(", ")),
        n => format!("{n} channels ({} and {} more)", first.join(", "), n - MOST_NAMED),
    }
}
