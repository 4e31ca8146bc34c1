//! Extracts the parts of a difference of times as PostgreSQL does: days, the hours beside these,
//! and so on, or all seconds. DataFusion's hours and seconds are those of all days, and its `epoch`
//! drops the fraction of a second from about two seconds on.

use arrow_schema::{DataType, TimeUnit};
use datafusion::arrow::compute::kernels::cast_utils::IntervalUnit;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast, lit};

const SECOND: i64 = 1_000_000_000;

/// A plan that divides durations. For plans that are not optimised.
pub(super) fn with_parts(plan: LogicalPlan) -> Result<LogicalPlan> {
    let replace = |node: LogicalPlan| {
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let part_of_duration = |expr: Expr| {
            if let Expr::ScalarFunction(call) = &expr
                && let ("date_part", [part, of]) = (call.name(), &call.args[..])
                && matches!(of.get_type(&schema), Ok(DataType::Duration(_)))
                && let Some(Some(name)) = part.as_literal().and_then(|part| part.try_as_str())
                && let Some(part) = part_of(name, of)
            {
                return Ok(Transformed::yes(part));
            }
            Ok(Transformed::no(expr))
        };
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr.transform_up(part_of_duration)?.update_data(|expr| name.restore(expr)))
        })
    };
    plan.transform_up_with_subqueries(replace).data()
}

/// The part of a duration; `None` if it is left to DataFusion.
fn part_of(name: &str, duration: &Expr) -> Option<Expr> {
    use IntervalUnit::{Hour, Microsecond, Millisecond, Minute, Second};
    let (whole, part) = match name.parse() {
        Ok(Hour) => (Some(86_400 * SECOND), 3_600 * SECOND),
        Ok(Minute) => (Some(3_600 * SECOND), 60 * SECOND),
        Ok(Second) => (Some(60 * SECOND), SECOND),
        Ok(Millisecond) => (Some(60 * SECOND), SECOND / 1_000),
        Ok(Microsecond) => (Some(60 * SECOND), SECOND / 1_000_000),
        Err(_) if name.eq_ignore_ascii_case("epoch") => (None, SECOND),
        _ => return None,
    };
    let nanos = cast(duration.clone(), DataType::Duration(TimeUnit::Nanosecond));
    let nanos = cast(nanos, DataType::Int64);
    Some(match whole {
        Some(whole) => cast(nanos % lit(whole) / lit(part), DataType::Int32),
        None => cast(nanos, DataType::Float64) / lit(part as f64),
    })
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    #[test]
    fn differences_of_times_have_parts() {
        for (what, expected) in [
            ("extract(epoch from b - a)", "3599.999999999"),
            ("date_part('EPOCH', b - a)", "3599.999999999"),
            ("extract(epoch from a - b) + 1", "-3598.999999999"),
            ("round(extract(epoch from max(b) - min(a)), 1)", "3600.0"),
            ("sum(extract(epoch from b - a))", "3599.999999999"),
            ("arrow_typeof(extract(epoch from b - a))", "Float64"),
            ("extract(epoch from a)", "1194098400.0"),
            ("extract(epoch from interval '1.5 seconds')", "1.5"),
            ("extract(epoch from null::timestamp - a)", ""),
            ("extract(hour from b - a)", "0"),
            ("extract(minute from b - a)", "59"),
            ("date_part('mins', b - a)", "59"),
            ("extract(second from b - a)", "59"),
            ("extract(millisecond from b - a)", "59999"),
            ("extract(microsecond from a - b)", "-59999999"),
            ("extract(minute from a - b)", "-59"),
            ("extract(day from b - '2007-11-01'::timestamp)", "2"),
            ("extract(hour from b - '2007-11-01'::timestamp)", "14"),
            ("arrow_typeof(extract(hour from b - a))", "Int32"),
            ("extract(hour from interval '26 hours')", "26"),
            ("count(*) from t where extract(minute from b - a) = 59 --", "1"),
        ] {
            let sql = format!(
                "with t(a, b) as (values (timestamp '2007-11-03T14:00:00', \
                 timestamp '2007-11-03T14:59:59.999999999')) select {what} as x from t"
            );
            let rows = printed_rows(&sql, SessionOptions::default());
            assert_eq!(rows, Ok(vec![vec![expected.to_owned()]]), "{what}");
        }
    }
}
