//! Reads chunks, whole ones and those that are cut off, and reports what is wrong in them.

#![warn(clippy::indexing_slicing)]

use bytes::Bytes;
use sluice_model::Error;

use super::RecordReader;
use crate::salvage::CutChunk;
use crate::unit::{NoCrc, Unit};
use crate::wire::{CHUNK_HEAD, ChunkHead, HEAD, Head, op, record_name};
use crate::{chunk, skip};

/// Where a chunk is in its file.
#[derive(Clone, Copy)]
pub(super) struct ChunkPlace {
    at: u64,
    /// Its length without what is behind its fields and is wrong.
    len: u64,
    /// The length of that.
    behind: u64,
    /// Where its records are, if they are not compressed.
    records: Option<u64>,
}

impl RecordReader {
    /// The longest chunk that is read, compressed: what cannot be compressed becomes longer.
    fn longest_chunk(&self) -> u64 {
        self.max_chunk.0.saturating_add(self.max_chunk.0 / 8).saturating_add(1 << 16)
    }

    /// Reads the chunk at `at`, which ends at `end`.
    pub(super) fn read_chunk(&mut self, at: u64, head: Head, end: u64) -> Result<(), Error> {
        let len = end - at;
        self.meet_chunk(at)?;
        if self.may_skip(at, head)? {
            self.at = end;
            return Ok(());
        }
        if len > self.longest_chunk() {
            self.report(at, len, self.too_long(head));
            self.doubt_channels();
            self.at = end;
            return Ok(());
        }
        let content = self.content(at, len)?;
        let Some(chunk) = ChunkHead::parse(&content) else {
            return self.recover(at, at + 1, "the head of a chunk cannot be read");
        };
        let (from, to) = (chunk.records_at as usize, chunk.content_len() as usize);
        let packed = content.slice(from.min(content.len())..to.min(content.len()));
        let goes_on = self.walk.goes_on(end)?;
        if !goes_on && !ends_with_record(&packed) && self.read_resized(at, head)? {
            return Ok(());
        }
        let fields_end = (at + HEAD).saturating_add(chunk.content_len());
        let added = end.saturating_sub(fields_end);
        let plain = match chunk.plain_len {
            // As where a disk has lost a sector.
            0 if added > 0 => Err(format!("it has no records, but {added} further bytes")),
            _ => chunk::unpack(&chunk, packed, &self.context.blocks, self.max_chunk),
        };
        match plain {
            Ok(plain) => {
                let is_plain = chunk.compression.is_empty();
                let records = is_plain.then_some(at + HEAD + chunk.records_at);
                self.report_length(at, head, end);
                self.at = end;
                self.checks.iter_mut().for_each(|checks| checks.count_chunk(at, &plain));
                // Fields that are not known are short.
                let behind = if added > chunk.content_len() { added } else { 0 };
                let place = ChunkPlace { at, len: len - behind, behind, records };
                let no_crc = NoCrc::of_chunk(&chunk);
                self.chunk = Some((Unit::new(plain, no_crc), place));
                Ok(())
            }
            Err(reason) if goes_on => {
                self.report(at, len, format!("a chunk cannot be read: {reason}"));
                // Its records end before it does: its length may be wrong.
                if chunk.content_len() < head.len {
                    self.doubt_channels();
                }
                self.at = end;
                Ok(())
            }
            Err(reason) => self.recover(at, at + 1, &format!("a chunk cannot be read: {reason}")),
        }
    }

    /// Reads what is there of a record that the end of the file cuts off, unless its length is
    /// wrong.
    pub(super) fn read_cut(&mut self, at: u64, head: Head) -> Result<(), Error> {
        let (end, name) = (self.walk.end(), record_name(head.opcode));
        let (there, is_end_known) = (end.saturating_sub(at), self.walk.is_end_known());
        let is_chunk = head.opcode == op::CHUNK && is_end_known;
        if is_chunk && self.read_resized(at, head)? {
            return Ok(());
        }
        let content = match is_chunk && there <= self.longest_chunk() {
            true => self.content(at, there)?,
            false => Bytes::new(),
        };
        let next = self.search(at + 1)?.max(at);
        let reason = match head.is_unfinished_chunk() {
            true => format!("a {name} record is not finished"),
            false if !is_end_known => self.too_long(head),
            false => {
                let all = head.record_len();
                format!("a {name} record is cut off: {there} of its {all} bytes are there")
            }
        };
        self.at = next;
        // Something behind it shows that its length is wrong.
        let chunk = ChunkHead::parse(&content).filter(|_| next >= end);
        let Some(chunk) = chunk else {
            self.report(at, next - at, reason);
            self.doubt_channels();
            return Ok(());
        };
        let (blocks, max) = (&self.context.blocks, self.max_chunk);
        let cut = CutChunk::new((at, head), (&chunk, &content), (blocks, max), reason);
        let place = ChunkPlace { at, len: there, behind: 0, records: None };
        self.chunk = Some((Unit::unverified(cut), place));
        Ok(())
    }

