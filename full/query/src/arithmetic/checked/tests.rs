use crate::session::SessionOptions;
use crate::testing::printed_rows;

const TABLE: &str = "with t(x, y, k) as (values \
    (9223372036854775807, -9223372036854775807 - 1, 1), (7, 5, 2), (null, null, 3))";

fn answer(sql: &str) -> Result<Vec<String>, String> {
    let rows = printed_rows(&format!("{TABLE} {sql}"), SessionOptions::default())?;
    Ok(rows.iter().map(|row| row.join(" ")).collect())
}

#[test]
fn overflows_of_64_bits_fail() {
    for (sql, operation, values) in [
        ("select x + 1 from t", "t.x + 1", "9223372036854775807 + 1"),
        ("select y - 1 from t", "t.y - 1", "-9223372036854775808 - 1"),
        ("select k + x * 1000 from t", "t.x * 1000", "9223372036854775807 * 1000"),
        ("select x * 1000::smallint from t", "t.x * 1000", "9223372036854775807 * 1000"),
        ("select x * k * k * y from t", "t.x * t.k * t.k * t.y", "9223372036854775807 * -9"),
        ("select -y from t", "`-t.y", "- -9223372036854775808"),
        ("select k from t where x + k > 0", "t.x + t.k", "9223372036854775807 + 1"),
        ("select max(x + k) from t group by y + k", "t.x + t.k", "9223372036854775807 + 1"),
        ("select sum(x + k) over (order by k) from t", "t.x + t.k", "9223372036854775807 + 1"),
        ("select k from t order by x + k", "t.x + t.k", "9223372036854775807 + 1"),
        ("select a.k from t a join t b on a.x + 1 = b.y", "a.x + 1", "9223372036854775807 + 1"),
        (
            "select k from t where k = (select max(x + 1) from t)",
            "t.x + 1",
            "9223372036854775807 + 1",
        ),
        ("select 9223372036854775807 + 1", "9223372036854775807 + 1", "9223372036854775807 + 1"),
        ("select (select 9223372036854775807) + k from t", " + t.k", "9223372036854775807 + 1"),
        ("select [x + 1] from t", "t.x + 1", "9223372036854775807 + 1"),
        ("select x + 1 as n from t union all select k from t", "t.x + 1", "9223372036854775807"),
        ("select 18446744073709551615 + 1::bigint unsigned", " + 1", "18446744073709551615 + 1"),
    ] {
        let message = answer(sql).unwrap_err();
        assert!(message.contains("is out of range of "), "{sql}: {message}");
        assert!(message.contains(&format!("{operation}`")), "{sql}: {message}");
        assert!(message.contains(&format!(": {values}")), "{sql}: {message}");
        assert!(message.contains("`x::double`"), "{sql}: {message}");
    }
}

#[test]
fn messages_show_what_was_computed() {
    for operation in [
        "(t.x - t.k) * 1000",
        "t.x * (t.k + 1)",
        "t.x - (t.k - 2)",
        "t.x - t.k - t.y",
        "t.x * (t.k * 2)",
        "t.x / 5 * 1000",
        "-(t.y * t.k)",
        "t.x - -(t.k + 1)",
        "abs(t.x) + t.k",
        "t.x + (t.k > 0 OR t.y IS NULL)",
    ] {
        // Casts are not shown.
        let sql = operation.replace("NULL)", "NULL)::int");
        let message = answer(&format!("select {sql} from t where k = 1")).unwrap_err();
        assert!(message.contains(&format!("`{operation}` is out of range")), "{sql}: {message}");
    }
}

#[test]
fn rows_and_branches_that_are_not_selected_do_not_overflow() {
    for (sql, rows) in [
        ("select case when x < 10 then x * 1000 end from t where k < 3", &["", "7000"][..]),
        ("select case when x < 10 then x * 1000 else 0 end from t", &["0", "7000", "0"]),
        (
            "select case when x < 10 then x + 1 when x > 10 then x - 1 else k + 1 end from t",
            &["9223372036854775806", "8", "4"],
        ),
        ("select case k when 1 then 0 else x + k end from t", &["0", "9", ""]),
        (
            "select case when k > 9 then 9223372036854775807 + 1 else k end from t where k = 1",
            &["1"],
        ),
        ("select coalesce(k, x + 1) from t", &["1", "2", "3"]),
        ("select x * 1000 from t where k > 1", &["7000", ""]),
        ("select x * 1000 from (select * from t where k > 1 offset 0)", &["7000", ""]),
        ("select x + k from t where x < 10", &["9"]),
        ("select max(x + k) filter (where k > 1) from t", &["9"]),
        ("select x + null from t", &["", "", ""]),
    ] {
        let expected: Vec<_> = rows.iter().map(|row| (*row).to_owned()).collect();
        assert_eq!(answer(sql), Ok(expected), "{sql}");
    }
}

