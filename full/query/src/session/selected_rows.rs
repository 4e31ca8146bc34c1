//! Computes what can fail only for the rows that CASE or FILTER selects. DataFusion makes AND and
//! OR of a CASE of truth values, and may compute both sides of them, and the arguments of an
//! aggregate, for all rows.

#[cfg(test)]
mod tests;

use arrow_schema::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

/// Keeps CASE, and makes arguments a CASE of their filter. Comes after the coercion of types, and
/// before plans are optimised.
#[derive(Debug)]
pub(crate) struct SelectedRows;

impl AnalyzerRule for SelectedRows {
    fn name(&self) -> &str {
        "selected_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(with_selections).data()
    }
}

fn with_selections(mut node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    if let LogicalPlan::Filter(filter) = &mut node {
        let conditions = split_conjunction(&filter.predicate).into_iter();
        let first = conditions.filter_map(|condition| first_condition(condition, &schema));
        filter.predicate = first.fold(filter.predicate.clone(), |all, first| first.and(all));
    }
    let names = NamePreserver::new(&node);
    let select = |expr: Expr| {
        Ok(match expr {
            Expr::Case(case) if is_condition(&case, &schema) => Transformed::yes(kept(case)),
            Expr::AggregateFunction(mut call) => {
                let AggregateFunctionParams { args, filter, order_by, .. } = &mut call.params;
                let order_by = order_by.iter_mut().map(|key| &mut key.expr);
                let computed = args.iter_mut().chain(order_by);
                let changes = select_rows(computed, filter.as_deref(), &schema);
                Transformed::new_transformed(Expr::AggregateFunction(call), changes)
            }
            Expr::WindowFunction(mut call) => {
                let WindowFunctionParams { args, filter, .. } = &mut call.params;
                let changes = select_rows(args.iter_mut(), filter.as_deref(), &schema);
                Transformed::new_transformed(Expr::WindowFunction(call), changes)
            }
            expr => Transformed::no(expr),
        })
    };
    node.map_expressions(|expr| match expr {
        // The names of its members are those of columns.
        Expr::GroupingSet(_) => Ok(Transformed::no(expr)),
        expr => {
            let name = names.save(&expr);
            Ok(expr.transform_up(select)?.update_data(|expr| name.restore(expr)))
        }
    })
}

/// Whether DataFusion makes AND and OR of a CASE that can fail.
fn is_condition(case: &Case, schema: &DFSchema) -> bool {
    let Case { expr: None, when_then_expr, else_expr } = case else { return false };
    let branches = when_then_expr.iter().flat_map(|(when, then)| [when, then]).chain(else_expr);
    // The first condition is computed for all rows.
    branches.skip(1).any(|branch| can_fail(branch))
        && when_then_expr
            .iter()
            .any(|(_, then)| then.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean))
}

/// The condition of the only rows for which such a CASE can be true. By itself it can be pushed
/// down.
fn first_condition(condition: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::Case(case) = condition else { return None };
    let ([(when, _)], true) = (&case.when_then_expr[..], is_condition(case, schema)) else {
        return None;
    };
    let is_never =
        |value: &Expr| matches!(value, Expr::Literal(ScalarValue::Boolean(None | Some(false)), _));
    let is_only = case.else_expr.as_deref().is_none_or(is_never) && !when.is_volatile();
    is_only.then(|| (**when).clone())
}

/// The same CASE in a form that stays one.
fn kept(case: Case) -> Expr {
    Expr::Case(Case { expr: Some(Box::new(lit(true))), ..case })
}

/// Makes arguments and keys NULL in rows that a filter leaves out.
fn select_rows<'e>(
    computed: impl Iterator<Item = &'e mut Expr>,
    filter: Option<&Expr>,
    schema: &DFSchema,
) -> bool {
    // The filter itself is computed once more.
    let Some(filter) = filter.filter(|filter| !filter.is_volatile()) else { return false };
    let mut changes = false;
    // Some functions need constants as they are.
    for expr in computed.filter(|expr| can_fail(expr) && expr.any_column_refs()) {
        let when_then_expr = vec![(Box::new(filter.clone()), Box::new(std::mem::take(expr)))];
        let case = Case { expr: None, when_then_expr, else_expr: None };
        *expr = if is_condition(&case, schema) { kept(case) } else { Expr::Case(case) };
        changes = true;
    }
    changes
}

/// Whether there are values for which an expression may have no result.
fn can_fail(expr: &Expr) -> bool {
    let fails = |part: &Expr| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => !matches!(
                op,
                Operator::And
                    | Operator::Or
                    | Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
            ),
            Expr::ScalarFunction(call) => !["array_element", "get_field"].contains(&call.name()),
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::Case(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::InList(_)
            | Expr::Between(_)
            | Expr::Like(_) => false,
            _ => true,
        })
    };
    expr.exists(fails).unwrap_or(true)
}
