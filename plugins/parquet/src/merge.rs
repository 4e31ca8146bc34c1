//! Merges the tables of a folder, one per channel: their events in the original order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sluice_model::{Batch, Error, Query, ReadContext, Reader, Rows};

use crate::input::GroupSpan;
use crate::table::{GroupReader, ParquetTable};

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;
/// The approximate bytes per batch.
const TARGET_BYTES: usize = 2 << 20;
/// The approximate bytes per batch of a table. Each table has one, and pages of them that are new
/// cost more than reading smaller ones.
const TABLE_BYTES: usize = 512 << 10;

/// Merges several tables: by sequence number if the sink saw the numbers rise, or else by time.
pub(crate) struct TableMerge {
    inputs: Vec<MergeInput>,
    /// The next event of each input that has one.
    heads: BinaryHeap<Reverse<MergeHead>>,
    by_sequence: bool,
    /// The batches that events are picked from.
    batches: Vec<Batch>,
}

/// The sort key of an input's next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeHead {
    key: (i64, i64),
    input: usize,
}

struct MergeInput {
    table: Arc<ParquetTable>,
    /// The row groups still to be read, the next one last.
    groups: Vec<GroupSpan>,
    reader: Option<GroupReader>,
    /// The current batch and row.
    at: Option<(u32, u32)>,
    /// The bytes of the decoded fields of an event of the current batch, on average.
    row_bytes: usize,
}

impl TableMerge {
    /// Starts to read the events of these tables that `query` requests.
    pub(crate) fn new(
        tables: Vec<Arc<ParquetTable>>,
        query: &Query,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let by_sequence = tables.iter().all(|table| table.meta.by_sequence);
        let inputs = tables.into_iter().map(|table| {
            let mut groups = table.matching_groups(query, None, |_| true);
            groups.reverse();
            MergeInput { table, groups, reader: None, at: None, row_bytes: 0 }
        });
        let mut merge = Self {
            inputs: inputs.collect(),
            heads: BinaryHeap::new(),
            by_sequence,
            batches: Vec::new(),
        };
        for input in 0..merge.inputs.len() {
            merge.load(input, query, context)?;
        }
        Ok(merge)
    }

    /// Loads the next batch of an input.
    fn load(&mut self, place: usize, query: &Query, context: &ReadContext) -> Result<(), Error> {
        let input = &mut self.inputs[place];
        input.at = None;
        loop {
            let batch = input.reader.as_mut().map(GroupReader::next_batch).transpose()?.flatten();
            if let Some(batch) = batch.filter(|batch| !batch.is_empty()) {
                input.at = Some((self.batches.len() as u32, 0));
                let rows = batch.rows().iter().map(Rows::memory).sum::<usize>();
                input.row_bytes = rows / batch.len();
                self.batches.push(batch);
                break;
            }
            let Some(group) = input.groups.pop() else { return Ok(()) };
            input.reader = Some(input.table.read_group(group, TABLE_BYTES, query, context)?);
        }
        self.push_head(place);
        Ok(())
    }

    fn push_head(&mut self, place: usize) {
        let Some((batch, row)) = self.inputs[place].at else { return };
        let (batch, row) = (&self.batches[batch as usize], row as usize);
        let (time, number) = (batch.timestamps()[row], batch.sequences()[row]);
        let key = if self.by_sequence { (number, time) } else { (time, number) };
        self.heads.push(Reverse(MergeHead { key, input: place }));
    }

    fn next(&mut self, query: &Query, context: &ReadContext) -> Result<Option<Batch>, Error> {
        let (mut picks, mut bytes) = (Vec::new(), 0);
        while picks.len() < MAX_ROWS && bytes < TARGET_BYTES {
            let Some(Reverse(MergeHead { input, .. })) = self.heads.pop() else { break };
            let Some((batch, row)) = self.inputs[input].at else { break };
            picks.push((batch, row));
            let from = &self.batches[batch as usize];
            bytes += from.payload_len(row as usize) + self.inputs[input].row_bytes;
            if row as usize + 1 < from.len() {
                self.inputs[input].at = Some((batch, row + 1));
                self.push_head(input);
            } else {
                self.load(input, query, context)?;
            }
        }
        if picks.is_empty() {
            return Ok(None);
        }
        let events = Batch::interleave(&self.batches, &picks);
        self.drop_consumed();
        Ok(Some(events))
    }

    /// Drops the batches that have been consumed.
    fn drop_consumed(&mut self) {
        let mut remaining = Vec::new();
        for input in &mut self.inputs {
            if let Some((batch, row)) = input.at {
                remaining.push(std::mem::take(&mut self.batches[batch as usize]));
                input.at = Some(((remaining.len() - 1) as u32, row));
            }
        }
        self.batches = remaining;
    }
}

/// Reads a [`TableMerge`].
pub(crate) struct MergeReader {
    pub(crate) merge: TableMerge,
    pub(crate) context: ReadContext,
}

impl Reader for MergeReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if self.context.run.is_cancelled() {
            return Ok(None);
        }
        let query = self.context.query.clone();
        self.merge.next(&query, &self.context)
    }
}
