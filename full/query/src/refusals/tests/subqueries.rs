//! Subqueries.

use super::{answers, refused};

/// `o` has a NULL among its numbers.
const WITH: &str = "with o(k, g, v) as (values (10, 'a', 1), (20, 'b', 2), (20, 'a', 3), \
                    (null, 'b', 4)) ";

const ALL: &[&str] = &["1", "2", "3", "4"];

#[track_caller]
fn where_refused(condition: &str, says: &str) {
    refused(&format!("{WITH} select n from t where {condition}"), says);
}

#[track_caller]
fn where_answers(condition: &str, expected: &[&str]) {
    answers(&format!("{WITH} select n from t where {condition} order by n"), expected);
}

#[test]
fn in_is_only_answered_where_null_counts_as_false() {
    for condition in [
        "x not in (select k from o) or n = 1",
        "n = 1 or (n > 1 and not (x in (select k from o)))",
        "not (x in (select k from o) and n = 1)",
        "(x in (select k from o)) is null",
        "(x not in (select k from o)) is not true",
        "case when x not in (select k from o) then true else n = 1 end",
        "(x in (select k from o)) = (n = 1)",
        "coalesce(x in (select k from o), true)",
    ] {
        where_refused(condition, "write `exists (select 1 from t where t.k = x)`");
        let sql = format!("{WITH} select s from t group by s, x, n having {condition}");
        refused(&sql, "write `exists");
    }
    where_answers("x in (select k from o)", &["1", "2", "3"]);
    where_answers("x in (select k from o) or n = 4", &["1", "2", "3", "4"]);
    where_answers("case when x in (select k from o) then n > 1 else n = 4 end", &["2", "3", "4"]);
    where_answers("(x in (select k from o where g = 'b')) is not true", &["1", "4"]);
    where_answers("x not in (select k from o)", &[]);
    where_answers("not (x in (select k from o))", &[]);
    where_answers("not (x in (select k from o where k > 10) or n > 2)", &["1"]);
    where_answers("x not in (select k from o where k > 10) and n > 0", &["1"]);
    where_answers("not exists (select 1 from o where k = x) or n = 1", &["1", "4"]);
    // Without NULL, all of them are right.
    let sql = "with p(m) as (select row_number() over () from t) select m from p where not (m in \
               (select m from p where m < 3) and m > 1) or m not in (select m from p) order by m";
    answers(sql, &["1", "3", "4"]);
}

#[test]
fn not_in_of_a_constant_is_null_if_there_is_null() {
    for value in ["99", "null", "10 + 1", "20", "power(2, 5)"] {
        where_answers(&format!("{value} not in (select k from o)"), &[]);
        let not = format!("not ({value} in (select k from o))");
        where_refused(&not, "write `x <> all (select …)`");
        where_answers(&format!("{value} not in (select k from o where v < 0)"), ALL);
        where_answers(&format!("{value} not in (select k from o where v < 0) and n = 1"), &["1"]);
        let groups = "select s from t group by s, x having";
        answers(&format!("{WITH} {groups} {value} not in (select k from o)"), &[]);
    }
    where_answers("99 <> all (select k from o)", &[]);
    where_answers("99 not in (select v from o)", ALL);
    where_answers("99 not in (select k from o where k is not null)", ALL);
    where_answers("20 not in (select k from o where k is not null)", &[]);
    where_answers("null not in (select k from o where k is not null)", &[]);
    where_answers("20 in (select k from o)", ALL);
    where_answers("99 in (select k from o)", &[]);
    where_answers("20 in (select k from o) and n > 3", &["4"]);
    where_answers("(select max(k) from o) not in (select v from o)", ALL);
    where_answers("(select max(k) from o) not in (select k from o)", &[]);
    where_answers("(select max(k) from o where k < 0) not in (select v from o)", &[]);
    where_answers("(select max(k) + 1 from o) not in (select k from o)", &[]);
    where_answers("x + 99 not in (select k from o)", &[]);
    let sql = "select m from (select 99 as m) where m not in (select k from o)";
    answers(&format!("{WITH} {sql}"), &[]);
    where_answers("99 not in (select x from t where x is not null)", ALL);
    for (is_in, expected) in [
        ("(1 in (select v from o)) is null", [].as_slice()),
        ("coalesce(99 in (select v from o), true)", &[]),
        ("(1 in (select v from o)) = (n = 1)", &["1"]),
        ("case when 99 not in (select v from o) then n = 2 end", &["2"]),
        ("99 not in (select v from o) or n = 1", ALL),
        ("n = 1 or 1 not in (select v from o)", &["1"]),
        ("2 in (select v from o where g = s)", &["3"]),
        ("99 not in (select v from o where v < n)", ALL),
        ("1 not in (select v from o where v < n)", &["1"]),
        ("20 in (select k from o where v < n)", &["3", "4"]),
        ("exists (select 1 from o where k = x and 20 not in (select v from o))", &["1", "2", "3"]),
        ("exists (select 1 from o where k = x and 99 not in (select k from o))", &[]),
    ] {
        where_answers(is_in, expected);
    }
    // Where only the optimiser finds that it is constant.
    where_refused("case when true then 99 else x end not in (select k from o)", "write `x <> all");
    for value in ["99", "null", "(select max(k) from o)"] {
        let on = format!("t left join u on n = k and {value} not in (select k from o)");
        refused(&format!("{WITH} select n from {on}"), "write `x <> all");
    }
    let outer = "exists (select 1 from o where n not in (select k from o))";
    where_refused(outer, "this reference to the outer query is not supported");
}

