//! Arithmetic of integers. Sums, differences and products of those of up to 32 bits are computed in
//! 64 bits: DataFusion computes them in the type of their operands, where `x * x` of 16 bits would
//! overflow from 182 on. Differences of unsigned integers of 64 bits are signed, and exact. What is
//! beyond 64 bits is an error.

mod checked;

pub(crate) use checked::CheckedArithmetic;

use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans arithmetic.
#[derive(Debug)]
pub(crate) struct WideArithmetic;

impl ExprPlanner for WideArithmetic {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Minus, Multiply, Plus};
        let RawBinaryExpr { op, left, right } = expr;
        let is_widened = matches!(op, Plus | Minus | Multiply)
            && is_narrow(&left, schema)
            && is_narrow(&right, schema);
        if !is_widened && op == Minus && is_unsigned(&left, schema) && is_unsigned(&right, schema) {
            let exact = |operand| cast(operand, DataType::Decimal128(20, 0));
            let difference = cast(exact(left) - exact(right), DataType::Int64);
            return Ok(PlannerResult::Planned(difference));
        }
        let wide = |operand| if is_widened { cast(operand, DataType::Int64) } else { operand };
        let (left, right) = (wide(left), wide(right));
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

fn is_unsigned(operand: &Expr, schema: &DFSchema) -> bool {
    use Operator::{Minus, Multiply, Plus};
    match operand {
        // None is: differences of unsigned integers are casts.
        Expr::BinaryExpr(BinaryExpr { op: Minus, .. }) => false,
        Expr::BinaryExpr(BinaryExpr { left, op: Plus | Multiply, right }) => {
            is_unsigned(left, schema) && is_unsigned(right, schema)
        }
        operand => operand.get_type(schema).is_ok_and(|kind| kind.is_unsigned_integer()),
    }
}

/// Whether an operand is an integer of at most 32 bits.
fn is_narrow(operand: &Expr, schema: &DFSchema) -> bool {
    use DataType::{Int8, Int16, Int32, UInt8, UInt16, UInt32};
    use Operator::{Minus, Multiply, Plus};
    // Sums of sums are wide, without a look at all of their operands.
    let is_wide =
        matches!(operand, Expr::BinaryExpr(BinaryExpr { op: Plus | Minus | Multiply, .. }));
    let kind = || operand.get_type(schema);
    !is_wide && matches!(kind(), Ok(Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32))
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    /// The only cell of the result, or the message.
    fn answer(what: &str, kind: &str) -> Result<String, String> {
        let sql = format!(
            "with t as (select arrow_cast(x, '{kind}') as x, k from (values (100, 1), (3, 2)) t(x, \
             k)) select {what} from t"
        );
        let rows = printed_rows(&sql, SessionOptions::default())?;
        Ok(rows.first().map(|row| row.concat()).unwrap_or_default())
    }

    #[test]
    fn integers_that_64_bits_can_hold_do_not_wrap_around() {
        for kind in ["Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64"] {
            for (what, expected) in [
                ("max(x + x + x)", "300"),
                ("max(x * x * x * x)", "100000000"),
                ("min(x - x - x)", "-100"),
                ("min(x + x - x * x)", "-9800"),
                ("min(k - x)", "-99"),
                ("sum(x * x)", "10009"),
                ("max((x / x) * x + x)", "200"),
                ("max(x * 3)", "300"),
                ("min(d) from (select x - lag(x) over (order by k) as d from t) q --", "-97"),
                ("max(x + x) as m from t group by x + x order by x + x desc --", "200"),
            ] {
                assert_eq!(answer(what, kind).as_deref(), Ok(expected), "{what}, {kind}");
            }
        }
    }

    #[test]
    fn differences_of_unsigned_integers_are_exact_signed_integers() {
        let greatest = "18446744073709551615";
        for (what, expected) in [
            ("arrow_typeof(x - x)", "Int64"),
            ("arrow_typeof(sum(x) - sum(x))", "Int64"),
            ("arrow_typeof(x - arrow_cast(k, 'UInt8'))", "Int64"),
            ("(x - 3::bigint unsigned) / 2", "48"),
            ("{greatest} - (x + 18446744073709551500)", "15"),
            ("(x + 18446744073709551500) - {greatest}", "-15"),
            ("x - (x + 9223372036854775808)", "-9223372036854775808"),
            (
                "max(x - y) from (select 5::bigint unsigned as x, null::bigint unsigned as y) q --",
                "",
            ),
        ] {
            let what = what.replace("{greatest}", greatest);
            assert_eq!(answer(&what, "UInt64").as_deref(), Ok(expected), "{what}");
        }
        let message = answer(&format!("{greatest} - x"), "UInt64").unwrap_err();
        assert!(message.contains("18446744073709551515 is out of range"), "{message}");
    }
}
