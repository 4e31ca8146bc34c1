//! What is refused, and what is similar and answered.

mod order_by;
mod subqueries;

use crate::session::SessionOptions;
use crate::testing::printed_rows;

/// `t` has numbers, texts and times; `u` names some of the numbers.
const TABLES: &str = "t(n, s, x, ts) as (values \
    (1, 'a', 10, timestamp '2007-11-03T14:00:00'), (2, 'a', 20, timestamp '2007-11-03T14:00:01'), \
    (3, 'b', 20, timestamp '2007-11-05T14:00:00'), (4, 'abc', null, null)), \
    u(k, name) as (values (1, 'one'), (9, 'nine'))";

/// The cells of the result, by rows, or the message.
fn run(sql: &str) -> Result<Vec<String>, String> {
    let sql = match (sql.strip_prefix("with recursive "), sql.strip_prefix("with ")) {
        (Some(rest), _) => format!("with recursive {TABLES}, {rest}"),
        (None, Some(rest)) => format!("with {TABLES}, {rest}"),
        _ => format!("with {TABLES} {sql}"),
    };
    let rows = printed_rows(&sql, SessionOptions::default())?;
    Ok(rows.into_iter().map(|row| row.concat()).collect())
}

#[track_caller]
fn refused(sql: &str, says: &str) {
    match run(sql) {
        Err(message) => assert!(message.contains(says), "{sql}: {message}"),
        Ok(rows) => panic!("{sql} was answered: {rows:?}"),
    }
}

#[track_caller]
fn answers(sql: &str, expected: &[&str]) {
    let rows = run(sql).unwrap_or_else(|message| panic!("{sql}: {message}"));
    assert_eq!(rows, expected, "{sql}");
}

#[test]
fn similar_to_is_refused_because_it_would_match_parts() {
    refused("select n from t where s similar to 'a'", "SIMILAR TO is not supported");
    refused("select n from t where s not similar to 'a'", "SIMILAR TO is not supported");
    refused("select n from (select * from t where s similar to 'a')", "SIMILAR TO");
    answers("select n from t where s ~ '^(a|b)$'", &["1", "2", "3"]);
}

#[test]
fn placeholders_are_refused() {
    for sql in ["select $1", "select n from t where n = $n", "select n from t limit $1"] {
        refused(sql, "write the value itself");
    }
    answers("select '$1'", &["$1"]);
}

#[test]
fn arrows_are_refused() {
    for sql in ["array_transform([x], e -> e * 2)", "{'a': x} -> 'a'", "s ->> 'a'"] {
        refused(&format!("select {sql} from t"), "`->` is not supported: write `s['name']`");
    }
    answers("select '->'", &["->"]);
}

#[test]
fn windows_that_extend_named_ones_are_refused() {
    for sql in [
        "select sum(x) over (w) from t window w as (partition by s)",
        "select sum(x) over (w order by n) from t window w as (partition by s)",
        "select sum(x) over v from t window w as (partition by s), v as (w order by n)",
        "select sum(x) over (nosuch) from t",
    ] {
        refused(sql, "cannot begin with the name of another");
    }
    for sql in [
        "select s, sum(x) from t group by s window w as () order by sum(x) over w",
        "select s, sum(x) from t group by s window w as () qualify sum(x) over w > 1",
        "select distinct on (sum(x) over w) s from t window w as ()",
        "from t |> select sum(x) over w",
    ] {
        refused(sql, "is only supported in SELECT");
    }
    let sql = "select n, sum(x) over w from t window w as (partition by s order by n) order by n";
    answers(sql, &["110", "230", "320", "4"]);
}

#[test]
fn window_functions_where_there_are_none_yet_are_refused() {
    for (sql, clause) in [
        ("select n from t where row_number() over (order by n) = 1", "WHERE"),
        ("select n from t where n = 1 or x > lag(x) over (order by n)", "WHERE"),
        ("select count(*) from t group by rank() over (order by n)", "GROUP BY"),
        ("select count(*) from t group by rollup (rank() over (order by n))", "GROUP BY"),
        ("select s from t group by s having sum(count(*)) over () > 1", "HAVING"),
        ("select * from (select n from t where sum(n) over () > 1)", "WHERE"),
    ] {
        let says = format!("window functions are not supported in {clause}: filter by QUALIFY");
        refused(sql, &says);
    }
    refused("select n from t join u on row_number() over () = k", "filter by QUALIFY");
    refused("select count(*) from t group by count(*)", "aggregates are only supported in SELECT");
    refused("select n, row_number() from t", "write `row_number(…) over (order by …)`");
    let filtered = "select n from t where n in (select max(n) over () from t)";
    answers(filtered, &["4"]);
    answers("select n from t qualify row_number() over (order by n desc) = 1", &["4"]);
    answers("select first_value(x order by n) from t", &["10"]);
}

