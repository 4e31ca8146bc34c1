//! Makes joins stop when a query is stopped: they come to no pause by themselves.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion::physical_plan::union::UnionExec;
use sluice_model::ErrorKind;

/// Says whether a query was stopped.
#[derive(Clone)]
pub(crate) struct StopCheck(Arc<dyn Fn() -> bool + Send + Sync>);

impl StopCheck {
    pub(crate) fn new(is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_stopped))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for StopCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StopCheck({})", self.is_stopped())
    }
}

/// Makes joins pause after some batches, since they may make any number of rows of those that they
/// have read, and their conditions fail once the query is stopped, since they may compare many rows
/// and make none. DataFusion pauses operators that read.
pub(crate) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    check: &StopCheck,
) -> Result<Arc<dyn ExecutionPlan>> {
    let stop = |filter: &JoinFilter| {
        let condition = Arc::clone(filter.expression());
        let condition = StoppableCondition { condition, check: check.clone() };
        let places = filter.column_indices().to_vec();
        Some(JoinFilter::new(Arc::new(condition), places, Arc::clone(filter.schema())))
    };
    plan.transform_up(|mut node| {
        if node.children().len() < 2 || node.downcast_ref::<UnionExec>().is_some() {
            return Ok(Transformed::no(node));
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            node = Arc::new(HashJoinExecBuilder::from(join).with_filter(stop(filter)).build()?);
        } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(stop(filter)).build()?;
            node = Arc::new(join);
        }
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as _))
    })
    .data()
}

/// The condition of a join, which is computed for some thousand pairs of rows at a time.
#[derive(Debug)]
struct StoppableCondition {
    condition: Arc<dyn PhysicalExpr>,
    check: StopCheck,
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
        if self.check.is_stopped() {
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
        let check = self.check.clone();
        match (children.pop(), children.is_empty()) {
            (Some(condition), true) => Ok(Arc::new(Self { condition, check })),
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
