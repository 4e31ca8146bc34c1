//! Plans queries whose columns are known, either per row or over all rows.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::TableReference;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::executor::block_on;

use super::columns;
use super::lineage;
use super::query::Query;
use super::query_input::QueryInput;
use crate::functions::{aggregate_functions, scalar_functions};
use crate::refusals::{check_subqueries, check_types};
use crate::session::{
    analyzer_rules, optimized, set_semantics, statement_to_plan, with_deep_stack, with_own_names,
};

/// Plans queries with a configuration and a runtime environment.
#[derive(Clone, Debug)]
pub(super) struct Planner {
    pub(super) config: SessionConfig,
    pub(super) runtime: Arc<RuntimeEnv>,
}

/// A physical plan.
#[derive(Clone, Debug)]
pub(super) struct StagePlan {
    pub(super) physical: Arc<dyn ExecutionPlan>,
    /// The tables it reads, in the query's order.
    pub(super) inputs: Arc<Vec<QueryInput>>,
}

impl Planner {
    /// A planner whose plans process `batch_rows` at a time, with the limits of `runtime`.
    pub(super) fn new(batch_rows: usize, runtime: Arc<RuntimeEnv>) -> Self {
        let mut options = ConfigOptions::default();
        set_semantics(&mut options);
        options.sql_parser.map_string_types_to_utf8view = false;
        let config = SessionConfig::from(options)
            .with_target_partitions(1)
            .with_batch_size(batch_rows)
            .with_information_schema(false);
        Self { config, runtime }
    }

    /// Plans a per-row query. The last column of its result is the index of the event of each row.
    /// `tables` are the schemas of the query's tables.
    pub(super) fn plan_rows(&self, query: &Query, tables: &[SchemaRef]) -> Result<StagePlan> {
        with_deep_stack(|| {
            let state = self.state(query, &inputs_of(tables)?)?;
            let plan = block_on(state.statement_to_plan(query.statement()))?;
            let tables: Vec<SchemaRef> =
                tables.iter().map(|table| columns::with_event(table)).collect();
            let inputs = inputs_of(&tables)?;
            let named: Vec<(&str, &QueryInput)> =
                query.tables.iter().map(|t| t.name()).zip(&inputs).collect();
            let plan = lineage::with_event_column(plan, &named)?;
            self.physical(&state, &plan, inputs)
        })
        .flatten()
    }

    /// Plans a query over all rows, with a total order of its result.
    pub(super) fn plan_all(&self, query: &Query, tables: &[SchemaRef]) -> Result<StagePlan> {
        with_deep_stack(|| {
            let inputs = inputs_of(tables)?;
            let state = self.state(query, &inputs)?;
            let plan = block_on(statement_to_plan(&state, query.statement()))?;
            let plan = block_on(statement_to_plan(&state, query.with_total_order(&plan)))?;
            self.physical(&state, &plan, inputs)
        })
        .flatten()
    }

    fn physical(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        inputs: Vec<QueryInput>,
    ) -> Result<StagePlan> {
        check_types(plan)?;
        let plan = with_own_names(plan.clone())?;
        check_subqueries(&plan)?;
        let plan = optimized(state, &plan)?;
        let physical = block_on(state.query_planner().create_physical_plan(&plan, state))?;
        Ok(StagePlan { physical, inputs: Arc::new(inputs) })
    }

    /// A state with the query's tables and functions only: no files, formats or settings.
    fn state(&self, query: &Query, inputs: &[QueryInput]) -> Result<SessionState> {
        let mut expr_planners = SessionStateDefaults::default_expr_planners();
        expr_planners.extend(crate::session::expr_planners());
        let state = SessionStateBuilder::new()
            .with_config(self.config.clone())
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_expr_planners(expr_planners)
            .with_scalar_functions(scalar_functions())
            .with_higher_order_functions(SessionStateDefaults::default_higher_order_functions())
            .with_aggregate_functions(aggregate_functions())
            .with_window_functions(SessionStateDefaults::default_window_functions())
            .build();
        let context = SessionContext::new_with_state(state);
        analyzer_rules().into_iter().for_each(|rule| context.add_analyzer_rule(rule));
        for (table, input) in query.tables.iter().zip(inputs) {
            context.register_table(
                TableReference::bare(table.name()),
                Arc::clone(&input.table) as _,
            )?;
        }
        Ok(context.state())
    }
}

/// The first name that occurs twice.
pub(super) fn first_duplicate(names: impl Iterator<Item = String>) -> Option<String> {
    let (mut names, mut seen) = (names, std::collections::BTreeSet::new());
    names.find(|name| !seen.insert(name.clone()))
}

fn inputs_of(tables: &[SchemaRef]) -> Result<Vec<QueryInput>> {
    tables.iter().enumerate().map(|(place, schema)| QueryInput::new(place, schema)).collect()
}
