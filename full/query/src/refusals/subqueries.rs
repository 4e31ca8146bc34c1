//! Refuses subqueries for which DataFusion returns other rows than SQL defines: it makes joins of
//! them, which do not have NULL for a value, or lose what comes after the condition that refers to
//! the outer query.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Case, Distinct, Expr, ExprSchemable, Join, JoinType, LogicalPlan,
    Operator, Projection, SkipType, Subquery,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

const NULLABLE_IN: &str = "\
     IN with a subquery is only supported as a condition, also with AND and OR, and NOT IN only \
     alone or with AND: write `exists (select 1 from t where t.k = x)`, which is never NULL";

const CORRELATED_NOT_IN: &str = "\
     NOT IN with a subquery that refers to the outer query is only supported if neither side can \
     be NULL: write `not exists (select 1 from t where … and t.k = x)`";

// DataFusion passes over NULLs then.
const CONSTANT_NOT_IN: &str = "\
     NOT IN with a subquery whose values can be NULL needs a column before it: write `x <> all \
     (select …)`";

const AGGREGATE_SET: &str = "\
     a subquery that refers to the outer query and has an aggregate without GROUP BY always has \
     one row: instead of EXISTS, IN, ANY or ALL, compare it by an operator, \
     `x = (select max(k) …)`";

const CORRELATED_UNNEST: &str = "\
     unnest in FROM cannot refer to another table: write it in SELECT, `select n, unnest(xs) as x \
     from t`, also in a subquery in FROM";

/// Refuses subqueries that DataFusion gets wrong. For plans that are not optimised.
pub(crate) fn check_subqueries(plan: &LogicalPlan) -> Result<()> {
    let check_node = |node: &LogicalPlan| {
        match node {
            LogicalPlan::Filter(filter) => {
                let schema = filter.input.schema();
                check_membership(&filter.predicate, false, NullUse::Dropped, schema)?;
            }
            LogicalPlan::Join(join) => {
                // A pair for which ON is NULL is no match, in outer joins too.
                if let Some(filter) = &join.filter {
                    check_membership(filter, false, NullUse::Dropped, &join.schema)?;
                }
                for side in join.on.iter().flat_map(|(left, right)| [left, right]) {
                    check_membership(side, false, NullUse::Value, &join.schema)?;
                }
                for input in [&join.left, &join.right] {
                    if let LogicalPlan::Subquery(lateral) = unaliased(input) {
                        check_correlated(lateral, SubqueryUse::Table)?;
                    }
                }
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::ScalarSubquery(subquery) => {
                        check_correlated(subquery, SubqueryUse::Value)
                    }
                    // The optimiser would fail, instead of the physical planner.
                    Expr::SetComparison(_) if !matches!(node, LogicalPlan::Filter(_)) => {
                        plan_error(
                            "Physical plan does not support logical expression SetComparison",
                        )
                    }
                    Expr::Exists(Exists { subquery, .. })
                    | Expr::InSubquery(InSubquery { subquery, .. })
                    | Expr::SetComparison(SetComparison { subquery, .. }) => {
                        check_correlated(subquery, SubqueryUse::Set)
                    }
                    _ => Ok(()),
                }
                .map(|()| TreeNodeRecursion::Continue)
            })
        })
    };
    plan.apply_with_subqueries(check_node).map(drop)
}

/// Refuses NOT IN of what was found to be constant. For optimised plans.
pub(crate) fn check_anti_joins(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| match node {
        LogicalPlan::Join(Join { null_aware: true, on, .. }) if on.is_empty() => {
            plan_error(CONSTANT_NOT_IN)
        }
        _ => Ok(TreeNodeRecursion::Continue),
    })
    .map(drop)
}

/// The plan of a table, without its name.
fn unaliased(mut plan: &LogicalPlan) -> &LogicalPlan {
    while let LogicalPlan::SubqueryAlias(alias) = plan {
        plan = &alias.input;
    }
    plan
}

/// What becomes of a row for which an expression is NULL, in ascending order of what is asked of
/// the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NullUse {
    /// It is dropped.
    Dropped,
    /// NULL counts as false.
    False,
    /// NULL is a value.
    Value,
}

/// Refuses IN with a subquery where it matters whether it is NULL or false. `negated` says whether
/// the expression is that within a NOT.
fn check_membership(expr: &Expr, negated: bool, of_null: NullUse, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::Alias(alias) => check_membership(&alias.expr, negated, of_null, schema),
        Expr::Not(inner) => check_membership(inner, !negated, of_null, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let is_or = (*op == Operator::Or) != negated;
            let of_null = if is_or { of_null.max(NullUse::False) } else { of_null };
            check_membership(left, negated, of_null, schema)?;
            check_membership(right, negated, of_null, schema)
        }
        Expr::IsTrue(inner) | Expr::IsNotTrue(inner) => {
            check_membership(inner, false, NullUse::False, schema)
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            for (when, _) in when_then_expr {
                check_membership(when, false, NullUse::False, schema)?;
            }
            let of_null = of_null.max(NullUse::False);
            let mut values = when_then_expr.iter().map(|(_, then)| then).chain(else_expr);
            values.try_for_each(|value| check_membership(value, negated, of_null, schema))
        }
        Expr::InSubquery(membership) => {
            check_in(membership, membership.negated != negated, of_null, schema)
        }
        _ => expr
            .apply_children(|part| {
                check_membership(part, false, NullUse::Value, schema)
                    .map(|()| TreeNodeRecursion::Continue)
            })
            .map(drop),
    }
}

