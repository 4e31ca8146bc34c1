//! Queries: what of a source is wanted, so that it may read less.

use crate::Patterns;

/// What of a source is wanted. A source may use it to read less; stages drop what is left over, so
/// ignoring it is correct.
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
    /// Whether it asks for everything.
    pub fn is_all(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.channels.is_all()
    }

    /// Whether any time from `first` to `last` is asked for.
    pub fn wants_times(&self, first: i64, last: i64) -> bool {
        self.start.is_none_or(|start| last >= start) && self.end.is_none_or(|end| first < end)
    }

    /// What this query or the other wants; as little more as can be said.
    pub fn or(self, other: Self) -> Self {
        Self {
            start: self.start.zip(other.start).map(|(a, b)| a.min(b)),
            end: self.end.zip(other.end).map(|(a, b)| a.max(b)),
            channels: self.channels.or(other.channels),
        }
    }
}

/// Which channels are wanted. Says yes where it cannot tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelQuery(
    /// A channel is wanted if one of these lists wants it, and a list does if each of its choices does.
    /// No list wants every channel.
    Vec<Vec<Choice>>,
);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    channels: Patterns,
    exclude: Patterns,
    source: Patterns,
}

impl ChannelQuery {
    /// The channels that one of `channels` matches and none of `exclude`, and whose source one of
    /// `source` matches. Where `channels` or `source` is empty, it matches all.
    pub fn of(channels: &Patterns, exclude: &Patterns, source: &Patterns) -> Self {
        if channels.is_empty() && exclude.is_empty() && source.is_empty() {
            return Self::default();
        }
        let (channels, exclude, source) = (channels.clone(), exclude.clone(), source.clone());
        Self(vec![vec![Choice { channels, exclude, source }]])
    }

    /// Whether every channel is wanted.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a channel of that name and source is wanted.
    pub fn wants(&self, name: &str, source: &str) -> bool {
        self.is_all()
            || self.0.iter().any(|list| list.iter().all(|choice| choice.wants(name, source)))
    }

    /// Whether a channel of that name is wanted where its source is not known yet.
    pub fn may_want(&self, name: &str) -> bool {
        self.is_all() || self.0.iter().any(|list| list.iter().all(|choice| choice.names(name)))
    }

    /// What both want.
    pub fn and(&self, other: &Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self(self.0.iter().chain(&other.0).cloned().collect());
        }
        let both = |a: &Vec<Choice>, b: &Vec<Choice>| a.iter().chain(b).cloned().collect();
        Self(self.0.iter().flat_map(|a| other.0.iter().map(move |b| both(a, b))).collect())
    }

    /// What one of them wants.
    pub fn or(self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::default();
        }
        Self(self.0.into_iter().chain(other.0).collect())
    }
}

impl Choice {
    fn wants(&self, name: &str, source: &str) -> bool {
        self.names(name) && (self.source.is_empty() || self.source.matches(source))
    }

    fn names(&self, name: &str) -> bool {
        let channels = self.channels.is_empty() || self.channels.matches(name);
        channels && !self.exclude.matches(name)
    }
}