#[test]
fn subqueries_outside_of_conditions_are_explained() {
    let set = "only supported in WHERE and HAVING";
    for (sql, says) in [
        ("select n, exists (select 1 from u where k = n) from t", set),
        ("select n, n in (select k from u) from t", set),
        ("select n from t order by n in (select k from u)", set),
        (
            "select n from t order by (select max(k) from u where k = n)",
            "to the outer query is not",
        ),
    ] {
        refused(sql, says);
    }
}

#[test]
fn clauses_of_other_functions_are_refused() {
    for call in [
        "abs(x) filter (where n > 1)",
        "abs(x) over (partition by s)",
        "abs(distinct x)",
        "abs(x order by n)",
        "abs(x) ignore nulls",
        "abs(x) within group (order by n)",
        "coalesce(x, 0) filter (where n > 1)",
        "unnest([1, 2]) filter (where false)",
        "ABS(distinct x)",
        "array_length(distinct [1, 1])",
    ] {
        refused(&format!("select {call} from t"), "is computed row by row");
    }
    refused("select lag(distinct x) over (order by n) from t", "window function `lag`");
    refused("select first_value(distinct x) over (order by n) from t", "`first_value`");
    refused("select row_number() ignore nulls over (order by n) from t", "`row_number`");
    refused("select sum(x) respect nulls over (order by n) from t", "`sum`");
    refused("select count(distinct *) from t", "name the columns");
    for call in ["corr(distinct n, x)", "covar(distinct n, x)", "covar_pop(distinct n, x)"] {
        refused(&format!("select {call} from t"), "DISTINCT does not apply to `co");
        refused(&format!("select {call} over (order by n) from t"), "select distinct rows in FROM");
    }
    for call in ["regr_sxx(distinct n, x) over ()", "approx_percentile_cont(distinct x, 0.5)"] {
        refused(&format!("select {call} from t"), "select distinct rows in FROM");
    }
    answers("select corr(n, x) > 0.8 from (select distinct n, x from t)", &["true"]);
    refused("select sum(1)(x) from t", "one list of arguments");
    for call in ["array_agg(n order by 2)", "first_value(n order by x, 1 desc) over ()"] {
        refused(&format!("select {call} from t"), "numbers in ORDER BY of a call are no columns");
    }
    answers("select array_agg(n order by '1', -n) from t", &["[4, 3, 2, 1]"]);
    answers("select count(*) over (order by 1) from t limit 1", &["4"]);
    answers("select count(distinct x), sum(x) filter (where n > 1) from t", &["240"]);
    answers("select count(distinct s) over () from t limit 1", &["3"]);
    answers("select lag(x) ignore nulls over (order by n) from t", &["", "10", "20", "20"]);
    answers("select first_value(x order by n desc) ignore nulls from t", &["20"]);
}

#[test]
fn clauses_that_would_be_ignored_are_refused() {
    for (sql, says) in [
        ("select n from t tablesample (10 percent)", "TABLESAMPLE"),
        ("select n from (select n from t) tablesample (10 percent)", "TABLESAMPLE"),
        ("select n from t for update", "FOR UPDATE"),
        ("select n from (select n from t for share)", "FOR SHARE"),
        ("select n from t for xml auto", "FOR XML"),
        ("select n from t for json path", "FOR JSON"),
        ("select n from t settings max_threads = 1", "SETTINGS"),
        ("select n from t format JSON", "FORMAT"),
        ("select n from t prewhere n > 2", "use WHERE"),
        ("select n from t start with n = 1 connect by prior n = x", "WITH RECURSIVE"),
        ("select s, count(*) from t group by s with rollup", "group by rollup"),
        ("select s, count(*) from t group by s with cube", "`cube"),
        ("select s, count(*) from t group by s with totals", "WITH TOTALS"),
        ("select * ilike '%n%' from t", "ILIKE"),
        ("from t", "needs a SELECT"),
        ("select n from t with (nolock)", "hints"),
        ("select n from t partition (p)", "PARTITION"),
        ("select n from t with ordinality", "ORDINALITY"),
        ("from t |> aggregate count(*) group by s desc", "|> order by"),
    ] {
        refused(sql, says);
    }
    for part in ["limit 2", "order by y", "offset 1"] {
        let sql = format!(
            "with recursive r(y) as (select 1 union all select y + 1 from r where y < 5 {part}) \
             select * from r"
        );
        refused(&sql, "WITH RECURSIVE allows no");
    }
    let sql = "with recursive r(y) as (select 1 union all select y + 1 from r where y < 5) \
               select * from r order by y limit 2";
    answers(sql, &["1", "2"]);
    answers("select * exclude (x, ts) from t where n = 1", &["1a"]);
    answers("select count(*) from t group by rollup (s) order by 1", &["1", "1", "2", "4"]);
}