fn check_in(
    membership: &InSubquery,
    negated: bool,
    of_null: NullUse,
    schema: &DFSchema,
) -> Result<()> {
    let InSubquery { expr, subquery, .. } = membership;
    let most = if negated { NullUse::Dropped } else { NullUse::False };
    let keys = subquery.subquery.schema();
    let may_be_null = expr.nullable(schema).unwrap_or(true)
        || keys.fields().iter().any(|field| field.is_nullable());
    if may_be_null && negated && !subquery.outer_ref_columns.is_empty() {
        return plan_error(CORRELATED_NOT_IN);
    }
    if may_be_null && negated && !expr.any_column_refs() {
        return plan_error(if expr.contains_outer() {
            "Physical plan does not support logical expression OuterReferenceColumn"
        } else {
            CONSTANT_NOT_IN
        });
    }
    if may_be_null && of_null > most { plan_error(NULLABLE_IN) } else { Ok(()) }
}

/// What a subquery is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubqueryUse {
    Value,
    /// Rows that are compared, or counted.
    Set,
    /// Rows that are joined.
    Table,
}

/// Refuses subqueries that do more with the rows for a row of the outer query than filtering and
/// aggregating them.
fn check_correlated(subquery: &Subquery, used: SubqueryUse) -> Result<()> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    let check_node = |node: &LogicalPlan| {
        if !is_correlated(node) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if matches!(node, LogicalPlan::Unnest(_)) {
            return plan_error(CORRELATED_UNNEST);
        }
        let has_correlated_input = node.inputs().into_iter().any(is_correlated);
        let refused = match node {
            LogicalPlan::Join(join) if join.join_type != JoinType::Inner => Some("an outer join"),
            _ if !has_correlated_input => None,
            LogicalPlan::Aggregate(aggregate) => match (used, aggregate.group_expr.is_empty()) {
                (SubqueryUse::Set, true) => return plan_error(AGGREGATE_SET),
                (SubqueryUse::Value, false) if !groups_by_outer_columns(aggregate) => {
                    Some("GROUP BY, except by columns that are equal to ones of the outer query")
                }
                _ if aggregates(&aggregate.input) => Some("an aggregate of an aggregate"),
                _ => None,
            },
            LogicalPlan::Projection(projection)
                if used != SubqueryUse::Set && aggregates(&projection.input) =>
            {
                // DataFusion has NULL for it if no row matches.
                has_constant(projection)?.then_some("constants beside an aggregate")
            }
            LogicalPlan::Filter(filter) if aggregates(&filter.input) => Some("HAVING"),
            LogicalPlan::Window(_) => Some("window functions"),
            LogicalPlan::Distinct(Distinct::On(_)) => Some("DISTINCT ON"),
            LogicalPlan::Limit(limit)
                if !matches!(limit.get_skip_type()?, SkipType::Literal(0)) =>
            {
                Some("OFFSET")
            }
            _ => None,
        };
        match refused {
            None => Ok(TreeNodeRecursion::Continue),
            Some(what) => Err(DataFusionError::Plan(format!(
                "a subquery that refers to the outer query cannot have {what}: join a subquery \
                 that does not refer to it"
            ))),
        }
    };
    subquery.subquery.apply(check_node).map(drop)
}

/// Whether a plan refers to the query around it.
fn is_correlated(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// Whether all rows of a plan are results of an aggregate without groups.
fn aggregates(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => aggregates(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => aggregates(&alias.input),
        _ => false,
    }
}

/// Whether a projection has an expression that depends on no column.
fn has_constant(projection: &Projection) -> Result<bool> {
    let schema = projection.input.schema();
    let context = SimplifyContext::builder().with_schema(Arc::clone(schema)).build();
    let simplifier = ExprSimplifier::new(context);
    for expr in &projection.expr {
        let coerced = simplifier.coerce(expr.clone(), schema)?;
        if !simplifier.simplify(coerced)?.any_column_refs() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an aggregate has at most one group for a row of the outer query, as the conditions of
/// its input make all of the columns that it groups by equal to ones of the outer query.
fn groups_by_outer_columns(aggregate: &Aggregate) -> bool {
    let mut conditions = Vec::new();
    let mut input = &aggregate.input;
    while let LogicalPlan::Filter(filter) = &**input {
        conditions.extend(split_conjunction(&filter.predicate));
        input = &filter.input;
    }
    let is_outer = |group: &Expr| {
        let Ok(group_type) = group.get_type(input.schema()) else { return false };
        // Values of another type can be equal to several ones.
        let is_equal = |one: &Expr, other: &Expr| {
            one == group
                && matches!(other, Expr::OuterReferenceColumn(field, _)
                    if *field.data_type() == group_type)
        };
        matches!(group, Expr::Column(_))
            && conditions.iter().any(|condition| match condition {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    is_equal(left, right) || is_equal(right, left)
                }
                _ => false,
            })
    };
    aggregate.group_expr.iter().all(is_outer)
}

fn plan_error<T>(what: &str) -> Result<T> {
    Err(DataFusionError::Plan(what.to_owned()))
}
