//! Turns batches of a log into rows of a table: selects events, decodes, builds columns, filters.
//! Runs on any thread, in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use sluice_kit::event_table::{LogColumn, RowType, SelectedRows, TableKind, record_batch};
use sluice_model::{Batch, Error, Payloads, PerChannel, StageContext};

use super::pushdown::Pushdown;
use super::stored_rows::stored_rows;
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
    /// The places of the built columns in the table.
    pub(super) places: Vec<usize>,
    /// The condition on the built columns.
    pub(super) condition: Option<Arc<dyn PhysicalExpr>>,
    /// The columns of the result: the first of those built.
    pub(super) schema: SchemaRef,
    pub(super) channel_matches: PerChannel<bool>,
    /// How to take the rows from a cached table, if the log has a cache.
    pub(super) cached: Option<CachedScan>,
}

/// The columns that a scan needs of its table.
#[derive(Debug)]
pub(super) struct ScanColumns {
    /// Their places in the table: those of the result, then those that only the condition needs.
    pub(super) places: Vec<usize>,
    pub(super) schema: SchemaRef,
    /// The condition on these columns.
    pub(super) condition: Option<Arc<dyn PhysicalExpr>>,
}

/// How one scan takes its rows from a cached table.
#[derive(Debug)]
pub(super) struct CachedScan {
    /// The columns for all conditions, also those that are pushed down to a source.
    pub(super) columns: ScanColumns,
    /// The size of splits, which decides how rows are batched and so the last digits of sums.
    pub(super) split_bytes: u64,
}

/// The output for some batches.
#[derive(Debug, Default)]
pub(super) struct ScanOutput {
    pub(super) batches: Vec<RecordBatch>,
    /// All rows in the form in which they are cached, if they are.
    pub(super) stored: Vec<RecordBatch>,
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
    /// The key of the table in the cache, as the log is now. `None` if it cannot be cached.
    pub(super) fn cache_key(&self) -> Option<String> {
        self.log.cache_key(&self.kind, self.cached.as_ref()?.split_bytes)
    }

    /// Whether the scan reads all rows of its table, and their columns may be cached.
    pub(super) fn is_storable(&self) -> bool {
        self.pushdown.is_whole_table(&self.kind) && !self.built.contains(&LogColumn::Payload)
    }

    /// Adds the rows of a batch; also in their stored form if `stores`.
    pub(super) fn add(&self, batch: Batch, stores: bool, output: &mut ScanOutput) -> Result<()> {
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
        let rows = rows.map_err(external)?;
        if stores {
            let stored = stored_rows(&self.built, &batch, &rows).map_err(external)?;
            output.memory += stored.get_array_memory_size();
            output.stored.push(stored);
        }
        let rows = filter(rows, self.condition.as_ref(), &self.schema)?;
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
                let selected = SelectedRows::new(batch, kind)?;
                output.count_other_types(&selected, channel, kind);
                Ok((selected.batch, Some(selected.fields)))
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
}

impl ScanOutput {
    /// Takes over notes of a stage: counted events are missing.
    fn note(&mut self, notes: Vec<(String, u64)>) {
        for (what, count) in notes {
            let to = if count == 0 { &mut self.notes } else { &mut self.left_out };
            *to.entry(what).or_default() += count;
        }
    }

    fn count_other_types(&mut self, selected: &SelectedRows, channel: &str, kind: &RowType) {
        if selected.other_type.is_empty() {
            return;
        }
        let name = &kind.message.name;
        let what =
            format!("{channel}: events of another type than `{name}`, the type of the first");
        *self.left_out.entry(what).or_default() += selected.other_type.len() as u64;
    }
}

/// The rows for which the condition holds, with the columns of the result.
pub(super) fn filter(
    rows: RecordBatch,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let Some(condition) = condition else { return Ok(rows) };
    let count = rows.num_rows();
    let keep = condition.evaluate(&rows)?.into_array(count)?;
    let keep = keep
        .as_boolean_opt()
        .ok_or_else(|| DataFusionError::Plan("expected a boolean condition".to_owned()))?;
    Ok(filter_record_batch(&first_columns(&rows, schema)?, keep)?)
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

/// Wraps one of our errors for DataFusion.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