#[test]
fn conditions_of_joins_are_conditions() {
    let joined = |kind: &str, on: &str| format!("{WITH} select n, k from t {kind} u on {on}");
    for on in [
        "n = k and (k in (select k from o)) is null",
        "(n = k and k not in (select k from o)) or n = 2",
        "n = k and (x in (select k from o)) is null",
        "n = k and (k in (select k from o)) = (n in (select k from o))",
        "(x in (select k from o)) = (k > 1)",
    ] {
        for kind in ["join", "left join", "right join", "full join"] {
            refused(&joined(kind, on), "write `exists (select 1 from t where t.k = x)`");
        }
    }
    answers(&joined("join", "n = k and n in (select v from o)"), &["11"]);
    answers(&joined("join", "n = k and k not in (select k from o)"), &[]);
    answers(&joined("join", "n = k and k not in (select k from o where k > 1)"), &["11"]);
    let left = "left join";
    let not_in = format!("{} order by n", joined(left, "n = k and k not in (select k from o)"));
    answers(&not_in, &["1", "2", "3", "4"]);
    let is_in = format!("{} order by n", joined(left, "n = k and k in (select v from o)"));
    answers(&is_in, &["11", "2", "3", "4"]);
}

#[test]
fn not_in_refers_to_the_outer_query_only_without_null() {
    for condition in [
        "x not in (select k from o where g = s)",
        "x not in (select k from o where v < n)",
        "not (x in (select k from o where v < n))",
    ] {
        where_refused(condition, "write `not exists (");
    }
    where_answers("n not in (select v from o where g = s)", &["2", "3", "4"]);
    let sql = "with p(m, s) as (select row_number() over (order by n), s from t) select m from p \
               where m not in (select m from p q where q.s < p.s or q.m = 1) order by m";
    answers(sql, &["2", "3", "4"]);
    where_answers("not exists (select 1 from o where v < n and k = x)", &["1", "2", "4"]);
    where_answers("x in (select k from o where v < n)", &["3"]);
}

#[test]
fn subqueries_that_always_have_a_row_are_compared_by_operators() {
    for condition in [
        "exists (select max(k) from o where k = x)",
        "not exists (select max(k) from o where k = x)",
        "n in (select count(*) from o where k = x)",
        "n > any (select count(*) from o where k = x)",
        "n > all (select count(*) from o where k = x)",
    ] {
        where_refused(condition, "compare it by an operator");
    }
    where_refused("exists (select count(*) from o where k = x having count(*) = 0)", "HAVING");
    where_answers("n > (select count(*) from o where k = x)", &["3", "4"]);
    where_answers("n in (select max(v) from o)", &["4"]);
    where_answers("exists (select max(k) from o)", &["1", "2", "3", "4"]);
    where_answers("exists (select g from o where k = x group by g)", &["1", "2", "3"]);
}

