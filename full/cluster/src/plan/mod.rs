//! What is submitted to Ballista: orders as rows in memory, a partition each, and over them a node that
//! has each fulfilled. What all orders of a run share is said once, in the node. Gives no rows: what came
//! of an order lies in its room.
//!
//! The leaf is of a kind that Ballista cuts by partitions itself; it would give any other leaf to every
//! task whole, and each order would be fulfilled as often as there are orders. There is no second stage:
//! what a task gives is of no use to anybody, so nobody fetches it, and an executor that dies costs what
//! it was at and no more.

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

/// A task of Ballista: the unit it is, as scheduler and executor name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BallistaTask {
    /// The job it is of.
    pub(crate) job: String,
    /// The stage of the job.
    pub(crate) stage: usize,
    /// Its number in the stage: another one for each try.
    pub(crate) number: usize,
    /// How often its unit has failed before.
    #[serde(skip)]
    pub(crate) failures: usize,
}

impl BallistaTask {
    /// The task that Ballista names so: `TID JOB/STAGE.ATTEMPT/TASK.FAILURES`.
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

    /// Whether it is the same, whatever is known of its failures.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.job, self.stage, self.number) == (&other.job, other.stage, other.number)
    }
}

/// The plan that has these orders fulfilled, as bytes to submit. The orders are without what they share.
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

/// What an order that could not be read is.
pub(crate) fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_by_the_name_that_ballista_gives_it() {
        let task = BallistaTask::parse_name("TID aBc1/1.0/17.2").unwrap();
        assert_eq!(task, BallistaTask { job: "aBc1".into(), stage: 1, number: 17, failures: 2 });
        assert!(task.is_same(&BallistaTask { failures: 0, ..task.clone() }));
        assert_eq!(BallistaTask::parse_name("TID a/b/c"), None);
        assert_eq!(BallistaTask::parse_name("task_0"), None);
    }
}
