use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};

use crate::session::{QueryError, Session, SessionOptions, Spill};

const FUNCTIONS: [&str; 6] = ["sum", "avg", "var_samp", "var_pop", "stddev", "stddev_pop"];

/// The numbers of all result columns, row by row.
fn run(sql: &str) -> Vec<Vec<Option<f64>>> {
    let session = Session::new(SessionOptions::default()).unwrap();
    let mut rows = Vec::new();
    let mut take = |batch: RecordBatch| {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter().map(|c| c.as_primitive::<Float64Type>());
            rows.push(columns.map(|c| c.is_valid(row).then(|| c.value(row))).collect());
        }
        Ok(())
    };
    session.run(sql, &AtomicBool::new(false), &mut take).unwrap();
    rows
}

/// Numbers with gaps in their keys, nulls, and a few of which DataFusion makes NaN.
const TABLE: &str = "t as (select n * n % 97 as k, case when n % 7 = 0 then null \
    when n % 31 = 30 then 'NaN'::double when n = 40 then 1e300 when n = 80 then 'inf'::double \
    else sin(n) * 1000 end as x, n % 3 as p from (select unnest(range(1, 200)) as n))";

fn assert_close(found: Option<f64>, expected: Option<f64>, what: &str) {
    let is_equal = match (found, expected) {
        (Some(found), Some(expected)) => {
            found == expected
                || found.is_nan() && expected.is_nan()
                || (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3)
        }
        _ => found == expected,
    };
    assert!(is_equal, "{what}: {found:?}, expected {expected:?}");
}

#[test]
fn each_frame_has_the_result_of_its_rows_alone() {
    let calls = |window: &str| {
        let calls = FUNCTIONS.map(|name| format!("{name}(x) {window}"));
        calls.join(", ")
    };
    for (frame, first, last) in [
        ("rows between 9 preceding and current row", "b.r >= a.r - 9", "b.r <= a.r"),
        ("rows between 3 preceding and 2 following", "b.r >= a.r - 3", "b.r <= a.r + 2"),
        ("rows between 8 preceding and 4 preceding", "b.r >= a.r - 8", "b.r <= a.r - 4"),
        ("rows between current row and unbounded following", "b.r >= a.r", "true"),
        ("range between 5 preceding and 2 preceding", "b.k >= a.k - 5", "b.k <= a.k - 2"),
        ("rows between unbounded preceding and current row", "true", "b.r <= a.r"),
    ] {
        for partition in ["", "partition by p"] {
            let from = format!(
                "with {TABLE}, a as (select *, row_number() over ({partition} order by k, x) \
                 as r from t)"
            );
            let order = if frame.starts_with("range") { "k" } else { "r" };
            let window = format!("over ({partition} order by {order} {frame})");
            let found = format!("{from} select {} from a order by p, r", calls(&window));
            let same = if partition.is_empty() { "true" } else { "a.p = b.p" };
            let expected = format!(
                "{from} select {} from a left join (select k, r, p, x from a) b \
                 on {same} and {first} and {last} group by a.p, a.r order by a.p, a.r",
                calls("").replace("(x)", "(b.x)")
            );
            let (found, expected) = (run(&found), run(&expected));
            assert_eq!(found.len(), 199);
            assert_eq!(found.len(), expected.len());
            for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                for (name, (found, expected)) in FUNCTIONS.iter().zip(found.iter().zip(expected)) {
                    let what = format!("{name} {window}, row {row}");
                    assert_close(*found, *expected, &what);
                }
            }
        }
    }
}

#[test]
fn filters_and_whole_numbers_are_as_before() {
    let table = "t(k, x, n) as (values (1, 1.5, 1), (2, 'NaN'::double, 9007199254740993), \
        (3, 2.5, 3), (4, 4.0, 9007199254740993))";
    let window = "over (order by k rows between 1 preceding and current row)";
    let sql = format!("with {table} select sum(x) filter (where k <> 2) {window} from t");
    assert_eq!(run(&sql), [[Some(1.5)], [Some(1.5)], [Some(2.5)], [Some(6.5)]]);
    let sum = "9007199254740996";
    let sql = format!(
        "with {table} select case when sum(n) {window} = {sum} then 1.0 else 0.0 end from t"
    );
    assert_eq!(run(&sql), [[Some(0.0)], [Some(0.0)], [Some(1.0)], [Some(1.0)]]);
}

/// A result computed from all rows of a frame.
type SumsResult = fn(&Sums) -> Option<f64>;

const PAIR_FUNCTIONS: [(&str, SumsResult); 11] = [
    ("covar_samp", |s| (s.n > 1.0).then(|| s.yx / (s.n - 1.0))),
    ("covar_pop", |s| (s.n > 0.0).then(|| s.yx / s.n)),
    ("corr", |s| {
        let is_number = s.n > 1.0 && !s.mean_y.is_nan() && !s.mean_x.is_nan();
        let is_nan = s.mean_y.is_nan() && s.mean_x.is_nan() && s.n > 0.0;
        is_number.then(|| s.yx / (s.xx * s.yy).sqrt()).or(is_nan.then_some(f64::NAN))
    }),
    ("regr_slope", |s| (s.n > 1.0).then(|| s.yx / s.xx)),
    ("regr_intercept", |s| (s.n > 1.0).then(|| s.mean_y - s.yx / s.xx * s.mean_x)),
    ("regr_r2", |s| (s.n > 1.0).then(|| s.yx * s.yx / (s.xx * s.yy))),
    ("regr_avgx", |s| (s.n > 0.0).then_some(s.mean_x)),
    ("regr_avgy", |s| (s.n > 0.0).then_some(s.mean_y)),
    ("regr_sxx", |s| (s.n > 0.0).then_some(s.xx)),
    ("regr_syy", |s| (s.n > 0.0).then_some(s.yy)),
    ("regr_sxy", |s| (s.n > 0.0).then_some(s.yx)),
];

