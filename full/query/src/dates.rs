//! Adds intervals with a time of day to dates: the result has a time, too. DataFusion returns a
//! date, and drops hours and what is smaller.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans sums and differences of dates and intervals.
#[derive(Debug)]
pub(crate) struct TimesOfDates;

impl ExprPlanner for TimesOfDates {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, mut left, mut right } = expr;
        let kind = |operand: &Expr| operand.get_type(schema).ok();
        let is_date =
            |operand: &Expr| matches!(kind(operand), Some(DataType::Date32 | DataType::Date64));
        let is_interval = |operand: &Expr| {
            matches!(kind(operand), Some(DataType::Interval(_))) && !has_whole_days(operand)
        };
        let time = |date| cast(date, DataType::Timestamp(TimeUnit::Nanosecond, None));
        match op {
            BinaryOperator::Plus | BinaryOperator::Minus
                if is_date(&left) && is_interval(&right) =>
            {
                left = time(left);
            }
            BinaryOperator::Plus if is_interval(&left) && is_date(&right) => right = time(right),
            _ => {}
        }
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Whether an interval is a constant of days and months alone.
fn has_whole_days(interval: &Expr) -> bool {
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => value.nanoseconds == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    #[test]
    fn dates_and_intervals_are_times() {
        for (what, expected) in [
            ("date '2007-11-03' + interval '14 hours'", "2007-11-03T14:00:00"),
            ("interval '36 hours' + date '2007-11-03'", "2007-11-04T12:00:00"),
            ("date '2007-11-03' - interval '1 millisecond'", "2007-11-02T23:59:59.999"),
            ("date '2007-01-31' + interval '1 month'", "2007-02-28"),
            ("date '9999-12-30' + interval '1 day'", "9999-12-31"),
            (
                "generate_series(date '2007-11-03', date '2007-11-03' + interval '1 day', \
                 interval '1 day')",
                "[2007-11-03, 2007-11-04]",
            ),
            ("timestamp '2007-11-03T14:00:00'::date + interval '1 hour'", "2007-11-03T01:00:00"),
            ("date '2007-11-03' + 2", "2007-11-05"),
        ] {
            let rows = printed_rows(&format!("select {what}"), SessionOptions::default());
            assert_eq!(rows, Ok(vec![vec![expected.to_owned()]]), "{what}");
        }
    }

    #[test]
    fn times_with_a_zone_keep_it() {
        for (what, expected) in [
            ("timestamptz '2007-11-03 14:00:00+02:00'", "2007-11-03T12:00:00Z"),
            (
                "timestamptz '2007-11-03 14:00:00+00' at time zone 'Europe/Berlin'",
                "2007-11-03T15:00:00+01:00",
            ),
            ("'2007-11-03T14:00:00'::timestamptz = '2007-11-03T15:00:00+01:00'", "true"),
            ("arrow_typeof(now()) = arrow_typeof('2007-11-03'::timestamptz)", "true"),
            ("to_timestamp('2007-11-03') = '2007-11-03'::timestamp", "true"),
            ("to_timestamp('2007-11-03T14:00:00')", "2007-11-03T14:00:00Z"),
            ("to_timestamp_seconds(1194098400)", "2007-11-03T14:00:00Z"),
            ("to_timestamp_nanos(1194098400000000000)", "2007-11-03T14:00:00Z"),
            ("from_unixtime(1194098400)", "2007-11-03T14:00:00"),
            ("timestamp '2007-11-03 14:00:00+02:00'", "2007-11-03T12:00:00"),
        ] {
            let rows = printed_rows(&format!("select {what}"), SessionOptions::default());
            assert_eq!(rows, Ok(vec![vec![expected.to_owned()]]), "{what}");
        }
    }
}
