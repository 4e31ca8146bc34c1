//! One table of a log, as DataFusion plans with it. Reads no event.

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
use sluice_core::{Error, PerChannel, Split};

use super::LogTables;
use super::columns::Shape;
use super::reading::Reading;
use super::scan::LogScan;
use super::wanted::Wanted;
use super::work::{Work, external};

/// A table of a log.
#[derive(Debug)]
pub(super) struct LogTable {
    name: String,
    log: Arc<LogTables>,
    shape: Shape,
    schema: SchemaRef,
}

impl LogTable {
    pub(super) fn new(name: String, log: Arc<LogTables>, shape: Shape) -> Self {
        let schema = shape.schema();
        Self { name, log, shape, schema }
    }

    /// What has to be done for a scan of these columns.
    fn work(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<Work> {
        let mut wanted = Wanted::of_table(&self.shape);
        let left = filters.iter().filter(|condition| !wanted.add(condition, &self.shape));
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
        let made_schema = self.projected(&all)?;
        let columns = self.shape.columns();
        let made = all.iter().filter_map(|place| columns.get(*place).copied()).collect();
        let condition = condition
            .map(|condition| reassign_expr_columns(condition, &made_schema))
            .transpose()?;
        Ok(Work {
            log: Arc::clone(&self.log),
            shape: self.shape.clone(),
            wanted,
            made,
            made_schema,
            condition,
            schema: self.projected(&shown)?,
            is_wanted: PerChannel::default(),
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
        // Those that are not told to the source are tried where its events are read.
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
        let reading = state.config().get_extension::<Reading>().unwrap_or_default();
        let work = Arc::new(self.work(state, projection, filters)?);
        let (asked, piece) = (Arc::clone(&work), reading.piece);
        let looked = tokio::task::spawn_blocking(move || look(&asked, piece)).await;
        let looked = looked.map_err(|_| external(Error::broken("looking at a log panicked")))?;
        let (splits, rows) = looked.map_err(external)?;
        let rows = rows.filter(|_| filters.is_empty());
        let partitions = state.config().target_partitions();
        let name = self.name.clone();
        Ok(Arc::new(LogScan::new(name, (work, reading), splits, (limit, rows), partitions)))
    }
}

/// The splits that have to be read, and how many rows files say they have.
fn look(work: &Work, piece: u64) -> std::result::Result<(Vec<Split>, Option<usize>), Error> {
    if work.wanted.is_nothing() {
        return Ok((Vec::new(), Some(0)));
    }
    let splits = work.log.splits(piece, &work.wanted.query())?;
    let inputs = work.log.source.inputs()?;
    if work.wanted.has_channels() || inputs.is_empty() {
        return Ok((splits, None));
    }
    let counts = inputs.iter().map(|input| work.log.source.events_in(&input.path));
    let rows: Option<u64> = counts.collect::<std::result::Result<Vec<_>, _>>()?.into_iter().sum();
    Ok((splits, rows.and_then(|rows| usize::try_from(rows).ok())))
}
