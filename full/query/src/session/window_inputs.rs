//! Lets windows drop the texts and payloads that they no longer need. DataFusion concatenates the
//! rows that wait in a window with each batch, and a concatenation of views keeps the buffers of
//! every batch before. Windows get columns that are no views, which are copied instead, and columns
//! of what they compute to divide and sort by. Plans only: computes nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchemaRef, ExprSchema};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Projection, Window, WindowFrameBound, cast,
};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{Optimizer, OptimizerConfig};

/// Replaces views in the input of windows. The columns of the plan stay the same. For optimised
/// plans.
pub(super) fn with_copied_inputs(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(window)
            if has_views(&window) && !needs_all_rows(&window) || has_computed_keys(&window) =>
        {
            Ok(Transformed::yes(without_views(window, state)?))
        }
        node => Ok(Transformed::no(node)),
    })?;
    if !plan.transformed {
        return Ok(plan.data);
    }
    // Columns that only arguments needed do not wait in the window.
    let unused_columns = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    unused_columns.optimize(plan.data, state, |_, _| {})
}

/// Whether a window divides or sorts by anything but columns. DataFusion loses the order that it
/// gave its input for some expressions, such as `length(s) > 2`.
fn has_computed_keys(window: &Window) -> bool {
    window.window_expr.iter().any(|expr| {
        let Expr::WindowFunction(call) = expr.clone().unalias() else { return false };
        let params = &call.params;
        let order_by = params.order_by.iter().map(|order| &order.expr);
        params.partition_by.iter().chain(order_by).any(is_computed)
    })
}

fn is_computed(expr: &Expr) -> bool {
    !matches!(expr, Expr::Column(_) | Expr::Literal(..))
}

fn has_views(window: &Window) -> bool {
    window.input.schema().fields().iter().any(|field| copied_type(field.data_type()).is_some())
}

/// The type of the same values without views; `None` if the type has none.
fn copied_type(data_type: &DataType) -> Option<DataType> {
    let copied = |field: &FieldRef| {
        let copied = copied_type(field.data_type())?;
        Some(Arc::new(field.as_ref().clone().with_data_type(copied)))
    };
    match data_type {
        DataType::Utf8View => Some(DataType::LargeUtf8),
        DataType::BinaryView => Some(DataType::LargeBinary),
        DataType::List(element) => copied(element).map(DataType::List),
        DataType::LargeList(element) => copied(element).map(DataType::LargeList),
        DataType::FixedSizeList(element, len) => {
            copied(element).map(|element| DataType::FixedSizeList(element, *len))
        }
        DataType::Struct(fields) => {
            let copies: Vec<_> = fields.iter().map(copied).collect();
            let names: BTreeSet<_> = fields.iter().map(|field| field.name()).collect();
            // Casts find fields by name.
            let can_cast = names.len() == fields.len() && copies.iter().any(Option::is_some);
            let fields = copies.into_iter().zip(fields);
            let fields = fields.map(|(copy, field)| copy.unwrap_or_else(|| Arc::clone(field)));
            can_cast.then(|| DataType::Struct(fields.collect()))
        }
        _ => None,
    }
}

/// Whether a window returns nothing before it has all rows: copies would only take memory.
fn needs_all_rows(window: &Window) -> bool {
    window.window_expr.iter().any(|expr| {
        let Expr::WindowFunction(call) = expr.clone().unalias() else { return false };
        let has_frame = match &call.fun {
            WindowFunctionDefinition::AggregateUDF(_) => true,
            WindowFunctionDefinition::WindowUDF(function) => {
                ["first_value", "last_value", "nth_value"].contains(&function.name())
            }
        };
        let end = &call.params.window_frame.end_bound;
        has_frame && matches!(end, WindowFrameBound::Following(rows) if rows.is_null())
    })
}

