//! Executes a plan that is fed with rows, on a current-thread runtime: it works only while the
//! caller waits in `step`.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrow_array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use sluice_model::Error;
use tokio::runtime::{Builder, Runtime};

use super::super::plan::{Planner, StagePlan};
use super::feed::{QueueBudget, ScanFeed};
use crate::session::{QueryError, StopCheck, catch_panics, stoppable};

/// Rows per batch of an operator: small, as rows may be long and several sorted runs are merged at
/// a time.
const BATCH_ROWS: usize = 1024;

/// How often a plan that waits for a disk checks whether to stop.
const ABORT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often a plan is polled without taking rows before it counts as waiting for rows: rows pass
/// through few operators.
const MAX_IDLE_POLLS: u32 = 16;

/// A planner whose plans may use this much memory.
pub(super) fn planner(memory: usize, spill: Option<&Path>) -> Result<Planner, Error> {
    let mode = match spill {
        Some(folder) => DiskManagerMode::Directories(vec![folder.to_owned()]),
        None => DiskManagerMode::OsTmpDirectory,
    };
    // Spilling is limited only by the disk.
    let disks =
        DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(u64::MAX);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory)))
        .with_disk_manager_builder(disks)
        .build_arc()
        .map_err(|error| match spill {
            Some(folder) => {
                Error::refused(format!("cannot use `spill` {}: {error}", folder.display()))
            }
            None => Error::refused(format!("cannot use the folder for temporary files: {error}")),
        })?;
    let mut planner = Planner::new(BATCH_ROWS, runtime);
    planner.config.options_mut().execution.sort_spill_reservation_bytes =
        (memory / 8).min(10 << 20);
    Ok(planner)
}

/// A running plan.
pub(super) struct PlanExecution {
    /// Must be dropped before the runtime.
    stream: Option<SendableRecordBatchStream>,
    runtime: Option<Runtime>,
    scans: Vec<ScanFeed>,
    budget: Arc<QueueBudget>,
    check: StopCheck,
}

impl fmt::Debug for PlanExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanExecution").field("scans", &self.scans).finish_non_exhaustive()
    }
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum ExecutionStep {
    Rows(RecordBatch),
    /// It needs more rows.
    NeedsRows,
    /// It has returned its last row.
    Done,
    /// The run was aborted.
    Aborted,
}

impl PlanExecution {
    /// Starts a plan. `most_waiting` bounds the bytes in its queues.
    pub(super) fn begin(
        planned: StagePlan,
        planner: &Planner,
        most_waiting: usize,
        check: StopCheck,
    ) -> Result<Self, QueryError> {
        let budget = QueueBudget::new(most_waiting);
        let mut scans = Vec::new();
        let plan = with_queues(&planned, &mut scans, &budget);
        let plan = plan.and_then(|plan| stoppable(plan, &check));
        let plan = plan.map_err(QueryError::from_datafusion)?;
        let context = TaskContext::default().with_session_config(planner.config.clone());
        let context = Arc::new(context.with_runtime(Arc::clone(&planner.runtime)));
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| {
            QueryError::Failed(Error::refused(format!(
                "cannot start a runtime for a query: {error}"
            )))
        })?;
        let stream = {
            let _inside = runtime.enter();
            let stream = catch_panics(|| execute_stream(plan, context));
            stream.map_err(QueryError::from_datafusion)?
        };
        Ok(Self { stream: Some(stream), runtime: Some(runtime), scans, budget, check })
    }

    /// How many rows a table needs to complete a batch.
    pub(super) fn rows_needed(&self, table: usize) -> Option<usize> {
        self.scans.iter().find_map(|scan| scan.rows_needed(table))
    }

    /// Adds rows of a table, at most as many as `rows_needed`.
    pub(super) fn push(&mut self, table: usize, rows: &RecordBatch) -> Result<(), QueryError> {
        let mut pushed = self.scans.iter_mut().map(|scan| scan.push(table, rows));
        pushed.find(Result::is_err).unwrap_or(Ok(())).map_err(QueryError::from_datafusion)
    }

    /// Ends the input.
    pub(super) fn end(&mut self) -> Result<(), QueryError> {
        let ended = self.scans.iter_mut().map(ScanFeed::end);
        let ended: Vec<Result<()>> = ended.collect();
        ended.into_iter().collect::<Result<()>>().map_err(QueryError::from_datafusion)
    }

    /// Runs until there are result rows, or more input is needed.
    pub(super) fn step(&mut self) -> Result<ExecutionStep, QueryError> {
        let Self { stream: Some(stream), runtime: Some(runtime), scans, budget, check } = self
        else {
            return Ok(ExecutionStep::Done);
        };
        let step = async {
            let mut abort_poll = tokio::time::interval(ABORT_POLL_INTERVAL);
            let (mut batches_taken, mut idle_polls) = (budget.batches_taken(), 0);
            poll_fn(|context| {
                budget.driver.register(context.waker());
                if check.is_stopped() {
                    return Poll::Ready(Ok(ExecutionStep::Aborted));
                }
                match stream.poll_next_unpin(context) {
                    Poll::Ready(Some(rows)) => return Poll::Ready(rows.map(ExecutionStep::Rows)),
                    Poll::Ready(None) => return Poll::Ready(Ok(ExecutionStep::Done)),
                    Poll::Pending => {}
                }
                if scans.iter().any(ScanFeed::needs_rows) {
                    // Other operators may still process earlier rows.
                    idle_polls =
                        if batches_taken == budget.batches_taken() { idle_polls + 1 } else { 0 };
                    batches_taken = budget.batches_taken();
                    if idle_polls > MAX_IDLE_POLLS {
                        return Poll::Ready(Ok(ExecutionStep::NeedsRows));
                    }
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                while abort_poll.poll_tick(context).is_ready() {}
                Poll::Pending
            })
            .await
        };
        catch_panics(|| runtime.block_on(step)).map_err(QueryError::from_datafusion)
    }
}

impl Drop for PlanExecution {
    fn drop(&mut self) {
        // Do not wait for writes to a disk.
        self.stream = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Replaces each table scan of a plan by a queue.
fn with_queues(
    planned: &StagePlan,
    scans: &mut Vec<ScanFeed>,
    budget: &Arc<QueueBudget>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let replace_scan = |node: Arc<dyn ExecutionPlan>| {
        let Some(read) = node.downcast_ref::<StreamingTableExec>() else {
            return Ok(Transformed::no(node));
        };
        let table = read.partitions().first();
        let table =
            table.and_then(|stream| planned.inputs.iter().position(|input| input.is(stream)));
        let table = table.ok_or_else(|| {
            DataFusionError::Internal("a table that is not the query's".to_owned())
        })?;
        let columns = match read.projection() {
            Some(columns) => columns.to_vec(),
            None => (0..read.partition_schema().fields().len()).collect(),
        };
        let (scan, feed) = ScanFeed::new(table, columns, &read.schema(), BATCH_ROWS, budget);
        scans.push(scan);
        let none = std::iter::empty();
        let exec =
            StreamingTableExec::try_new(read.schema(), vec![feed], None, none, false, read.limit());
        Ok(Transformed::yes(Arc::new(exec?) as _))
    };
    Arc::clone(&planned.physical).transform_up(replace_scan).data()
}
