//! What is known, by the source it is of, and whose is used for the events of which. Looks nothing up.

use std::sync::Arc;

use sluice_core::StageContext;

use super::{History, Timed};

/// What is known of each source.
pub(super) struct Sources<T> {
    names: Vec<Arc<str>>,
    /// One a name.
    histories: Vec<History<T>>,
    /// The place of each channel's source.
    of_channels: Vec<usize>,
}

/// Whose knowledge the events of a source have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lender {
    /// That of the source in this place: its own, or that of the only other one that has some.
    Is(usize),
    /// Nobody has any yet.
    Nobody,
    /// It has none, and several others have some.
    Several,
}

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { names: Vec::new(), histories: Vec::new(), of_channels: Vec::new() }
    }
}

impl<T: Timed + Clone> Sources<T> {
    /// Takes up the channels that are new in the run.
    pub(super) fn meet(&mut self, context: &StageContext<'_>) {
        for channel in context.channels.since(self.of_channels.len()) {
            let known = self.names.iter().position(|name| *name == channel.source);
            self.of_channels.push(known.unwrap_or(self.names.len()));
            if known.is_none() {
                self.names.push(Arc::clone(&channel.source));
                self.histories.push(History::default());
            }
        }
    }

    /// The place of a channel's source. It is one of those that were met.
    pub(super) fn of_channel(&self, channel: usize) -> usize {
        self.of_channels[channel]
    }

    pub(super) fn name(&self, source: usize) -> &str {
        &self.names[source]
    }

    pub(super) fn history(&self, source: usize) -> &History<T> {
        &self.histories[source]
    }

    /// Adds something known of a source.
    pub(super) fn note(&mut self, source: usize, known: T) {
        self.histories[source].note(known);
    }

    /// Whose knowledge events of a source have, by what is known by now: its own, or else that of the only
    /// other source of which something is known, since a sensor's log may be another than that of the poses.
    pub(super) fn lender(&self, source: usize) -> Lender {
        if !self.histories[source].is_empty() {
            return Lender::Is(source);
        }
        let mut others = (0..).zip(&self.histories).filter(|(_, history)| !history.is_empty());
        match (others.next(), others.next()) {
            (None, _) => Lender::Nobody,
            (Some((one, _)), None) => Lender::Is(one),
            _ => Lender::Several,
        }
    }

    /// Whether nothing is known of any source.
    pub(super) fn is_empty(&self) -> bool {
        self.histories.iter().all(History::is_empty)
    }

    /// What is known for events of a source.
    pub(super) fn for_source(&self, source: usize) -> Option<&History<T>> {
        match self.lender(source) {
            Lender::Is(lender) => self.histories.get(lender),
            Lender::Nobody | Lender::Several => None,
        }
    }
}
