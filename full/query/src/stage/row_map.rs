//! Per-row queries: run on each batch separately, on any thread.

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
use sluice_model::{Batch, ChannelQuery, Error, Map, Pattern, Patterns, StageContext, plugin};

use super::event_mapping::{EventMapping, count_events, merge};
use super::plan::{Planner, StagePlan};
use super::query::{Query, QueryTable, SqlMistake};
use super::query_input::RunRows;
use super::schemas::{PlanInput, TableSchemas};
use crate::session::catch_panics;

/// The most message types on a channel.
const MAX_TYPES: usize = 256;

/// A per-row query.
#[derive(Debug)]
pub(super) struct RowMap {
    pub(super) query: Arc<Query>,
    pub(super) planner: Planner,
    pub(super) schemas: TableSchemas,
    /// The default channel of result rows.
    pub(super) channel: Option<String>,
    plans: Mutex<Vec<(Vec<SchemaRef>, Arc<RowPlan>)>>,
}

/// A plan and the mapping of its result.
#[derive(Debug)]
pub(super) struct RowPlan {
    physical: Arc<dyn ExecutionPlan>,
    mapping: EventMapping,
}

impl RowMap {
    pub(super) fn new(
        query: Arc<Query>,
        planner: Planner,
        schemas: TableSchemas,
        channel: Option<String>,
    ) -> Self {
        Self { query, planner, schemas, channel, plans: Mutex::default() }
    }

    /// The plan for tables with these columns, cached.
    pub(super) fn plan(&self, tables: &[SchemaRef]) -> Result<Arc<RowPlan>, SqlMistake> {
        // Held while planning: other threads need the same plan.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = plans.iter().find(|(planned, _)| planned == tables) {
            return Ok(Arc::clone(plan));
        }
        if plans.len() >= MAX_TYPES {
            return Err(SqlMistake::new(format!(
                "one channel has messages of more than {MAX_TYPES} types; select some with a \
                 stage `filter` before"
            )));
        }
        let planned =
            self.planner.plan_rows(&self.query, tables).map_err(SqlMistake::from_planner)?;
        let plan = Arc::new(RowPlan::new(planned).map_err(SqlMistake::new)?);
        plans.push((tables.to_vec(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// Runs the query on a batch. Counts filtered and added events.
    pub(super) fn query_batch(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Batch, Error> {
        context.note_clamped_times(batch);
        let inputs = self.schemas.plan_inputs(batch, context)?;
        let mut parts = Vec::new();
        for PlanInput { schemas, rows } in inputs {
            let plan = self.plan(&schemas).map_err(|mistake| self.mistake_error(&mistake))?;
            let rows = plan.run(&self.planner, rows).map_err(|error| self.run_error(error))?;
            if let Some(rows) = rows {
                let channel = self.channel.as_deref();
                let events = plan.mapping.derive_events(rows, batch, channel, context.channels);
                parts.push(events.map_err(|error| self.with_query(&error))?);
            }
        }
        let (output, places) = if parts.is_empty() { Default::default() } else { merge(parts) };
        count_events(batch, &places, context);
        Ok(match batch.places() {
            Some(of) => output.with_places(places.iter().map(|at| of[*at as usize]).collect()),
            None => output,
        })
    }

    fn mistake_error(&self, mistake: &SqlMistake) -> Error {
        Error::invalid(format!(
            "the query `{}`: {}",
            self.query.excerpt(),
            self.query.render(mistake)
        ))
    }

    fn run_error(&self, error: DataFusionError) -> Error {
        self.mistake_error(&SqlMistake::from_planner(error))
    }

    fn with_query(&self, error: &Error) -> Error {
        Error::invalid(format!("the query `{}`: {error}", self.query.excerpt()))
    }
}

impl RowPlan {
    fn new(planned: StagePlan) -> Result<Self, String> {
        let physical = single_threaded(planned.physical).map_err(|error| error.to_string())?;
        let mapping = EventMapping::from_schema(&physical.schema())?;
        Ok(Self { physical, mapping })
    }

    /// Runs the plan on the rows of its tables.
    fn run(
        &self,
        planner: &Planner,
        tables: Vec<Option<RecordBatch>>,
    ) -> Result<Option<RecordBatch>, DataFusionError> {
        // Otherwise the plan's metrics would grow with every batch.
        let plan = reset_plan_states(Arc::clone(&self.physical))?;
        let config = planner.config.clone().with_extension(Arc::new(RunRows(tables)));
        let context = TaskContext::default().with_session_config(config);
        let context = Arc::new(context.with_runtime(Arc::clone(&planner.runtime)));
        let output = catch_panics(|| {
            let mut output = Vec::new();
            for partition in 0..plan.output_partitioning().partition_count() {
                let mut stream = plan.execute(partition, Arc::clone(&context))?;
                while let Some(batch) = block_on(stream.next()) {
                    output.push(batch?);
                }
            }
            Ok(output)
        })?;
        match output.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => Ok(Some(concat_batches(&plan.schema(), several)?)),
        }
    }
}

/// Removes nodes that would spawn tasks: the plan runs on the calling thread.
fn single_threaded(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    plan.transform_up(|node| match node.downcast_ref::<CoalescePartitionsExec>() {
        Some(coalesce) => Ok(Transformed::yes(Arc::clone(coalesce.input()))),
        None => Ok(Transformed::no(node)),
    })
    .data()
}

impl Map for RowMap {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        if batch.is_empty() { Ok(batch) } else { self.query_batch(&batch, context) }
    }

    fn query(&self) -> plugin::MapQuery {
        let Query { keeps_times, keeps_channels, .. } = *self.query;
        let keeps_channels = keeps_channels && self.channel.is_none();
        let channels = channel_query(&self.query.tables);
        plugin::MapQuery { channels, keeps_times, keeps_channels, ..plugin::MapQuery::default() }
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        named_channels(&self.query.tables)
    }
}

/// The channels of these tables, for sources.
pub(super) fn channel_query(tables: &[QueryTable]) -> ChannelQuery {
    let patterns: Vec<Pattern> = tables.iter().filter_map(pattern).collect();
    if patterns.len() < tables.len() {
        return ChannelQuery::default();
    }
    ChannelQuery::from_patterns(&Patterns(patterns), &Patterns::default(), &Patterns::default())
}

/// The channels of these tables, as named by the option `query`.
pub(super) fn named_channels(tables: &[QueryTable]) -> Vec<(&'static str, Pattern)> {
    tables.iter().filter_map(pattern).map(|pattern| ("query", pattern)).collect()
}

fn pattern(table: &QueryTable) -> Option<Pattern> {
    let QueryTable::Channel(name) = table else { return None };
    // A channel name may look like a pattern.
    Pattern::parse(name).ok().filter(|pattern| pattern.as_name() == Some(name))
}
