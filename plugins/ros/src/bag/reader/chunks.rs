//! Reads the messages of chunks, whole ones and those that are cut off.

#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use bytes::Bytes;
use sluice_model::{Batch, BatchBuilder, Error, PayloadOffset};

use super::{BATCH_EVENTS, BagReader};
use crate::bag::chunk::{SummaryPlace, Unpacked, unpack};
use crate::bag::index::BagIndex;
use crate::bag::skip;
use crate::bag::wire::{
    BagCompression, NoRecord, OP_FIELD, Record, RecordHeader, max_packed, whole_record,
};

/// What is wrong if a message contradicts the index by which chunks were skipped.
const MISINDEXED: &str = "the index says other times than those of a chunk's messages: further \
                          messages in the window may be missing, in chunks that the index \
                          excludes; an MCAP file made from the whole bag has a right index";

/// The records of a chunk, and how far they are read.
pub(super) struct Unit {
    plain: Bytes,
    pos: usize,
    /// The chunk in the bag.
    at: u64,
    len: u64,
    /// Where its records are in the bag, if they are not compressed.
    plain_at: Option<u64>,
    /// What the end of the bag says of it, if chunks outside the window are skipped by that.
    summary: Option<SummaryPlace>,
    /// Messages of connections that are not declared.
    undeclared: u64,
    /// What is wrong with it.
    fault: Option<String>,
}

/// Where a chunk ends, and its records. `Err` says from where on another record may follow, and why
/// the chunk cannot be read.
type UnpackedTo = Result<(u64, Unpacked), (u64, String)>;

impl BagReader {
    /// The index, if chunks are skipped by it.
    fn skipping_index(&self) -> Option<&Arc<BagIndex>> {
        let is_all = self.context.query.is_all();
        self.index.as_ref().filter(|index| !is_all && !index.has_wrong_summary)
    }

    /// Whether nothing in the chunk at `at` is needed, by the index.
    fn may_skip(&mut self, at: u64, next: u64) -> Result<bool, Error> {
        let Some(index) = self.skipping_index().cloned() else { return Ok(false) };
        let Some(chunk) = index.chunk(at) else { return Ok(false) };
        let Self { window, channels, context, .. } = self;
        let is_needed = |id| -> Result<bool, Error> {
            let channel = channels.get(id, &index.connections, context)?;
            Ok(!matches!(channel, Some(None)))
        };
        skip::needs_nothing(window, (chunk, next), &context.query, is_needed)
    }

    pub(super) fn read_chunk(
        &mut self,
        record: &Record,
        compression: BagCompression,
        plain_len: u32,
    ) -> Result<(), Error> {
        let (at, data_at) = (self.at, self.at + record.data_at as u64);
        let next = at + record.len();
        self.indexed = self.number;
        // Other splits do not know what this chunk declares.
        if self.declaring.is_some() {
            self.connections.forget_conflicts();
        }
        if self.may_skip(at, next)? {
            self.at = next;
            return Ok(());
        }
        let max = self.max_chunk;
        if u64::from(record.data_len) > max_packed(max) {
            let reason = format!(
                "a chunk of {} bytes exceeds `max_chunk` ({max}); raise that if the length is \
                 right",
                record.data_len
            );
            return self.recover(at, data_at, &reason);
        }
        let goes_on = self.window.goes_on(next)?;
        let reaches = self.window.reaches(next)?;
        if !goes_on && compression == BagCompression::None {
            let is_whole = reaches && self.window.is_chain(data_at, next)?;
            if !is_whole {
                let reason = "the length of a chunk is wrong, or the bag ends in it";
                if !self.window.was_stopped() {
                    self.report(at, data_at - at, reason);
                }
                self.at = data_at;
                return Ok(());
            }
        }
        match self.unpack(record, (compression, plain_len), (reaches, goes_on))? {
            Ok((end, unpacked)) => self.start_unit(record, compression, end, unpacked),
            Err((from, why)) => {
                let reason = format!("a chunk cannot be read: {why}");
                if !goes_on {
                    return self.recover(at, from, &reason);
                }
                self.report(at, next - at, reason);
                self.at = next;
            }
        }
        Ok(())
    }