    /// Reads a chunk whose length leads to no record up to the next one, if it has no checksum and
    /// is not compressed: it has lost or gained bytes. Returns whether it is read.
    fn read_resized(&mut self, at: u64, head: Head) -> Result<bool, Error> {
        let start = self.walk.read(at + HEAD, CHUNK_HEAD as u64)?;
        let Some(chunk) = ChunkHead::parse(&start).filter(|chunk| chunk.compression.is_empty())
        else {
            return Ok(false);
        };
        let Some(no_crc) = NoCrc::of_chunk(&chunk) else { return Ok(false) };
        let records = (at + HEAD).saturating_add(chunk.records_at);
        let Some(next) = self.walk.next_behind(at, records, self.longest_chunk())? else {
            return Ok(false);
        };
        let content = self.content(at, next - at)?;
        let from = usize::try_from(chunk.records_at).unwrap_or(usize::MAX).min(content.len());
        self.report_length(at, head, next);
        self.doubt_channels();
        let place = ChunkPlace { at, len: next - at, behind: 0, records: Some(records) };
        self.chunk = Some((Unit::new(content.slice(from..), Some(no_crc)), place));
        self.at = next;
        Ok(true)
    }

    /// Whether nothing in the chunk at `at` is needed, by its index, if that proves right.
    fn may_skip(&mut self, at: u64, head: Head) -> Result<bool, Error> {
        let query = &self.context.query;
        let Some(index) = self.index.as_ref().filter(|index| index.sure_declarations().is_some())
        else {
            return Ok(false);
        };
        let entry = index.entry(at).filter(|_| self.walk.is_anchor(at) && !query.is_all());
        let Some(entry) = entry.filter(|entry| entry.chunk_len == head.record_len()) else {
            return Ok(false);
        };
        skip::needs_nothing(&mut self.walk, entry, &mut self.table, query)
    }

    /// Reports what was wrong in a chunk.
    pub(super) fn report_chunk(&mut self, unit: Unit, place: ChunkPlace) {
        if let Some((from, reason)) = unit.cut_off() {
            let end = place.at + place.len;
            return self.report(from, end.saturating_sub(from), reason);
        }
        let (problems, more) = unit.problems();
        if let Some(records) = place.records {
            let last = problems.len().saturating_sub(1);
            for (number, problem) in problems.into_iter().enumerate() {
                let others = if number == last { more } else { 0 };
                let reason = and_others(problem.reason, others);
                self.report(records + problem.at, problem.len, reason);
            }
        } else {
            let count = problems.len() as u64 + more;
            if let Some(first) = problems.into_iter().next() {
                let reason = and_others(format!("in a chunk: {}", first.reason), count - 1);
                // What is wrong with its head may have been reported.
                self.report(place.at + HEAD, place.len - HEAD, reason);
            }
        }
        if place.behind > 0 {
            let reason = "what follows the records of a chunk is no field and no record";
            self.report(place.at + place.len, place.behind, reason);
        }
    }
}

/// Whether the lengths of these records lead to the end.
fn ends_with_record(mut records: &[u8]) -> bool {
    while let Some(head) = Head::parse(records) {
        let len = usize::try_from(head.record_len()).unwrap_or(usize::MAX);
        let Some(rest) = records.get(len..) else { return false };
        records = rest;
    }
    records.is_empty()
}

fn and_others(reason: String, others: u64) -> String {
    if others == 0 { reason } else { format!("{reason} (and {others} more)") }
}
