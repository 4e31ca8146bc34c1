//! Merges the tables of a folder, one per channel: their events in the original order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use sluice_model::{Batch, Error, Query, ReadContext, Reader, Rows};

use crate::input::GroupSpan;
use crate::meta::TableOrigin;
use crate::table::{GroupReader, ParquetTable};

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;
/// The approximate bytes per batch.
const TARGET_BYTES: usize = 2 << 20;
/// The approximate bytes per batch of a table. Each table has one, and pages of them that are new
/// cost more than reading smaller ones.
const TABLE_BYTES: usize = 512 << 10;

/// Merges several tables: those of one log by sequence number if the sink saw the numbers rise, all
/// others by time.
pub(crate) struct TableMerge {
    inputs: Vec<MergeInput>,
    logs: Vec<MergedLog>,
    /// The next event of each log that has one.
    heads: BinaryHeap<Reverse<MergeHead>>,
    /// The batches that events are picked from.
    batches: Vec<Batch>,
}

/// Tables whose sequence numbers count the same events.
struct MergedLog {
    by_sequence: bool,
    /// The next event of each of its inputs that has one.
    heads: BinaryHeap<Reverse<MergeHead>>,
}

/// The sort key of the next event of an input or a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeHead {
    key: (i64, i64),
    place: usize,
}

struct MergeInput {
    table: Arc<ParquetTable>,
    log: usize,
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
        let (log_of, logs) = logs_of(&tables);
        let inputs = tables.into_iter().zip(log_of).map(|(table, log)| {
            let mut groups = table.matching_groups(query, None, |_| true);
            groups.reverse();
            MergeInput { table, log, groups, reader: None, at: None, row_bytes: 0 }
        });
        let mut merge =
            Self { inputs: inputs.collect(), logs, heads: BinaryHeap::new(), batches: Vec::new() };
        for input in 0..merge.inputs.len() {
            merge.load(input, query, context)?;
        }
        (0..merge.logs.len()).for_each(|log| merge.push_log(log));
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
        let log = &mut self.logs[self.inputs[place].log];
        let key = if log.by_sequence { (number, time) } else { (time, number) };
        log.heads.push(Reverse(MergeHead { key, place }));
    }

    /// Logs are merged by time: each counts its own events.
    fn push_log(&mut self, place: usize) {
        let log = &self.logs[place];
        let Some(Reverse(MergeHead { key, .. })) = log.heads.peek() else { return };
        let key = if log.by_sequence { (key.1, key.0) } else { *key };
        self.heads.push(Reverse(MergeHead { key, place }));
    }

    fn next(&mut self, query: &Query, context: &ReadContext) -> Result<Option<Batch>, Error> {
        let (mut picks, mut bytes) = (Vec::new(), 0);
        while picks.len() < MAX_ROWS && bytes < TARGET_BYTES {
            let Some(Reverse(MergeHead { place: log, .. })) = self.heads.pop() else { break };
            let next = self.logs[log].heads.pop();
            let Some(Reverse(MergeHead { place: input, .. })) = next else { break };
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
            self.push_log(log);
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

/// The log of each table, and the logs.
///
/// Numbers count on in all tables that one sink wrote. So they do in the next piece of a recording,
/// whose numbers are all higher; one that was appended to counts from zero again.
fn logs_of(tables: &[Arc<ParquetTable>]) -> (Vec<usize>, Vec<MergedLog>) {
    let mut outputs: Vec<SinkOutput<'_>> = Vec::new();
    let mut places = BTreeMap::new();
    let output_of: Vec<usize> = tables
        .iter()
        .map(|table| {
            let place = *places.entry((table.output(), table.origin())).or_insert(outputs.len());
            if place == outputs.len() {
                let origin = table.origin();
                outputs.push(SinkOutput { origin, by_sequence: true, numbers: None });
            }
            outputs[place].add(table);
            place
        })
        .collect();
    let mut logs: Vec<MergedLog> = Vec::new();
    let log_of_output: Vec<usize> = outputs
        .iter()
        .enumerate()
        .map(|(place, output)| {
            let before = place.checked_sub(1).map(|before| &outputs[before]);
            if !before.is_some_and(|before| before.is_continued_by(output)) {
                let by_sequence = output.by_sequence;
                logs.push(MergedLog { by_sequence, heads: BinaryHeap::new() });
            }
            logs.len() - 1
        })
        .collect();
    (output_of.into_iter().map(|output| log_of_output[output]).collect(), logs)
}

/// The tables that one sink wrote.
struct SinkOutput<'t> {
    origin: TableOrigin<'t>,
    /// Whether the sequence numbers rise through all of them.
    by_sequence: bool,
    /// The first and the last sequence number, if there are any.
    numbers: Option<(i64, i64)>,
}

impl SinkOutput<'_> {
    fn add(&mut self, table: &ParquetTable) {
        self.by_sequence &= table.meta.by_sequence;
        let numbers = table.numbers();
        self.numbers = match (self.numbers, numbers) {
            (Some((first, last)), Some((least, most))) => Some((first.min(least), last.max(most))),
            (numbers, other) => numbers.or(other),
        };
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        let numbers = self.numbers.zip(next.numbers);
        self.by_sequence
            && next.by_sequence
            && self.origin == next.origin
            && numbers.is_some_and(|((_, last), (first, _))| last < first)
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