#[test]
fn joins_that_would_have_other_rows_are_refused() {
    for join in [
        "join",
        "inner join",
        "positional join",
        "left join",
        "left outer join",
        "right join",
        "right outer join",
        "full join",
        "left semi join",
        "right semi join",
        "left anti join",
        "right anti join",
    ] {
        refused(&format!("select * from t {join} u"), "JOIN needs ON or USING");
    }
    for (join, instead) in [("semi", "LEFT SEMI JOIN"), ("anti", "LEFT ANTI JOIN")] {
        refused(&format!("select n from t {join} join u on n = k"), instead);
    }
    refused("select * from (t join u)", "JOIN needs ON or USING");
    refused("from t |> join u |> select n", "JOIN needs ON or USING");
    for join in ["right", "full", "right outer", "natural full", "natural right"] {
        let using = if join.starts_with("natural") { "" } else { "using (k)" };
        let sql = format!("select * from u {join} join (select 7 as k) v {using}");
        refused(&sql, "not supported with USING or NATURAL");
    }
    answers("select count(*) from t cross join u", &["8"]);
    answers("select count(*) from t, u", &["8"]);
    answers(
        "select name from u left join (select 9 as k) v using (k) order by 1",
        &["nine", "one"],
    );
    answers("select k from u natural join (select 9 as k) v", &["9"]);
    answers("select n from t left semi join u on n = k", &["1"]);
    answers("select v.k from u full join (select 7 as k) v on u.k = v.k where v.k > 0", &["7"]);
}

#[test]
fn set_operations_with_all_are_refused_except_union() {
    refused("select x from t except all select 20", "EXCEPT ALL");
    refused("select x from t intersect all select 20", "INTERSECT ALL");
    refused("select 1 union all (select x from t except all select 20)", "EXCEPT ALL");
    refused("select 1 union all select x from t intersect all select 20", "INTERSECT ALL");
    answers("select x from t except select 20 order by 1", &["10", ""]);
    answers("select x from t union all select 20 order by 1", &["10", "20", "20", "20", ""]);
}

#[test]
fn intervals_of_days_are_not_compared() {
    let first = "timestamp '2007-11-03T14:00:00'";
    for condition in [
        format!("ts - {first} > interval '1 day'"),
        format!("interval '1 month' > ts - {first}"),
        format!("ts - {first} between interval '1 second' and interval '1 week'"),
        format!("ts - {first} in (interval '1 second', interval '1 day')"),
        format!("ts - {first} is distinct from interval '1 year'"),
        format!("ts - {first} < - interval '1 day'"),
        format!("ts - {first} < interval '1 hour' + interval '1 day'"),
        format!("(ts - {first}) - interval '1 day' > interval '0 hours'"),
        format!("interval '1 day' + (ts - {first}) > interval '0 hours'"),
        format!("ts - {first} > case when n > 1 then interval '1 day' else interval '1 ms' end"),
        format!("ts - {first} > '1 day'::interval"),
        format!("ts - {first} > try_cast('1 month' as interval)"),
        "interval '25 hours' > cast('1 day' as interval)".to_owned(),
        format!("exists (select 1 from u where t.ts - {first} > interval '1 day')"),
    ] {
        refused(&format!("select n from t where {condition}"), "write hours");
    }
    refused("select s from t group by s having max(ts) - min(ts) > interval '1 day'", "hours");
}

/// By DataFusion itself.
#[test]
fn intervals_are_not_multiplied() {
    for product in ["2 * interval '1 day'", "interval '1 day' * 2", "n * interval '1 hour'"] {
        let sql = format!("select s from t group by s, n having max(ts) - min(ts) > {product}");
        refused(&sql, "Invalid interval arithmetic operation");
    }
}

