//! Queries: the part of a source that is needed (pushdown).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Patterns;

/// The part of a source that is needed, pushed down from stages and sinks. Pushdown is an
/// optimisation: stages drop the rest, so a source may ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only events at or after this time.
    pub start: Option<i64>,
    /// Only events before this time.
    pub end: Option<i64>,
    /// Only events of these channels.
    pub channels: ChannelQuery,
}

impl Query {
    /// Whether everything is needed.
    pub fn is_all(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.channels.is_all()
    }

    /// Whether any time from `first` to `last` is needed.
    pub fn wants_times(&self, first: i64, last: i64) -> bool {
        self.start.is_none_or(|start| last >= start) && self.end.is_none_or(|end| first < end)
    }

    /// The time window.
    pub fn window(&self) -> TimeWindow {
        TimeWindow { start: self.start, end: self.end }
    }

    /// The union of two queries, or a small superset of it.
    pub fn or(self, other: Self) -> Self {
        Self {
            start: self.start.zip(other.start).map(|(a, b)| a.min(b)),
            end: self.end.zip(other.end).map(|(a, b)| a.max(b)),
            channels: self.channels.or(other.channels),
        }
    }
}

/// A time window, possibly open at either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first time in it.
    pub start: Option<i64>,
    /// The first time after it.
    pub end: Option<i64>,
}

impl TimeWindow {
    /// Whether it is open at both ends.
    pub fn is_open(self) -> bool {
        self.start.is_none() && self.end.is_none()
    }

    /// Whether it contains a time.
    #[inline]
    pub fn wants_time(self, timestamp: i64) -> bool {
        self.start.is_none_or(|start| timestamp >= start)
            && self.end.is_none_or(|end| timestamp < end)
    }
}

/// A filter of channels. Accepts a channel in case of doubt.
#[derive(Clone, Debug, Default)]
pub struct ChannelQuery {
    /// A disjunction of conjunctions. Empty if every channel is wanted.
    lists: Vec<Vec<ChannelRule>>,
    /// Records the names it is asked about.
    log: Option<ChannelLog>,
}

/// Queries are equal if their rules are.
impl PartialEq for ChannelQuery {
    fn eq(&self, other: &Self) -> bool {
        self.lists == other.lists
    }
}

impl Eq for ChannelQuery {}

/// The channels that sources asked a query about. They exist even if none of their events is read:
/// so a run can distinguish a misspelled channel from a filtered one. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct ChannelLog(Arc<Mutex<BTreeSet<Box<str>>>>);

impl ChannelLog {
    /// The most names: a damaged log can invent any number.
    const MAX_NAMES: usize = 1 << 16;

    fn note(&self, name: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(name) && names.len() < Self::MAX_NAMES {
            names.insert(name.into());
        }
    }

    /// The names recorded so far, sorted.
    pub fn names(&self) -> Vec<Box<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ChannelRule {
    channels: Patterns,
    exclude: Patterns,
    source: Patterns,
}

impl ChannelQuery {
    /// Accepts channels that match `channels` and not `exclude`, and whose source matches `source`.
    /// An empty `channels` or `source` matches everything.
    pub fn from_patterns(channels: &Patterns, exclude: &Patterns, source: &Patterns) -> Self {
        if channels.is_empty() && exclude.is_empty() && source.is_empty() {
            return Self::default();
        }
        let (channels, exclude, source) = (channels.clone(), exclude.clone(), source.clone());
        Self::from_lists(vec![vec![ChannelRule { channels, exclude, source }]])
    }

    fn from_lists(lists: Vec<Vec<ChannelRule>>) -> Self {
        Self { lists, log: None }
    }

