//! Encoded events: which events can be written, their times, and their records.

use std::ops::Range;

use sluice_model::pool::PooledBlock;
use sluice_model::{Batch, PrepareContext};

use super::{ChannelRole, MICRO, OrcaSink, SECOND, WriteDialect};
use crate::subfile::LONGEST_RECORD;

/// The maximum length of a record's prefix: an id and a length.
pub(super) const LONGEST_PREFIX: usize = 5;

/// A row of a batch and the role of its event.
pub(super) type EventRow = (u32, ChannelRole);

/// The range of a subfile's records in encoded bytes.
pub(super) type SubfileRun = (u32, Range<usize>);

/// Encoded events.
pub(crate) struct EncodedEvents {
    /// Records, subfile by subfile.
    pub(super) bytes: PooledBlock,
    pub(super) runs: Vec<SubfileRun>,
    /// The ranges of configuration records in `bytes`, in the order of their events.
    pub(super) configs: Vec<Range<usize>>,
    /// The events, in order.
    pub(super) events: Vec<EventEntry>,
}

pub(super) struct EventEntry {
    pub(super) micros: i128,
    pub(super) sequence: i64,
    pub(super) key: u32,
    pub(super) is_config: bool,
}

/// The rows that can be written; reports the others, and what is lost, to `context`.
pub(super) fn writable_rows(
    batch: &Batch,
    rows: Vec<EventRow>,
    context: &mut PrepareContext<'_>,
) -> Vec<EventRow> {
    let (mut is_cut, mut is_fine, mut has_odd_id) = (false, false, false);
    let mut kept = rows;
    kept.retain(|(row, member)| match refusal(*member, batch.payload(*row as usize)) {
        Some(reason) => {
            context.report.refused.push((*row, reason));
            false
        }
        None => {
            is_cut |= member.loses_metadata;
            has_odd_id |= member.has_invalid_id;
            is_fine |= time_of(batch, *row) % MICRO != 0;
            true
        }
    });
    if is_cut {
        context.report.losses.insert(
            "ids in dialect A, metadata of objects that is not Orca's, and metadata above 16 KiB \
             are not written",
        );
    }
    if has_odd_id {
        context
            .report
            .losses
            .insert("an `orca.id` that is not a number from 0 to 255 is written as 0");
    }
    if is_fine {
        let loss = "times are rounded to whole microseconds";
        context.report.losses.insert(loss);
    }
    kept
}

/// The time of an event in nanoseconds.
pub(super) fn time_of(batch: &Batch, row: u32) -> i128 {
    let row = row as usize;
    batch.wide_time(row).unwrap_or_else(|| batch.timestamps()[row].into())
}

/// The nearest microsecond: times stored as doubles are often slightly too low. A time that fits
/// into 64 bits still does afterwards.
pub(super) fn nearest_micros(nanos: i128) -> i128 {
    let (whole, rest) = (nanos.div_euclid(MICRO), nanos.rem_euclid(MICRO));
    let is_last = whole == i128::from(i64::MAX) / MICRO;
    whole + i128::from(rest >= MICRO / 2 && !is_last)
}

/// Whether the seconds of a time fit into a data line.
pub(super) fn is_representable(nanos: i128) -> bool {
    i64::try_from(nearest_micros(nanos).div_euclid(SECOND)).is_ok()
}

/// The reason an event cannot be written.
pub(super) fn refusal(member: ChannelRole, payload: &[u8]) -> Option<String> {
    if payload.len() as u64 > LONGEST_RECORD {
        return Some(format!(
            "a payload of {} bytes is longer than a record can be",
            payload.len()
        ));
    }
    let is_empty = payload.is_empty() && member.is_object;
    is_empty.then(|| "an object has at least one byte, but this payload is empty".to_owned())
}

impl OrcaSink {
    /// Appends the records to `bytes` by subfile, in order within each. Returns the range of each
    /// subfile, and of each configuration record in the order of events.
    pub(super) fn write_records(
        &self,
        batch: &Batch,
        mut rows: Vec<EventRow>,
        bytes: &mut PooledBlock,
    ) -> (Vec<SubfileRun>, Vec<Range<usize>>) {
        bytes.reserve(batch.payload_bytes() as usize + rows.len() * LONGEST_PREFIX);
        rows.sort_by_key(|(_, member)| member.key);
        let mut runs: Vec<SubfileRun> = Vec::new();
        let mut configs: Vec<(u32, Range<usize>)> = Vec::new();
        for (row, ChannelRole { key, id, is_config, .. }) in rows {
            let (payload, from) = (batch.payload(row as usize), bytes.len());
            if self.dialect == WriteDialect::C {
                bytes.push(id);
            }
            bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            bytes.extend_from_slice(payload);
            if is_config {
                configs.push((row, from..bytes.len()));
            }
            match runs.last_mut() {
                Some((same, run)) if *same == key => run.end = bytes.len(),
                _ => runs.push((key, from..bytes.len())),
            }
        }
        configs.sort_unstable_by_key(|(row, _)| *row);
        (runs, configs.into_iter().map(|(_, place)| place).collect())
    }
}