#[test]
fn arithmetic_is_that_of_datafusion_otherwise() {
    for (sql, rows) in [
        ("select x - 1 + y from t", &["-2", "11", ""][..]),
        ("select -x, - -k, -(x - 1) from t where k = 2", &["-7 2 -6"]),
        ("select k from t limit 1 + 1 offset 2 - 1", &["2", "3"]),
        ("select lag(k, 2 - 1) over (order by k) from t", &["", "1", "2"]),
        (
            "select k * 2, count(*) from t group by k * 2 having k * 2 > 2 order by k * 2",
            &["4 1", "6 1"],
        ),
        ("select k - 1 as z from t order by -k", &["2", "1", "0"]),
        ("select a.k + b.k from t a join t b on a.k + 1 = b.k order by 1", &["3", "5"]),
        ("select k from t where k + 1 in (select k from t)", &["1", "2"]),
        ("select k from t a where exists (select 1 from t b where b.k = a.k + 1)", &["1", "2"]),
        ("select \"t.k * Int64(2)\" from (select k * 2 from t)", &["2", "4", "6"]),
        ("select (select count(*) + 1 from t b where b.k = a.x) from t a", &["1", "1", "1"]),
        ("select (select count(b.x) * 2 from t b where b.k = a.k) from t a", &["2", "2", "0"]),
        ("select k from t a where (select max(k) + 1 from t b where b.k = a.k) = 3", &["2"]),
        ("select date '2024-01-03' - date '2024-01-01'", &["2"]),
        ("select date '2024-01-03' - interval '1 day'", &["2024-01-02"]),
        ("select time '23:00:00' + interval '2 hours'", &["01:00:00"]),
        ("select k * 1.5 from t where k = 1", &["1.5"]),
        ("select x::decimal(38, 0) * 1000 from t where k = 1", &["9223372036854775807000"]),
        ("select x::double + 1 from t where k = 1", &["9.223372036854776e18"]),
        ("select arrow_typeof(k * 2), arrow_typeof(-k::smallint) from t limit 1", &["Int64 Int16"]),
        (
            "select sum(n) from (with recursive r as (select 1 as n union all select n + 1 from r \
             where n < 4) select n from r)",
            &["10"],
        ),
        ("select x from t group by grouping sets ((k + 1, x), (x)) having x = 7", &["7", "7"]),
        ("select * from (values (1 + 1, - (1)))", &["2 -1"]),
        ("select k from unnest([1 + 1, 3]) as u(k)", &["2", "3"]),
    ] {
        let expected: Vec<_> = rows.iter().map(|row| (*row).to_owned()).collect();
        assert_eq!(answer(sql), Ok(expected), "{sql}");
    }
}

#[test]
fn long_sums_have_their_names_and_values() {
    let long = |first: &str| format!("{first}{}", " + k".repeat(150));
    let sums = format!("select {} as a, {} as b", long("k"), long("x * 0"));
    let rows = answer(&format!("select a, b from ({sums} from t) where a + b > 1 order by a, b"));
    assert_eq!(rows, Ok(vec!["151 150".to_owned(), "302 300".to_owned()]));
    let groups =
        format!("select {0}, {1} from t group by {0}, {1} order by 1", long("k"), long("1"));
    let rows = answer(&groups);
    assert_eq!(rows, Ok(["151 151", "302 301", "453 451"].map(str::to_owned).to_vec()));
    for sets in ["rollup({0})", "cube({0}, k)", "grouping sets ((x, {0}), ())", "{0}, rollup(x)"] {
        let sets = sets.replace("{0}", &long("k"));
        let rows = answer(&format!("select {}, count(*) from t group by {sets}", long("k")));
        assert!(rows.is_ok_and(|rows| rows.contains(&"453 1".to_owned())), "{sets}");
    }
    let message = answer(&format!("select {} from t", long("x"))).unwrap_err();
    assert!(message.contains("`t.x + t.k` is out of range"), "{message}");
}

#[test]
fn a_condition_on_a_result_makes_an_outer_join_an_inner_one() {
    let sql = "select a.k from t a left join t b on a.k = b.k where b.x + 1 > 5";
    let plan = printed_rows(&format!("explain {TABLE} {sql}"), SessionOptions::default());
    let plan = plan.unwrap().concat().join("\n");
    assert!(plan.contains("join_type=Inner"), "{plan}");
}
