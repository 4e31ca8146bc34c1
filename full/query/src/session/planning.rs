//! Plans the queries of a session, and says why one cannot be planned.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use sluice_model::Error;

use super::error::QueryError;
use super::interruption::{StopCheck, stoppable};
use super::invalid_query::InvalidQuery;
use super::order_by::statement_to_plan;
use super::{
    PlannedQuery, centroids, depth, identifiers, moving_frames, repeated_keys, result_names,
    set_comparisons, statements, window_inputs,
};
use crate::precedence::correct_statement;
use crate::refusals::{check_anti_joins, check_numbers, check_subqueries, check_types};

/// Longer queries are refused: a parser holds several copies of the text.
pub(super) const MAX_QUERY_BYTES: usize = 1 << 20;

/// Plans queries. A copy plans for the same session.
#[derive(Clone)]
pub(super) struct SessionPlanner {
    pub(super) context: SessionContext,
    pub(super) spills: bool,
    pub(super) partitions: usize,
}

impl SessionPlanner {
    /// Plans a query. Deep queries need a deep stack: see [`depth`].
    pub(super) async fn plan(&self, sql: &str) -> Result<PlannedQuery, QueryError> {
        let state = self.context.state();
        let logical = logical_plan(&state, sql).await.map_err(|error| {
            let may_be_field = identifiers::may_be_field(&error);
            let error = QueryError::from_planner(error);
            if may_be_field { with_place_of_fields(error) } else { error }
        })?;
        let stopped = Arc::<AtomicBool>::default();
        let is_stopped = {
            let stopped = Arc::clone(&stopped);
            StopCheck::new(move || stopped.load(Ordering::Relaxed))
        };
        let plan = self.physical_plan(&state, &logical).await;
        let plan = plan.and_then(|plan| stoppable(plan, &is_stopped));
        let plan = plan.map_err(|error| self.with_advice(QueryError::from_planner(error)))?;
        Ok(PlannedQuery { plan, context: self.context.task_ctx(), stopped })
    }

    async fn physical_plan(
        &self,
        state: &SessionState,
        logical: &LogicalPlan,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let logical = optimized(state, logical)?;
        if self.partitions == 1 || breaks_pipeline(&logical)? {
            return state.query_planner().create_physical_plan(&logical, state).await;
        }
        // Without pipeline breakers, rows come in log order.
        let config = state.config().clone().with_target_partitions(1);
        let state =
            SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build();
        state.query_planner().create_physical_plan(&logical, &state).await
    }

    /// Says what to do about a lack of memory.
    pub(super) fn with_advice(&self, error: QueryError) -> QueryError {
        let QueryError::OutOfMemory(what) = error else { return error };
        let advice = if self.spills {
            "allow more (--memory, or the option `memory`), or query less: fewer columns, a \
             shorter time, a LIMIT"
        } else {
            "allow more memory, or let it spill to a folder"
        };
        QueryError::Failed(Error::refused(format!("{what}; {advice}")))
    }
}

/// Says where the fields of messages are, unless a similar column was found.
fn with_place_of_fields(error: QueryError) -> QueryError {
    let QueryError::Invalid(InvalidQuery { message, position, help: Some(mut help) }) = error
    else {
        return error;
    };
    if help.starts_with("there are") {
        help += "; fields of messages are in the tables of channels, which `show tables` lists, \
                 if their types are known (--types)";
    }
    QueryError::Invalid(InvalidQuery { message, position, help: Some(help) })
}

/// The logical plan of a query that only reads. Corrects the case of names.
async fn logical_plan(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    if sql.len() > MAX_QUERY_BYTES {
        let what =
            format!("the query has {} bytes, and at most {MAX_QUERY_BYTES} are allowed", sql.len());
        return Err(DataFusionError::Plan(what));
    }
    let mut statement = statement(state, sql)?;
    depth::check_depth(&statement)?;
    statements::check_is_query(&statement)?;
    statements::check_syntax(&statement)?;
    check_numbers(sql).map_err(DataFusionError::Plan)?;
    let mut all_renamed = BTreeSet::new();
    let plan = loop {
        match statement_to_plan(state, statement.clone()).await {
            Ok(plan) => break plan,
            // Nothing is computed yet: it is the query that fails.
            Err(DataFusionError::Execution(what)) => return Err(DataFusionError::Plan(what)),
            Err(error) => {
                // A name may have to be two others, by turns.
                let renamed = identifiers::other_case(&error).is_some_and(|(written, actual)| {
                    identifiers::rename(&mut statement, &written, &actual)
                        && all_renamed.insert((written, actual))
                });
                let changed = renamed
                    || result_names::are_missing(&error)
                        && result_names::add_written(&mut statement);
                if !changed {
                    return Err(error);
                }
            }
        }
    };
    let only_reads = SQLOptions::new();
    let only_reads = only_reads.with_allow_ddl(false).with_allow_dml(false);
    only_reads.with_allow_statements(false).verify_plan(&plan)?;
    check_types(&plan)?;
    let plan = set_comparisons::with_own_names(plan)?;
    check_subqueries(&plan)?;
    Ok(plan)
}

/// Parses a text of exactly one statement.
fn statement(state: &SessionState, sql: &str) -> Result<Statement> {
    let limit = state.config_options().sql_parser.recursion_limit.get();
    let mut parser = DFParserBuilder::new(sql).with_recursion_limit(limit).build()?;
    let mut statements = parser.parse_statements()?;
    let plan_error = |what: &str| DataFusionError::Plan(what.to_owned());
    match (statements.pop_front(), statements.len()) {
        (Some(mut statement), 0) => {
            correct_statement(&mut statement);
            Ok(statement)
        }
        (None, _) => Err(plan_error("there is no query")),
        (Some(_), more) => Err(plan_error(&format!("one statement at a time: {more} more follow"))),
    }
}

/// Optimises a plan, checks it, makes its frames exact, and limits what its windows keep.
pub(crate) fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let plan = repeated_keys::of_distinct_on_removed(plan.clone())?;
    let plan = state.optimize(&plan)?;
    check_anti_joins(&plan)?;
    let plan = repeated_keys::of_aggregates_removed(plan)?;
    centroids::check_centroids(&plan)?;
    let plan = moving_frames::with_exact_frames(plan, &state.runtime_env().memory_pool)?;
    window_inputs::with_copied_inputs(plan, state)
}

/// Whether a plan has a pipeline breaker: a node that needs many rows before it returns one.
fn breaks_pipeline(plan: &LogicalPlan) -> Result<bool> {
    use datafusion::common::tree_node::TreeNodeRecursion;
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(
            node,
            LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Window(_)
        );
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
