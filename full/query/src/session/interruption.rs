//! Stops joins that compare many rows and return none: these come to no pause by themselves.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use sluice_model::ErrorKind;

/// Makes the conditions of joins fail once `stopped` is set.
pub(super) fn with_stops(
    plan: Arc<dyn ExecutionPlan>,
    stopped: &Arc<AtomicBool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let stop = |filter: &JoinFilter| {
        let condition = Arc::clone(filter.expression());
        let condition = StoppableCondition { condition, stopped: Arc::clone(stopped) };
        let places = filter.column_indices().to_vec();
        Some(JoinFilter::new(Arc::new(condition), places, Arc::clone(filter.schema())))
    };
    plan.transform_up(|node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            let join = HashJoinExecBuilder::from(join).with_filter(stop(filter)).build()?;
            return Ok(Transformed::yes(Arc::new(join) as _));
        }
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(stop(filter)).build()?;
            return Ok(Transformed::yes(Arc::new(join) as _));
        }
        Ok(Transformed::no(node))
    })
    .data()
}

/// The condition of a join, which is computed for some thousand pairs of rows at a time.
#[derive(Debug)]
struct StoppableCondition {
    condition: Arc<dyn PhysicalExpr>,
    stopped: Arc<AtomicBool>,
}

impl PhysicalExpr for StoppableCondition {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.condition.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.condition.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.stopped.load(Ordering::Relaxed) {
            let aborted = sluice_model::Error::from(ErrorKind::Aborted);
            return Err(DataFusionError::External(Box::new(aborted)));
        }
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let stopped = Arc::clone(&self.stopped);
        match (children.pop(), children.is_empty()) {
            (Some(condition), true) => Ok(Arc::new(Self { condition, stopped })),
            _ => Err(DataFusionError::Internal("a condition is one expression".to_owned())),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

impl fmt::Display for StoppableCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PartialEq for StoppableCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for StoppableCondition {}

impl Hash for StoppableCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}
