//! Reports names that nothing in a run matched: a misspelled channel must not look like an empty
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_kit::selection::FieldList;
use sluice_kit::suggestion::{nearest_of, nearest_to_pattern};
use sluice_model::{Channel, Channels, FieldPath, Pattern, time};

use super::{NameOption, SearchedField, SearchedName};
use crate::run::tally::{NodeTally, RunTally};
use crate::spec::PipelineNode;

/// The maximum number of similar names to report.
const MAX_NEAR: usize = 3;

/// The option that drops what it matches; matching events never pass it.
const EXCLUDE_OPTION: &str = "exclude";

/// A name in an option, and whether anything in a run matched it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameReport {
    /// The node.
    pub node: String,
    /// Its option.
    pub option: String,
    /// What it refers to.
    pub kind: NameKind,
    /// The name as written.
    pub name: String,
    /// What the run had of it.
    pub found: MatchOutcome,
    /// Similar names that exist, nearest first. Of a time window, the times of the first and the
    /// last event, if they are known.
    pub nearest: Vec<String>,
}

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// Channels.
    Channel,
    /// Sources of events.
    Source,
    /// A field of decoded messages.
    Field,
    /// The events in a time window.
    Window,
}

/// What a run had of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchOutcome {
    /// No match, and everything was read.
    Nothing,
    /// It was read, but an earlier stage renamed it.
    Renamed,
    /// A field that exists, but not of a type that the plugin can use.
    Unsuitable,
    /// No match in the part of the input that the time window covers.
    #[serde(rename = "nothing in the window")]
    NothingInWindow,
    /// It exists, but has no event in the time window.
    #[serde(rename = "no event in the window")]
    NoEvent,
    /// Reading ended before a channel that matches, such as at a limit.
    #[serde(rename = "reading ended before")]
    Undecided,
    /// It matched; or it is not known whether it does.
    Something,
}

impl NameReport {
    /// Whether nothing matched.
    pub fn is_unmatched(&self) -> bool {
        self.found <= MatchOutcome::NothingInWindow
    }

    /// Merges the result of another unit of the same batch.
    pub(crate) fn add(&mut self, other: Self) {
        self.found = self.found.max(other.found);
        // The last event of several inputs is known only if that of each is.
        let known = self.nearest.len().min(other.nearest.len());
        let near: BTreeSet<String> = self.nearest.drain(..).chain(other.nearest).collect();
        self.nearest = self.near_among(near.iter().map(String::as_str));
        if self.kind == NameKind::Window {
            self.nearest.truncate(known);
        }
    }

    /// Whether both reports are about the same name in the same option.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |report: &Self| (report.node.clone(), report.option.clone(), report.name.clone());
        self.kind == other.kind && key(self) == key(other)
    }

    fn near_among<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        let near = match self.kind {
            NameKind::Field => return near_fields(&self.name, &names.into_iter().collect()),
            // These are in order.
            NameKind::Window => return first_and_last(names),
            _ => nearest_to_pattern(&self.name, names, MAX_NEAR),
        };
        near.into_iter().map(str::to_owned).collect()
    }

    /// The message for the user, without a full stop; `None` if it matched.
    pub fn sentence(&self) -> Option<String> {
        let what = self.describe()?;
        if let (NameKind::Window, [first, rest @ ..]) = (self.kind, &self.nearest[..]) {
            let last = rest.iter().map(|last| format!(", the last at {last}"));
            return Some(format!("{what}; the first is at {first}{}", last.collect::<String>()));
        }
        let near: Vec<String> = self.nearest.iter().map(|near| format!("`{near}`")).collect();
        match (near.is_empty(), self.found) {
            (true, _) => Some(what),
            (false, MatchOutcome::Renamed) => Some(format!("{what} to {}", near.join(" or "))),
            (false, _) => Some(format!("{what}; did you mean {}?", near.join(" or "))),
        }
    }

    /// The message without similar names.
    pub(crate) fn describe(&self) -> Option<String> {
        let Self { name, found, .. } = self;
        Some(match (self.kind, found) {
            (_, MatchOutcome::Something) => return None,
            (NameKind::Window, _) => "no event is in the time window".to_owned(),
            (NameKind::Field, MatchOutcome::Unsuitable) => {
                FieldPath::parse(name).as_ref().map(FieldList::note_of_unplotted).ok()?
            }
            (NameKind::Field, _) => format!("no event has a field `{name}`"),
            (NameKind::Source, _) => format!("no source matches `{name}`"),
            (NameKind::Channel, MatchOutcome::Nothing) => format!("no channel matches `{name}`"),
            (NameKind::Channel, MatchOutcome::Renamed) => {
                format!("no channel is called `{name}` there: an earlier stage renamed it")
            }
            (NameKind::Channel, MatchOutcome::NothingInWindow) => {
                format!("no channel in the time window matches `{name}`")
            }
            (NameKind::Channel, MatchOutcome::NoEvent) => {
                format!("`{name}`: the channel has no event in the time window")
            }
            (NameKind::Channel, MatchOutcome::Undecided) => {
                format!("`{name}`: no channel matched before reading ended early")
            }
            (NameKind::Channel, MatchOutcome::Unsuitable) => return None,
        })
    }
}

