//! What ORDER BY cannot sort by, in queries and windows.

use super::{answers, refused};

#[test]
fn constants_in_order_by_are_refused_except_places_of_columns() {
    for constant in ["3.0", "1.5", "1e0", "-1", "'n'", "NULL", "true", "(1)", "(-'n')"] {
        for sql in [
            format!("select n from t order by {constant}"),
            format!("select n from t order by n, {constant} desc"),
            format!("select 1 union select n from t order by {constant}"),
            format!("select * from (select n from t order by {constant} limit 1)"),
            format!("from t |> order by {constant}"),
        ] {
            refused(&sql, &format!("`{constant}` in ORDER BY is a constant"));
        }
    }
    refused("select n from t order by 0", "starts at 1");
    answers("select n from t order by 1 desc", &["4", "3", "2", "1"]);
    answers("select n from t order by \"n\" desc limit 1", &["4"]);
    answers("select row_number() over (order by null) from t limit 1", &["1"]);
}

#[test]
fn windows_that_range_cannot_order_are_refused() {
    let all = "(select n, s, x, ts, s::bytea as b, {'n': n} as st, [[n]] as ll, [{'n': n}] as ls, \
               ts::time as hour, ts - timestamp '2007-11-03T14:00:00' as ago from t)";
    for (by, what) in [
        ("b", "binary values"),
        ("st", "structs"),
        ("hour", "times of day"),
        ("ago", "differences of times"),
    ] {
        for call in ["row_number()", "rank()", "sum(n)", "lag(n)", "first_value(n)"] {
            let needs =
                format!("windows ordered by {what} need ROWS: write `over (order by … rows");
            for window in
                [format!("order by {by}"), format!("partition by x order by {by} desc, n")]
            {
                refused(&format!("select {call} over ({window}) from {all}"), &needs);
            }
            let named = format!("select {call} over w from {all} window w as (order by {by})");
            refused(&named, &needs);
        }
    }
    for by in ["ll", "ls", "n, ll"] {
        let sql = format!("select sum(n) over (order by {by}) from {all}");
        refused(&sql, "windows ordered by lists of lists or structs need ROWS");
    }
    let counted = ["1", "2", "3", "4"];
    for by in ["b, n", "st", "ll", "ls"] {
        let rows = format!("order by {by} rows unbounded preceding");
        let sql = format!("select row_number() over ({rows}) as r from {all} order by r");
        answers(&sql, &counted);
        let sql = format!("select count(*) over ({rows}) as r from {all} order by r");
        answers(&sql, &counted);
    }
    for by in ["ll", "ls", "[n]", "n, b", "s, n", "ts, n"] {
        let sql = format!("select row_number() over (order by {by}) as r from {all} order by r");
        answers(&sql, &counted);
    }
}

#[test]
fn the_least_of_lists_that_are_only_sorted_is_refused() {
    let all = "(select s, [n] as l, [[n]] as ll, [{'n': n}] as ls from t)";
    for call in ["min(ll)", "max(ls)", "max(ll) over ()", "min(ls) filter (where s = 'a')"] {
        refused(&format!("select {call} from {all}"), "sort them by ORDER BY, and take the first");
    }
    answers(&format!("select max(l) from {all}"), &["[4]"]);
    answers(&format!("select ll from {all} order by ll desc limit 1"), &["[[4]]"]);
    let first = "select distinct on (s) s, ll from";
    answers(&format!("{first} {all} order by s, ll desc"), &["a[[2]]", "abc[[4]]", "b[[3]]"]);
}
