//! Shared by the stages that turn events into points: replaces rows, and reports events that could
//! not be decoded. Decodes nothing.

use std::collections::BTreeMap;
use std::fmt::Display;

use sluice_model::{Batch, ChannelId, Error, Rows, StageContext, UndecodedPolicy};

use crate::poses::rows;

/// Counts notes about the events of a batch, by channel.
///
/// `R` is the reason. Its number of distinct values must be bounded, whatever is in the payloads.
#[derive(Debug)]
pub(crate) struct EventReport<R> {
    notes: BTreeMap<(ChannelId, R), u64>,
    skipped: Vec<u32>,
    /// The first event that failed, and why.
    first: Option<(u32, R)>,
}

impl<R> Default for EventReport<R> {
    fn default() -> Self {
        Self { notes: BTreeMap::new(), skipped: Vec::new(), first: None }
    }
}

impl<R: Copy + Ord + Display> EventReport<R> {
    /// Adds a note about events that are decoded nevertheless.
    pub(crate) fn note(&mut self, channel: u32, what: R, count: u64) {
        *self.notes.entry((ChannelId(channel), what)).or_default() += count;
    }

    /// Adds an event that could not be decoded.
    pub(crate) fn skip(&mut self, event: u32, channel: u32, reason: R) {
        self.skipped.push(event);
        if self.first.is_none_or(|(first, _)| event < first) {
            self.first = Some((event, reason));
        }
        self.note(channel, reason, 1);
    }

    /// Finishes a batch: replaces the rows of decoded events and applies the policy `undecoded` to
    /// the rest.
    pub(crate) fn finish(
        self,
        batch: Batch,
        rows: Option<Rows>,
        undecoded: UndecodedPolicy,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        if let (UndecodedPolicy::Stop, Some((event, reason))) = (undecoded, self.first) {
            return Err(UndecodedPolicy::refusal(&batch.event(event as usize), context, reason));
        }
        for ((channel, what), count) in self.notes {
            let channel = context.channels.get(channel);
            context.note(format!("channel `{}`: {what}", channel.name.text()), count);
        }
        let batch = match rows {
            Some(rows) => replace_events(batch, rows),
            None => batch,
        };
        Ok(undecoded.apply(batch, self.skipped, context))
    }
}

/// Replaces all rows of the events in `rows`.
fn replace_events(batch: Batch, rows: Rows) -> Batch {
    let is_left = |event: u32| rows.events.binary_search(&event).is_err();
    let left = batch.rows().iter().filter_map(|old| old.pick_events(is_left));
    let mut all: Vec<Rows> = left.collect();
    all.push(rows);
    rows::replace_rows(batch, all)
}
