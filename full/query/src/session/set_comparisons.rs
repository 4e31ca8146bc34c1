//! Names the columns of subqueries after `ANY` and `ALL`. DataFusion compares with a column by its
//! name, which would be that of the outer query if both read the same table. Makes `<> ALL` of NOT
//! IN after a constant, for which DataFusion would pass over NULLs of the subquery.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Projection};

/// A plan that compares with columns whose names no table has. For plans that are not optimised.
pub(crate) fn with_own_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut count = 0;
    let mut rename = |expr: Expr| {
        let Expr::SetComparison(SetComparison { expr, mut subquery, op, quantifier }) = expr else {
            return Ok(Transformed::no(expr));
        };
        count += 1;
        let column = subquery.subquery.schema().columns().into_iter().next();
        let column = column.map(|column| Expr::Column(column).alias(format!("__compared_{count}")));
        let named = Projection::try_new(column.into_iter().collect(), subquery.subquery)?;
        subquery.subquery = Arc::new(LogicalPlan::Projection(named));
        let comparison = SetComparison { expr, subquery, op, quantifier };
        Ok(Transformed::yes(Expr::SetComparison(comparison)))
    };
    plan.transform_up_with_subqueries(|node| {
        let is_filter = matches!(node, LogicalPlan::Filter(_));
        node.map_expressions(|expr| {
            let expr =
                if is_filter { expr.transform_up(of_constant)? } else { Transformed::no(expr) };
            expr.transform_data(|expr| expr.transform_up(&mut rename))
        })
    })
    .data()
}

/// `<> ALL` for NOT IN after a constant.
fn of_constant(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated: true })
            if subquery.outer_ref_columns.is_empty() && is_constant(&expr) =>
        {
            let (op, quantifier) = (Operator::NotEq, SetQuantifier::All);
            let comparison = SetComparison { expr, subquery, op, quantifier };
            Transformed::yes(Expr::SetComparison(comparison))
        }
        expr => Transformed::no(expr),
    })
}

/// Whether an expression refers neither to rows of its query nor to those of one around it.
fn is_constant(expr: &Expr) -> bool {
    let refers_to_rows = |part: &Expr| {
        Ok(match part {
            Expr::Column(_) => true,
            Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
            _ => false,
        })
    };
    !expr.contains_outer() && !expr.exists(refers_to_rows).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    #[test]
    fn a_table_is_compared_with_itself() {
        for (condition, expected) in [
            ("x > any (select x from t where x > 1)", ["3", "4"].as_slice()),
            ("x >= all (select x from t)", &["4"]),
            ("x < all (select x from t where x > 2)", &["1", "2"]),
            ("x = any (select x + 1 from t)", &["2", "3", "4"]),
            ("x + 1 <= any (select max(x) from t)", &["1", "2", "3"]),
            ("x <> all (select x from t where s = 'b')", &["1", "2"]),
            ("x > any (select x from t u where u.s = t.s)", &["2", "4"]),
            (
                "x >= all (select x from t u where u.s = t.s and x > any (select x from t))",
                &["2", "4"],
            ),
            ("not x > any (select x from t where x > 1)", &["1", "2"]),
            ("x > any (select x from t where x > 3) or x = 1", &["1"]),
        ] {
            let sql = format!(
                "with t(s, x) as (values ('a', 1), ('a', 2), ('b', 3), ('b', 4)) select x from t \
                 where {condition} order by x"
            );
            let rows = printed_rows(&sql, SessionOptions::default());
            let rows = rows.unwrap_or_else(|message| panic!("{condition}: {message}")).concat();
            assert_eq!(rows, expected, "{condition}");
        }
    }
}
