//! Keeps a history per source, and decides which history an event uses. Looks nothing up.

use std::sync::Arc;

use sluice_model::StageContext;

use super::{History, Timestamped};

/// The history of each source.
pub(super) struct SourceHistories<T> {
    names: Vec<Arc<str>>,
    /// One per name.
    histories: Vec<History<T>>,
    /// The source index of each channel.
    source_of_channel: Vec<usize>,
}

/// Whose history the events of a source use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryOwner {
    /// The history of this source: its own, or the only one that is not empty.
    Source(usize),
    /// All histories are empty.
    Nobody,
    /// Its own is empty, and several others are not.
    Ambiguous,
}

impl<T> Default for SourceHistories<T> {
    fn default() -> Self {
        Self { names: Vec::new(), histories: Vec::new(), source_of_channel: Vec::new() }
    }
}

impl<T: Timestamped + Clone> SourceHistories<T> {
    /// Adds the channels that are new in the run.
    pub(super) fn add_channels(&mut self, context: &StageContext<'_>) {
        for channel in context.channels.since(self.source_of_channel.len()) {
            let existing = self.names.iter().position(|name| *name == channel.source);
            self.source_of_channel.push(existing.unwrap_or(self.names.len()));
            if existing.is_none() {
                self.names.push(Arc::clone(&channel.source));
                self.histories.push(History::default());
            }
        }
    }

    /// The source index of a channel, which has been added.
    pub(super) fn source_of(&self, channel: usize) -> usize {
        self.source_of_channel[channel]
    }

    pub(super) fn name(&self, source: usize) -> &str {
        &self.names[source]
    }

    pub(super) fn history(&self, source: usize) -> &History<T> {
        &self.histories[source]
    }

    /// Adds a value to the history of a source.
    pub(super) fn add(&mut self, source: usize, value: T) {
        self.histories[source].add(value);
    }

    /// Whose history events of a source use now: its own, or else the only one that is not empty,
    /// since sensors and poses may be recorded in separate logs.
    pub(super) fn owner(&self, source: usize) -> HistoryOwner {
        if !self.histories[source].is_empty() {
            return HistoryOwner::Source(source);
        }
        let mut others = (0..).zip(&self.histories).filter(|(_, history)| !history.is_empty());
        match (others.next(), others.next()) {
            (None, _) => HistoryOwner::Nobody,
            (Some((one, _)), None) => HistoryOwner::Source(one),
            _ => HistoryOwner::Ambiguous,
        }
    }

    /// Whether all histories are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.histories.iter().all(History::is_empty)
    }

    /// The history used for events of a source.
    pub(super) fn history_for(&self, source: usize) -> Option<&History<T>> {
        match self.owner(source) {
            HistoryOwner::Source(owner) => self.histories.get(owner),
            HistoryOwner::Nobody | HistoryOwner::Ambiguous => None,
        }
    }
}
