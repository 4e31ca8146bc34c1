//! Expressions that fail for rows that are not selected.

use crate::session::SessionOptions;
use crate::testing::printed_rows;

#[track_caller]
fn answers(sql: &str, expected: &[&str]) {
    let sql = format!(
        "with t(s, x, y) as (values ('a', 1, 5), ('a', 0, 9223372036854775807), ('b', -9, 1), \
         ('c', 4, 2), ('b', null, 3)) {sql}"
    );
    let rows = printed_rows(&sql, SessionOptions::default());
    let rows = rows.unwrap_or_else(|message| panic!("{sql}: {message}"));
    let rows: Vec<String> = rows.into_iter().map(|row| row.join(" ")).collect();
    assert_eq!(rows, expected, "{sql}");
}

#[test]
fn a_case_selects_rows_for_conditions() {
    for case in [
        "case when x <> 0 then 10 / x > 1 end",
        "case when x <> 0 then 10 / x > 1 else false end",
        "case when x = 0 then false else 10 / x > 1 end",
        "case when x is null then false when x = 0 then false else 10 / x > 1 end",
        "case when y < 10 then y * 1000 > 0 and x > 0 end",
        "case when x <> 0 then case when y < 10 then y * 1000 > 0 and 10 / x > 1 end end",
        "not case when y < 10 then y * 1000 < 0 or coalesce(x, 0) <= 0 else true end",
        "case when s < 'b' and x = 0 then null when 10 / x > 1 then y * 1000 > 1 end",
        "case when y = 5 then true when x > 3 then 8 % x = 0 end",
        "case when x <> 0 then 10 / x > 1 and y::smallint > 0 end",
    ] {
        answers(&format!("select x from t where {case} order by x"), &["1", "4"]);
        answers(&format!("select a.x from t a join (select 1) on {case} order by x"), &["1", "4"]);
        let of_results = format!("select x from (select x, {case} as c from t) where c order by x");
        answers(&of_results, &["1", "4"]);
        answers(&format!("select sum(x) filter (where {case}) from t"), &["5"]);
        answers(&format!("select x from t order by {case} desc nulls last, x limit 1"), &["1"]);
        answers(&format!("select count(*) > 0 from t group by {case} limit 1"), &["true"]);
    }
    let on = "a.x = b.x and case when a.y < 10 then b.y * 1000 > a.x end";
    let sql = format!("select b.y from t a left join t b on {on} order by b.y");
    answers(&sql, &["1", "2", "5", "", ""]);
    let results = ["true", "", "false", "true", ""];
    answers("select case when x <> 0 then 10 / x > 1 end from t", &results);
}

#[test]
fn the_condition_of_a_case_is_one_of_its_own() {
    let plan = |case: &str| {
        let sql = format!("explain select x from (values (1, 2)) as t(x, y) where {case} end");
        printed_rows(&sql, SessionOptions::default()).unwrap().concat().concat()
    };
    for case in [
        "case when x < 3 then 10 / y > 1",
        "case when x < 3 then 10 / y > 1 else false",
        "y < 5 and case when x < 3 then 10 / y > 1 else null",
    ] {
        assert!(plan(case).contains("AND CASE Boolean(true)"), "{}", plan(case));
    }
    for case in [
        "case when x < 3 then 10 / y > 1 else true",
        "case when x < 3 then 10 / y > 1 when y > 9 then x > 0",
        "y < 5 or case when x < 3 then 10 / y > 1",
        "case when x < 3 * random() then 10 / y > 1",
    ] {
        assert!(!plan(case).contains(" AND CASE"), "{}", plan(case));
    }
}

#[test]
fn a_filter_selects_rows_for_arguments() {
    let groups = "from t group by s order by s";
    for (call, of_groups, of_all) in [
        ("max(y * 1000)", ["5000", "1000", "2000"], "5000"),
        ("sum(y * 1000)", ["5000", "1000", "2000"], "8000"),
        ("sum(distinct y * 1000)", ["5000", "1000", "2000"], "8000"),
        ("count(y * 1000)", ["1", "1", "1"], "3"),
        ("count(*)", ["1", "1", "1"], "3"),
        ("count(1)", ["1", "1", "1"], "3"),
        ("array_agg(10 / x order by y)", ["[10]", "[-1]", "[2]"], "[-1, 2, 10]"),
        ("array_agg(nullif(10 / x, 10) order by y)", ["[]", "[-1]", "[2]"], "[-1, 2, ]"),
        ("array_agg(distinct 10 / x order by 10 / x)", ["[10]", "[-1]", "[2]"], "[-1, 2, 10]"),
        ("array_agg(y order by 10 / x desc)", ["[5]", "[1]", "[2]"], "[5, 2, 1]"),
        ("first_value(10 / x order by y desc)", ["10", "-1", "2"], "10"),
        (
            "string_agg(distinct (10 / x)::text, ', ' order by (10 / x)::text)",
            ["10", "-1", "2"],
            "-1, 10, 2",
        ),
        ("string_agg((10 / x)::text, ', ' order by y)", ["10", "-1", "2"], "-1, 2, 10"),
        ("bool_or(10 / x > 1)", ["true", "false", "true"], "true"),
        ("median(y * 1000)", ["5000.0", "1000.0", "2000.0"], "2000.0"),
        ("approx_percentile_cont(y::smallint, 0.5)", ["5.0", "1.0", "2.0"], "2.0"),
        ("percentile_cont(y::smallint, 0.5)", ["5.0", "1.0", "2.0"], "2.0"),
        (
            "percentile_cont(0.5) within group (order by y::smallint desc)",
            ["5.0", "1.0", "2.0"],
            "2.0",
        ),
        (
            "approx_percentile_cont(0.5) within group (order by y::smallint)",
            ["5.0", "1.0", "2.0"],
            "2.0",
        ),
        ("avg(y::smallint)", ["5.0", "1.0", "2.0"], "2.6666666666666665"),
        ("regr_count(y::smallint, 10 / x)", ["1", "1", "1"], "3"),
    ] {
        let call = format!("{call} filter (where x <> 0 and y < 10)");
        answers(&format!("select {call} {groups}"), &of_groups);
        answers(&format!("select {call}, count(*) from t"), &[&format!("{of_all} 5")]);
        // DataFusion has no order within calls of windows.
        if !call.contains("order by ") {
            answers(&format!("select distinct {call} over () from t"), &[of_all]);
        }
        answers(&format!("select s from t group by s having {call} is null"), &[]);
    }
    let sums = "sum(y * 1000) filter (where y < 10) over (order by y)";
    answers(&format!("select {sums} from t"), &["1000", "3000", "6000", "11000", "11000"]);
}

#[test]
fn a_volatile_filter_is_computed_once() {
    let nulls = "array_agg(10 / n) filter (where random() < 0.5)";
    let sql =
        format!("select array_position({nulls}, null) from (select unnest(range(1, 99)) as n)");
    answers(&sql, &[""]);
}