#[test]
fn intervals_of_unknown_units_are_not_compared() {
    let first = "timestamp '2007-11-03T14:00:00'";
    for sql in [
        format!("with i(d) as (select '1 h') select n from t, i where ts - {first} > d::interval"),
        format!("with i as (select interval '1 h' d) select n from t, i where ts - {first} > d"),
        format!("select n from t where ts - {first} > (select interval '1 hour')"),
        format!("select n from t where ts - {first} in (select interval '2 days')"),
        format!("select n from t where ts - {first} = any (select interval '2 days')"),
    ] {
        refused(&sql, "intervals that are not constants");
    }
    let i = "with i(d, e) as (values (interval '1 day', interval '24 hours')), \
             j as (select d, e from i)";
    for from in [
        "i join j on i.d = j.e",
        "i left join j on i.e = j.d",
        "i join j using (d)",
        "i natural join j",
        "i order by d",
        "i group by d, e",
        "i group by rollup (d)",
        "i group by grouping sets ((d), (e))",
        "(select distinct on (d) d, e from i)",
        "(select distinct d, e from i)",
        "(select d from i union select e from i)",
        "(select d from i intersect select e from i)",
        "i window w as (partition by d)",
    ] {
        let window = if from.contains(" w ") { ", count(*) over w" } else { "" };
        refused(&format!("{i} select 1{window} from {from}"), "intervals that are not constants");
    }
    for call in [
        "nullif(d, e)",
        "greatest(d, e)",
        "least(interval '1 hour', d)",
        "min(d)",
        "max(d)",
        "count(distinct d)",
        "max(d) over ()",
        "first_value(e order by d)",
        "row_number() over (order by d)",
        "count(*) over (partition by d)",
    ] {
        refused(&format!("{i} select {call} from i"), "intervals that are not constants");
    }
    answers(&format!("{i} select count(d), count(*) from i"), &["11"]);
    let sql = "with i as (select interval '1 day' as d) select n from t, i where ts > ";
    answers(&format!("{sql}{first} + d"), &["3"]);
}

#[test]
fn intervals_that_are_the_same_in_all_rows_are_sorted_and_grouped() {
    for rest in [
        "from t order by interval '1 day', n",
        "from t order by interval '1 day' + interval '1 hour', n",
        "from t order by -cast('1 month' as interval), n",
        "from (select n, interval '1 day' as d from t) order by d, n",
        "from (select distinct n, interval '1 day' as d from t) order by n",
        "from (select n, d as e from (select n, interval '1 day' as d from t)) order by e, n",
        "from t group by n, interval '1 day' order by n",
    ] {
        answers(&format!("select n {rest}"), &["1", "2", "3", "4"]);
    }
    answers("select n, interval '1 day' as d from t order by d, n limit 1", &["11 days"]);
    for call in [
        "max(interval '1 day')",
        "min(interval '1 day') over ()",
        "first_value(interval '1 day' order by interval '2 days')",
        "max(interval '1 day') over (order by interval '1 day' rows 1 preceding)",
    ] {
        answers(&format!("select {call} from t limit 1"), &["1 days"]);
    }
    for sql in [
        "select n from t order by case when n > 1 then interval '1 day' else interval '1 h' end",
        "select unnest([interval '1 day', interval '24 hours']) as d from t order by d",
        "with recursive r as (select interval '1 day' as d union select d + interval '24 hours' \
         from r) select 1 from r limit 1",
        "select max(case n when 1 then interval '1 day' else interval '24 hours' end) from t",
    ] {
        refused(sql, "cannot be compared");
    }
}

#[test]
fn intervals_of_hours_are_compared() {
    let first = "timestamp '2007-11-03T14:00:00'";
    let cases: [(String, &[&str]); 10] = [
        (format!("ts - {first} > interval '24 hours'"), &["3"]),
        (format!("ts - {first} > - interval '1 ms'"), &["1", "2", "3"]),
        (format!("(ts - {first}) - interval '24 hours' > interval '0 hours'"), &["3"]),
        (format!("ts - {first} > '10 seconds'::interval"), &["3"]),
        (format!("ts - {first} > cast('1 hour' as interval)"), &["3"]),
        (
            format!("ts - {first} < case when n > 1 then interval '2 s' else interval '0 ms' end"),
            &["2"],
        ),
        (format!("ts - interval '1 day' > {first}"), &["3"]),
        (format!("(ts - interval '1 day') - {first} > interval '0 hours'"), &["3"]),
        ("time '10:00:00' - time '09:00:00' < interval '1 hour'".to_owned(), &[]),
        (format!("ts - {first} > cast(null as interval)"), &[]),
    ];
    for (condition, rows) in cases {
        answers(&format!("select n from t where {condition}"), rows);
    }
    answers("select s from t group by s having max(ts) - min(ts) = interval '1 second'", &["a"]);
}