    /// Where the chunk here may end: if no record follows it, its length may be wrong.
    fn possible_ends(
        &mut self,
        record: &Record,
        compression: BagCompression,
        reaches: bool,
        goes_on: bool,
    ) -> Result<Vec<u64>, Error> {
        let (data_at, next) = (self.at + record.data_at as u64, self.at + record.len());
        // A search would find the records in an uncompressed chunk, or have passed a stream.
        let is_searched = compression != BagCompression::None && self.window.is_seekable();
        if goes_on || reaches && !is_searched {
            return Ok(vec![next]);
        }
        let found = self.window.search(data_at)?;
        let is_possible = found.saturating_sub(data_at) <= max_packed(self.max_chunk);
        Ok(match found < next {
            true => vec![found, next],
            false if is_possible => vec![next, found],
            false => vec![next],
        })
    }

    /// Unpacks the chunk here.
    fn unpack(
        &mut self,
        record: &Record,
        (compression, plain_len): (BagCompression, u32),
        (reaches, goes_on): (bool, bool),
    ) -> Result<UnpackedTo, Error> {
        let (at, data_at) = (self.at, self.at + record.data_at as u64);
        // Of a stream, only the end is left after a search.
        let is_passed = !reaches && !self.window.is_seekable();
        let rest = is_passed.then(|| self.data(at, record)).transpose()?;
        let ends = self.possible_ends(record, compression, reaches, goes_on)?;
        let found = ends.first().filter(|_| !reaches).copied();
        let mut fault = String::new();
        for end in ends {
            let len = end.saturating_sub(data_at);
            let packed = if let Some(rest) = &rest {
                rest.slice(..usize::try_from(len).map_or(rest.len(), |len| len.min(rest.len())))
            } else {
                let data_len = u32::try_from(len).unwrap_or(record.data_len);
                self.data(at, &Record { header: record.header.clone(), data_len, ..*record })?
            };
            let limits = (&self.context.blocks, self.max_chunk);
            match unpack(compression, packed, plain_len, !reaches, limits) {
                // Bytes behind those that it takes are not of it if no record follows them.
                Ok(unpacked) if !goes_on && !is_passed && unpacked.cut.is_none() => {
                    return Ok(Ok((data_at + unpacked.packed_len as u64, unpacked)));
                }
                Ok(unpacked) => return Ok(Ok((end, unpacked))),
                Err(why) => fault = why,
            }
        }
        Ok(Err((found.unwrap_or(at + 1), fault)))
    }

    /// Goes on with the messages of the chunk here, which ends at `end`.
    fn start_unit(
        &mut self,
        record: &Record,
        compression: BagCompression,
        end: u64,
        Unpacked { plain, cut, .. }: Unpacked,
    ) {
        let (at, data_at) = (self.at, self.at + record.data_at as u64);
        if let Some(chunk) = self.index.as_ref().and_then(|index| index.chunk(at)) {
            self.number = i64::try_from(chunk.messages_before).unwrap_or(i64::MAX);
        }
        let index = self.skipping_index().filter(|_| !self.context.query.window().is_open());
        let summary = index.and_then(|index| index.chunk(at)?.summary);
        let plain_at = (compression == BagCompression::None).then_some(data_at);
        let fault = match cut {
            Some(why) => Some(format!("a chunk is not complete: {why}")),
            None if end != at + record.len() => Some("the length of a chunk is wrong".to_owned()),
            None => None,
        };
        // The rest of it would have come.
        let fault = fault.filter(|_| !self.window.was_stopped());
        let len = end - at;
        self.unit = Some(Unit { plain, pos: 0, at, len, plain_at, summary, undeclared: 0, fault });
        self.at = end;
    }