fn without_views(window: Window, state: &SessionState) -> Result<LogicalPlan> {
    let views = Arc::clone(window.input.schema());
    let mut columns = Vec::new();
    for (qualifier, field) in views.iter() {
        let column = Expr::Column(Column::from((qualifier, field)));
        columns.push(match copied_type(field.data_type()) {
            Some(copied) => cast(column, copied).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        });
    }
    let mut calls = Vec::new();
    for call in window.window_expr {
        let with_copies = |expr| match expr {
            Expr::WindowFunction(mut call) => {
                call_with_copies(&mut call, &views, &mut columns, state)?;
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            expr => Ok(Transformed::no(expr)),
        };
        calls.push(call.transform_down(with_copies).data()?);
    }
    let computed = views.fields().len()..columns.len();
    let input = Projection::try_new(columns, window.input)?;
    let copied = Window::try_new(calls, Arc::new(LogicalPlan::Projection(input)))?;
    let copies = copied.schema.iter().enumerate().filter(|(place, _)| !computed.contains(place));
    let mut outputs = Vec::new();
    for ((qualifier, field), (_, (from, copy))) in window.schema.iter().zip(copies) {
        let mut output = Expr::Column(Column::from((from, copy)));
        if field.data_type() != copy.data_type() {
            output = cast(output, field.data_type().clone());
        }
        outputs.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    let window = Arc::new(LogicalPlan::Window(copied));
    Ok(LogicalPlan::Projection(Projection::try_new(outputs, window)?))
}

/// Makes a call use copied columns. What it computes from views or divides and sorts by is computed
/// before the window, as some of `columns`.
fn call_with_copies(
    call: &mut WindowFunction,
    views: &DFSchemaRef,
    columns: &mut Vec<Expr>,
    state: &SessionState,
) -> Result<()> {
    let params = &mut call.params;
    // Arguments may fail for rows that a filter leaves out.
    let has_filter = params.filter.is_some();
    let order_by = params.order_by.iter_mut().map(|order| &mut order.expr);
    let keys = params.partition_by.iter_mut().chain(order_by).map(|expr| (expr, true));
    let filter = params.filter.iter_mut().map(|filter| &mut **filter);
    let values = params.args.iter_mut().chain(filter).map(|expr| (expr, false));
    for (expr, is_key) in keys.chain(values) {
        let computes_before = is_key || !has_filter;
        if let Expr::Literal(value, _) = expr {
            // Some functions need literals as they are.
            if let Some(copied) = copied_type(&value.data_type()) {
                *value = value.cast_to(&copied)?;
            }
            continue;
        }
        let is_view = |column: &&Column| {
            views.field_from_column(column).is_ok_and(|f| copied_type(f.data_type()).is_some())
        };
        let uses_views = || expr.column_refs().iter().any(is_view);
        if !is_computed(expr) || !is_key && !uses_views() {
            continue;
        }
        let copied = copied_type(&expr.get_type(views)?);
        let mut computed = std::mem::take(expr);
        if !computes_before {
            let as_view = |expr| match expr {
                Expr::Column(column) if is_view(&&column) => {
                    let view = views.field_from_column(&column)?.data_type().clone();
                    Ok(Transformed::yes(cast(Expr::Column(column), view)))
                }
                expr => Ok(Transformed::no(expr)),
            };
            computed = computed.transform_up(as_view).data()?;
        }
        if let Some(copied) = copied {
            computed = cast(computed, copied);
        }
        if computes_before {
            let is_shared = is_key || !computed.is_volatile();
            computed = Expr::Column(computed_column(computed, is_shared, columns, state));
        }
        *expr = computed;
    }
    Ok(())
}

/// The column with these values: calls with equal keys have equal columns, since they share a
/// window. Other volatile values are those of one call.
fn computed_column(
    computed: Expr,
    is_shared: bool,
    columns: &mut Vec<Expr>,
    state: &SessionState,
) -> Column {
    let known = columns.iter().find_map(|column| match column {
        Expr::Alias(alias) if is_shared && *alias.expr == computed => {
            Some(Column::new(alias.relation.clone(), alias.name.clone()))
        }
        _ => None,
    });
    known.unwrap_or_else(|| {
        let name = state.alias_generator().next("__window_argument");
        columns.push(computed.alias(&name));
        Column::new_unqualified(name)
    })
}
