//! Keys that are written twice.

use crate::session::SessionOptions;
use crate::testing::printed_rows;

#[track_caller]
fn answers(sql: &str, expected: &[&str]) {
    let sql = format!(
        "with t(s, x, y) as (values ('a', 1, 5), ('a', 2, -9), ('b', -9, 1), ('c', 4, 2)) {sql}"
    );
    let rows = printed_rows(&sql, SessionOptions::default());
    let rows = rows.unwrap_or_else(|message| panic!("{sql}: {message}"));
    let rows: Vec<String> = rows.into_iter().map(|row| row.join(" ")).collect();
    assert_eq!(rows, expected, "{sql}");
}

#[test]
fn distinct_on_takes_each_key_once() {
    for sql in [
        "select distinct on (s) s, x from t order by s, y, s desc, y + 0, (y), \"y\", t.y",
        "select distinct on (s, s) s, x from t order by s, s, y",
        "select distinct on (s, \"s\") s, x from t order by s, \"s\", y, (y)",
        "select distinct on (t.s, (s)) s, x from t order by t.s, s, y desc, t.y desc",
        "select * from (select distinct on (s, t.s) s, x from t order by s, s, y) order by s",
        "select distinct on (s, coalesce(s, s)) s, x from t order by s, coalesce(s, s), y",
        "select distinct on (s, case when true then s end) s, x from t \
         order by s, case when true then s end, y",
    ] {
        let first = if sql.contains("desc, t.y") { "a 1" } else { "a 2" };
        answers(sql, &[first, "b -9", "c 4"]);
    }
    answers("select distinct on (s, t.s) s from t order by s, s", &["a", "b", "c"]);
    answers("select count(*) from (select distinct on (s, (s)) x from t)", &["3"]);
    let within = "select s from t where s in (select distinct on (s, t.s) s from t) order by x";
    answers(within, &["b", "a", "a", "c"]);
}

#[test]
fn distinct_on_and_its_order_repeat_different_keys() {
    for (keys, by) in [
        ("s, x", "s, s, x, y"),
        ("s, s, x", "s, x, y"),
        ("s, x, s", "s, x, y, s desc"),
        ("s, x, x", "s, s desc, x, x, y"),
    ] {
        let sql = format!("select distinct on ({keys}) s, x from t order by {by}");
        answers(&sql, &["a 1", "a 2", "b -9", "c 4"]);
        answers(&format!("select count(*) from ({sql})"), &["4"]);
    }
}

#[test]
fn aggregates_order_by_each_key_once() {
    let groups = "from t group by s order by s";
    for by in ["y, y", "y, (y)", "y, t.y", "y, \"y\" desc, y + 0", "y + 0, y", "x * 0, y, 'a', y"] {
        answers(&format!("select first_value(x order by {by}) from t"), &["2"]);
        answers(&format!("select first_value(x order by {by}) {groups}"), &["2", "-9", "4"]);
        answers(
            &format!("select s, last_value(x order by {by}) as v {groups}"),
            &["a 1", "b -9", "c 4"],
        );
        answers(&format!("select array_agg(x order by {by}) from t"), &["[2, -9, 4, 1]"]);
        answers(&format!("select array_agg(x order by {by}) {groups}"), &["[2, 1]", "[-9]", "[4]"]);
        answers(&format!("select nth_value(x, 2 order by {by}) from t"), &["-9"]);
        answers(&format!("select string_agg(s, '' order by {by}) from t"), &["abca"]);
    }
    let filtered = "first_value(x order by y, t.y) filter (where x < 2)";
    answers(&format!("select {filtered} {groups}"), &["1", "-9", ""]);
    answers(&format!("select s from t group by s having {filtered} > 0"), &["a"]);
}

#[test]
fn windows_and_results_are_ordered_by_repeated_keys() {
    answers("select x from t order by x desc, x, t.x", &["4", "2", "1", "-9"]);
    let sql = "select first_value(s) over (order by y, y desc, t.y) as f, y from t order by y";
    answers(sql, &["a -9", "a 1", "a 2", "a 5"]);
}
