//! Refuses operations that are wrong for the types of their operands.

use arrow_schema::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, InList, InSubquery, SetComparison, WindowFunction,
    WindowFunctionDefinition, WindowFunctionParams,
};
use datafusion::logical_expr::{
    BinaryExpr, Case, Cast, Distinct, Expr, ExprSchemable, GroupingSet, LogicalPlan, Operator,
    TryCast, WindowFrameBound, WindowFrameUnits,
};

use crate::functions::check_binary_arguments;

/// Refuses comparisons, window frames and arguments that DataFusion gets wrong. For plans that are
/// not optimised.
pub(crate) fn check_types(plan: &LogicalPlan) -> Result<()> {
    let check_node = |node: &LogicalPlan| {
        let mut schema = DFSchema::empty();
        node.inputs().iter().for_each(|input| schema.merge(input.schema()));
        if let LogicalPlan::Join(join) = node {
            check_compared(join.on.iter().flat_map(|(left, right)| [left, right]), &schema)?;
        }
        let rows = compared_rows(node);
        let varying = rows.iter().filter(|expr| !is_constant(expr, &node.inputs()));
        check_compared(varying, &schema)?;
        node.apply_expressions(|expr| {
            expr.apply(|expr| check_expr(expr, &schema).map(|()| TreeNodeRecursion::Continue))
        })
    };
    plan.apply_with_subqueries(check_node).map(drop)
}

fn check_expr(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            check_compared([&**left, right], schema)
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            check_compared([&**expr, low, high], schema)
        }
        Expr::InList(InList { expr, list, .. }) => {
            check_compared(list.iter().chain([&**expr]), schema)
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            check_compared([&**expr, &Expr::ScalarSubquery(subquery.clone())], schema)
        }
        Expr::ScalarFunction(call) => {
            if COMPARING.contains(&call.name()) {
                check_compared(&call.args, schema)?;
            }
            check_binary_arguments(call, schema)
        }
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let sorted = params.order_by.iter().map(|sort| &sort.expr);
            let args = compared_args(func.name(), &params.args, params.distinct);
            check_extreme(func.name(), &params.args, schema)?;
            check_compared(sorted.chain(args).filter(|expr| !is_constant(expr, &[])), schema)
        }
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, params } = &**call;
            let sorted = params.order_by.iter().map(|sort| &sort.expr);
            let args = compared_args(fun.name(), &params.args, params.distinct);
            let rows = sorted.chain(&params.partition_by).chain(args);
            check_compared(rows.filter(|expr| !is_constant(expr, &[])), schema)?;
            check_extreme(fun.name(), &params.args, schema)?;
            check_order(call, schema)?;
            check_window(params, schema)
        }
        _ => Ok(()),
    }
}

/// Functions that compare their arguments.
const COMPARING: [&str; 3] = ["greatest", "least", "nullif"];

/// Arguments that an aggregate compares over its rows.
fn compared_args<'e>(function: &str, args: &'e [Expr], distinct: bool) -> &'e [Expr] {
    if distinct || matches!(function, "min" | "max") { args } else { &[] }
}

/// What a part of GROUP BY compares.
fn grouped(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::GroupingSet(GroupingSet::Rollup(parts) | GroupingSet::Cube(parts)) => parts.clone(),
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.concat(),
        part => vec![part.clone()],
    }
}

/// What a node compares from row to row.
fn compared_rows(node: &LogicalPlan) -> Vec<Expr> {
    let columns = |of: &LogicalPlan| of.schema().columns().into_iter().map(Expr::Column).collect();
    match node {
        LogicalPlan::Sort(sort) => sort.expr.iter().map(|sort| sort.expr.clone()).collect(),
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().flat_map(grouped).collect()
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.on_expr.clone(),
        LogicalPlan::Distinct(Distinct::All(input)) => columns(input),
        LogicalPlan::RecursiveQuery(query) if query.is_distinct => columns(&query.static_term),
        _ => Vec::new(),
    }
}

/// Whether an expression has the same value in all rows. `inputs` are those of its node.
fn is_constant<'p>(mut expr: &'p Expr, inputs: &[&'p LogicalPlan]) -> bool {
    let mut input = if let [input] = inputs { Some(*input) } else { None };
    // A column may be the name of a constant.
    while let (Expr::Column(column), Some(LogicalPlan::Projection(projection))) = (expr, input) {
        let place = projection.schema.maybe_index_of_column(column);
        let Some(computed) = place.and_then(|place| projection.expr.get(place)) else { break };
        expr = if let Expr::Alias(alias) = computed { &alias.expr } else { computed };
        input = Some(&projection.input);
    }
    let varies = |part: &Expr| {
        use Expr::{Column, OuterReferenceColumn, ScalarSubquery, Unnest};
        Ok(matches!(part, Column(_) | OuterReferenceColumn(..) | ScalarSubquery(_) | Unnest(_)))
    };
    !expr.is_volatile() && !expr.exists(varies).unwrap_or(true)
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// Intervals are compared by months, then days, then nanoseconds: 25 hours would be less than a
/// day.
fn check_compared<'e>(
    operands: impl IntoIterator<Item = &'e Expr>,
    schema: &DFSchema,
) -> Result<()> {
    match operands.into_iter().filter_map(|operand| interval(operand, schema)).max() {
        None | Some(IntervalUnits::Exact) => Ok(()),
        Some(IntervalUnits::Unknown) => plan_error(
            "intervals that are not constants cannot be compared: compare times, such as \
             `a > b + x` instead of `a - b > x`",
        ),
        Some(IntervalUnits::Calendar) => plan_error(
            "intervals with days, weeks, months or years cannot be compared: write hours, such \
             as `interval '24 hours'`",
        ),
    }
}

