//! Names columns of results where DataFusion needs names: it gives two columns the same name if
//! they differ in casts, does not find computed columns of groups by their number, nor those of
//! SELECT DISTINCT by what they compute (`select distinct x + 1 … order by x + 1`).

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, OrderBy, OrderByKind, Query, SelectItem, SetExpr, Value,
};

use super::statement_queries::for_each_query;

/// Whether a statement may have been refused for columns without names.
pub(super) fn are_missing(error: &DataFusionError) -> bool {
    let message = error.message();
    [
        "Projections require unique expression names",
        "Column in ORDER BY must be in GROUP BY",
        "For SELECT DISTINCT, ORDER BY expressions",
    ]
    .iter()
    .any(|refusal| message.contains(refusal))
}

/// Names computed columns of the result that have no name as they are written. Those of subqueries
/// keep theirs, as the queries around them may use them. Returns whether there were any.
pub(super) fn add_written(statement: &mut DfStatement) -> bool {
    let mut has_named = false;
    for_each_query(statement, &mut |place, query| {
        let (0, SetExpr::Select(select)) = (place, &mut *query.body) else { return };
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && !is_column(expr)
            {
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                has_named = true;
            }
        }
    });
    has_named
}

fn is_column(expr: &Expr) -> bool {
    matches!(without_parentheses(expr), Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// Makes ORDER BY of SELECT DISTINCT name the columns that it computes.
pub(super) fn order_by_names(query: &mut Query) {
    let SetExpr::Select(select) = &*query.body else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(by), .. }) = &mut query.order_by else {
        return;
    };
    if select.distinct != Some(Distinct::Distinct) {
        return;
    }
    for item in &select.projection {
        // A name alone is one of the result already, and a number is a place.
        if let SelectItem::ExprWithAlias { expr, alias } = item
            && let expr = without_parentheses(expr)
            && !is_name(expr)
            && !is_number(expr)
        {
            for by in by.iter_mut().filter(|by| without_parentheses(&by.expr) == expr) {
                by.expr = Expr::Identifier(alias.clone());
            }
        }
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// Whether an expression of ORDER BY is a name alone.
pub(super) fn is_name(expr: &Expr) -> bool {
    matches!(without_parentheses(expr), Expr::Identifier(_))
}

fn without_parentheses(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests {
    use crate::session::SessionOptions;
    use crate::testing::printed_rows;

    fn answer(sql: &str) -> Result<Vec<String>, String> {
        let sql = format!("with t(n, s) as (values (9, 'b'), (10, 'a'), (9, 'b')) {sql}");
        let rows = printed_rows(&sql, SessionOptions::default())?;
        Ok(rows.into_iter().map(|row| row.join(" ")).collect())
    }

    #[track_caller]
    fn answers(sql: &str, expected: &[&str]) {
        let expected = expected.iter().map(|&row| row.to_owned()).collect();
        assert_eq!(answer(sql), Ok(expected), "{sql}");
    }

    #[test]
    fn casts_and_parentheses_are_other_columns() {
        answers("select n::text from t order by n", &["9", "9", "10"]);
        answers("select n::text, n::double from t order by n desc limit 1", &["10 10.0"]);
        let sql = "select t.n::text, n, max(n) from t group by n order by t.n";
        answers(sql, &["9 9 9", "10 10 10"]);
        answers("select upper(s), n::double, n from t order by upper(s) limit 1", &["A 10.0 10"]);
        answers("select 20 - (n - 1), 20 - n - 1 from t order by n desc limit 1", &["11 9"]);
        answers("select (n), n::text, 1 as m from t order by m, n desc limit 1", &["10 10 1"]);
    }

    #[test]
    fn columns_of_groups_are_ordered_by_number() {
        answers("select s, max(n) - min(n) + 1 from t group by 1 order by 2, 1", &["a 1", "b 1"]);
        answers(
            "select round(avg(n), 1), s from t group by s order by 1 desc",
            &["10.0 a", "9.0 b"],
        );
        answers("select upper(s), count(*) from t group by s order by 1", &["A 1", "B 2"]);
        answers("select round(avg(n), 1) from t order by 1", &["9.3"]);
        answers("select distinct max(n) + 1 from t group by s order by 1", &["10", "11"]);
        let explained = printed_rows(
            "explain select k, max(v) + 1 from (values (1, 2)) as t(k, v) group by k order by 2",
            SessionOptions::default(),
        );
        assert!(explained.is_ok(), "{explained:?}");
    }

    #[test]
    fn distinct_results_are_ordered_by_what_they_compute() {
        answers("select distinct n + 1 from t order by n + 1 desc", &["11", "10"]);
        answers("select distinct upper(s) as u from t order by upper(s)", &["A", "B"]);
        answers("select distinct s, n::text from t order by n::text, s", &["a 10", "b 9"]);
        answers(
            "select distinct n % 2 = 0, s from t order by s, n % 2 = 0",
            &["true a", "false b"],
        );
        answers("select distinct n % 2 = 0 from t order by (n % 2 = 0)", &["false", "true"]);
        answers("select distinct (n % 2) as m from t order by n % 2 desc", &["1", "0"]);
        answers("select distinct -n as n from t order by -n", &["-10", "-9"]);
        answers("select distinct n as m, 19 - n as n from t order by n", &["10 9", "9 10"]);
        answers("select distinct t.*, n * 2 from t order by n * 2", &["9 b 18", "10 a 20"]);
        answers("select distinct max(n) + 1 from t group by s order by max(n) + 1", &["10", "11"]);
        let sql = "select m from (select distinct n * 2 as m from t order by n * 2 desc limit 1)";
        answers(sql, &["20"]);
    }

    #[test]
    fn numbers_in_order_by_are_places() {
        answers("select distinct 2 as a, n from t order by 2 desc", &["2 10", "2 9"]);
        answers("select distinct (2) as a, n from t order by 1, 2 desc", &["2 10", "2 9"]);
        answers("select distinct n, 'x' as b, 1 as c from t order by 1", &["9 x 1", "10 x 1"]);
    }

    #[test]
    fn columns_of_subqueries_keep_their_names() {
        let sql = "select s, n::text, n::double from t where exists (select 1 from (select (n) \
                   from t as u where u.n > 9) as q where n = t.n)";
        answers(sql, &["a 10 10.0"]);
        let nested = (0..14).fold("n".to_owned(), |sql, _| format!("(select max({sql}) from t)"));
        let message = answer(&format!("select {nested}, {nested} from t")).unwrap_err();
        assert!(message.contains("columns 1 and 2 of the result have the same name"), "{message}");
    }

    #[test]
    fn names_do_not_help_everywhere() {
        let same = "columns 1 and 2 of the result have the same name; give one of them another";
        let number = "computed column that has no name: `max(t.n) + Int64(1)`; name it in SELECT";
        for (sql, expected) in [
            ("select a from (select n::text, n, n::double as a from t)", same),
            ("select n::text, n from t union all select 'x', 1", same),
            ("select m from (select s as m, max(n) + 1 from t group by s order by 2) as q", number),
            (
                "select sum(n) over (), sum(n::double) over () from t",
                "two window functions differ only in casts; compute what is cast in a subquery",
            ),
            ("select n + 1, n + 1 from t", "columns 1 and 2 of the result have the same name"),
            ("select sum(n) as a, sum(n::double) as b from t", "differ only in casts"),
            ("select * from t, t", "two columns are called `t.n`; give one table another name"),
            ("select n from t group by cube (n, n)", "and group by each column once"),
            ("select s from t group by s order by n", "`t.n` is neither in GROUP BY nor in an "),
            ("select distinct s from t order by n + 1", "ORDER BY expressions t.n must appear in"),
            ("select m from (select distinct n - 1 from t order by n - 1) as q(m)", "`x + 1 as y`"),
        ] {
            let message = answer(sql).unwrap_err();
            assert!(message.contains(expected), "{sql}: {message}");
        }
    }
}
