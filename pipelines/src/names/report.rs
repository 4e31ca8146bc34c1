//! Names that nothing in a run matched: a misspelled channel must not look like an empty one.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_core::selection::FieldList;
use sluice_core::suggestion::{nearest_of, nearest_to_pattern};
use sluice_core::{Channel, Channels, FieldPath, Pattern};

use super::{CONDITION, NameOption, SearchedName};
use crate::run::{NodeTally, Tally};
use crate::spec::Node;

/// How many near names are told.
const MOST_NEAR: usize = 3;

/// The option that leaves out what it matches: that nothing of it goes on is what it is for.
const LEAVES_OUT: &str = "exclude";

/// A name in an option, and whether a run had anything of that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameReport {
    /// The node.
    pub node: String,
    /// Its option.
    pub option: String,
    /// What it names.
    pub kind: NameKind,
    /// As it is written.
    pub name: String,
    /// What there was of it.
    pub found: MatchOutcome,
    /// Names that are near and were there, the nearest first.
    pub nearest: Vec<String>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// Channels.
    Channel,
    /// Sources of events.
    Source,
    /// A field of decoded messages.
    Field,
}

/// What a run had of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchOutcome {
    /// Nothing, and everything was looked at.
    Nothing,
    /// It was read, and stages before have given it another name.
    Renamed,
    /// Nothing in the part of the input that a window of time left to be read.
    #[serde(rename = "nothing in the window")]
    NothingInWindow,
    /// It exists, but has no event in the window of time.
    #[serde(rename = "no event in the window")]
    NoEvent,
    /// Something; or reading ended before that could be told.
    Something,
}

impl NameReport {
    /// Whether nothing of that name was met anywhere.
    pub fn is_unmatched(&self) -> bool {
        self.found <= MatchOutcome::NothingInWindow
    }

    /// Takes over what another part of the same batch had of it.
    pub(crate) fn add(&mut self, other: Self) {
        self.found = self.found.max(other.found);
        let near: BTreeSet<String> = self.nearest.drain(..).chain(other.nearest).collect();
        self.nearest = self.near_among(near.iter().map(String::as_str));
    }

    /// Whether both are about the same name in the same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |report: &Self| (report.node.clone(), report.option.clone(), report.name.clone());
        self.kind == other.kind && key(self) == key(other)
    }

    fn near_among<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        let near = match self.kind {
            NameKind::Field => return near_fields(&self.name, &names.into_iter().collect()),
            _ => nearest_to_pattern(&self.name, names, MOST_NEAR),
        };
        near.into_iter().map(str::to_owned).collect()
    }

    /// What there is to say of it in a sentence without an end; nothing if all is well.
    pub fn sentence(&self) -> Option<String> {
        let what = self.what()?;
        let near: Vec<String> = self.nearest.iter().map(|near| format!("`{near}`")).collect();
        match (near.is_empty(), self.found) {
            (true, _) => Some(what),
            (false, MatchOutcome::Renamed) => Some(format!("{what} to {}", near.join(" or "))),
            (false, _) => Some(format!("{what}; did you mean {}?", near.join(" or "))),
        }
    }

    /// The same without near names.
    pub(crate) fn what(&self) -> Option<String> {
        let Self { name, found, .. } = self;
        Some(match (self.kind, found) {
            (_, MatchOutcome::Something) => return None,
            (NameKind::Field, _) => format!("no event has a field `{name}`"),
            (NameKind::Source, _) => format!("no source matches `{name}`"),
            (NameKind::Channel, MatchOutcome::Nothing) => format!("no channel matches `{name}`"),
            (NameKind::Channel, MatchOutcome::Renamed) => {
                format!("no channel is called `{name}` there: a stage before has renamed it")
            }
            (NameKind::Channel, MatchOutcome::NothingInWindow) => {
                format!("no channel in the time window matches `{name}`")
            }
            (NameKind::Channel, MatchOutcome::NoEvent) => {
                format!("`{name}`: the channel has no event in the time window")
            }
        })
    }
}

/// Fields that are called nearly so. Elements of lists without a fixed length are no paths of their
/// own.
fn near_fields(name: &str, paths: &BTreeSet<&str>) -> Vec<String> {
    let near = nearest_of(name, paths.iter().copied(), MOST_NEAR);
    match name.split_once('[') {
        Some((list, element)) if near.is_empty() => {
            let near = nearest_of(list, paths.iter().copied(), MOST_NEAR);
            near.into_iter().map(|list| format!("{list}[{element}")).collect()
        }
        _ => near.into_iter().map(str::to_owned).collect(),
    }
}

/// The names in the options of a node.
pub(crate) struct NodeNames {
    pub(crate) node: String,
    pub(crate) names: Vec<NameOption>,
}

impl NodeNames {
    pub(crate) fn of(node: &Node) -> Self {
        Self { node: node.name.clone(), names: node.names.clone() }
    }
}

