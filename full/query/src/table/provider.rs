//! The table provider of a log: plans scans.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::ExecutionPlan;
use sluice_kit::event_table::TableKind;
use sluice_model::{Error, PerChannel, Split};

use super::LogTables;
use super::cached_rows::CachedTables;
use super::pushdown::Pushdown;
use super::resources::ReadResources;
use super::scan::{LogScan, PlannedReading};
use super::scan_task::{CachedScan, ScanColumns, ScanTask, external};

/// A table of a log.
#[derive(Debug)]
pub(super) struct LogTable {
    name: String,
    log: Arc<LogTables>,
    kind: TableKind,
    schema: SchemaRef,
}

impl LogTable {
    pub(super) fn new(name: String, log: Arc<LogTables>, kind: TableKind) -> Self {
        let schema = kind.schema();
        Self { name, log, kind, schema }
    }

    /// The task of a scan with this projection and these filters.
    fn scan_task(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        split_bytes: u64,
    ) -> Result<ScanTask> {
        let mut pushdown = Pushdown::of_table(&self.kind);
        let left = filters.iter().filter(|condition| !pushdown.add(condition, &self.kind));
        let left: Vec<Expr> = left.cloned().collect();
        let shown: Vec<usize> = match projection {
            Some(places) => places.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let ScanColumns { places, schema: built_schema, condition } =
            self.columns_for(state, &shown, left)?;
        let cached = self.log.cache.is_some().then(|| {
            let columns = self.columns_for(state, &shown, filters.to_vec())?;
            Ok::<_, DataFusionError>(CachedScan { columns, split_bytes })
        });
        let columns = self.kind.columns();
        Ok(ScanTask {
            log: Arc::clone(&self.log),
            kind: self.kind.clone(),
            pushdown,
            built: places.iter().filter_map(|place| columns.get(*place).copied()).collect(),
            built_schema,
            places,
            condition,
            schema: self.projected(&shown)?,
            channel_matches: PerChannel::default(),
            cached: cached.transpose()?,
        })
    }

    /// These columns and those that only the conditions need.
    fn columns_for(
        &self,
        state: &dyn Session,
        shown: &[usize],
        conditions: Vec<Expr>,
    ) -> Result<ScanColumns> {
        let condition = conjunction(conditions).map(|all| self.physical(state, all)).transpose()?;
        let mut needed: Vec<usize> = condition.iter().flat_map(places).collect();
        needed.retain(|place| !shown.contains(place));
        needed.sort_unstable();
        let places: Vec<usize> = shown.iter().copied().chain(needed).collect();
        let schema = self.projected(&places)?;
        let condition =
            condition.map(|condition| reassign_expr_columns(condition, &schema)).transpose()?;
        Ok(ScanColumns { places, schema, condition })
    }

    fn physical(&self, state: &dyn Session, condition: Expr) -> Result<Arc<dyn PhysicalExpr>> {
        let schema = DFSchema::try_from(Arc::clone(&self.schema))?;
        state.create_physical_expr(condition, &schema)
    }

    fn projected(&self, places: &[usize]) -> Result<Arc<Schema>> {
        Ok(Arc::new(self.schema.project(places)?))
    }
}

fn places(condition: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    collect_columns(condition).into_iter().map(|column| column.index()).collect()
}

#[async_trait]
impl TableProvider for LogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Filters that are not pushed down to the source are evaluated where its events are read.
        let of = |filter: &&Expr| {
            if filter.contains_outer() {
                TableProviderFilterPushDown::Unsupported
            } else {
                TableProviderFilterPushDown::Exact
            }
        };
        Ok(filters.iter().map(of).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let resources = state.config().get_extension::<ReadResources>().unwrap_or_default();
        let split_bytes = resources.limits.split_bytes as u64;
        let task = Arc::new(self.scan_task(state, projection, filters, split_bytes)?);
        let planned_task = Arc::clone(&task);
        let planned =
            tokio::task::spawn_blocking(move || plan_reading(&planned_task, split_bytes)).await;
        let planned = planned.map_err(|_| external(Error::internal("planning a scan panicked")))?;
        let mut planned = planned.map_err(external)?;
        planned.rows = planned.rows.filter(|_| filters.is_empty());
        let partitions = state.config().target_partitions();
        let name = self.name.clone();
        Ok(Arc::new(LogScan::new(name, (task, resources), planned, limit, partitions)))
    }
}

/// How to read a table: from the cache if it is there, or else from the log.
fn plan_reading(task: &ScanTask, split_bytes: u64) -> std::result::Result<PlannedReading, Error> {
    // First, so that the splits are those of this state of the log.
    let cached = CachedTables::find(task).map(Arc::new);
    let (splits, rows) = plan_splits(task, split_bytes)?;
    Ok(PlannedReading { cached, splits: splits.into(), rows })
}

/// The splits to read, and the number of rows according to the files.
fn plan_splits(
    task: &ScanTask,
    split_bytes: u64,
) -> std::result::Result<(Vec<Split>, Option<usize>), Error> {
    if task.pushdown.is_empty() {
        return Ok((Vec::new(), Some(0)));
    }
    let splits = task.log.splits(split_bytes, &task.pushdown.query())?;
    let inputs = task.log.source.inputs()?;
    if task.pushdown.has_channels() || inputs.is_empty() {
        return Ok((splits, None));
    }
    let counts = inputs.iter().map(|input| task.log.source.events_in(&input.path));
    let rows: Option<u64> = counts.collect::<std::result::Result<Vec<_>, _>>()?.into_iter().sum();
    Ok((splits, rows.and_then(|rows| usize::try_from(rows).ok())))
}
