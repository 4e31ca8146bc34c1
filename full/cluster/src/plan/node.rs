//! The plan node that runs orders, with the worker of the executor.

use std::fmt;
use std::io;
use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};

use super::{BallistaTask, internal};

/// Runs units.
pub(crate) trait UnitWorker: fmt::Debug + Send + Sync {
    /// Runs one order, given as the part shared by its run and its own part. `Err` makes Ballista
    /// retry, here or elsewhere. Dropping the future cancels the unit.
    fn run_unit(
        self: Arc<Self>,
        task: BallistaTask,
        shared: Arc<str>,
        order: String,
    ) -> BoxFuture<'static, io::Result<()>>;
}

/// Runs each order of its input, and returns no rows.
#[derive(Debug)]
pub(crate) struct UnitExec {
    input: Arc<dyn ExecutionPlan>,
    /// What all orders share.
    shared: Arc<str>,
    /// Set on executors only.
    worker: Option<Arc<dyn UnitWorker>>,
}

impl UnitExec {
    /// The node above these orders.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        shared: Arc<str>,
        worker: Option<Arc<dyn UnitWorker>>,
    ) -> Self {
        Self { input, shared, worker }
    }

    /// What all orders share.
    pub(super) fn shared(&self) -> &str {
        &self.shared
    }
}

impl DisplayAs for UnitExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnitExec")
    }
}

impl ExecutionPlan for UnitExec {
    fn name(&self) -> &str {
        "UnitExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(Self::new(input, Arc::clone(&self.shared), self.worker.clone())))
            }
            _ => Err(internal("expected one plan below a plan of orders")),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let worker = self.worker.clone();
        let worker = worker.ok_or_else(|| internal("only executors can run orders"))?;
        let task = context.task_id().as_deref().and_then(BallistaTask::parse_name);
        let task = task.ok_or_else(|| internal("expected a task id"))?;
        let orders = self.input.execute(partition, context)?;
        let all = stream::once(run_units(orders, Arc::clone(&self.shared), worker, task));
        let nothing = all.filter_map(async |result| result.err().map(Err));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), nothing)))
    }
}

async fn run_units(
    mut orders: SendableRecordBatchStream,
    shared: Arc<str>,
    worker: Arc<dyn UnitWorker>,
    task: BallistaTask,
) -> Result<()> {
    while let Some(batch) = orders.next().await {
        for order in texts(&batch?)? {
            let work = Arc::clone(&worker).run_unit(task.clone(), Arc::clone(&shared), order);
            work.await.map_err(DataFusionError::IoError)?;
        }
    }
    Ok(())
}

fn texts(batch: &RecordBatch) -> Result<Vec<String>> {
    let column = batch.columns().first().and_then(|c| c.as_any().downcast_ref::<StringArray>());
    let column = column.ok_or_else(|| internal("expected a column of orders"))?;
    Ok(column.iter().flatten().map(str::to_owned).collect())
}