    /// Records the channels it is asked about in `log`.
    #[must_use]
    pub fn with_log(self, log: ChannelLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Ignores sources, for callers whose channels have other source names.
    #[must_use]
    pub fn ignoring_sources(mut self) -> Self {
        let choices = self.lists.iter_mut().flatten();
        choices.for_each(|choice| choice.source = Patterns::default());
        self
    }

    fn note(&self, name: &str) {
        if let Some(log) = &self.log {
            log.note(name);
        }
    }

    /// Whether every channel is wanted.
    pub fn is_all(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether a channel of that name and source is wanted.
    pub fn wants(&self, name: &str, source: &str) -> bool {
        self.note(name);
        self.is_all()
            || self.lists.iter().any(|list| list.iter().all(|choice| choice.wants(name, source)))
    }

    /// Whether a channel of that name may be wanted, before its source is known.
    pub fn may_want(&self, name: &str) -> bool {
        self.note(name);
        self.is_all() || self.lists.iter().any(|list| list.iter().all(|choice| choice.names(name)))
    }

    /// The intersection; one of the two if that would need too many rules.
    pub fn and(&self, other: &Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::from_lists(self.lists.iter().chain(&other.lists).cloned().collect());
        }
        let (fewer, more) =
            if self.lists.len() <= other.lists.len() { (self, other) } else { (other, self) };
        if fewer.lists.len() * more.lists.len() > MAX_LISTS {
            return fewer.clone();
        }
        let both = |a: &Vec<ChannelRule>, b: &Vec<ChannelRule>| without_repeats(a.iter().chain(b));
        let lists = self.lists.iter().flat_map(|a| other.lists.iter().map(move |b| both(a, b)));
        Self::from_lists(without_repeats(&lists.collect::<Vec<_>>()))
    }

    /// The union; every channel if that would need too many rules.
    pub fn or(self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::default();
        }
        let lists = without_repeats(self.lists.iter().chain(&other.lists));
        if lists.len() > MAX_LISTS { Self::default() } else { Self::from_lists(lists) }
    }
}

/// The most conjunctions: longer filters cost more than they save.
const MAX_LISTS: usize = 64;

fn without_repeats<'t, T: Clone + PartialEq + 't>(all: impl IntoIterator<Item = &'t T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(one) {
            once.push(one.clone());
        }
    }
    once
}

impl ChannelRule {
    fn wants(&self, name: &str, source: &str) -> bool {
        self.names(name) && (self.source.is_empty() || self.source.matches(source))
    }

    fn names(&self, name: &str) -> bool {
        let channels = self.channels.is_empty() || self.channels.matches(name);
        channels && !self.exclude.matches(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn only(name: &str) -> ChannelQuery {
        let names = Patterns(vec![Pattern::parse(name).unwrap()]);
        ChannelQuery::from_patterns(&names, &Patterns::default(), &Patterns::default())
    }

    #[test]
    fn repeated_rules_are_kept_once() {
        let a_or_b = only("A").or(only("B"));
        assert_eq!(a_or_b.clone().or(a_or_b.clone()), a_or_b);
        assert_eq!(only("A").and(&only("A")), only("A"));
        let both = a_or_b.and(&a_or_b);
        assert!(both.wants("A", "") && both.wants("B", "") && !both.wants("C", ""));
    }

    #[test]
    fn a_query_with_too_many_rules_wants_more() {
        let many = |letter: &str, count: usize| {
            let each = (0..count).map(|n| only(&format!("{letter}{n}")));
            each.reduce(ChannelQuery::or).unwrap()
        };
        assert!(!many("A", MAX_LISTS).is_all());
        assert!(many("A", MAX_LISTS + 1).is_all());
        let both = many("A", 9).and(&many("B", 8));
        assert_eq!(both, many("B", 8));
        assert!(!many("A", 8).and(&many("B", 8)).wants("A1", ""));
    }

    #[test]
    fn a_query_of_any_source_still_wants_its_channels() {
        let patterns = |text: &str| Patterns(vec![Pattern::parse(text).unwrap()]);
        let query =
            ChannelQuery::from_patterns(&patterns("A"), &Patterns::default(), &patterns("log"));
        assert!(!query.wants("A", "other"));
        let query = query.ignoring_sources();
        assert!(query.wants("A", "other") && !query.wants("B", "log"));
    }

    #[test]
    fn a_window_ends_before_its_end() {
        let window = TimeWindow { start: Some(3), end: Some(5) };
        assert_eq!([2, 3, 4, 5].map(|time| window.wants_time(time)), [false, true, true, false]);
        assert!(
            TimeWindow::default().wants_time(i64::MIN)
                && TimeWindow::default().wants_time(i64::MAX)
        );
    }
}