/// Similar field names. Elements of lists without a fixed length have no paths of their own.
fn near_fields(name: &str, paths: &BTreeSet<&str>) -> Vec<String> {
    let near = nearest_of(name, paths.iter().copied(), MAX_NEAR);
    match name.split_once('[') {
        Some((list, element)) if near.is_empty() => {
            let near = nearest_of(list, paths.iter().copied(), MAX_NEAR);
            near.into_iter().map(|list| format!("{list}[{element}")).collect()
        }
        _ => near.into_iter().map(str::to_owned).collect(),
    }
}

fn first_and_last<'n>(times: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let mut times = times.into_iter().map(str::to_owned);
    let first = times.next();
    first.into_iter().chain(times.last()).collect()
}

/// A node's name, and the names in its options.
pub(crate) struct NodeNames {
    pub(crate) node: String,
    pub(crate) names: Vec<NameOption>,
}

impl NodeNames {
    pub(crate) fn from_node(node: &PipelineNode) -> Self {
        Self { node: node.name.clone(), names: node.names.clone() }
    }

    /// Whether one of them is a time window.
    pub(crate) fn has_window(&self) -> bool {
        self.names.iter().any(|name| matches!(name.name, SearchedName::Window(_)))
    }
}

/// What a run has observed.
pub(crate) struct RunFacts<'r> {
    pub(crate) channels: &'r Channels,
    /// Channels that sources know but skipped.
    pub(crate) left_out: Vec<Box<str>>,
    pub(crate) tally: &'r RunTally,
    /// The nodes whose time windows have no event, with the times of the events around them.
    pub(crate) empty_windows: BTreeMap<usize, Vec<i64>>,
    /// Whether the run reads only a time window.
    pub(crate) is_windowed: bool,
    /// Whether everything requested was read.
    pub(crate) is_complete: bool,
}

/// Matches these names against what the run has observed.
pub(crate) fn match_names(nodes: &[NodeNames], facts: &RunFacts<'_>) -> Vec<NameReport> {
    if nodes.iter().all(|node| node.names.is_empty()) {
        return Vec::new();
    }
    let channels = facts.channels.since(0);
    let known: BTreeSet<&str> = channels.iter().map(|channel| channel.name.text()).collect();
    let known: BTreeSet<&str> =
        known.into_iter().chain(facts.left_out.iter().map(|name| &**name)).collect();
    let sources: BTreeSet<&str> = channels.iter().map(|channel| &*channel.source).collect();
    let mut reports = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let tally = facts.tally.get(at);
        for NameOption { option, name, .. } in &node.names {
            let (kind, text, found) = match name {
                SearchedName::Channel(pattern) => {
                    let found = facts.channel(&tally, option, pattern, &channels);
                    (NameKind::Channel, pattern.text().to_owned(), found)
                }
                SearchedName::Source(pattern) => {
                    let found = facts.or_nothing(sources.iter().any(|name| pattern.matches(name)));
                    (NameKind::Source, pattern.text().to_owned(), found)
                }
                SearchedName::Field(field) => {
                    (NameKind::Field, field.path.to_string(), facts.field(&tally, field))
                }
                SearchedName::Window(written) => {
                    let found = match facts.empty_windows.contains_key(&at) {
                        true => MatchOutcome::NothingInWindow,
                        false => MatchOutcome::Something,
                    };
                    (NameKind::Window, written.clone(), found)
                }
            };
            let (node, option) = (node.node.clone(), option.clone());
            let mut report =
                NameReport { node, option, kind, name: text, found, nearest: Vec::new() };
            if report.is_unmatched() {
                report.nearest = match name {
                    SearchedName::Channel(pattern) if found == MatchOutcome::Renamed => {
                        renamed_to(&tally, pattern, &channels)
                    }
                    SearchedName::Channel(_) => report.near_among(known.iter().copied()),
                    SearchedName::Source(_) => report.near_among(sources.iter().copied()),
                    SearchedName::Field(_) if found == MatchOutcome::Unsuitable => Vec::new(),
                    SearchedName::Field(field) => {
                        let paths = field.columns(&tally.observed.columns()).paths();
                        report.near_among(paths.iter().map(String::as_str))
                    }
                    SearchedName::Window(_) => {
                        let times = facts.empty_windows.get(&at).into_iter().flatten();
                        times.map(|time| time::format(*time)).collect()
                    }
                };
            }
            reports.push(report);
        }
    }
    reports
}