struct Sums {
    n: f64,
    mean_y: f64,
    mean_x: f64,
    yy: f64,
    xx: f64,
    yx: f64,
}

impl Sums {
    /// Of the rows without a null.
    fn of(rows: &[Vec<Option<f64>>]) -> Self {
        let pairs: Vec<_> = rows.iter().filter_map(|row| row[0].zip(row[1])).collect();
        let n = pairs.len() as f64;
        let sum = |value: &dyn Fn(f64, f64) -> f64| -> f64 {
            pairs.iter().map(|(y, x)| value(*y, *x)).sum()
        };
        let (mean_y, mean_x) = (sum(&|y, _| y) / n, sum(&|_, x| x) / n);
        let yy = sum(&|y, _| (y - mean_y) * (y - mean_y));
        let xx = sum(&|_, x| (x - mean_x) * (x - mean_x));
        let yx = sum(&|y, x| (y - mean_y) * (x - mean_x));
        Self { n, mean_y, mean_x, yy, xx, yx }
    }
}

#[test]
fn each_frame_of_pairs_has_the_result_of_its_rows_alone() {
    let table = "t as (select n, case when n % 11 = 0 then null when n = 40 then 'NaN'::double \
        when n = 70 then '-inf'::double when n = 100 then 1e12 when n = 161 then 'NaN'::double \
        else sin(n) * 1000 end as y, case when n % 7 = 0 then null when n = 130 then 'inf'::double \
        when n = 160 then 'NaN'::double else cos(n * n) * 10 end as x \
        from (select unnest(range(1, 200)) as n))";
    let rows = run(&format!("with {table} select y, x from t order by n"));
    assert_eq!(rows.len(), 199);
    for (frame, before, after) in [
        ("rows between 9 preceding and current row", 9, 0),
        ("rows between 3 preceding and 2 following", 3, 2),
        ("rows between 8 preceding and 4 preceding", 8, -4),
        ("range between 5 preceding and 1 following", 5, 1),
        ("rows between current row and unbounded following", 0, 199),
    ] {
        let calls = PAIR_FUNCTIONS.map(|(name, _)| format!("{name}(y, x) over w")).join(", ");
        let found = run(&format!(
            "with {table} select {calls} from t window w as (order by n {frame}) order by n"
        ));
        assert_eq!(found.len(), 199);
        for (row, found) in found.iter().enumerate() {
            let (first, end) = (row as i64 - before, (row as i64 + after + 1).clamp(0, 199));
            let sums = Sums::of(&rows[(first.max(0) as usize)..end as usize]);
            for ((name, expected), found) in PAIR_FUNCTIONS.iter().zip(found) {
                assert_close(*found, expected(&sums), &format!("{name} {frame}, row {row}"));
            }
        }
    }
}

#[test]
fn pairs_without_a_spread_have_no_line() {
    let sql = "with t(n, y, x) as (values (1, 3.0, 1.0), (2, 5.0, 2.0), (3, 5.0, 2.0), \
        (4, 'NaN'::double, 'NaN'::double), (5, 7.0, 2.0), (6, 9.0, 2.0)) \
        select corr(y, x) over w, regr_slope(y, x) over w, regr_intercept(y, x) over w, \
        regr_r2(y, x) over w from t window w as (order by n rows 1 preceding)";
    let nan = [Some(f64::NAN); 4];
    let expected = [[None; 4], [Some(1.0), Some(2.0), Some(1.0), Some(1.0)], [None; 4], nan, nan];
    for (found, expected) in run(sql).iter().zip(expected.iter().chain([&[None; 4]])) {
        for (found, expected) in found.iter().zip(expected) {
            assert_close(*found, *expected, sql);
        }
    }
}

#[test]
fn rows_of_frames_count_against_the_memory_limit() {
    for call in ["sum(x)", "corr(x, x)"] {
        let options =
            SessionOptions { memory: 2 << 20, spill: Spill::Never, ..SessionOptions::default() };
        let session = Session::new(options).unwrap();
        let run = |frame: &str| {
            let sql = format!(
                "select {call} over (rows between {frame} and current row) \
                 from (select unnest(range(1, 60000))::double as x)"
            );
            let mut rows = 0;
            let ended = session.run(&sql, &AtomicBool::new(false), &mut |batch| {
                rows += batch.num_rows();
                Ok(())
            });
            ended.map(|()| rows)
        };
        let Err(QueryError::Failed(error)) = run("40000 preceding") else {
            panic!("{call} took memory that was not counted")
        };
        let message = error.to_string();
        assert!(message.contains("more memory") && message.contains("rows of a window frame"));
        assert_eq!(run("100 preceding").unwrap(), 59_999, "{call} returns its memory");
    }
}
