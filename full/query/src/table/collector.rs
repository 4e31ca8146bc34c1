//! Collects the rows of a table while a query reads it, and stores them in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt16Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sluice_kit::event_table::{LogColumn, column_mismatch};
use sluice_model::{Batch, DamageList, Error};

use super::LogTables;
use super::findings::TableFindings;
use super::scan_task::ScanTask;
use crate::cache::{TableCache, TableSummary, TableWriter};

/// The column with channel ids, which stands for the columns `source` and `channel`. First, if any
/// of them is stored.
const CHANNEL_ID: &str = "channel_id";

/// Tables of logs with more damage are not stored.
const MAX_DAMAGE: usize = 10_000;

/// Whether a column is stored as a channel id.
pub(super) fn is_label(column: LogColumn) -> bool {
    matches!(column, LogColumn::Source | LogColumn::Channel)
}

/// Stores the rows of a table if all of them are read.
pub(super) struct TableCollector {
    task: Arc<ScanTask>,
    /// The key of the table before it was read.
    key: String,
    writer: TableWriter,
    /// Which channels the rows have, by channel id.
    channels: Vec<bool>,
    findings: TableFindings,
    damaged_ranges: usize,
}

impl TableCollector {
    /// Collects the columns that a task builds; at most `max_bytes` in the cache. `None` if they
    /// cannot be stored.
    pub(super) fn new(task: &Arc<ScanTask>, key: &str, max_bytes: usize) -> Option<Self> {
        if !task.is_storable() {
            return None;
        }
        let writer = cache(&task.log)?.create(&stored_schema(task), max_bytes as u64)?;
        Some(Self {
            task: Arc::clone(task),
            key: key.to_owned(),
            writer,
            channels: Vec::new(),
            findings: TableFindings::default(),
            damaged_ranges: 0,
        })
    }

    /// Adds the next rows, which are made by [`stored_rows`], their channels, and the damage before
    /// or in them. `None` if the table cannot be stored.
    pub(super) fn add(
        &mut self,
        rows: &[RecordBatch],
        channels: &[bool],
        damage: &DamageList,
    ) -> Option<()> {
        self.damaged_ranges += damage.len();
        if self.damaged_ranges > MAX_DAMAGE {
            return None;
        }
        self.findings.add_damage(damage);
        if self.channels.len() < channels.len() {
            self.channels.resize(channels.len(), false);
        }
        self.channels.iter_mut().zip(channels).for_each(|(all, these)| *all |= these);
        rows.iter().try_for_each(|rows| self.writer.add(rows)).ok()
    }

    /// Stores the table after its last row, unless the log has changed since the first.
    pub(super) fn finish(
        mut self,
        left_out: &BTreeMap<String, u64>,
        notes: &BTreeMap<String, u64>,
    ) {
        let log = &self.task.log;
        let Some(cache) = cache(log) else { return };
        if self.task.cache_key().as_ref() != Some(&self.key) {
            return;
        }
        self.findings.set_counts(left_out, notes);
        let has_labels = self.task.built.iter().any(|column| is_label(*column));
        let channels = log.channels.since(0);
        let labels = channels.iter().filter(|_| has_labels);
        let labels = labels.map(|channel| (channel.name.text().into(), (*channel.source).into()));
        let met = channels.iter().zip(&self.channels).filter(|(_, met)| **met);
        let names: BTreeSet<String> = met.map(|(channel, _)| channel.name.text().into()).collect();
        let summary = TableSummary {
            labels: labels.collect(),
            channels: names.into_iter().collect(),
            columns: self.task.places.clone(),
            key: self.key,
            findings: self.findings,
        };
        cache.finish(self.writer, &summary);
    }
}

fn cache(log: &LogTables) -> Option<&TableCache> {
    log.cache.as_ref().map(|cache| &*cache.tables)
}

/// The schema in which the columns of a task are stored.
fn stored_schema(task: &ScanTask) -> SchemaRef {
    let has_labels = task.built.iter().any(|column| is_label(*column));
    let id = has_labels.then(|| Arc::new(Field::new(CHANNEL_ID, DataType::UInt16, false)));
    let others = task.built.iter().zip(task.built_schema.fields());
    let others = others.filter(|(column, _)| !is_label(**column));
    let others = others.map(|(_, field)| Arc::clone(field));
    Arc::new(Schema::new(id.into_iter().chain(others).collect::<Vec<_>>()))
}

/// The rows of a batch as they are stored. `rows` are its columns.
pub(super) fn stored_rows(
    task: &ScanTask,
    batch: &Batch,
    rows: &RecordBatch,
) -> Result<RecordBatch, Error> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    if task.built.iter().any(|column| is_label(*column)) {
        let ids = batch.channels().iter().map(|id| u16::try_from(*id));
        let ids: UInt16Array = ids.collect::<Result<Vec<_>, _>>().map_err(too_many)?.into();
        columns.push(Arc::new(ids));
    }
    let others = task.built.iter().zip(rows.columns()).filter(|(column, _)| !is_label(**column));
    columns.extend(others.map(|(_, values)| Arc::clone(values)));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(stored_schema(task), columns, &options)
        .map_err(column_mismatch)
}

fn too_many(_: std::num::TryFromIntError) -> Error {
    Error::internal("more channels than a run may have")
}
