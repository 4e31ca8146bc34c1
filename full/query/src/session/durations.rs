//! Extracts the parts of a difference of times as PostgreSQL does: days, the hours beside these,
//! and so on, or all seconds. DataFusion's hours and seconds are those of all days, and its `epoch`
//! drops the fraction of a second from about two seconds on.

use arrow_schema::{DataType, TimeUnit};
use datafusion::arrow::compute::kernels::cast_utils::IntervalUnit;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast, lit};
use datafusion::optimizer::AnalyzerRule;

/// Replaces parts of durations. Comes after the coercion of types: `null` beside a duration, as in
/// a UNION, is one, too.
#[derive(Debug)]
pub(crate) struct PartsOfDurations;

impl AnalyzerRule for PartsOfDurations {
    fn name(&self) -> &str {
        "parts_of_durations"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(with_parts).data()
    }
}

/// A node that divides durations.
fn with_parts(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let part_of_duration = |expr: Expr| {
        if let Expr::ScalarFunction(call) = &expr
            && let ("date_part", [part, of]) = (call.name(), &call.args[..])
            && let Ok(DataType::Duration(unit)) = of.get_type(&schema)
            && let Some(Some(name)) = part.as_literal().and_then(|part| part.try_as_str())
            && let Some(part) = part_of(name, of, unit)
        {
            return Ok(Transformed::yes(part));
        }
        Ok(Transformed::no(expr))
    };
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(expr.transform_up(part_of_duration)?.update_data(|expr| name.restore(expr)))
    })
}

/// The part of a duration; `None` if it is left to DataFusion.
fn part_of(name: &str, duration: &Expr, unit: TimeUnit) -> Option<Expr> {
    use IntervalUnit::{Hour, Microsecond, Millisecond, Minute, Nanosecond, Second};
    let units_per_second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let units = cast(duration.clone(), DataType::Int64);
    // Parts count what is beside whole days, hours or minutes.
    let (whole, seconds_per_part, parts_per_second) = match name.parse() {
        Ok(Hour) => (86_400, 3_600, 1),
        Ok(Minute) => (3_600, 60, 1),
        Ok(Second) => (60, 1, 1),
        Ok(Millisecond) => (60, 1, 1_000),
        Ok(Microsecond) => (60, 1, 1_000_000),
        Ok(Nanosecond) => (60, 1, 1_000_000_000),
        Err(_) if name.eq_ignore_ascii_case("epoch") => {
            return Some(cast(units, DataType::Float64) / lit(units_per_second as f64));
        }
        _ => return None,
    };
    let rest = units % lit(whole * units_per_second);
    let parts = if parts_per_second > units_per_second {
        rest * lit(parts_per_second / units_per_second)
    } else {
        rest / lit(seconds_per_part * units_per_second / parts_per_second)
    };
    // As DataFusion's.
    let is_long = parts_per_second == 1_000_000_000;
    Some(cast(parts, if is_long { DataType::Int64 } else { DataType::Int32 }))
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

    #[test]
    fn differences_have_parts_in_each_unit() {
        for (digits, unit) in [(0, "s"), (3, "ms"), (6, "µs")] {
            let difference = format!(
                "'9999-12-31'::timestamp({digits}) - '1970-01-01T10:58:57'::timestamp({digits})"
            );
            for (what, expected) in [
                (format!("arrow_typeof({difference})"), format!("Duration({unit})")),
                (format!("extract(epoch from {difference})"), "253402174863.0".to_owned()),
                (format!("extract(hour from {difference})"), "13".to_owned()),
                (format!("extract(minute from {difference})"), "1".to_owned()),
                (format!("extract(second from {difference})"), "3".to_owned()),
                (format!("extract(millisecond from {difference})"), "3000".to_owned()),
                (format!("extract(microsecond from {difference})"), "3000000".to_owned()),
                (format!("date_part('nanosecond', {difference})"), "3000000000".to_owned()),
            ] {
                let rows = printed_rows(&format!("select {what}"), SessionOptions::default());
                assert_eq!(rows, Ok(vec![vec![expected]]), "{what}");
            }
        }
    }

    #[test]
    fn parts_are_those_of_coerced_types() {
        let table = "with t(a, b) as (values (timestamp '2007-11-01T00:00:00', \
                     timestamp '2007-11-03T05:00:07.25'))";
        for union in [
            "select null as d union all select b - a from t",
            "select b - a as d from t union all select null",
        ] {
            let sql = format!(
                "{table} select extract(hour from d), date_part('second', d), \
                 date_part('nanosecond', d), arrow_typeof(date_part('nanosecond', d)) \
                 from ({union}) where d is not null"
            );
            let row = ["5", "7", "7250000000", "Int64"].map(str::to_owned).to_vec();
            assert_eq!(printed_rows(&sql, SessionOptions::default()), Ok(vec![row]), "{union}");
        }
        // An interval has no days of its own.
        let sql = format!("{table} select extract(hour from (b - a) + interval '3 hours') from t");
        let rows = printed_rows(&sql, SessionOptions::default());
        assert_eq!(rows, Ok(vec![vec!["56".to_owned()]]));
    }
}
