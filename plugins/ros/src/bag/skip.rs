//! Decides whether a chunk can be skipped: by what the end of the bag says of it, and by the index
//! behind the chunk, if these agree.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_model::{Error, Query};

use super::chunk::{ChunkEntry, SummaryPlace};
use super::window::{BagWindow, FoundAt};
use super::wire::{RecordHeader, index_entries, message_counts};

/// The longest part of an index that is read.
pub(super) const MAX_INDEX: u32 = 16 << 20;

/// Whether no message of a chunk, behind which its index is at `next`, is needed. `is_needed` says
/// whether a connection is. False if what the bag says of the chunk does not agree.
pub(crate) fn needs_nothing(
    window: &mut BagWindow,
    (chunk, next): (&ChunkEntry, u64),
    query: &Query,
    mut is_needed: impl FnMut(u32) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let Some(summary) = chunk.summary else { return Ok(false) };
    let is_needed_time = query.wants_times(summary.times.0, summary.times.1);
    if is_needed_time && query.channels.is_all() {
        return Ok(false);
    }
    let counts = counts(window, summary)?;
    for id in counts.keys().filter(|_| is_needed_time) {
        if is_needed(*id)? {
            return Ok(false);
        }
    }
    agrees(window, next, &counts, summary.times)
}

/// Whether the index at `at` has the messages that the end of the bag says.
pub(crate) fn is_consistent(
    window: &mut BagWindow,
    summary: SummaryPlace,
    at: u64,
) -> Result<bool, Error> {
    let counts = counts(window, summary)?;
    agrees(window, at, &counts, summary.times)
}

/// Whether the index at `at` has a message at this place in the records of its chunk.
pub(crate) fn has_message_at(
    window: &mut BagWindow,
    mut at: u64,
    place: usize,
) -> Result<bool, Error> {
    while let FoundAt::Record(record) = window.place(at)?
        && let RecordHeader::Index { .. } = record.header
        && record.data_len <= MAX_INDEX
    {
        let data = window.bytes(at + record.data_at as u64, record.data_len)?;
        let entries = index_entries(&data).unwrap_or_default();
        if entries.iter().any(|(_, listed)| *listed as usize == place) {
            return Ok(true);
        }
        at = at.saturating_add(record.len());
    }
    Ok(false)
}

/// The numbers of a chunk's messages; none if they cannot be read.
pub(super) fn counts(
    window: &mut BagWindow,
    summary: SummaryPlace,
) -> Result<BTreeMap<u32, u32>, Error> {
    let (at, len) = summary.counts;
    let counts = match len <= MAX_INDEX {
        true => message_counts(&window.bytes(at, len)?),
        false => None,
    };
    Ok(counts.unwrap_or_default())
}

/// Whether the index at `at` has these messages.
fn agrees(
    window: &mut BagWindow,
    mut at: u64,
    counts: &BTreeMap<u32, u32>,
    times: (i64, i64),
) -> Result<bool, Error> {
    let (mut found, mut first, mut last) = (BTreeMap::new(), i64::MAX, i64::MIN);
    while let FoundAt::Record(record) = window.place(at)?
        && let RecordHeader::Index { connection, messages } = record.header
    {
        if record.data_len > MAX_INDEX {
            return Ok(false);
        }
        let data = window.bytes(at + record.data_at as u64, record.data_len)?;
        let Some(listed) = index_entries(&data) else { return Ok(false) };
        for (time, _) in &listed {
            (first, last) = (first.min(*time), last.max(*time));
        }
        if listed.len() as u64 != u64::from(messages)
            || found.insert(connection, messages).is_some()
        {
            return Ok(false);
        }
        at = at.saturating_add(record.len());
    }
    Ok(!found.is_empty() && found == *counts && (first, last) == times)
}
