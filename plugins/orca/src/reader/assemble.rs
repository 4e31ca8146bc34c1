//! Reads located events into batches: records into one block, neighbours together, and pictures.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use sluice_model::{Batch, BatchBuilder, Error, PayloadOffset};

use super::{LocatedEvent, OrcaReader, subfile_changed};
use crate::log::RecordKind;
use crate::subfile::{ALIGNMENT, RecordFraming};

impl OrcaReader {
    /// Reads the located events, in order. Those that cannot be read are damage.
    pub(super) fn assemble(&mut self, located: &[LocatedEvent]) -> Result<Batch, Error> {
        let (block, ranges) = self.read_records(located)?;
        let mut batch = BatchBuilder::with_capacity(located.len());
        batch.segment(block.clone());
        for (located, range) in located.iter().zip(ranges) {
            match located {
                LocatedEvent::Damage(damage) => self.context.damage.report(damage.clone()),
                LocatedEvent::Record { request, framing, .. } => {
                    let payload = range.and_then(|range| {
                        payload_in_block(&block, range, request.record, *framing)
                    });
                    let Some((id, offset, payload)) = payload else {
                        self.context.damage.report(self.damage(request.line, subfile_changed()));
                        continue;
                    };
                    let channel = self.channel(request.subfile, id, request.kind)?;
                    let position = PayloadOffset { segment: 0, offset };
                    batch.push_wide(request.time, request.sequence, channel, payload, position);
                }
                LocatedEvent::Picture { request, path } => match self.read_picture(path)? {
                    Ok(picture) => {
                        let channel = self.channel(request.subfile, 0, RecordKind::Object)?;
                        let segment = batch.segment(picture.clone());
                        let position = PayloadOffset { segment, offset: 0 };
                        batch.push_wide(
                            request.time,
                            request.sequence,
                            channel,
                            &picture,
                            position,
                        );
                    }
                    Err(reason) => self.context.damage.report(self.damage(request.line, reason)),
                },
            }
        }
        Ok(batch.finish())
    }

    /// Reads all records into one block. Returns the range of each record in it, if it was read.
    pub(super) fn read_records(
        &mut self,
        located: &[LocatedEvent],
    ) -> Result<(Bytes, BlockRanges), Error> {
        let records = sorted_records(located);
        let spans = coalesce(&records);
        let space = |span: &Range<u64>| (span.end - span.start).next_multiple_of(ALIGNMENT as u64);
        let total = ALIGNMENT as u64 + spans.iter().map(|(_, span, _)| space(span)).sum::<u64>();
        let total = u32::try_from(total).map_err(|_| Error::internal("a batch of 4 GiB"))?;
        let mut ranges = vec![None; located.len()];
        if spans.is_empty() {
            return Ok((Bytes::new(), ranges));
        }
        let mut block = self.context.blocks.block_with_len(total as usize);
        let mut at = block.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        for (subfile, span, rows) in spans {
            let len = (span.end - span.start) as usize;
            let space = block.get_mut(at..at + len).unwrap_or_default();
            let path = self.log.subfiles.get(subfile).map_or(Path::new(""), |file| &file.path);
            let read = self.files.read_at(subfile, path, span.start, space)?;
            self.context.run.count_read(read as u64);
            // Beyond the end of the file, the block has bytes of an earlier use.
            let there = span.start + read as u64;
            let in_span = records.get(rows).unwrap_or_default().iter();
            for (_, start, end, row) in in_span.filter(|(_, _, end, _)| *end <= there) {
                let in_block = |offset: &u64| (at as u64 + (offset - span.start)) as u32;
                if let Some(range) = ranges.get_mut(*row) {
                    *range = Some(in_block(start)..in_block(end));
                }
            }
            at += len.next_multiple_of(ALIGNMENT);
        }
        Ok((block.freeze(), ranges))
    }
}

/// Objects of a subfile no further apart than this are read together.
const MAX_GAP: u64 = 512;

/// For each located event, the range of its record in the block.
type BlockRanges = Vec<Option<Range<u32>>>;

/// A record to be read: subfile, start, end, and row in the batch.
type RecordSpan = (usize, u64, u64, usize);

/// A range of a subfile that is read at once, and the records in it.
type ReadSpan = (usize, Range<u64>, Range<usize>);

/// The id of a record in a block, and the offset and bytes of its payload. `None` if the bytes are
/// not those of the record.
fn payload_in_block(
    block: &[u8],
    range: Range<u32>,
    record: u64,
    framing: RecordFraming,
) -> Option<(u8, u32, &[u8])> {
    let bytes = block.get(range.start as usize..range.end as usize)?;
    let (id, payload) = framing.payload(record, bytes)?;
    let offset = range.start + u32::try_from(payload.start).ok()?;
    Some((id, offset, bytes.get(payload)?))
}

/// The records among located events, sorted by position.
fn sorted_records(located: &[LocatedEvent]) -> Vec<RecordSpan> {
    let mut records: Vec<RecordSpan> = Vec::with_capacity(located.len());
    for (row, located) in located.iter().enumerate() {
        if let LocatedEvent::Record { request, range, .. } = located {
            records.push((request.subfile, range.start, range.end, row));
        }
    }
    // Lines name the objects of a subfile in order, so that mostly this is all there is to do.
    records.sort_by_key(|(subfile, ..)| *subfile);
    if !records.is_sorted() {
        records.sort_unstable();
    }
    records
}

/// Merges sorted records that are close to each other.
fn coalesce(records: &[RecordSpan]) -> Vec<ReadSpan> {
    let mut spans: Vec<ReadSpan> = Vec::new();
    for (at, (subfile, start, end, _)) in records.iter().enumerate() {
        match spans.last_mut() {
            Some((same, span, rows)) if same == subfile && *start <= span.end + MAX_GAP => {
                span.end = span.end.max(*end);
                rows.end = at + 1;
            }
            _ => spans.push((*subfile, *start..*end, at..at + 1)),
        }
    }
    spans
}
