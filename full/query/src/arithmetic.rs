//! Computes sums, differences and products of integers of up to 32 bits in 64 bits. DataFusion
//! computes them in the type of their operands, where they wrap around: `x * x` of 16 bits would be
//! wrong from 182 on. Integers of 64 bits are left to it.

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
        let wide = |operand| if is_widened { cast(operand, DataType::Int64) } else { operand };
        let (left, right) = (wide(left), wide(right));
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
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
    use std::sync::atomic::AtomicBool;

    use arrow_array::RecordBatch;
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use crate::session::{Session, SessionOptions};

    fn answer(what: &str, kind: &str) -> String {
        let session = Session::new(SessionOptions::default()).unwrap();
        let sql = format!(
            "with t as (select arrow_cast(x, '{kind}') as x, k from (values (100, 1), (3, 2)) t(x, \
             k)) select {what} from t"
        );
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut take = |batch| {
            batches.push(batch);
            Ok(())
        };
        session.run(&sql, &AtomicBool::new(false), &mut take).unwrap();
        let table = pretty_format_batches(&batches).unwrap().to_string();
        table.lines().nth(3).unwrap_or_default().trim_matches(['|', ' ']).to_owned()
    }

    #[test]
    fn narrow_integers_do_not_wrap_around() {
        for kind in ["Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64"] {
            for (what, expected) in [
                ("max(x + x + x)", "300"),
                ("max(x * x * x * x)", "100000000"),
                ("min(x - x - x)", "-100"),
                ("sum(x * x)", "10009"),
                ("max((x / x) * x + x)", "200"),
                ("max(x * 3)", "300"),
                ("min(d) from (select x - lag(x) over (order by k) as d from t) q --", "-97"),
                ("max(x + x) as m from t group by x + x order by x + x desc --", "200"),
            ] {
                assert_eq!(answer(what, kind), expected, "{what}, {kind}");
            }
        }
    }
}
