//! Lineage: makes a per-row plan carry the event index of each row through to its result.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, Union,
};
use std::sync::Arc;

use super::columns::EVENT_INDEX;
use super::query_input::QueryInput;

/// Rewrites a plan to read `tables`, which have the event index column. It becomes the last column
/// of the result.
///
/// `Err` if a node of the plan combines several rows.
pub(super) fn with_event_column(
    plan: LogicalPlan,
    tables: &[(&str, &QueryInput)],
) -> Result<LogicalPlan> {
    let plan = plan.transform_up(|node| Ok(Transformed::yes(rewrite_node(node, tables)?)))?.data;
    with_event_last(plan)
}

fn rewrite_node(node: LogicalPlan, tables: &[(&str, &QueryInput)]) -> Result<LogicalPlan> {
    Ok(match node {
        LogicalPlan::TableScan(scan) => {
            let named = tables.iter().find(|(name, _)| *name == scan.table_name.table());
            let (_, input) = named.ok_or_else(|| internal("a table that is not the query's"))?;
            let source = provider_as_source(Arc::clone(&input.table) as _);
            LogicalPlanBuilder::scan(scan.table_name, source, None)?.build()?
        }
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, alias)?)
        }
        LogicalPlan::Projection(Projection { mut expr, input, .. }) => {
            expr.push(Expr::Column(event_of(input.schema())?));
            LogicalPlan::Projection(Projection::try_new(expr, input)?)
        }
        LogicalPlan::Union(Union { inputs, .. }) => {
            let inputs = inputs
                .into_iter()
                .map(|input| with_event_last(Arc::unwrap_or_clone(input)).map(Arc::new));
            LogicalPlan::Union(Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?)?)
        }
        LogicalPlan::Unnest(unnest) => {
            let (columns, options) = (unnest.exec_columns.clone(), unnest.options.clone());
            LogicalPlanBuilder::from(Arc::unwrap_or_clone(unnest.input))
                .unnest_columns_with_options(columns, options)?
                .build()?
        }
        filter @ LogicalPlan::Filter(_) => filter,
        other => return Err(multi_row_error(&other)),
    })
}

/// The event index column of a schema.
fn event_of(schema: &DFSchema) -> Result<Column> {
    let mut found = schema.columns().into_iter().filter(|column| column.name == EVENT_INDEX);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(internal("rows without an event index")),
    }
}

/// Moves the event index column to the end.
fn with_event_last(plan: LogicalPlan) -> Result<LogicalPlan> {
    let event = event_of(plan.schema())?;
    let columns = plan.schema().columns();
    if columns.last() == Some(&event) {
        return Ok(plan);
    }
    let others = columns.into_iter().filter(|column| *column != event).map(Expr::Column);
    let all = others.chain([Expr::Column(event.clone())]).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(plan))?))
}

fn multi_row_error(node: &LogicalPlan) -> DataFusionError {
    let what = node.display().to_string();
    let what = what.split([':', ' ', '(']).next().unwrap_or_default().to_owned();
    DataFusionError::Plan(needs_memory(&format!("the step {what}")))
}

fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}

/// The message for queries that need all rows.
pub(super) fn needs_memory(what: &str) -> String {
    format!(
        "{what} needs all rows before the query returns one: set a limit, such as `memory = \
         \"256MiB\"`; what does not fit goes to temporary files"
    )
}
