//! The table provider of a log: plans scans.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::ExecutionPlan;
use sluice_kit::event_table::TableKind;
use sluice_model::{Error, PerChannel, Split};

use super::LogTables;
use super::pushdown::Pushdown;
use super::resources::ReadResources;
use super::scan::LogScan;
use super::scan_task::{ScanTask, external};

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
    ) -> Result<ScanTask> {
        let mut pushdown = Pushdown::of_table(&self.kind);
        let left = filters.iter().filter(|condition| !pushdown.add(condition, &self.kind));
        let condition = conjunction(left.cloned().collect::<Vec<_>>());
        let condition = condition.map(|condition| self.physical(state, condition)).transpose()?;
        let shown: Vec<usize> = match projection {
            Some(places) => places.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let mut needed: Vec<usize> = condition.iter().flat_map(places).collect();
        needed.retain(|place| !shown.contains(place));
        needed.sort_unstable();
        let all: Vec<usize> = shown.iter().copied().chain(needed).collect();
        let built_schema = self.projected(&all)?;
        let columns = self.kind.columns();
        let built = all.iter().filter_map(|place| columns.get(*place).copied()).collect();
        let condition = condition
            .map(|condition| reassign_expr_columns(condition, &built_schema))
            .transpose()?;
        Ok(ScanTask {
            log: Arc::clone(&self.log),
            kind: self.kind.clone(),
            pushdown,
            built,
            built_schema,
            condition,
            schema: self.projected(&shown)?,
            channel_matches: PerChannel::default(),
        })
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
        let task = Arc::new(self.scan_task(state, projection, filters)?);
        let (planned_task, split_bytes) = (Arc::clone(&task), resources.limits.split_bytes as u64);
        let planned =
            tokio::task::spawn_blocking(move || plan_splits(&planned_task, split_bytes)).await;
        let planned = planned.map_err(|_| external(Error::internal("planning a scan panicked")))?;
        let (splits, rows) = planned.map_err(external)?;
        let rows = rows.filter(|_| filters.is_empty());
        let partitions = state.config().target_partitions();
        let name = self.name.clone();
        Ok(Arc::new(LogScan::new(name, (task, resources), splits, (limit, rows), partitions)))
    }
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
