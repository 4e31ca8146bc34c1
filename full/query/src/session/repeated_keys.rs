//! Removes keys that DISTINCT ON, or an aggregate's ORDER BY, has already, in whatever spelling.
//! They decide nothing, and DataFusion fails with them.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, OrderBy, OrderByKind, Query, SetExpr};

/// Whether the planner may have refused a DISTINCT ON for repeated keys.
pub(super) fn may_be_refused(error: &DataFusionError) -> bool {
    error.message().contains("SELECT DISTINCT ON expressions must match initial ORDER BY")
}

/// Removes what DISTINCT ON and its ORDER BY repeat in the same spelling: the planner compares the
/// two, key by key.
pub(super) fn of_parsed_removed(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let Some(ast::Distinct::On(keys)) = &mut select.distinct else { return };
    let mut known = HashSet::new();
    keys.retain(|key| known.insert(key.clone()));
    if let Some(OrderBy { kind: OrderByKind::Expressions(by), .. }) = &mut query.order_by {
        let mut known = HashSet::new();
        by.retain(|next| known.insert(next.expr.clone()));
    }
}

/// A plan whose DISTINCT ON has each key once. For plans that are not optimised.
pub(super) fn of_distinct_on_removed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let once = |node: LogicalPlan| {
        let LogicalPlan::Distinct(Distinct::On(distinct)) = node else {
            return Ok(Transformed::no(node));
        };
        let DistinctOn { mut on_expr, select_expr, mut sort_expr, input, schema } = distinct;
        let mut known = HashSet::new();
        on_expr.retain(|key| known.insert(key.clone()));
        if let Some(by) = &mut sort_expr {
            retain_first(by);
        }
        let distinct = DistinctOn { on_expr, select_expr, sort_expr, input, schema };
        Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(distinct))))
    };
    plan.transform_up_with_subqueries(once).data()
}

/// A plan whose aggregates order by each key once. For optimised plans: the optimiser may make
/// different expressions the same.
pub(super) fn of_aggregates_removed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let once = |node: LogicalPlan| {
        let LogicalPlan::Aggregate(mut aggregate) = node else { return Ok(Transformed::no(node)) };
        for call in &mut aggregate.aggr_expr {
            remove_repeats(call);
        }
        Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
    };
    plan.transform_up_with_subqueries(once).data()
}

/// Keeps the name of the call, which says what it orders by.
fn remove_repeats(call: &mut Expr) {
    if let Expr::Alias(alias) = call {
        return remove_repeats(&mut alias.expr);
    }
    let (relation, name) = call.qualified_name();
    if let Expr::AggregateFunction(AggregateFunction { params, .. }) = call
        && retain_first(&mut params.order_by)
    {
        *call = call.clone().alias_qualified(relation, name);
    }
}

/// Whether there were others. The optimiser leaves aliases in what it makes the same.
fn retain_first(by: &mut Vec<Sort>) -> bool {
    let (mut known, count) = (HashSet::new(), by.len());
    by.retain(|next| known.insert(next.expr.clone().unalias_nested().data));
    by.len() < count
}
