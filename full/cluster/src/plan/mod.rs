//! The plan that is submitted to Ballista: orders as rows in memory, one partition each, below a
//! node that runs them. The node holds what all orders of a run share. The plan returns no rows:
//! results are in the staging directory.
//!
//! The leaf is of a type that Ballista splits by partition. Any other leaf would go to every task
//! as a whole, and each order would run as often as there are orders. There is only one stage:
//! nobody fetches what a task returns, so a lost executor costs only its running units.

mod codec;
mod node;

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use serde::{Deserialize, Serialize};

pub(crate) use codec::PlanCodec;
pub(crate) use node::{UnitExec, UnitWorker};

/// A Ballista task, named as scheduler and executors name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BallistaTask {
    /// The job of the task.
    pub(crate) job: String,
    /// The stage of the job.
    pub(crate) stage: usize,
    /// The number in the stage: a new one for each attempt.
    pub(crate) number: usize,
    /// How often the unit has failed before.
    #[serde(skip)]
    pub(crate) failures: usize,
}

impl BallistaTask {
    /// Parses Ballista's name of a task: `TID JOB/STAGE.ATTEMPT/TASK.FAILURES`.
    pub(crate) fn parse_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("TID ")?.split('/');
        let (job, stage, task) = (parts.next()?, parts.next()?, parts.next()?);
        let (stage, _attempt) = stage.split_once('.')?;
        let (number, failures) = task.split_once('.')?;
        Some(Self {
            job: job.to_owned(),
            stage: stage.parse().ok()?,
            number: number.parse().ok()?,
            failures: failures.parse().ok()?,
        })
    }

    /// Whether it is the same task, ignoring `failures`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.job, self.stage, self.number) == (&other.job, other.stage, other.number)
    }
}

/// The serialized plan that runs these orders. `orders` are without the part that they share.
pub(crate) fn encode_plan(shared: &str, orders: &[&str]) -> Result<Vec<u8>> {
    let schema = Arc::new(Schema::new(vec![Field::new("order", DataType::Utf8, false)]));
    let partition = |order: &&str| -> Result<Vec<RecordBatch>> {
        let column = Arc::new(StringArray::from(vec![*order]));
        Ok(vec![RecordBatch::try_new(Arc::clone(&schema), vec![column])?])
    };
    let partitions = orders.iter().map(partition).collect::<Result<Vec<_>>>()?;
    let leaf = MemorySourceConfig::try_new_exec(&partitions, Arc::clone(&schema), None)?;
    let plan = Arc::new(UnitExec::new(leaf, shared.into(), None));
    let message = PhysicalPlanNode::try_from_physical_plan(plan, &PlanCodec::for_planning())?;
    let mut bytes = Vec::new();
    message.try_encode(&mut bytes)?;
    Ok(bytes)
}

/// An error for a plan that this program did not make.
pub(crate) fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_name_of_ballista_is_parsed() {
        let task = BallistaTask::parse_name("TID aBc1/1.0/17.2").unwrap();
        assert_eq!(task, BallistaTask { job: "aBc1".into(), stage: 1, number: 17, failures: 2 });
        assert!(task.is_same(&BallistaTask { failures: 0, ..task.clone() }));
        assert_eq!(BallistaTask::parse_name("TID a/b/c"), None);
        assert_eq!(BallistaTask::parse_name("task_0"), None);
    }
}
