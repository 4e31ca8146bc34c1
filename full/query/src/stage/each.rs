//! Queries that decide of each row alone: of each batch on any thread, or in order once the columns of all
//! their tables are known.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use futures::executor::block_on;
use sluice_core::{Batch, ChannelQuery, Error, Map, Pattern, Patterns, StageContext, plugin};

use super::known::{Known, Share};
use super::leaf::Part;
use super::outcome::{Outcome, account, merged};
use super::plan::{Planned, Planner};
use super::query::{Mistake, Query, Table};

/// How many types of messages may be asked of one channel.
const MOST_TYPES: usize = 256;

/// A query over batches.
#[derive(Debug)]
pub(super) struct Each {
    pub(super) query: Arc<Query>,
    pub(super) planner: Planner,
    pub(super) known: Known,
    /// The channel of rows of which the query says none.
    pub(super) channel: Option<String>,
    plans: Mutex<Vec<(Vec<SchemaRef>, Arc<Plan>)>>,
}

/// A plan, and what its rows say.
#[derive(Debug)]
pub(super) struct Plan {
    physical: Arc<dyn ExecutionPlan>,
    outcome: Outcome,
}

impl Each {
    pub(super) fn new(
        query: Arc<Query>,
        planner: Planner,
        known: Known,
        channel: Option<String>,
    ) -> Self {
        Self { query, planner, known, channel, plans: Mutex::default() }
    }

    /// The plan for tables of these columns.
    pub(super) fn plan(&self, tables: &[SchemaRef]) -> Result<Arc<Plan>, Mistake> {
        // Held while planning: other threads need the same one.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = plans.iter().find(|(known, _)| known == tables) {
            return Ok(Arc::clone(plan));
        }
        if plans.len() >= MOST_TYPES {
            return Err(Mistake::new(format!(
                "messages of more than {MOST_TYPES} types are on one channel; take those that are meant with \
                 a stage `filter` before"
            )));
        }
        let planned = self.planner.each(&self.query, tables).map_err(Mistake::of_planner)?;
        let plan = Arc::new(Plan::of(planned).map_err(Mistake::new)?);
        plans.push((tables.to_vec(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// What the query makes of a batch. Counts what becomes of its events.
    pub(super) fn ask(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        context.clamps_times(batch);
        let shares = self.known.shares(batch, context)?;
        let mut parts = Vec::new();
        for Share { schemas, rows } in shares {
            let plan = self.plan(&schemas).map_err(|mistake| self.wrong(&mistake))?;
            let rows = plan.run(&self.planner, rows).map_err(|error| self.failed(error))?;
            if let Some(rows) = rows {
                let channel = self.channel.as_deref();
                let derived = plan.outcome.derived(rows, batch, channel, context.channels);
                parts.push(derived.map_err(|error| self.about(&error))?);
            }
        }
        let (given, places) = if parts.is_empty() { Default::default() } else { merged(parts) };
        account(batch, &places, context);
        Ok(given)
    }

    fn wrong(&self, mistake: &Mistake) -> Error {
        Error::unfit(format!("the query `{}`: {}", self.query.shown(), self.query.show(mistake)))
    }

    fn failed(&self, error: DataFusionError) -> Error {
        self.wrong(&Mistake::of_planner(error))
    }

    fn about(&self, error: &Error) -> Error {
        Error::unfit(format!("the query `{}`: {error}", self.query.shown()))
    }
}

impl Plan {
    fn of(planned: Planned) -> Result<Self, String> {
        let physical = alone(planned.physical).map_err(|error| error.to_string())?;
        let outcome = Outcome::of(&physical.schema())?;
        Ok(Self { physical, outcome })
    }

    /// The rows that it gives for those of its tables.
    fn run(
        &self,
        planner: &Planner,
        tables: Vec<Option<RecordBatch>>,
    ) -> Result<Option<RecordBatch>, DataFusionError> {
        // What a plan counts of itself would grow with every batch.
        let plan = reset_plan_states(Arc::clone(&self.physical))?;
        let config = planner.config.clone().with_extension(Arc::new(Part(tables)));
        let context = TaskContext::default().with_session_config(config);
        let context = Arc::new(context.with_runtime(Arc::clone(&planner.runtime)));
        let mut given = Vec::new();
        for partition in 0..plan.output_partitioning().partition_count() {
            let mut stream = plan.execute(partition, Arc::clone(&context))?;
            while let Some(batch) = block_on(stream.next()) {
                given.push(batch?);
            }
        }
        match given.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => Ok(Some(concat_batches(&plan.schema(), several)?)),
        }
    }
}

/// A plan of which nothing runs beside the thread that asks.
fn alone(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    plan.transform_up(|node| match node.downcast_ref::<CoalescePartitionsExec>() {
        Some(gathers) => Ok(Transformed::yes(Arc::clone(gathers.input()))),
        None => Ok(Transformed::no(node)),
    })
    .data()
}

impl Map for Each {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        if batch.is_empty() { Ok(batch) } else { self.ask(&batch, context) }
    }

    fn query(&self) -> plugin::MapQuery {
        let Query { keeps_times, keeps_channels, .. } = *self.query;
        let keeps_channels = keeps_channels && self.channel.is_none();
        let channels = wanted(&self.query.tables);
        plugin::MapQuery { channels, keeps_times, keeps_channels, ..plugin::MapQuery::default() }
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        named(&self.query.tables)
    }
}

/// The channels that tables are made of.
pub(super) fn wanted(tables: &[Table]) -> ChannelQuery {
    let patterns: Vec<Pattern> = tables.iter().filter_map(pattern).collect();
    if patterns.len() < tables.len() {
        return ChannelQuery::default();
    }
    ChannelQuery::from_patterns(&Patterns(patterns), &Patterns::default(), &Patterns::default())
}

/// The same channels as names in the option that holds the query.
pub(super) fn named(tables: &[Table]) -> Vec<(&'static str, Pattern)> {
    tables.iter().filter_map(pattern).map(|pattern| ("query", pattern)).collect()
}

fn pattern(table: &Table) -> Option<Pattern> {
    let Table::Channel(name) = table else { return None };
    // A name may look like something else.
    Pattern::parse(name).ok().filter(|pattern| pattern.as_name() == Some(name))
}
