//! Per-row queries over several tables: events wait until the columns of all tables are known.

use sluice_model::options::ByteSize;
use sluice_model::{Batch, Error, Fold, Map, Pattern, StageContext};

use super::query::{Query, QueryTable};
use super::row_map::{RowMap, channel_query};
use super::schemas::TableSchemas;
use super::tables::TableMembers;

/// Events that wait for the columns of tables, within a limit.
#[derive(Debug)]
pub(super) struct PendingEvents {
    batches: Vec<Batch>,
    bytes: usize,
    max_bytes: usize,
}

impl PendingEvents {
    pub(super) fn with_budget(max_bytes: usize) -> Self {
        Self { batches: Vec::new(), bytes: 0, max_bytes }
    }

    /// Adds a batch. `Err` if the limit is exceeded.
    pub(super) fn push(&mut self, batch: Batch, schemas: &TableSchemas) -> Result<(), Error> {
        // Only the table `events` has payloads.
        let batch = if schemas.has_events() { batch.compact() } else { batch.without_payloads() };
        self.bytes += batch.memory();
        self.batches.push(batch);
        if self.bytes <= self.max_bytes {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "more than {} of events wait for the first decoded event of {}: declare its columns \
             in `tables`, so that nothing waits",
            ByteSize(self.max_bytes as u64),
            table_list(&schemas.unknown_tables())
        )))
    }

    /// Takes all waiting events.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        self.bytes = 0;
        std::mem::take(&mut self.batches)
    }

    /// Ends the input: `Err` if events still wait for unknown columns.
    pub(super) fn end(&mut self, schemas: &TableSchemas) -> Result<(), Error> {
        if self.take().is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "no decoded event of {} came, so its columns are unknown: declare them in `tables`, \
             or remove the table from the query",
            table_list(&schemas.unknown_tables())
        )))
    }
}

fn table_list(tables: &[&QueryTable]) -> String {
    tables.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// A per-row query that discovers the columns of its tables.
#[derive(Debug)]
pub(super) struct DeferredRowMap {
    row_map: RowMap,
    pending: PendingEvents,
}

impl DeferredRowMap {
    pub(super) fn new(row_map: RowMap, max_bytes: usize) -> Self {
        Self { row_map, pending: PendingEvents::with_budget(max_bytes) }
    }
}

impl Fold for DeferredRowMap {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.row_map.schemas.discover(&batch, context.channels)?;
        if !self.row_map.schemas.unknown_tables().is_empty() {
            self.pending.push(batch, &self.row_map.schemas)?;
            return Ok(Vec::new());
        }
        let pending = self.pending.take();
        pending
            .iter()
            .chain([&batch])
            .map(|batch| self.row_map.query_batch(batch, context))
            .collect()
    }

    fn finish(&mut self, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.pending.end(&self.row_map.schemas)?;
        Ok(Vec::new())
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        self.row_map.named_channels()
    }
}

/// Drops events of channels that the query does not read. Sources can apply it too.
#[derive(Debug)]
pub(super) struct ChannelPrefilter {
    tables: Vec<QueryTable>,
    members: TableMembers,
}

impl ChannelPrefilter {
    /// The filter for a query; `None` if the query reads all events.
    pub(super) fn new(query: &Query) -> Option<Self> {
        let tables = query.tables.clone();
        let members = TableMembers::new(&tables);
        (!tables.contains(&QueryTable::Events)).then_some(Self { tables, members })
    }
}

impl Map for ChannelPrefilter {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let places = self.members.places(context.channels)?;
        let channels = batch.channels();
        let kept = batch.retain(|row| places[channels[row] as usize].is_some());
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    fn query(&self) -> sluice_model::plugin::MapQuery {
        sluice_model::plugin::MapQuery {
            channels: channel_query(&self.tables),
            keeps_times: true,
            keeps_channels: true,
            ..Default::default()
        }
    }
}
