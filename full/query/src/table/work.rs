//! What is done with each batch of a log on its way into a table: choosing events, decoding, columns,
//! conditions. Any thread, any order. Reads nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use sluice_core::{Batch, Error, Payloads, PerChannel, Rows, StageContext, booleans};

use super::columns::{Column, RowType, Shape, record_batch, unfit};
use super::wanted::Wanted;
use super::{LogTables, typed};

/// What becomes of a log's events in one scan of a table.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) log: Arc<LogTables>,
    pub(super) shape: Shape,
    pub(super) wanted: Wanted,
    /// The columns that are made: those of the result, then those that only the condition needs.
    pub(super) made: Vec<Column>,
    pub(super) made_schema: SchemaRef,
    /// A condition on the columns that are made.
    pub(super) condition: Option<Arc<dyn PhysicalExpr>>,
    /// The columns of the result: the first of those that are made.
    pub(super) schema: SchemaRef,
    pub(super) is_wanted: PerChannel<bool>,
}

/// What came of some batches.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) rows: usize,
    pub(super) memory: usize,
    pub(super) met: Vec<bool>,
    /// Events that are missing, by why.
    pub(super) left_out: BTreeMap<String, u64>,
    pub(super) notes: BTreeMap<String, u64>,
}

impl Work {
    /// Makes rows of a batch's events.
    pub(super) fn add(&self, batch: Batch, made: &mut Made) -> Result<()> {
        let batch = self.chosen(batch, made).map_err(external)?;
        if batch.is_empty() {
            return Ok(());
        }
        let (batch, fields) = self.decoded(batch, made).map_err(external)?;
        if batch.is_empty() {
            return Ok(());
        }
        if self.made.contains(&Column::Timestamp) {
            let mut context = StageContext::new(&self.log.channels, None);
            context.clamps_times(&batch);
            made.note(context.notes);
        }
        let words = self.log.words();
        let rows = record_batch(&self.made, &self.made_schema, &batch, fields.as_ref(), &words);
        let rows = self.meeting_condition(rows.map_err(external)?)?;
        if rows.num_rows() > 0 {
            made.rows += rows.num_rows();
            made.memory += batch.memory() + rows.get_array_memory_size();
            made.batches.push(rows);
        }
        Ok(())
    }

    /// The events that are wanted, as far as times and channels say it.
    fn chosen(&self, batch: Batch, made: &mut Made) -> Result<Batch, Error> {
        note_met(&mut made.met, &batch);
        if !self.wanted.has_channels() && !self.wanted.has_window() {
            return Ok(batch);
        }
        let table =
            self.is_wanted.table(&self.log.channels, |c| Ok(self.wanted.wants_channel(c)))?;
        let (channels, times) = (batch.channels(), batch.timestamps());
        Ok(batch.retain(|row| table[channels[row] as usize] & self.wanted.wants_time(times[row])))
    }

    /// The events that the table has, and the fields it needs.
    fn decoded(
        &self,
        batch: Batch,
        made: &mut Made,
    ) -> Result<(Batch, Option<RecordBatch>), Error> {
        match &self.shape {
            Shape::Fields(channel, kind) => {
                let batch = match &self.log.decode {
                    Some(decode) => {
                        let mut context = StageContext::new(&self.log.channels, None);
                        let decoded = decode.apply(batch, &mut context)?;
                        made.note(context.notes);
                        decoded
                    }
                    None => batch,
                };
                let (batch, fields) = of_type(batch, kind, channel, made)?;
                Ok((batch, Some(fields)))
            }
            _ if self.made.contains(&Column::Payload) => {
                Ok((self.with_payloads(batch, made)?, None))
            }
            _ => Ok((batch, None)),
        }
    }

    /// The same events with payloads made for those that have only rows.
    fn with_payloads(&self, batch: Batch, made: &mut Made) -> Result<Batch, Error> {
        let gone = |batch: &Batch| {
            let gone = batch.rows().iter().filter(|rows| rows.payloads == Payloads::Gone);
            gone.map(|rows| rows.events.len() as u64).sum::<u64>()
        };
        let batch = if gone(&batch) > 0 {
            let mut context = StageContext::new(&self.log.channels, None);
            self.log.encode()?.apply(batch, &mut context)?
        } else {
            batch
        };
        if gone(&batch) > 0 {
            let what = "events of which only fields are there, and cannot be made payloads of: shown as null";
            *made.left_out.entry(what.to_owned()).or_default() += gone(&batch);
        }
        // What is sorted or joined waits for long: a few events should not keep a block.
        Ok(batch.compact())
    }

    fn meeting_condition(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let Some(condition) = &self.condition else { return Ok(rows) };
        let count = rows.num_rows();
        let met = condition.evaluate(&rows)?.into_array(count)?;
        let met = met.as_boolean_opt().ok_or_else(|| {
            DataFusionError::Plan("a condition has to be true or false".to_owned())
        })?;
        let rows = first_columns(&rows, &self.schema)?;
        Ok(filter_record_batch(&rows, met)?)
    }
}

impl Made {
    /// Takes over what a stage says: where it counts events, these are missing.
    fn note(&mut self, notes: Vec<(String, u64)>) {
        for (what, count) in notes {
            let to = if count == 0 { &mut self.notes } else { &mut self.left_out };
            *to.entry(what).or_default() += count;
        }
    }
}

/// The columns of the result, of which there may be none.
fn first_columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().take(schema.fields().len()).cloned().collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn note_met(met: &mut Vec<bool>, batch: &Batch) {
    let these = typed::met(batch);
    if met.len() < these.len() {
        met.resize(these.len(), false);
    }
    met.iter_mut().zip(these).for_each(|(met, this)| *met |= this);
}

/// The events that have rows of this type, and these rows. Others are counted.
fn of_type(
    batch: Batch,
    kind: &RowType,
    channel: &str,
    made: &mut Made,
) -> Result<(Batch, RecordBatch), Error> {
    let batch = booleans::hide(batch);
    let ours: Vec<&Rows> = batch.rows().iter().filter(|rows| kind.is_of(rows)).collect();
    let mut places: Vec<(u32, usize, usize)> = Vec::new();
    for (at, rows) in ours.iter().enumerate() {
        places.extend(rows.events.iter().enumerate().map(|(row, event)| (*event, at, row)));
    }
    places.sort_unstable();
    let told: usize = batch.rows().iter().map(|rows| rows.events.len()).sum();
    let of_others = told.saturating_sub(places.len());
    if of_others > 0 {
        let name = &kind.message.name;
        let what = format!("{channel}: events of another type than `{name}`, as the first is");
        *made.left_out.entry(what).or_default() += of_others as u64;
    }
    let fields = match ours.as_slice() {
        [] => RecordBatch::new_empty(Arc::clone(&kind.columns)),
        [one] => one.columns.clone(),
        several => woven(several, &places, &kind.columns)?,
    };
    let events: Vec<u32> = places.into_iter().map(|(event, ..)| event).collect();
    Ok((batch.take(events), fields))
}

/// Rows of one type that lie in several places, in the order of their events.
fn woven(
    all: &[&Rows],
    places: &[(u32, usize, usize)],
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let picks: Vec<(usize, usize)> = places.iter().map(|(_, at, row)| (*at, *row)).collect();
    let column = |place: usize| {
        let parts: Vec<&dyn Array> =
            all.iter().map(|rows| rows.columns.column(place).as_ref()).collect();
        interleave(&parts, &picks).map_err(unfit)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(picks.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(unfit)
}

/// An error of ours on its way through DataFusion.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