#[test]
fn ranges_need_distances() {
    let frame = |by: &str, distance: &str| {
        format!(
            "select sum(n) over (order by {by} range between {distance} preceding and current \
                 row) from t order by n"
        )
    };
    refused(&frame("s", "1"), "ORDER BY of numbers or times");
    refused(&frame("n > 2", "1"), "ORDER BY of numbers or times");
    refused(&frame("ts", "1"), "RANGE over times needs intervals");
    answers(&frame("n", "1"), &["1", "3", "5", "7"]);
    answers(&frame("ts", "interval '1 second'"), &["1", "3", "3", "4"]);
    answers(&frame("s", "unbounded"), &["3", "3", "10", "7"]);
}

#[test]
fn numbers_end_at_a_blank() {
    refused("select x * 1_000 from t", "`1_000` is neither a number nor a name");
    refused("select 0b11", "`0b11`");
    refused("select n from t limit 1offset 1", "`1offset`");
    answers("select 1e3 k, 1.5, [n][1], 'x1_000' from t limit 1", &["1000.01.51x1_000"]);
}

#[test]
fn integers_beyond_64_bits_are_refused() {
    answers("select 18446744073709551615", &["18446744073709551615"]);
    answers("select -9223372036854775808", &["-9223372036854775808"]);
    answers("select 18446744073709551615 - 18446744073709551615", &["0"]);
    let huge = "18446744073709551616";
    refused(&format!("select {huge}"), "write `18446744073709551616.0` for a floating");
    refused(&format!("select 1 where 1 < {huge}"), "'18446744073709551616'::decimal(38, 0)");
    answers(&format!("select '{huge}'::decimal(38, 0)"), &[huge]);
    answers(&format!("select {huge}.0 > 1"), &["true"]);
    refused("select 1 where 1 > -9223372036854775809", "the integer -9223372036854775809 is");
}

#[test]
fn tests_after_is_distinct_from_need_parentheses() {
    refused("select 1 is distinct from null is true", "put one of them into parentheses");
    refused("select 1 is distinct from 2 is not distinct from true and true", "parentheses");
    answers("select true is distinct from (null is true)", &["true"]);
    answers("select (1 is distinct from null) is true and true", &["true"]);
}

#[test]
fn other_escape_characters_are_refused() {
    refused("select 'C$%' like 'C$%' escape '$'", "ESCAPE is only supported with the backslash");
    refused("select 'C$%' not ilike 'C$%' escape '$'", "ESCAPE is only supported");
    answers(r"select 'C_' like 'C\_' escape '\', 'Cx' like 'C\_'", &["truefalse"]);
}

#[test]
fn whether_a_condition_can_be_null_matters_to_no_group() {
    let table = "(values (true), (null), (false), (true)) t(x)";
    let conditions = format!("select x is true as b from {table}");
    answers(
        &format!("select b, count(*) as n from ({conditions}) group by b order by b"),
        &["false2", "true2"],
    );
    answers(&format!("select distinct b from ({conditions}) order by b"), &["false", "true"]);
}

#[test]
fn windows_may_compute_what_they_divide_and_sort_by() {
    let table = "(values ('a', 1), ('bbb', 2), ('cccc', 4)) t(s, x)";
    for (window, sums) in [
        ("partition by length(s) > 2", ["1", "6", "6"]),
        ("partition by power(x, 2) <= 4", ["3", "3", "4"]),
        ("order by length(s) < 2", ["7", "6", "6"]),
        ("partition by not (abs(x) > 2)", ["3", "3", "4"]),
        ("partition by case when length(s) > 2 then 1 end", ["1", "6", "6"]),
        ("partition by (length(s) > 2)::int", ["1", "6", "6"]),
        ("partition by -abs(x), length(s) > 2", ["1", "2", "4"]),
        (
            "partition by length(s) > 2 order by x rows between 1 preceding and current row",
            ["1", "2", "6"],
        ),
    ] {
        answers(&format!("select sum(x) over ({window}) as n from {table} order by x"), &sums);
        let filtered = format!("sum(x) filter (where x > 0) over ({window})");
        answers(&format!("select {filtered} as n from {table} order by x"), &sums);
    }
}

#[test]
fn joins_may_compute_with_fields_of_structs() {
    let table = "(select named_struct('name', 'B', 'n', 1) as s, 'b' as k)";
    answers(
        &format!("select count(*) from {table} a join {table} b on a.k = lower(b.s['name'])"),
        &["1"],
    );
    answers(
        &format!("select count(*) from {table} a join {table} b on a.s['n'] + 1 = b.s['n'] + 1"),
        &["1"],
    );
}

#[test]
fn a_limit_takes_the_first_rows_of_an_ordered_subquery() {
    answers("select n from (select n from t order by n desc) limit 2", &["4", "3"]);
}
