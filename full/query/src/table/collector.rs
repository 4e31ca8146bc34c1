//! Collects the rows of a table while a query reads it, and stores them in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use sluice_model::DamageList;

use super::LogTables;
use super::findings::TableFindings;
use super::scan_task::ScanTask;
use super::stored_rows::{is_label, stored_schema};
use crate::cache::{TableCache, TableSummary, TableWriter};

/// Tables of logs with more damage are not stored.
const MAX_DAMAGE: usize = 10_000;

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
        let writer = cache(&task.log)?
            .create(&stored_schema(&task.built, &task.built_schema), max_bytes as u64)?;
        Some(Self {
            task: Arc::clone(task),
            key: key.to_owned(),
            writer,
            channels: Vec::new(),
            findings: TableFindings::default(),
            damaged_ranges: 0,
        })
    }

    /// Adds the next rows, as [`stored_rows`](super::stored_rows::stored_rows) makes them, their
    /// channels, and the damage before or in them. `None` if the table cannot be stored.
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
