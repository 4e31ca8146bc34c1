//! Names that nothing in a run matched: a misspelled channel must not look like an empty one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sluice_core::selection::FieldList;
use sluice_core::suggestion::{nearest_of, nearest_to_pattern};
use sluice_core::{Channel, Channels, Pattern};

use super::{NameOption, SearchedName};
use crate::run::Tally;
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
            NameKind::Field => nearest_of(&self.name, names, MOST_NEAR),
            _ => nearest_to_pattern(&self.name, names, MOST_NEAR),
        };
        near.into_iter().map(str::to_owned).collect()
    }

    /// What there is to say of it in a sentence without an end; nothing if all is well.
    pub fn sentence(&self) -> Option<String> {
        let Self { name, found, .. } = self;
        let what = match (self.kind, found) {
            (_, MatchOutcome::Something) => return None,
            (NameKind::Field, _) => format!("no event has a field `{name}`"),
            (NameKind::Source, _) => format!("no source matches `{name}`"),
            (NameKind::Channel, MatchOutcome::Nothing) => format!("no channel matches `{name}`"),
            (NameKind::Channel, MatchOutcome::NothingInWindow) => {
                format!("no channel in the time window matches `{name}`")
            }
            (NameKind::Channel, MatchOutcome::NoEvent) => {
                return Some(format!("`{name}`: the channel has no event in the time window"));
            }
        };
        let near: Vec<String> = self.nearest.iter().map(|near| format!("`{near}`")).collect();
        if near.is_empty() {
            return Some(what);
        }
        Some(format!("{what}; did you mean {}?", near.join(" or ")))
    }
}

/// The names in the options of a node.
pub(crate) struct NodeNames {
    pub(crate) node: String,
    pub(crate) is_source: bool,
    pub(crate) names: Vec<NameOption>,
}

impl NodeNames {
    pub(crate) fn of(node: &Node) -> Self {
        let Node { name, from, names, .. } = node;
        Self { node: name.clone(), is_source: from.is_empty(), names: names.clone() }
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
        for NameOption { option, name, .. } in &node.names {
            let (kind, text, found, among) = match name {
                SearchedName::Channel(pattern) => {
                    let found = facts.channel(nodes, at, option, pattern, &met);
                    (NameKind::Channel, pattern.text().to_owned(), found, &known)
                }
                SearchedName::Source(pattern) => {
                    let found = facts.or_nothing(sources.iter().any(|name| pattern.matches(name)));
                    (NameKind::Source, pattern.text().to_owned(), found, &sources)
                }
                SearchedName::Field(field) => {
                    let note = FieldList::note_of_missing(field);
                    let found = !facts.tally.get(at).notes.contains_key(&note);
                    (NameKind::Field, field.to_string(), facts.or_nothing(found), &sources)
                }
            };
            let (node, option) = (node.node.clone(), option.clone());
            let mut report =
                NameReport { node, option, kind, name: text, found, nearest: Vec::new() };
            if report.is_unmatched() && kind != NameKind::Field {
                report.nearest = report.near_among(among.iter().copied());
            }
            reports.push(report);
        }
    }
    reports
}

impl Facts<'_> {
    fn or_nothing(&self, is_there: bool) -> MatchOutcome {
        match is_there || !self.is_complete {
            true => MatchOutcome::Something,
            false if self.is_windowed => MatchOutcome::NothingInWindow,
            false => MatchOutcome::Nothing,
        }
    }

    fn channel(
        &self,
        nodes: &[NodeNames],
        at: usize,
        option: &str,
        pattern: &Pattern,
        met: &[std::sync::Arc<Channel>],
    ) -> MatchOutcome {
        let matching = || met.iter().enumerate().filter(|(_, c)| pattern.matches(c.name.text()));
        let is_left_out = self.left_out.iter().any(|name| pattern.matches(name));
        let found = self.or_nothing(is_left_out || matching().next().is_some());
        if found != MatchOutcome::Something || !self.is_windowed || option == LEAVES_OUT {
            return found;
        }
        let tally = self.tally.get(at);
        if matching().any(|(id, _)| tally.left.get(id) > 0) {
            return found;
        }
        // Of channels that stages have renamed, events are counted by the names they had.
        let mut sources = nodes.iter().enumerate().filter(|(_, node)| node.is_source);
        let is_read = sources.any(|(source, _)| {
            let tally = self.tally.get(source);
            matching().any(|(id, _)| tally.left.get(id) > 0)
        });
        if is_read || is_left_out || matching().next().is_none() {
            MatchOutcome::NoEvent
        } else {
            found
        }
    }
}