/// The current names of channels that the pattern matches by their original names.
fn renamed_to(tally: &NodeTally, pattern: &Pattern, channels: &[Arc<Channel>]) -> Vec<String> {
    let name = |id: u32| channels.get(id as usize).map(|channel| channel.name.text());
    let renamed = tally.observed.entered.iter();
    let renamed = renamed.filter(|(read, _)| name(*read).is_some_and(|name| pattern.matches(name)));
    let names: BTreeSet<&str> = renamed.filter_map(|(_, now)| name(*now)).collect();
    names.into_iter().take(MAX_NEAR).map(str::to_owned).collect()
}

impl RunFacts<'_> {
    fn or_nothing(&self, is_there: bool) -> MatchOutcome {
        match is_there || !self.is_complete {
            true => MatchOutcome::Something,
            false if self.is_windowed => MatchOutcome::NothingInWindow,
            false => MatchOutcome::Nothing,
        }
    }

    /// What a node had of a field.
    fn field(&self, tally: &NodeTally, field: &SearchedField) -> MatchOutcome {
        let is_in_rows = || field.is_in(&tally.observed.columns());
        let has_note = |note: String| tally.notes.contains_key(&note);
        if field.is_needed {
            return self.or_nothing(tally.entered.total() == 0 || is_in_rows());
        }
        if has_note(FieldList::note_of_unplotted(&field.path)) {
            return match is_in_rows() && self.is_complete {
                true => MatchOutcome::Unsuitable,
                false => self.or_nothing(false),
            };
        }
        self.or_nothing(!has_note(FieldList::note_of_missing(&field.path)))
    }

    /// What a node had of the channels that match a pattern in its options.
    fn channel(
        &self,
        tally: &NodeTally,
        option: &str,
        pattern: &Pattern,
        channels: &[Arc<Channel>],
    ) -> MatchOutcome {
        let matches = |id: u32| {
            channels.get(id as usize).is_some_and(|channel| pattern.matches(channel.name.text()))
        };
        let entered = || tally.observed.entered.iter().filter(|(_, now)| matches(*now));
        let is_windowed = self.is_windowed && option != EXCLUDE_OPTION;
        if entered().next().is_some() {
            let has_left = entered().any(|(read, _)| tally.observed.left.contains(read));
            return if is_windowed && !has_left {
                MatchOutcome::NoEvent
            } else {
                MatchOutcome::Something
            };
        }
        if tally.observed.entered.iter().any(|(read, _)| matches(*read)) {
            return MatchOutcome::Renamed;
        }
        let exists = self.left_out.iter().any(|name| pattern.matches(name))
            || channels.iter().any(|channel| pattern.matches(channel.name.text()));
        match self.or_nothing(exists) {
            MatchOutcome::Something if exists && is_windowed => MatchOutcome::NoEvent,
            MatchOutcome::Something if !exists && option != EXCLUDE_OPTION => {
                MatchOutcome::Undecided
            }
            found => found,
        }
    }
}
