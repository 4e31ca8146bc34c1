//! The tables of a folder, one a channel, put together: their events in the order in which they happened.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sluice_core::{Batch, Error, Query, ReadContext, Reader};

use crate::table::{GroupPlace, GroupReader, Table};

/// Most rows of a batch.
const ROWS: usize = 8 << 10;
/// About how many bytes a batch takes.
const BYTES: usize = 2 << 20;

/// Reads several tables as one: by the numbers of their events where the sink that wrote them saw these
/// rise, or else by time.
pub(crate) struct Merge {
    inputs: Vec<Input>,
    /// The next event of each input that has one.
    heads: BinaryHeap<Reverse<Head>>,
    by_sequence: bool,
    /// Batches that events are picked from.
    batches: Vec<Batch>,
}

/// What decides which event is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: (i64, i64),
    input: usize,
}

struct Input {
    table: Arc<Table>,
    /// Row groups still to be read, the next one last.
    groups: Vec<GroupPlace>,
    reader: Option<GroupReader>,
    /// Which of the batches it reads from, and the row that is next.
    at: Option<(u32, u32)>,
}

impl Merge {
    /// Begins to read what `query` asks for of these tables.
    pub(crate) fn new(
        tables: Vec<Arc<Table>>,
        query: &Query,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let by_sequence = tables.iter().all(|table| table.said.by_sequence);
        let inputs = tables.into_iter().map(|table| {
            let mut groups = table.wanted(query, None);
            groups.reverse();
            Input { table, groups, reader: None, at: None }
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

    /// Reads the next events of an input.
    fn load(&mut self, place: usize, query: &Query, context: &ReadContext) -> Result<(), Error> {
        let input = &mut self.inputs[place];
        input.at = None;
        loop {
            let batch = input.reader.as_mut().map(GroupReader::next_batch).transpose()?.flatten();
            if let Some(batch) = batch.filter(|batch| !batch.is_empty()) {
                input.at = Some((self.batches.len() as u32, 0));
                self.batches.push(batch);
                break;
            }
            let Some(group) = input.groups.pop() else { return Ok(()) };
            input.reader = Some(input.table.read_group(group, query, context)?);
        }
        self.push_head(place);
        Ok(())
    }

    fn push_head(&mut self, place: usize) {
        let Some((batch, row)) = self.inputs[place].at else { return };
        let (batch, row) = (&self.batches[batch as usize], row as usize);
        let (time, number) = (batch.timestamps()[row], batch.sequences()[row]);
        let key = if self.by_sequence { (number, time) } else { (time, number) };
        self.heads.push(Reverse(Head { key, input: place }));
    }

    fn next(&mut self, query: &Query, context: &ReadContext) -> Result<Option<Batch>, Error> {
        let (mut picks, mut bytes) = (Vec::new(), 0);
        while picks.len() < ROWS && bytes < BYTES {
            let Some(Reverse(Head { input, .. })) = self.heads.pop() else { break };
            let Some((batch, row)) = self.inputs[input].at else { break };
            picks.push((batch, row));
            let from = &self.batches[batch as usize];
            bytes += from.payload_len(row as usize);
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
        self.forget();
        Ok(Some(events))
    }

    /// Lets go of batches that have been read to their end.
    fn forget(&mut self) {
        let mut kept = Vec::new();
        for input in &mut self.inputs {
            if let Some((batch, row)) = input.at {
                kept.push(std::mem::take(&mut self.batches[batch as usize]));
                input.at = Some(((kept.len() - 1) as u32, row));
            }
        }
        self.batches = kept;
    }
}

/// A [`Merge`] with what reading needs.
pub(crate) struct MergeReader {
    pub(crate) merge: Merge,
    pub(crate) context: ReadContext,
}

impl Reader for MergeReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if self.context.is_cancelled() {
            return Ok(None);
        }
        let query = self.context.query.clone();
        self.merge.next(&query, &self.context)
    }
}