    /// The next events of a chunk.
    pub(super) fn read_unit(&mut self, mut unit: Unit) -> Result<Batch, Error> {
        let mut batch = BatchBuilder::default();
        let plain = unit.plain.clone();
        let segment = batch.segment(plain.clone());
        let window = self.context.query.window();
        let from = |pos: usize| plain.get(pos..).unwrap_or_default();
        let mut next = whole_record(from(unit.pos));
        while batch.len() < BATCH_EVENTS {
            if unit.pos == plain.len() {
                self.finish_unit(unit);
                return Ok(batch.finish());
            }
            let Some((record, data)) = next else {
                self.leave_unit(unit)?;
                return Ok(batch.finish());
            };
            let data_at = unit.pos + record.data_at;
            let end = data_at + data.len();
            next = whole_record(from(end));
            let is_unsure = next.is_none() && matches!(record.header, RecordHeader::Message { .. });
            if is_unsure && !self.ends_at(&unit, end)? {
                self.leave_unit(unit)?;
                return Ok(batch.finish());
            }
            unit.pos = end;
            match record.header {
                RecordHeader::Message { connection, time } => {
                    let number = self.number;
                    self.number += 1;
                    if let Some(summary) = unit.summary
                        && !(summary.times.0..=summary.times.1).contains(&time)
                    {
                        unit.summary = None;
                        self.doubt_index(summary, &unit)?;
                    }
                    match self.channel(connection)? {
                        None => unit.undeclared += 1,
                        Some(Some(channel)) if window.wants_time(time) => {
                            let offset = u32::try_from(data_at).unwrap_or(u32::MAX);
                            let place = PayloadOffset { segment, offset };
                            batch.push(time, number, channel, data, place);
                        }
                        Some(_) => {}
                    }
                }
                RecordHeader::Connection { id, topic } => {
                    unit.fault = self.declare(id, topic, data).err().or(unit.fault);
                }
                _ => {}
            }
        }
        self.unit = Some(unit);
        Ok(batch.finish())
    }

    /// Whether the message of a chunk that ends at `end`, by its length, does so: the header of a
    /// record is there, perhaps a damaged one, or the index behind the chunk has a message there.
    fn ends_at(&mut self, unit: &Unit, end: usize) -> Result<bool, Error> {
        let [record, rest] = [unit.pos, end].map(|at| unit.plain.get(at..).unwrap_or_default());
        // Messages and connections have the kind of record at the same place.
        let kind_at = memchr::memmem::find(record, OP_FIELD);
        let has_kind = |at: usize| rest.get(at..).is_some_and(|rest| rest.starts_with(OP_FIELD));
        let is_wrong = matches!(Record::parse(rest), Err(NoRecord::Wrong(_)));
        Ok(!is_wrong
            || kind_at.is_some_and(has_kind)
            || skip::has_message_at(&mut self.window, unit.at + unit.len, end)?)
    }

    /// Reports that a chunk contradicts what the end of the bag says of it, if the index behind the
    /// chunk says the same: otherwise no chunk like it is skipped.
    fn doubt_index(&mut self, summary: SummaryPlace, unit: &Unit) -> Result<(), Error> {
        if skip::is_consistent(&mut self.window, summary, unit.at + unit.len)? {
            self.report(unit.at, 0, MISINDEXED);
        }
        Ok(())
    }

    /// Reports what is wrong with a chunk.
    fn finish_unit(&mut self, unit: Unit) {
        let Unit { at, len, undeclared, fault, .. } = unit;
        let undeclared = (undeclared > 0)
            .then(|| format!("messages of a chunk have undeclared connections ({undeclared})"));
        if let Some(reason) = fault.or(undeclared) {
            self.report(at, len, reason);
        }
    }

    /// Leaves a chunk at bytes that are not a record.
    fn leave_unit(&mut self, unit: Unit) -> Result<(), Error> {
        let (pos, all) = (unit.pos, unit.plain.len());
        if let Some(plain_at) = unit.plain_at {
            let at = plain_at + pos as u64;
            self.finish_unit(Unit { len: at - unit.at, ..unit });
            // The search goes on in the chunk, whose records are not compressed.
            return self.recover(at, at + 1, "a chunk has bytes that are not a record");
        }
        let fault = unit.fault.clone().unwrap_or_else(|| {
            format!("a chunk has no record at {pos} of its {all} uncompressed bytes")
        });
        self.finish_unit(Unit { fault: Some(fault), ..unit });
        Ok(())
    }
}