/// What an interval is made of. One computed from several has the greatest of their units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IntervalUnits {
    /// Nanoseconds only.
    Exact,
    /// Known only when the query runs.
    Unknown,
    /// Days or months.
    Calendar,
}

/// The units of an expression. `None` if it is no interval.
fn interval(expr: &Expr, schema: &DFSchema) -> Option<IntervalUnits> {
    let has_interval_type = || expr.get_type(schema).is_ok_and(|kind| is_interval(&kind));
    match expr {
        Expr::Literal(value, _) => constant_interval(value),
        Expr::Negative(inner) => interval(inner, schema),
        // Durations, times and numbers add no days.
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_numerical_operators() => {
            let units = || interval(left, schema).max(interval(right, schema));
            has_interval_type().then(|| units().unwrap_or(IntervalUnits::Exact))
        }
        Expr::BinaryExpr(_) => None,
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            let branches = when_then_expr.iter().map(|(_, then)| then).chain(else_expr);
            branches.map(|branch| interval(branch, schema)).max().flatten()
        }
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
            if is_interval(field.data_type()) =>
        {
            match &**expr {
                Expr::Literal(value, _) => {
                    constant_interval(&value.cast_to(field.data_type()).ok()?)
                }
                expr => interval(expr, schema).or(Some(IntervalUnits::Unknown)),
            }
        }
        _ => has_interval_type().then_some(IntervalUnits::Unknown),
    }
}

fn constant_interval(value: &ScalarValue) -> Option<IntervalUnits> {
    match value {
        ScalarValue::IntervalMonthDayNano(value) => value.map(|value| {
            let is_exact = value.months == 0 && value.days == 0;
            if is_exact { IntervalUnits::Exact } else { IntervalUnits::Calendar }
        }),
        _ => is_interval(&value.data_type()).then_some(IntervalUnits::Unknown),
    }
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

/// Refuses `min` and `max` of what DataFusion can only sort.
fn check_extreme(function: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    let is_nested = |arg: &Expr| arg.get_type(schema).is_ok_and(|kind| has_nested_elements(&kind));
    if !matches!(function, "min" | "max") || !args.iter().any(is_nested) {
        return Ok(());
    }
    let what = format!(
        "`{function}` of lists of lists or structs is not supported: sort them by ORDER BY, and \
         take the first by LIMIT or DISTINCT ON"
    );
    plan_error(&what)
}

/// Refuses windows that DataFusion cannot order with RANGE, which is the default.
fn check_order(call: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let WindowFunction { fun, params } = call;
    if params.window_frame.units != WindowFrameUnits::Range {
        return Ok(());
    }
    let has_frame = matches!(fun, WindowFunctionDefinition::AggregateUDF(_));
    for (place, sort) in params.order_by.iter().enumerate() {
        let Ok(kind) = sort.expr.get_type(schema) else { continue };
        let what = match &kind {
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => "binary values",
            DataType::Struct(_) => "structs",
            DataType::Map(..) => "maps",
            DataType::Union(..) => "unions",
            DataType::Duration(_) | DataType::Interval(_) => "differences of times",
            DataType::Time32(_) | DataType::Time64(_) => "times of day",
            kind if has_frame && has_nested_elements(kind) => "lists of lists or structs",
            _ => continue,
        };
        // Only the first decides the type of a distance.
        if place == 0 || has_nested_elements(&kind) {
            return plan_error(&format!(
                "windows ordered by {what} need ROWS: write `over (order by … rows unbounded \
                 preceding)`"
            ));
        }
    }
    Ok(())
}

/// Whether it is a list that DataFusion does not compare value by value.
fn has_nested_elements(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::List(element)
            | DataType::LargeList(element)
            | DataType::FixedSizeList(element, _)
            if element.data_type().is_nested()
    )
}

/// RANGE needs a distance: DataFusion takes any text for one, and a number for months.
fn check_window(params: &WindowFunctionParams, schema: &DFSchema) -> Result<()> {
    let frame = &params.window_frame;
    let ([sort], WindowFrameUnits::Range) = (&*params.order_by, frame.units) else {
        return Ok(());
    };
    for bound in [&frame.start_bound, &frame.end_bound] {
        let (WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance)) = bound
        else {
            continue;
        };
        let Some(Some(distance)) = distance.try_as_str() else { continue };
        let kind = sort.expr.get_type(schema)?;
        let is_number = distance.trim().parse::<f64>().is_ok();
        if kind.is_temporal() && is_number {
            return plan_error(
                "RANGE over times needs intervals, such as `interval '1 second' preceding`",
            );
        }
        if !kind.is_temporal() && !kind.is_numeric() {
            return plan_error(
                "RANGE with a distance needs an ORDER BY of numbers or times: use ROWS",
            );
        }
    }
    Ok(())
}

fn plan_error(what: &str) -> Result<()> {
    Err(DataFusionError::Plan(what.to_owned()))
}