#[test]
fn subqueries_that_refer_to_the_outer_query_only_filter_and_aggregate() {
    for (subquery, says) in [
        ("select sum(k) from o where k = x having count(*) > 1", "HAVING"),
        ("select 7 from o where k = x having count(*) = 0", "HAVING"),
        ("select count(*) from o where k = x group by g", "GROUP BY"),
        ("select count(*) from o a left join o b on a.k = b.k and b.k = t.x", "outer join"),
        ("select max(k) from o where g = s offset 1", "OFFSET"),
    ] {
        refused(&format!("{WITH} select n, ({subquery}) from t"), says);
    }
    where_refused("exists (select 1 from o where k = x offset 1)", "OFFSET");
    where_answers("exists (select 1 from o where k = x offset 0)", &["1", "2", "3"]);
    let numbered = "select row_number() over (order by v) m from o where g = s";
    where_refused(&format!("n in ({numbered})"), "window functions");
    where_refused(&format!("n > any ({numbered})"), "window functions");
    let lateral = |of: &str| format!("{WITH} select n, m from t cross join lateral ({of}) q");
    refused(&lateral(numbered), "window functions");
    refused(&lateral("select count(*) m from o where k = x having count(*) > 1"), "HAVING");
    answers(
        &format!("{} order by n", lateral("select k m from o where k = x and g = s")),
        &["110", "220", "320"],
    );
    let counts = format!("{WITH} select (select count(*) from o where k = x) from t order by n");
    answers(&counts, &["1", "2", "2", "0"]);
    let joined = "select count(*) from o a left join o b on a.k = b.k where a.g = s";
    answers(&format!("{WITH} select ({joined}) from t order by n"), &["3", "3", "3", "0"]);
    // What refers to nothing is not restricted.
    let numbered = "select max(m) from (select row_number() over (order by v) m from o) q";
    answers(&format!("{WITH} select n from t where n = ({numbered})"), &["4"]);
    answers(&format!("{WITH} select n from t where n in (select v from o offset 3)"), &["4"]);
}

#[test]
fn constants_beside_aggregates_are_refused() {
    let says = "constants beside an aggregate";
    for subquery in [
        "select 7 + 0 * count(*) from o where k = x",
        "select 7 from (select count(*) c from o where k = x)",
        "select count(*) > 0 or true from o where k = x",
    ] {
        refused(&format!("{WITH} select n, ({subquery}) from t"), says);
        where_refused(&format!("({subquery}) is null"), says);
    }
    for lateral in [
        "cross join lateral (select 5 m, count(*) c from o where k = x) q",
        "left join lateral (select 5 m, count(*) c from o where k = x) q on true",
    ] {
        refused(&format!("{WITH} select n, m from t {lateral}"), says);
    }
    let sum = "select sum(c) from (select count(*) c from o where k = x)";
    refused(&format!("{WITH} select n, ({sum}) from t"), "an aggregate of an aggregate");
    let sql = format!("{WITH} select (select 7 + count(*) from o where k = x) from t order by n");
    answers(&sql, &["8", "9", "9", "7"]);
    let sql = format!("{WITH} select (select 7 + 0 * count(*) from o) from t");
    answers(&sql, &["7", "7", "7", "7"]);
}

#[test]
fn groups_by_columns_of_the_outer_query_are_one() {
    let values = |of: &str| format!("{WITH} select (select {of}) from t order by n");
    answers(&values("max(v) from o where g = s group by g"), &["3", "3", "4", ""]);
    answers(&values("count(*) from o where s = g and k > 10 group by g"), &["1", "1", "1", ""]);
    answers(&values("sum(v) from o where g = s and k = x group by k, g"), &["1", "3", "2", ""]);
    for of in [
        "max(v) from o where g = s group by k",
        "max(v) from o where g = s group by g, k",
        "max(v) from o where g = s or v = n group by g",
        "max(v) from o where k::double = x group by k::double",
    ] {
        refused(&values(of), "GROUP BY, except by columns that are equal");
    }
}

#[test]
fn unnest_in_from_refers_to_no_other_table() {
    for from in [
        "q, unnest(xs) as y(z)",
        "q cross join unnest(q.xs) as y(z)",
        "q left join unnest(q.xs) as y(z) on true",
        "q join lateral (select unnest(q.xs) as z) y on true",
    ] {
        let sql = format!("with q as (select n, [n, x] as xs from t) select n, z from {from}");
        refused(&sql, "write it in SELECT");
    }
    answers("select n, unnest([n]) as z from t limit 1", &["11"]);
    answers("select count(*) from t, unnest([1, 2]) as y(z)", &["8"]);
}

#[test]
fn subqueries_with_too_many_values_are_explained() {
    refused("select (select name from u where k = n) from t", "choose one by an aggregate");
    refused("select n from t where (n, s) in (select k, name from u)", "for several, write");
}

#[test]
fn any_and_all_are_conditions() {
    for sql in [
        "select x > any (select k from o) from t",
        "select case when not (x >= all (select k from o)) then 1 end from t",
        "select count(*) filter (where x > any (select k from o)) from t",
        "select sum(x) over (order by x > any (select k from o)) from t",
        "select n from t order by x > any (select k from o)",
        "select count(*) from t group by x = all (select k from o)",
        "select n from t where n in (select n from t group by n, x > any (select k from o))",
    ] {
        refused(&format!("{WITH} {sql}"), "ANY and ALL are only supported in WHERE and HAVING");
    }
    where_answers("case when x > any (select k from o) then n = 3 else n = 1 end", &["1", "3"]);
}