/// What a run met.
pub(crate) struct Facts<'r> {
    pub(crate) channels: &'r Channels,
    /// Channels that sources know of and left out.
    pub(crate) left_out: Vec<Box<str>>,
    pub(crate) tally: &'r Tally,
    /// Whether only a window of time was to be read.
    pub(crate) is_windowed: bool,
    /// Whether everything was read that was to be.
    pub(crate) is_complete: bool,
}

/// What a run had of each of these names, by node.
pub(crate) fn judge(nodes: &[NodeNames], facts: &Facts<'_>) -> Vec<NameReport> {
    if nodes.iter().all(|node| node.names.is_empty()) {
        return Vec::new();
    }
    let met = facts.channels.since(0);
    let known: BTreeSet<&str> = met.iter().map(|channel| channel.name.text()).collect();
    let known: BTreeSet<&str> =
        known.into_iter().chain(facts.left_out.iter().map(|name| &**name)).collect();
    let sources: BTreeSet<&str> = met.iter().map(|channel| &*channel.source).collect();
    let mut reports = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let tally = facts.tally.get(at);
        for NameOption { option, name, .. } in &node.names {
            let (kind, text, found) = match name {
                SearchedName::Channel(pattern) => {
                    let found = facts.channel(&tally, option, pattern, &met);
                    (NameKind::Channel, pattern.text().to_owned(), found)
                }
                SearchedName::Source(pattern) => {
                    let found = facts.or_nothing(sources.iter().any(|name| pattern.matches(name)));
                    (NameKind::Source, pattern.text().to_owned(), found)
                }
                SearchedName::Field(field) => {
                    let found = facts.or_nothing(has_field(&tally, option, field));
                    (NameKind::Field, field.to_string(), found)
                }
            };
            let (node, option) = (node.node.clone(), option.clone());
            let mut report =
                NameReport { node, option, kind, name: text, found, nearest: Vec::new() };
            if report.is_unmatched() {
                report.nearest = match name {
                    SearchedName::Channel(pattern) if found == MatchOutcome::Renamed => {
                        called_now(&tally, pattern, &met)
                    }
                    SearchedName::Channel(_) => report.near_among(known.iter().copied()),
                    SearchedName::Source(_) => report.near_among(sources.iter().copied()),
                    SearchedName::Field(_) => {
                        let paths = tally.met.columns().paths();
                        report.near_among(paths.iter().map(String::as_str))
                    }
                };
            }
            reports.push(report);
        }
    }
    reports
}

/// Whether an event had a field, or a condition met rows that have it.
fn has_field(tally: &NodeTally, option: &str, field: &FieldPath) -> bool {
    let columns = tally.met.columns();
    let is_missing = tally.notes.contains_key(&FieldList::note_of_missing(field));
    !is_missing && (option != CONDITION || columns.is_empty() || columns.has(field))
}

/// What the channels that a pattern matches are called where stages before have renamed them.
fn called_now(tally: &NodeTally, pattern: &Pattern, met: &[Arc<Channel>]) -> Vec<String> {
    let name = |id: u32| met.get(id as usize).map(|channel| channel.name.text());
    let renamed = tally.met.entered.iter();
    let renamed = renamed.filter(|(read, _)| name(*read).is_some_and(|name| pattern.matches(name)));
    let names: BTreeSet<&str> = renamed.filter_map(|(_, now)| name(*now)).collect();
    names.into_iter().take(MOST_NEAR).map(str::to_owned).collect()
}

impl Facts<'_> {
    fn or_nothing(&self, is_there: bool) -> MatchOutcome {
        match is_there || !self.is_complete {
            true => MatchOutcome::Something,
            false if self.is_windowed => MatchOutcome::NothingInWindow,
            false => MatchOutcome::Nothing,
        }
    }

    /// What a node had of the channels that a pattern of its options matches.
    fn channel(
        &self,
        tally: &NodeTally,
        option: &str,
        pattern: &Pattern,
        met: &[Arc<Channel>],
    ) -> MatchOutcome {
        let matches = |id: u32| {
            met.get(id as usize).is_some_and(|channel| pattern.matches(channel.name.text()))
        };
        let came = || tally.met.entered.iter().filter(|(_, now)| matches(*now));
        let is_windowed = self.is_windowed && option != LEAVES_OUT;
        if came().next().is_some() {
            let went_on = came().any(|(read, _)| tally.met.left.contains(read));
            return if is_windowed && !went_on {
                MatchOutcome::NoEvent
            } else {
                MatchOutcome::Something
            };
        }
        if tally.met.entered.iter().any(|(read, _)| matches(*read)) {
            return MatchOutcome::Renamed;
        }
        let exists = self.left_out.iter().any(|name| pattern.matches(name))
            || met.iter().any(|channel| pattern.matches(channel.name.text()));
        match self.or_nothing(exists) {
            MatchOutcome::Something if exists && is_windowed => MatchOutcome::NoEvent,
            found => found,
        }
    }
}
