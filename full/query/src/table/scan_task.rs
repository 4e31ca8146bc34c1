//! Turns batches of a log into rows of a table: selects events, decodes, builds columns, filters.
//! Runs on any thread, in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use sluice_model::{Batch, Error, Payloads, PerChannel, Rows, StageContext, raw};

use super::columns::{LogColumn, RowType, TableKind, column_mismatch, record_batch};
use super::pushdown::Pushdown;
use super::{LogTables, discovery};

/// How one scan of a table processes batches.
#[derive(Debug)]
pub(super) struct ScanTask {
    pub(super) log: Arc<LogTables>,
    pub(super) kind: TableKind,
    pub(super) pushdown: Pushdown,
    /// The columns to build: those of the result, then those that only the condition needs.
    pub(super) built: Vec<LogColumn>,
    pub(super) built_schema: SchemaRef,
    /// The condition on the built columns.
    pub(super) condition: Option<Arc<dyn PhysicalExpr>>,
    /// The columns of the result: the first of those built.
    pub(super) schema: SchemaRef,
    pub(super) channel_matches: PerChannel<bool>,
}

/// The output for some batches.
#[derive(Debug, Default)]
pub(super) struct ScanOutput {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) rows: usize,
    pub(super) memory: usize,
    pub(super) channels: Vec<bool>,
    /// Numbers of missing events, by reason.
    pub(super) left_out: BTreeMap<String, u64>,
    pub(super) notes: BTreeMap<String, u64>,
    /// The error that ended this output.
    pub(super) failed: Option<DataFusionError>,
}

impl ScanTask {
    /// Adds the rows of a batch.
    pub(super) fn add(&self, batch: Batch, output: &mut ScanOutput) -> Result<()> {
        let batch = self.select_events(batch, output).map_err(external)?;
        if batch.is_empty() {
            return Ok(());
        }
        let (batch, fields) = self.decoded(batch, output).map_err(external)?;
        if batch.is_empty() {
            return Ok(());
        }
        if self.built.contains(&LogColumn::Timestamp) {
            let mut context = StageContext::new(&self.log.channels, None);
            context.note_clamped_times(&batch);
            output.note(context.report.notes);
        }
        let labels = self.log.labels();
        let rows = record_batch(&self.built, &self.built_schema, &batch, fields.as_ref(), &labels);
        let rows = self.filter(rows.map_err(external)?)?;
        if rows.num_rows() > 0 {
            output.rows += rows.num_rows();
            output.memory += batch.memory() + rows.get_array_memory_size();
            output.batches.push(rows);
        }
        Ok(())
    }

    /// Selects the events that match the pushdown.
    fn select_events(&self, batch: Batch, output: &mut ScanOutput) -> Result<Batch, Error> {
        add_channels(&mut output.channels, &batch);
        if !self.pushdown.has_channels() && !self.pushdown.has_window() {
            return Ok(batch);
        }
        let table = self
            .channel_matches
            .table(&self.log.channels, |c| Ok(self.pushdown.wants_channel(c)))?;
        let (channels, times) = (batch.channels(), batch.timestamps());
        Ok(batch.retain(|row| table[channels[row] as usize] & self.pushdown.wants_time(times[row])))
    }

    /// Decodes events if the table has fields; drops those without rows of its type.
    fn decoded(
        &self,
        batch: Batch,
        output: &mut ScanOutput,
    ) -> Result<(Batch, Option<RecordBatch>), Error> {
        match &self.kind {
            TableKind::Fields(channel, kind) => {
                let batch = match &self.log.decode {
                    Some(decode) => {
                        let mut context = StageContext::new(&self.log.channels, None);
                        let decoded = decode.apply(batch, &mut context)?;
                        output.note(context.report.notes);
                        decoded
                    }
                    None => batch,
                };
                let (batch, fields) = rows_of_type(batch, kind, channel, output)?;
                Ok((batch, Some(fields)))
            }
            _ if self.built.contains(&LogColumn::Payload) => {
                Ok((self.with_payloads(batch, output)?, None))
            }
            _ => Ok((batch, None)),
        }
    }

    /// Encodes rows that have no payloads; counts those that cannot be encoded, which stay null.
    fn with_payloads(&self, batch: Batch, output: &mut ScanOutput) -> Result<Batch, Error> {
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
            let what =
                "events that have only fields, which cannot be encoded: their payloads are null";
            *output.left_out.entry(what.to_owned()).or_default() += gone(&batch);
        }
        // Sorts and joins keep rows for long: do not let a few events keep a whole block.
        Ok(batch.compact())
    }

    fn filter(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let Some(condition) = &self.condition else { return Ok(rows) };
        let count = rows.num_rows();
        let keep = condition.evaluate(&rows)?.into_array(count)?;
        let keep = keep
            .as_boolean_opt()
            .ok_or_else(|| DataFusionError::Plan("expected a boolean condition".to_owned()))?;
        let rows = first_columns(&rows, &self.schema)?;
        Ok(filter_record_batch(&rows, keep)?)
    }
}

impl ScanOutput {
    /// Takes over notes of a stage: counted events are missing.
    fn note(&mut self, notes: Vec<(String, u64)>) {
        for (what, count) in notes {
            let to = if count == 0 { &mut self.notes } else { &mut self.left_out };
            *to.entry(what).or_default() += count;
        }
    }
}

/// The columns of the result, possibly none.
fn first_columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().take(schema.fields().len()).cloned().collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn add_channels(met: &mut Vec<bool>, batch: &Batch) {
    let these = discovery::channels_of(batch);
    if met.len() < these.len() {
        met.resize(these.len(), false);
    }
    met.iter_mut().zip(these).for_each(|(met, this)| *met |= this);
}

/// The events that have rows of this type, and these rows. Counts the others.
fn rows_of_type(
    batch: Batch,
    kind: &RowType,
    channel: &str,
    output: &mut ScanOutput,
) -> Result<(Batch, RecordBatch), Error> {
    let batch = raw::drop_raw_columns(batch);
    let matching: Vec<&Rows> = batch.rows().iter().filter(|rows| kind.is_of(rows)).collect();
    let mut places: Vec<(u32, usize, usize)> = Vec::new();
    for (at, rows) in matching.iter().enumerate() {
        places.extend(rows.events.iter().enumerate().map(|(row, event)| (*event, at, row)));
    }
    places.sort_unstable();
    let decoded: usize = batch.rows().iter().map(|rows| rows.events.len()).sum();
    let other_type = decoded.saturating_sub(places.len());
    if other_type > 0 {
        let name = &kind.message.name;
        let what =
            format!("{channel}: events of another type than `{name}`, the type of the first");
        *output.left_out.entry(what).or_default() += other_type as u64;
    }
    let fields = match matching.as_slice() {
        [] => RecordBatch::new_empty(Arc::clone(&kind.columns)),
        [one] => one.columns.clone(),
        several => interleave_rows(several, &places, &kind.columns)?,
    };
    let events: Vec<u32> = places.into_iter().map(|(event, ..)| event).collect();
    Ok((batch.take(events), fields))
}

/// Interleaves rows of one type, in the order of their events.
fn interleave_rows(
    all: &[&Rows],
    places: &[(u32, usize, usize)],
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let picks: Vec<(usize, usize)> = places.iter().map(|(_, at, row)| (*at, *row)).collect();
    let column = |place: usize| {
        let parts: Vec<&dyn Array> =
            all.iter().map(|rows| rows.columns.column(place).as_ref()).collect();
        interleave(&parts, &picks).map_err(column_mismatch)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(picks.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(column_mismatch)
}

/// Wraps one of our errors for DataFusion.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
