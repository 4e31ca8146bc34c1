//! The physical plan of a scan, and its streams.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::stream;
use sluice_model::{Query, Split};

use super::cached_rows::{CachedRows, CachedTables};
use super::resources::ReadResources;
use super::scan_rows::ScanRows;
use super::scan_task::{ScanTask, external};

/// A scan of a log's table.
///
/// With one partition, rows come in log order. Several partitions take batches from one queue as
/// they are polled, so each row comes once.
#[derive(Debug)]
pub(super) struct LogScan {
    /// The name of the table.
    name: String,
    task: Arc<ScanTask>,
    resources: Arc<ReadResources>,
    planned: PlannedReading,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    shared: Mutex<SharedRead>,
    metrics: ExecutionPlanMetricsSet,
}

/// How to read a table.
#[derive(Clone, Debug)]
pub(super) struct PlannedReading {
    /// The cached tables, if the table may be cached.
    pub(super) cached: Option<Arc<CachedTables>>,
    /// The splits to read if the rows are not cached.
    pub(super) splits: Arc<[Split]>,
    /// The estimated number of rows, if known.
    pub(super) rows: Option<usize>,
}

/// The rows of a scan.
enum TableRows {
    Log(Box<ScanRows>),
    Cached(Box<CachedRows>),
}

impl TableRows {
    /// The next rows in order; `None` at the end.
    async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Log(rows) => rows.next_rows().await,
            Self::Cached(rows) => rows.next_rows(),
        }
    }
}

/// Rows that each partition joins once.
#[derive(Default)]
struct SharedRead {
    rows: Option<Arc<tokio::sync::Mutex<TableRows>>>,
    partitions_started: Vec<usize>,
}

impl fmt::Debug for SharedRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRead")
            .field("partitions_started", &self.partitions_started)
            .finish_non_exhaustive()
    }
}

impl LogScan {
    pub(super) fn new(
        name: String,
        (task, resources): (Arc<ScanTask>, Arc<ReadResources>),
        planned: PlannedReading,
        limit: Option<usize>,
        partitions: usize,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&task.schema)),
            Partitioning::UnknownPartitioning(partitions.min(planned.splits.len()).max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            name,
            task,
            resources,
            planned,
            limit,
            properties: Arc::new(properties),
            shared: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same scan, not started.
    fn restarted(&self, limit: Option<usize>) -> Self {
        let (task, resources) = (Arc::clone(&self.task), Arc::clone(&self.resources));
        let (name, planned) = (self.name.clone(), self.planned.clone());
        Self::new(name, (task, resources), planned, limit, self.partitions())
    }

    fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    /// The rows that a partition shares: new ones if it has joined the last.
    fn shared_rows(
        &self,
        partition: usize,
        context: &TaskContext,
    ) -> Result<Arc<tokio::sync::Mutex<TableRows>>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.partitions_started.contains(&partition) {
            *shared = SharedRead::default();
        }
        let rows = match &shared.rows {
            Some(rows) => Arc::clone(rows),
            None => {
                let rows = Arc::new(tokio::sync::Mutex::new(self.open(context)?));
                shared.rows = Some(Arc::clone(&rows));
                rows
            }
        };
        shared.partitions_started.push(partition);
        if shared.partitions_started.len() == self.partitions() {
            // Reading stops with the last stream, not with the plan.
            *shared = SharedRead::default();
        }
        Ok(rows)
    }

    /// Opens the cached table, or else starts to read the log.
    fn open(&self, context: &TaskContext) -> Result<TableRows> {
        let task = &self.task;
        // The log may have changed since the query was planned.
        let cached = self.planned.cached.as_ref().filter(|cached| cached.is_current(task));
        let rows = cached.and_then(|cached| cached.open(task, self.limit, context.memory_pool()));
        if let Some(rows) = rows {
            return Ok(TableRows::Cached(Box::new(rows)));
        }
        task.log.claim_read().map_err(external)?;
        let resources = Arc::clone(&self.resources);
        let splits = self.planned.splits.to_vec();
        let key = cached.map(|cached| &*cached.key);
        let rows = ScanRows::new(Arc::clone(task), resources, splits, self.limit, key);
        Ok(TableRows::Log(Box::new(rows)))
    }

    /// The number of splits without pushdown.
    fn all_splits(&self) -> Option<usize> {
        let all = self.task.log.splits(self.resources.limits.split_bytes as u64, &Query::default());
        all.ok().map(|splits| splits.len())
    }
}

impl DisplayAs for LogScan {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(format, DisplayFormatType::TreeRender) {
            return write!(f, "log={}", self.name);
        }
        write!(f, "LogScan: {}", self.name)?;
        if self.planned.cached.as_ref().is_some_and(|cached| cached.has(&self.task, self.limit)) {
            f.write_str(", cached")?;
        } else {
            write!(f, ", splits={}", self.planned.splits.len())?;
            if let Some(all) = self.all_splits() {
                write!(f, " of {all}")?;
            }
        }
        write!(f, "{}", self.task.pushdown)?;
        if let Some(condition) = &self.task.condition {
            write!(f, ", condition={condition}")?;
        }
        let columns: Vec<&str> =
            self.task.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, ", columns=[{}]", columns.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for LogScan {
    fn name(&self) -> &'static str {
        "LogScan"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.task.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            internal_err!("a scan of a log has no children")
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            internal_err!("a scan of a log has no children")
        }
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.task.condition.as_ref().map_or(Ok(TreeNodeRecursion::Continue), f)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.restarted(self.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.shared_rows(partition, &context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = stream::try_unfold((rows, metrics), |(rows, metrics)| async {
            let batch = rows.lock().await.next_rows().await?;
            Ok(batch.map(|batch| (batch.record_output(&metrics), (rows, metrics))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        // Row counts in files may be wrong, and damage removes rows.
        if let Some(rows) = self.planned.rows.filter(|_| args.partition().is_none()) {
            statistics.num_rows =
                Precision::Inexact(self.limit.map_or(rows, |limit| rows.min(limit)));
        }
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let limit = match (limit, self.limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Some(Arc::new(self.restarted(limit)))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}
