//! Decides whether a chunk can be skipped: by its index, and by the message indexes behind it, if
//! these agree.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use sluice_model::{Error, Query};

use crate::table::{ChannelTable, Slot};
use crate::walk::Walk;
use crate::wire::{ChunkIndexRecord, HEAD, Head, op, parse_message_index};

/// The longest message indexes of a chunk that are read.
pub(crate) const MAX_INDEXES: u64 = 16 << 20;

/// Whether no message of a chunk is needed. False if its indexes do not agree.
pub(crate) fn needs_nothing(
    walk: &mut Walk,
    entry: &ChunkIndexRecord,
    table: &mut ChannelTable,
    query: &Query,
) -> Result<bool, Error> {
    let times = i64::try_from(entry.start_time).ok().zip(i64::try_from(entry.end_time).ok());
    let Some((first, last)) = times else { return Ok(false) };
    let is_needed_time = query.wants_times(first, last);
    let mut is_needed = is_needed_time && query.channels.is_all();
    for (id, _) in entry.message_indexes.iter().filter(|_| is_needed_time) {
        let slot = table.slot(*id)?;
        is_needed |= !matches!(slot, Slot::Channel { is_needed: false, .. });
    }
    if is_needed || entry.message_indexes.is_empty() || entry.message_indexes_len > MAX_INDEXES {
        return Ok(false);
    }
    let at = entry.chunk_start.saturating_add(entry.chunk_len);
    let bytes = walk.read(at, entry.message_indexes_len + 1)?;
    let len = usize::try_from(entry.message_indexes_len).unwrap_or(usize::MAX);
    let Some((indexes, next)) = bytes.split_at_checked(len) else { return Ok(false) };
    // The index of a channel that the entry lacks may follow.
    Ok(next.first() != Some(&op::MESSAGE_INDEX) && agrees(indexes, entry))
}

/// Whether these message indexes have the channels and times of an entry.
fn agrees(mut bytes: &[u8], entry: &ChunkIndexRecord) -> bool {
    let (mut ids, mut first, mut last) = (BTreeSet::new(), u64::MAX, 0);
    while !bytes.is_empty() {
        let head = Head::parse(bytes).filter(|head| head.opcode == op::MESSAGE_INDEX);
        let Some(len) = head.and_then(|head| usize::try_from(head.len).ok()) else { return false };
        let content = bytes.get(HEAD as usize..).unwrap_or_default();
        let Some((content, rest)) = content.split_at_checked(len) else { return false };
        let Some((id, pairs)) = parse_message_index(content) else { return false };
        if pairs.is_empty() || !ids.insert(id) {
            return false;
        }
        for (time, _) in pairs {
            (first, last) = (first.min(time), last.max(time));
        }
        bytes = rest;
    }
    let listed: BTreeSet<u16> = entry.message_indexes.iter().map(|(id, _)| *id).collect();
    ids == listed && (first, last) == (entry.start_time, entry.end_time)
}
