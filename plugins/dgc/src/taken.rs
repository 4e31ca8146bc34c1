//! What stages that turn events into points do alike: put rows in the events' place, and tell of events
//! that could not be decoded. Decodes nothing.

use std::collections::BTreeMap;
use std::fmt::Display;

use sluice_core::{Batch, ChannelId, Error, Rows, StageContext, UndecodedPolicy};

use crate::poses::rows;

/// What is to be told of a batch's events, by channel, with how often it was so.
///
/// `R` says what in words; those that can be equal are few, whatever is in the payloads.
#[derive(Debug)]
pub(crate) struct Told<R> {
    notes: BTreeMap<(ChannelId, R), u64>,
    failed: Vec<u32>,
    /// The first event that failed, and why.
    first: Option<(u32, R)>,
}

impl<R> Default for Told<R> {
    fn default() -> Self {
        Self { notes: BTreeMap::new(), failed: Vec::new(), first: None }
    }
}

impl<R: Copy + Ord + Display> Told<R> {
    /// Something about events that are decoded nevertheless.
    pub(crate) fn note(&mut self, channel: u32, what: R, count: u64) {
        *self.notes.entry((ChannelId(channel), what)).or_default() += count;
    }

    /// An event that is not decoded.
    pub(crate) fn fail(&mut self, event: u32, channel: u32, why: R) {
        self.failed.push(event);
        if self.first.is_none_or(|(first, _)| event < first) {
            self.first = Some((event, why));
        }
        self.note(channel, why, 1);
    }

    /// The batch after a stage that made `rows` of some of its events, as `undecoded` wants it.
    pub(crate) fn end(
        self,
        batch: Batch,
        rows: Option<Rows>,
        undecoded: UndecodedPolicy,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        if let (UndecodedPolicy::Stop, Some((event, why))) = (undecoded, self.first) {
            return Err(UndecodedPolicy::refusal(&batch.event(event as usize), context, why));
        }
        for ((channel, what), count) in self.notes {
            let channel = context.channels.get(channel);
            context.note(format!("channel `{}`: {what}", channel.name.text()), count);
        }
        let batch = match rows {
            Some(rows) => in_place(batch, rows),
            None => batch,
        };
        Ok(undecoded.apply(batch, self.failed, context))
    }
}

/// The batch with these rows in place of what there was of their events.
fn in_place(batch: Batch, rows: Rows) -> Batch {
    let mut all: Vec<Rows> = batch.rows().iter().filter_map(|old| without(old, &rows)).collect();
    all.push(rows);
    rows::in_place(batch, all)
}

/// What is left of `old` without the events of `new`.
fn without(old: &Rows, new: &Rows) -> Option<Rows> {
    let is_left = |row: &u32| new.events.binary_search(&old.events[*row as usize]).is_err();
    let left: Vec<u32> = (0..old.events.len() as u32).filter(is_left).collect();
    match left.len() {
        0 => None,
        len if len == old.events.len() => Some(old.clone()),
        _ => Some(old.pick(&left)),
    }
}
