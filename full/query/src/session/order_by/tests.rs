//! Which columns ORDER BY means.

use crate::session::SessionOptions;
use crate::testing::printed_rows;

/// The first column of the result, or the message.
fn first_column(sql: &str) -> Result<Vec<String>, String> {
    let (explain, sql) = match sql.strip_prefix("explain ") {
        Some(rest) => ("explain ", rest),
        None => ("", sql),
    };
    let sql = format!(
        "{explain}with t(s, x, y) as (values ('a', 1, 5), ('a', 2, -9), ('b', -9, 1), ('c', 4, \
         2)), u(k, z) as (values (1, 3), (2, 2), (4, 1)) {sql}"
    );
    let rows = printed_rows(&sql, SessionOptions::default())?;
    Ok(rows.into_iter().map(|mut row| row.swap_remove(0)).collect())
}

#[track_caller]
fn orders(sql: &str, expected: &[&str]) {
    let column = first_column(sql).unwrap_or_else(|message| panic!("{sql}: {message}"));
    assert_eq!(column, expected, "{sql}");
}

#[test]
fn aggregates_in_order_by_are_of_columns_of_the_table() {
    for sql in [
        "select s, sum(x) as x from t group by s order by sum(x)",
        "select s, sum(x) as x, count(*) as y from t group by s order by sum(x)",
        "select s, sum(x) as X from t group by s order by SUM(X)",
        "select s, max(y) as x from t group by s order by sum(x)/count(*), s",
        "select s, count(*) as y from t group by s having count(*) > 0 order by -max(y) + sum(x)",
        "select s, sum(v.x) as x from t as v group by s order by sum(x)",
        "select s, sum(x) as x from (select s, x from t) group by s order by sum(x)",
    ] {
        orders(sql, &["b", "a", "c"]);
    }
    orders("select s, count(*) as x from t group by s order by sum(x) desc", &["c", "a", "b"]);
    orders("select count(*) as x from t order by sum(x)", &["4"]);
    let joined = "select s, sum(z) as x from t join u on k = x group by s order by sum(x) desc";
    orders(joined, &["c", "a"]);
    let nested = "select * from (select s, sum(x) as x from t group by s order by sum(x) limit 1)";
    orders(nested, &["b"]);
}

#[test]
fn expressions_in_order_by_are_of_columns_of_the_table() {
    orders("select -x as x from t order by x", &["-4", "-2", "-1", "9"]);
    orders("select -x as x from t order by (x)", &["-4", "-2", "-1", "9"]);
    orders("select -x as x from t order by -x", &["-4", "-2", "-1", "9"]);
    let numbered = "select -x as x from t order by row_number() over (order by x) limit 1";
    orders(numbered, &["9"]);
    orders("select x as y, y as x from t order by x + 100 * y limit 1", &["2"]);
    let message = first_column("select -x as x from t order by x + 0").unwrap_err();
    assert!(message.contains("two columns are called `x`"), "{message}");
    let explained = first_column("explain select -x as x from t order by -x");
    assert!(explained.is_ok(), "{explained:?}");
}

#[test]
fn expressions_in_order_by_use_names_that_no_table_has() {
    orders("select s, sum(x) as n from t group by s order by abs(n)", &["a", "c", "b"]);
    orders("select s, sum(x) as n from t group by s order by n + count(*), s", &["b", "a", "c"]);
    // The column of the table has no value for a group.
    let grouped = "select x % 2 as x, count(*) from t group by x % 2 order by abs(x), 1";
    orders(grouped, &["0", "-1", "1"]);
}

#[test]
fn each_query_has_its_own_meaning_of_names() {
    let table = "(select x as y, y as x from t order by x + 100 * y limit 1)";
    let result = "(select x % 2 as x, count(*) from t group by x % 2 order by abs(x), 1 limit 1)";
    for (one, other, expected) in
        [(table, result, ["0", "2"]), (result, table, ["0", "2"]), (table, table, ["2", "2"])]
    {
        let sql = format!("select * from (select * from {one} union all {other}) order by 1");
        orders(&sql, &expected);
    }
    let nested = format!("select y as x, 1 as y from {table} order by x + 100 * y");
    orders(&nested, &["2"]);
}

#[test]
fn replaced_columns_are_those_of_the_table() {
    for sql in [
        "select * replace (-x as x) from t order by x + 0",
        "select t.* replace (-x as x) from t order by x + 0",
    ] {
        let message = first_column(sql).unwrap_err();
        assert!(message.contains("two columns are called `x`"), "{sql}: {message}");
    }
    orders("select * replace (-x as x) from t order by x, s", &["c", "a", "a", "b"]);
}

#[test]
fn aggregates_of_aggregates_are_explained() {
    let sql = "select s, count(*) as x, max(y) as y from t group by s order by x + sum(y)";
    let message = first_column(sql).unwrap_err();
    assert!(message.contains("nor of columns of the result that are aggregates"), "{message}");
}

#[test]
fn queries_with_ambiguous_names_are_limited() {
    let one = "select x as y, y as x from t order by x + 100 * y limit 1";
    let many = |count: usize| vec![format!("(select * from ({one}))"); count].join(" union all ");
    orders(&many(3), &["2", "2", "2"]);
    let message = first_column(&many(51)).unwrap_err();
    assert!(message.contains("in 51 queries, and at most 50 are allowed"), "{message}");
}
