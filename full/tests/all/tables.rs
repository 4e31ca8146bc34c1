//! Logs as tables: pushdown never changes a result.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{AsArray, BinaryViewArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::{Value, json};
use sluice_model::{ErrorKind, Registry, Source};
use sluice_query::session::{PlannedQuery, QueryError, Session, SessionOptions, Spill};
use sluice_query::table::{Findings, LogTables};

use crate::kit::{BEGIN, Folder, LcmEvent, SeededRng, drive, events, log, python_with, run_sluice};

/// With this little memory, splits are 64 KiB, so small logs have many.
const SMALL: usize = 16 << 20;

fn source(plugin: &str, options: Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    registry.source(plugin, options).unwrap()
}

fn tables_of(plugin: &str, path: &Path, types: &[&str]) -> Arc<LogTables> {
    tables_with(plugin, json!({ "path": path }), types)
}

pub(crate) fn tables_with(plugin: &str, options: Value, types: &[&str]) -> Arc<LogTables> {
    let types: Vec<String> = types.iter().map(|types| (*types).to_owned()).collect();
    let log = LogTables::new(source(plugin, options), "log", &Registry::linked());
    Arc::new(log.with_types(&types, &Default::default()).unwrap())
}

pub(crate) fn small() -> SessionOptions {
    SessionOptions { jobs: Some(2), memory: SMALL, ..SessionOptions::default() }
}

pub(crate) fn session_with(options: SessionOptions, log: Arc<LogTables>) -> Session {
    let session = Session::new(options).unwrap();
    session.add_log("drive", log).unwrap();
    session
}

/// A session with this log as `drive`.
fn session(plugin: &str, path: &Path, types: &[&str]) -> Session {
    session_with(small(), tables_of(plugin, path, types))
}

pub(crate) fn planned(session: &Session, sql: &str) -> PlannedQuery {
    session.plan(sql, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn run_query(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, QueryError> {
    let mut all = Vec::new();
    session.run(sql, &AtomicBool::new(false), &mut |rows| {
        all.push(rows);
        Ok(())
    })?;
    Ok(all)
}

pub(crate) fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    run_query(session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) fn text(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).unwrap().to_string()
}

/// The only value of the only row.
pub(crate) fn number(session: &Session, sql: &str) -> i64 {
    let shown = text(&rows(session, sql));
    let line = shown.lines().nth(3).unwrap_or_else(|| panic!("{sql}: {shown}"));
    line.trim_matches(['|', ' ']).parse().unwrap_or_else(|_| panic!("{sql}: {shown}"))
}

pub(crate) fn error_of(session: &Session, sql: &str) -> String {
    run_query(session, sql).err().unwrap_or_else(|| panic!("{sql} was answered")).to_string()
}

/// A log whose payloads look like events, so that start positions are guessed wrong.
pub(crate) fn misleading(seed: u64, count: i64) -> Vec<LcmEvent> {
    let mut rng = SeededRng(seed);
    let inner: Vec<LcmEvent> = (0..40)
        .map(|n| LcmEvent::new(900_000 + n, BEGIN + 77, "INNER", &vec![7; rng.below(900) as usize]))
        .collect();
    let inner = log(&inner);
    let mut all = drive(seed, count);
    for event in all.iter_mut().step_by(17) {
        let len = rng.below(inner.len() as u64) as usize;
        event.payload = inner[..len].to_vec();
    }
    all
}

/// The same bytes with holes.
pub(crate) fn damaged(seed: u64, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut rng = SeededRng(seed);
    for _ in 0..12 {
        let at = rng.below(bytes.len() as u64 - 600) as usize;
        let len = rng.below(500) as usize;
        bytes[at..at + len].fill_with(|| rng.below(256) as u8);
    }
    bytes.truncate(bytes.len() - 13);
    bytes
}

/// A plain DataFusion context with these rows as the table `drive`.
fn plain_context(all: Vec<RecordBatch>) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    config.options_mut().sql_parser.enable_ident_normalization = false;
    let context = SessionContext::new_with_config(config);
    let table = MemTable::try_new(all[0].schema(), vec![all]).unwrap();
    context.register_table("drive", Arc::new(table)).unwrap();
    context
}

fn run_plain(context: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = async { context.sql(sql).await?.collect().await };
    runtime.block_on(answer).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn one_of<'w>(rng: &mut SeededRng, words: &[&'w str]) -> &'w str {
    words[rng.below(words.len() as u64) as usize]
}

/// A time in the log, in one of several SQL notations.
fn moment(rng: &mut SeededRng, count: i64) -> String {
    let micros = BEGIN + rng.below(count as u64 * 1_000) as i64;
    match rng.below(4) {
        0 => format!("to_timestamp_micros({micros})"),
        1 => format!("arrow_cast({micros}000, 'Timestamp(Nanosecond, Some(\"UTC\"))')"),
        2 => format!("to_timestamp_micros({micros}) - interval '200 milliseconds'"),
        _ => {
            let (seconds, micros) = ((micros - BEGIN) / 1_000_000, micros % 1_000_000);
            format!("timestamp '2007-11-03T14:{:02}:{:02}.{micros:06}'", seconds / 60, seconds % 60)
        }
    }
}

fn condition(rng: &mut SeededRng, count: i64) -> String {
    let op = one_of(rng, &["=", "<", "<=", ">", ">="]);
    match rng.below(14) {
        0 | 1 => format!("timestamp {op} {}", moment(rng, count)),
        2 => format!("{} {op} timestamp", moment(rng, count)),
        3 => format!("timestamp between {} and {}", moment(rng, count), moment(rng, count)),
        4 => format!("channel = '{}'", one_of(rng, &["A", "B", "C", "INNER", "none"])),
        5 => format!("channel != '{}'", one_of(rng, &["A", "D"])),
        6 => format!("channel {}in ('A', 'E', 'x')", one_of(rng, &["", "not "])),
        7 => format!(
            "channel {}like '{}'",
            one_of(rng, &["", "not "]),
            one_of(rng, &["A%", "%", "_", "%B%"])
        ),
        8 => format!(
            "(channel = 'A' or channel like 'C%' or source {} 'log')",
            one_of(rng, &["=", "!="])
        ),
        9 => format!("source {} 'log'", one_of(rng, &["=", "!=", "like"])),
        10 => format!("sequence % {} = 1", 2 + rng.below(5)),
        11 => format!("length(channel) + sequence > {}", rng.below(count as u64)),
        12 => format!("(timestamp > {} or channel = 'B')", moment(rng, count)),
        _ => "channel > 'A' and payload is not null".to_owned(),
    }
}

fn query(rng: &mut SeededRng, count: i64) -> String {
    let conditions: Vec<String> = (0..rng.below(4)).map(|_| condition(rng, count)).collect();
    let all = if conditions.is_empty() {
        String::new()
    } else {
        format!("where {}", conditions.join(" and "))
    };
    match rng.below(7) {
        0 => format!("select count(*) from drive {all}"),
        1 => format!(
            "select channel, count(*), min(timestamp), max(sequence) from drive {all} group by 1 \
             order by 1"
        ),
        2 => format!("select sequence, channel from drive {all} limit {}", rng.below(50)),
        3 => format!("select * from drive {all}"),
        4 => format!(
            "select timestamp, sequence * 2 from drive {all} order by timestamp desc, sequence \
             limit 7"
        ),
        5 => format!(
            "select a.sequence from drive a join (select * from drive {all}) b using (sequence) \
             order by 1"
        ),
        _ => format!(
            "select sequence from (select * from drive limit 500) {all} offset {}",
            rng.below(20)
        ),
    }
}

#[test]
fn pushdown_does_not_change_results() {
    let count = 1_500;
    let logs = [
        log(&drive(3, count)),
        log(&misleading(4, count)),
        damaged(5, log(&drive(6, count))),
        damaged(7, log(&misleading(8, count))),
    ];
    for (at, bytes) in logs.into_iter().enumerate() {
        let folder = Folder::new();
        let path = folder.write("drive.lcm", bytes);
        let session = session("lcm-log", &path, &[]);
        let context = plain_context(rows(&session, "select * from drive"));
        let mut rng = SeededRng(100 + at as u64);
        for _ in 0..30 {
            let sql = query(&mut rng, count);
            let (ours, theirs) = (text(&rows(&session, &sql)), text(&run_plain(&context, &sql)));
            // For no rows, one returns an empty batch and the other none.
            let is_nothing = ours.lines().count() <= 4 && theirs.lines().count() <= 4;
            assert!(ours == theirs || is_nothing, "log {at}: {sql}\n{ours:.3000}\n{theirs:.3000}");
        }
    }
}

/// Events by channel, and offsets and lengths of damage.
type LogInfo = (Vec<(String, i64)>, Vec<(u64, u64)>);

/// The result of `info` for a log.
fn info(folder: &Folder, name: &str) -> LogInfo {
    let message = run_sluice(folder, &["info", name, "--json"]).text();
    let message: Value = serde_json::from_str(&message).unwrap();
    let array = |key: &str| message[key].as_array().unwrap().clone();
    let counts = array("channels").into_iter();
    let counts =
        counts.map(|c| (c["name"].as_str().unwrap().to_owned(), c["events"].as_i64().unwrap()));
    let damage = array("damage").into_iter();
    let damage = damage.map(|d| (d["offset"].as_u64().unwrap(), d["length"].as_u64().unwrap()));
    (counts.collect(), damage.collect())
}

fn ranges(findings: &Findings) -> Vec<(u64, u64)> {
    findings.damage.iter().map(|damage| (damage.offset, damage.length)).collect()
}

#[test]
fn events_and_damage_match_info() {
    let folder = Folder::new();
    for (name, bytes) in [
        ("sound.lcm", log(&drive(1, 4_000))),
        ("misleading.lcm", log(&misleading(2, 4_000))),
        ("damaged.lcm", damaged(3, log(&misleading(3, 4_000)))),
    ] {
        let path = folder.write(name, bytes);
        let session = session("lcm-log", &path, &[]);
        let (counts, damage) = info(&folder, name);
        for (channel, count) in counts {
            let sql = format!("select count(*) from drive where channel = '{channel}'");
            assert_eq!(number(&session, &sql), count, "{name} {channel}");
        }
        drop(session.take_findings());
        rows(&session, "select count(*) from drive a, (select 1 from drive limit 1) b");
        let found = session.take_findings();
        assert_eq!(
            (ranges(&found), found.is_complete()),
            (damage.clone(), damage.is_empty()),
            "{name}"
        );
        assert!(session.take_findings().is_complete(), "findings are returned once");
    }
}

#[test]
fn rows_come_in_the_order_of_the_log() {
    let folder = Folder::new();
    let all = misleading(9, 3_000);
    let path = folder.write("drive.lcm", log(&all));
    for partitions in [1, 4] {
        let options = SessionOptions { partitions, ..small() };
        let session = session_with(options, tables_of("lcm-log", &path, &[]));
        let batches = rows(&session, "select sequence, payload from drive where sequence % 3 != 1");
        let one = concat_batches(&batches[0].schema(), &batches).unwrap();
        let expected = all.iter().filter(|event| event.number % 3 != 1);
        let numbers: Int64Array = expected.clone().map(|event| Some(event.number)).collect();
        let payloads: BinaryViewArray = expected.map(|event| Some(event.payload.clone())).collect();
        assert_eq!(one.column(0).as_primitive::<Int64Type>(), &numbers);
        assert_eq!(one.column(1).as_binary_view(), &payloads);
    }
}

#[test]
fn one_stream_returns_all_rows_and_several_share_them() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&misleading(10, 3_000)));
    let options = SessionOptions { partitions: 4, ..small() };
    let session = session_with(options, tables_of("lcm-log", &path, &[]));
    assert_eq!(number(&session, "select count(*) from drive"), 3_000);
    assert_eq!(number(&session, "select count(distinct sequence) from drive"), 3_000);
    let plan = planned(&session, "select count(distinct sequence) from drive").plan().clone();
    let scan = leaf(&plan);
    assert_eq!(scan.properties().partitioning.partition_count(), 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let counted = |streams: Vec<usize>| {
        let scan = Arc::clone(&scan).reset_state().unwrap();
        let context = session.context().task_ctx();
        runtime.block_on(async {
            let mut count = 0;
            for stream in streams {
                let stream = scan.execute(stream, Arc::clone(&context)).unwrap();
                let rows = datafusion::physical_plan::common::collect(stream).await.unwrap();
                count += rows.iter().map(RecordBatch::num_rows).sum::<usize>();
            }
            count
        })
    };
    assert_eq!(counted(vec![2]), 3_000);
    assert_eq!(counted(vec![3, 0, 1, 2]), 3_000);
    assert_eq!(counted(vec![0, 0]), 6_000, "a stream that is asked for again begins again");
}

fn leaf(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.children().first() {
        Some(child) => leaf(child),
        None => Arc::clone(plan),
    }
}

/// How many splits a query reads, and how many there are.
fn splits(session: &Session, sql: &str) -> (u64, u64) {
    let plan = text(&rows(session, &format!("explain {sql}")));
    let message = plan.split("splits=").nth(1).unwrap_or_else(|| panic!("{plan}"));
    let mut numbers = message.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

#[test]
fn a_window_of_time_reads_little_of_a_sorted_log() {
    let folder = Folder::new();
    // Logs below 16 MiB are read completely; sorted logs are read up to ten seconds around a
    // window.
    let mut all = drive(11, 60_000);
    for (n, event) in all.iter_mut().enumerate() {
        event.utime = BEGIN + n as i64 * 20_000;
    }
    let path = folder.write("drive.lcm", log(&all));
    let sorted = json!({ "path": path, "seek": "sorted" });
    let session = session_with(small(), tables_with("lcm-log", sorted, &[]));
    let sql = "select count(*) from drive where timestamp >= timestamp '2007-11-03T14:05:00Z' \
               and timestamp < '2007-11-03T14:05:02' and channel in ('A', 'B')";
    let (some, every) = splits(&session, sql);
    assert!(some * 5 < every, "{some} of {every}");
    let before = session.log("drive").unwrap().bytes_read();
    let expected = all.iter().filter(|event| {
        let after = event.utime - BEGIN - 300_000_000;
        (0..2_000_000).contains(&after)
            && [b"A", b"B"].contains(&&event.channel[..].try_into().unwrap())
    });
    assert_eq!(number(&session, sql), expected.count() as i64);
    let read = session.log("drive").unwrap().bytes_read() - before;
    assert!(read < 5 << 20, "{read}");
    let plan = text(&rows(&session, &format!("explain {sql}")));
    assert!(
        plan.contains("window=[2007-11-03T14:05:00.000000000Z, 2007-11-03T14:05:02.000000000Z)"),
        "{plan}"
    );
    assert!(plan.contains(r#"channels=["A", "B"]"#) && !plan.contains("FilterExec"), "{plan}");
    assert_eq!(number(&session, "select count(*) from drive where timestamp > now()"), 0);
}

#[test]
fn a_window_of_an_unsorted_log_is_complete() {
    let folder = Folder::new();
    let mut all = drive(11, 60_000);
    for (n, event) in all.iter_mut().enumerate() {
        // Two logs in one, the later one first.
        event.utime = BEGIN + (n as i64 + 30_000) % 60_000 * 20_000;
    }
    let path = folder.write("drive.lcm", log(&all));
    let session = session("lcm-log", &path, &[]);
    let sql = "select count(*) from drive where timestamp >= timestamp '2007-11-03T14:05:00Z' \
               and timestamp < '2007-11-03T14:05:02'";
    assert_eq!(number(&session, sql), 100);
    assert_eq!(
        number(&session, "select count(*) from drive where timestamp >= '2007-11-03T14:10:00Z'"),
        30_000
    );
}

#[test]
fn a_limit_stops_reading() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(12, 20_000)));
    let session = session("lcm-log", &path, &[]);
    let shown = rows(&session, "select sequence from drive where channel = 'C' limit 5");
    assert_eq!(shown.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    let read = session.log("drive").unwrap().bytes_read();
    assert!(read < 400 << 10, "{read}");
}

#[test]
fn read_ahead_stays_within_memory() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(13, 30_000)));
    let session = session("lcm-log", &path, &[]);
    let log = session.log("drive").unwrap();
    let (mut rows, mut most) = (0u64, 0);
    let total = std::fs::metadata(&path).unwrap().len();
    let take = &mut |batch: RecordBatch| {
        // About the input of the rows so far: all events of these logs have the same size.
        let given = total * rows / 30_000;
        most = most.max(log.bytes_read().saturating_sub(given));
        rows += batch.num_rows() as u64;
        Ok(())
    };
    session.run("select payload from drive", &AtomicBool::new(false), take).unwrap();
    assert_eq!(rows, 30_000);
    assert!(most < 2 << 20 && total > 8 << 20, "{most} of {total}");
}

#[test]
fn a_query_can_be_stopped() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(14, 20_000)));
    let session = session("lcm-log", &path, &[]);
    let stop = AtomicBool::new(false);
    let ended = session.run("select * from drive", &stop, &mut |_| {
        stop.store(true, Ordering::Relaxed);
        Ok(())
    });
    let Err(QueryError::Failed(error)) = ended else { panic!("{ended:?}") };
    assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
    assert_eq!(
        number(&session, "select count(*) from drive"),
        20_000,
        "the next query is answered"
    );
}

/// Adds a function `hook(x)`, which calls this and returns `x`.
fn add_hook(session: &Session, call: impl Fn() + Send + Sync + 'static) {
    let hook = move |values: &[ColumnarValue]| {
        call();
        Ok(values[0].clone())
    };
    let (int, volatility) = (DataType::Int64, Volatility::Volatile);
    let hook = create_udf("hook", vec![int.clone()], int, volatility, Arc::new(hook));
    session.context().register_udf(hook);
}

#[test]
fn a_join_of_rows_that_it_has_read_can_be_stopped() {
    // More rows than anybody can wait for.
    let query = "with n as (select unnest(range(1, 100000)) as v) select count(*) \
                 from (select hook(v) as v from n) a join n b on a.v % 2 = b.v % 2 \
                 join n c on a.v % 2 = c.v % 2";
    for jobs in [1, 2] {
        let session = Session::new(SessionOptions { jobs: Some(jobs), ..small() }).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let hooked = Arc::clone(&stop);
        add_hook(&session, move || hooked.store(true, Ordering::Relaxed));
        let ended = session.run(query, &stop, &mut |_| Ok(()));
        let Err(QueryError::Failed(error)) = ended else { panic!("{ended:?}") };
        assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
        assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
    }
}

#[test]
fn a_panic_fails_its_query_only() {
    let session = Session::new(small()).unwrap();
    add_hook(&session, || panic!("offset overflow"));
    let query = "select hook(1)";
    let error = error_of(&session, query);
    assert_eq!(error, "a column of a batch has more than 2 GiB: compute shorter values");
    add_hook(&session, || panic!("it broke"));
    assert!(error_of(&session, query).contains("DataFusion panicked (it broke)"));
    assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
}

#[test]
fn queries_that_are_too_deep_are_refused_and_others_fit_on_the_stack() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(14, 10)));
    let session = session("lcm-log", &path, &[]);
    let chain =
        |count: usize| format!("select channel{} from drive limit 1", "||'a'".repeat(count));
    assert_eq!(rows(&session, &chain(1_900)).len(), 1);
    let many = |count: usize, part: &str, between: &str| vec![part; count].join(between);
    for query in [
        chain(2_100),
        chain(200_000),
        format!("explain {}", chain(2_100)),
        format!("create table x as {}", chain(200_000)),
        format!("select {}", many(300_000, "1", "+")),
        format!("select * from drive where {}", many(3_000, "sequence = 1", " or ")),
        many(2_500, "select 1", " union all "),
        many(40_000, "values (1)", " union all "),
        format!("select * from {}", many(2_500, "drive", ",")),
        format!("select 1 {}", many(2_500, "|> select 1", " ")),
        format!("select make_array(1){}", "[1]".repeat(200_000)),
    ] {
        let Err(QueryError::Invalid(invalid)) = session.plan(&query, &AtomicBool::new(false))
        else {
            panic!("{query:.60} was planned")
        };
        let short = query.get(..60).unwrap_or(&query);
        assert!(invalid.message.contains("more than 2000"), "{short}: {invalid}");
    }
    let list = format!("select count(*) from drive where sequence in ({})", many(50_000, "1", ","));
    assert_eq!(number(&session, &list), 1);
}

#[test]
fn statements_other_than_queries_are_refused_and_write_nothing() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(15, 10)));
    let session = session("lcm-log", &path, &[]);
    let out = folder.at("out.parquet").display().to_string();
    for sql in [
        format!("copy (select * from drive) to '{out}'"),
        format!("explain analyze copy (select * from drive) to '{out}'"),
        format!("create external table t stored as csv location '{out}'"),
        "create table t as select * from drive".to_owned(),
        "create view v as select 1".to_owned(),
        "insert into drive select * from drive".to_owned(),
        "delete from drive".to_owned(),
        "drop table drive".to_owned(),
        "set datafusion.execution.batch_size = 1".to_owned(),
        "prepare p as select 1".to_owned(),
        "explain insert into drive select * from drive".to_owned(),
        "begin".to_owned(),
    ] {
        let message = error_of(&session, &sql);
        assert!(message.contains("is not a query"), "{sql}: {message}");
    }
    for sql in [
        format!("select * from '{}'", path.display()),
        format!("select * from read_csv('{}')", path.display()),
        format!("select * from \"{}\"", path.display()),
    ] {
        error_of(&session, &sql);
    }
    assert_eq!(folder.names(), ["drive.lcm"]);
}

#[test]
fn mistakes_are_reported_with_position_and_suggestions() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(16, 50)));
    let session = session("lcm-log", &path, &[]);
    for (sql, says) in [
        ("select chanel from drive", "there is no column `chanel`; there is `channel`"),
        ("select *\nfrom drive wher x", "this is not valid SQL"),
        ("select * from drives", "there is no table `drives`; there is `drive`"),
        ("select * from other.A", "there is no log `other`"),
        ("select * from drive.AA", "there is no channel in `drive` called `AA`"),
        ("select nosuch(1) from drive", "nosuch"),
        ("select 1; select 2", "one statement"),
        ("", "there is no query"),
        ("select (((", "this is not valid SQL"),
    ] {
        let message = error_of(&session, sql);
        assert!(message.contains(says), "{sql}: {message}");
    }
    let Err(QueryError::Invalid(wrong)) = run_query(&session, "select 1,\n  chanel from drive")
    else {
        panic!()
    };
    let place = wrong.position.unwrap();
    assert_eq!((place.line, place.column), (2, 3));
    let deep = format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(error_of(&session, &deep).contains("nested too deeply"));
    let long = format!("select '{}'", "x".repeat(2 << 20));
    assert!(error_of(&session, &long).contains("1048576"));
}

#[test]
fn names_match_exactly_or_else_ignoring_case() {
    let folder = Folder::new();
    let channel = |n: i64, name: &str| LcmEvent::new(n, BEGIN + n, name, b"x");
    let odd = r#"a"b; drop"#;
    let all = [
        channel(0, "POSE"),
        channel(1, "Twin"),
        channel(2, "TWIN"),
        channel(3, odd),
        channel(4, "a b"),
    ];
    let path = folder.write("drive.lcm", log(&all));
    let session = session("lcm-log", &path, &[]);
    for (name, sequence) in [
        ("drive.POSE", 0),
        ("drive.pose", 0),
        ("DRIVE.\"Pose\"", 0),
        ("drive.Twin", 1),
        ("drive.TWIN", 2),
        (r#"drive."a""b; drop""#, 3),
        ("Drive.\"A B\"", 4),
    ] {
        assert_eq!(number(&session, &format!("select SEQUENCE from {name}")), sequence, "{name}");
    }
    assert!(error_of(&session, "select * from drive.twin").contains("no channel"));
    assert_eq!(
        number(
            &session,
            "select count(*) from drive where Channel = 'POSE' or Drive.CHANNEL = 'x'"
        ),
        1
    );
    assert_eq!(
        session.log("drive").unwrap().channels().unwrap(),
        ["POSE", "TWIN", "Twin", "a b", odd]
    );
    let listed =
        text(&rows(&session, "select table_schema, table_name from information_schema.tables"));
    assert!(listed.contains("POSE") && listed.contains(odd), "{listed}");
}

#[test]
fn discovery_of_channels_can_be_stopped() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(16, 3_000)));
    let tables = tables_of("lcm-log", &path, &[]);
    let ended = tables.channels_until(&AtomicBool::new(true)).unwrap_err();
    assert!(matches!(ended.kind(), ErrorKind::Aborted), "{ended}");
    assert_eq!(tables.channels().unwrap(), ["A", "B", "C", "D", "E"]);
}

#[test]
fn a_pipe_is_read_once_and_then_refused() {
    let folder = Folder::new();
    let path = folder.at("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let (to, bytes) = (path.clone(), log(&drive(17, 3_000)));
    let writer = std::thread::Builder::new().spawn(move || std::fs::write(to, bytes)).unwrap();
    let session = session("lcm-log", &path, &[]);
    assert!(error_of(&session, "select * from drive.A").contains("can be read only once"));
    assert_eq!(number(&session, "select count(*) from drive where channel >= 'A'"), 3_000);
    writer.join().unwrap().unwrap();
    assert!(error_of(&session, "select count(*) from drive").contains("can be read only once"));
    assert_eq!(session.log("drive").unwrap().channels().unwrap(), ["A", "B", "C", "D", "E"]);
}

#[test]
fn compressed_logs_are_tables_too() {
    let folder = Folder::new();
    let packed = zstd::encode_all(&log(&misleading(18, 9_000))[..], 1).unwrap();
    let path = folder.write("drive.lcm.zst", packed);
    let session = session("lcm-log", &path, &[]);
    assert_eq!(
        number(&session, "select count(*) from drive a join drive b using (sequence)"),
        9_000
    );
    let first = rows(&session, "select sequence from drive where channel = 'B' limit 3");
    assert_eq!(first.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
}

#[test]
fn live_sources_are_refused() {
    let log = LogTables::new(
        source("lcm-udp", json!({ "url": "udpm://239.255.76.67:7667?ttl=0" })),
        "log",
        &Registry::linked(),
    );
    let session = session_with(small(), Arc::new(log));
    assert!(error_of(&session, "select * from drive limit 1").contains("has no end"));
}

#[test]
fn exceeding_memory_spills_or_fails_with_advice() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(19, 150_000)));
    let spilled = folder.at("spilled");
    std::fs::create_dir(&spilled).unwrap();
    let sorted = "select sum(sequence * place % 1009) from (select sequence, row_number() over \
                  (order by payload, sequence desc rows unbounded preceding) place from drive)";
    let wide = session_with(SessionOptions::default(), tables_of("lcm-log", &path, &[]));
    let expected = number(&wide, sorted);
    let options = SessionOptions { spill: Spill::Folder(spilled.clone()), ..small() };
    let tight = session_with(options, tables_of("lcm-log", &path, &[]));
    assert_eq!(number(&tight, sorted), expected);
    drop(tight);
    assert_eq!(std::fs::read_dir(&spilled).unwrap().count(), 0, "spilled files are gone");
    let options = SessionOptions { spill: Spill::Never, ..small() };
    let none = session_with(options, tables_of("lcm-log", &path, &[]));
    let message = error_of(&none, sorted);
    assert!(message.contains("needs more memory") && message.contains("spill"), "{message}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let folder = Folder::new();
    let path = demo(&folder, 4);
    let sql = "select channel, count(*), avg(length(channel) / 3.0), first_value(sequence) from \
               drive group by 1";
    let pose = "select sum(pos[1]), sum(vel[1]), stddev(pos[2]) from drive.POSE where pos[1] > 0.5";
    let answers = [1, 2, 7].map(|jobs| {
        let options = SessionOptions { jobs: Some(jobs), ..small() };
        let session = session_with(options, tables_of("lcm-log", &path, &["mit-dgc"]));
        text(&rows(&session, sql)) + &text(&rows(&session, pose))
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

/// A synthetic drive of this many seconds, as an LCM log.
pub(crate) fn demo(folder: &Folder, seconds: u32) -> PathBuf {
    let pipeline = format!(
        "[sources.demo]\nplugin = \"demo\"\nseconds = {seconds}\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"demo\"\npath = \"drive.lcm\"\n"
    );
    folder.write("demo.toml", pipeline);
    run_sluice(folder, &["run", "demo.toml"]).expect(0);
    folder.at("drive.lcm")
}

#[test]
fn events_of_other_types_or_undecodable_are_left_out_and_counted() {
    let folder = Folder::new();
    let path = demo(&folder, 2);
    let mut all = events(&std::fs::read(&path).unwrap());
    let other = all.iter().find(|event| event.channel != b"POSE").unwrap().payload.clone();
    let mut poses = all.iter_mut().filter(|event| event.channel == b"POSE");
    poses.next().unwrap().payload = b"no message at all".to_vec();
    poses.next();
    poses.next().unwrap().payload = other;
    let third = poses.next().unwrap();
    third.payload.truncate(30);
    let left = poses.count() as i64 + 1;
    let path = folder.write("changed.lcm", log(&all));
    let session = session("lcm-log", &path, &["mit-dgc"]);
    assert_eq!(number(&session, "select count(*) from drive.POSE"), left);
    let found = session.take_findings();
    assert_eq!(found.left_out.values().sum::<u64>(), 3, "{found:?}");
    assert!(!found.is_complete() && found.damage.is_empty());
    assert_eq!(number(&session, "select count(*) from drive.POSE where pos[1] is null"), 0);
    assert_eq!(number(&session, "select count(*) from drive where channel = 'POSE'"), left + 3);
}

/// Asserts that every table in `ours/` has the rows of the one in `tables/`, which `convert` wrote.
const COMPARED: &str = r#"
import duckdb, glob, os, sys
from urllib.parse import quote
ask = lambda query: duckdb.sql(query).fetchall()
done = 0
for ours in sorted(glob.glob("ours/*.parquet")):
    name = open(ours.replace(".parquet", ".name")).read()
    folder = "tables/channel=" + quote(name, safe="_-.~")
    theirs = sorted(glob.glob(folder + "/**/*.parquet", recursive=True))
    # A channel of several types has a folder for each; ours is that of the first event.
    if "schema=" in theirs[0]:
        continue
    columns = [row[0] for row in ask(f"describe select * from '{ours}'") if row[0] != "timestamp"]
    expected = [row[0] for row in ask(f"describe select * from read_parquet({theirs})")]
    ours_lack = ("timestamp", "timestamp_ns", "channel")
    fields = [name for name in expected if name not in ours_lack]
    assert columns == fields, (columns, expected)
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    a = f"select timestamp // 1000 t, {listed} from '{ours}'"
    read = f"read_parquet({theirs}, hive_partitioning = false)"
    b = f"select epoch_us(timestamp) t, {listed} from {read}"
    for x, y in ((a, b), (b, a)):
        rest = ask(f"select count(*) from (({x}) except all ({y}))")
        assert rest == [(0,)], (name, rest)
    if "timestamp_ns" in expected:
        both = f"'{ours}' o join read_parquet({theirs}) t using (sequence)"
        n = ask(f"select count(*) from {both} where o.timestamp != t.timestamp_ns")
        assert n == [(0,)], n
    done += 1
print(done)
"#;

/// Compares all typed tables of a log with those of `convert`; returns their number.
fn compare_tables(folder: &Folder, (plugin, name): (&str, &str), types: &[&str]) -> Option<usize> {
    let python = python_with("duckdb")?;
    let mut convert = vec!["convert", name, "--to", "tables/"];
    types.iter().for_each(|types| convert.extend(["--types", types]));
    run_sluice(folder, &convert);
    let session = session(plugin, &folder.at(name), types);
    std::fs::create_dir(folder.at("ours")).unwrap();
    let channels = session.log("drive").unwrap().channels().unwrap();
    for (at, channel) in channels.iter().enumerate() {
        let name = channel.replace('"', "\"\"");
        let all = "cast(timestamp as bigint) as timestamp, * except (timestamp)";
        let sql = format!("select {all} from drive.\"{name}\"");
        let plan = planned(&session, &sql);
        let file = std::fs::File::create(folder.at(&format!("ours/{at}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, plan.schema(), None).unwrap();
        rows(&session, &sql).iter().for_each(|rows| writer.write(rows).unwrap());
        writer.close().unwrap();
        folder.write(&format!("ours/{at}.name"), channel);
    }
    let output =
        Command::new(python).args(["-c", COMPARED]).current_dir(folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{plugin} {name}: {message}");
    Some(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

#[test]
fn fields_of_lcm_messages_match_tables_in_duckdb() {
    let folder = Folder::new();
    demo(&folder, 2);
    if let Some(tables) = compare_tables(&folder, ("lcm-log", "drive.lcm"), &["mit-dgc"]) {
        assert!(tables > 10, "{tables}");
    }
}

#[test]
fn fields_in_archives_and_tables_match_their_log() {
    for (plugin, name, types) in [
        ("archive", "drive.lcm.zst", &["mit-dgc"][..]),
        ("parquet", "tables-of-all", &[]),
        ("parquet", "one.parquet", &["mit-dgc"]),
    ] {
        let folder = Folder::new();
        demo(&folder, 1);
        let to = if name.contains('.') { name.to_owned() } else { format!("{name}/") };
        let types_given =
            if plugin == "parquet" && types.is_empty() { &["--types", "mit-dgc"][..] } else { &[] };
        let convert = ["convert", "drive.lcm", "--to", &to];
        run_sluice(&folder, &[&convert[..], types_given].concat()).expect(0);
        if let Some(tables) = compare_tables(&folder, (plugin, name), types) {
            assert!(tables > 10, "{name}: {tables}");
        }
    }
}

#[test]
fn fields_of_other_robots_match_tables_in_duckdb() {
    let folder = Folder::new();
    let vel = ["log.vel", "vel.json", "--messages", "300", "--seed", "4"];
    let Some(_) = crate::kit::python_script(&folder, "vel_writer.py", &vel) else { return };
    if let Some(tables) = compare_tables(&folder, ("vel", "log.vel"), &["vel"]) {
        assert!(tables > 2, "{tables}");
    }
    let folder = Folder::new();
    let orca = ["log", "orca.json", "--dialect", "A", "--lines", "120"];
    crate::kit::python_script(&folder, "orca_writer.py", &orca).unwrap();
    if let Some(tables) =
        compare_tables(&folder, ("orca", "log/060804_153321_master.log"), &["orca"])
    {
        assert!(tables > 1, "{tables}");
    }
}

#[test]
fn payloads_are_encoded_from_fields() {
    let folder = Folder::new();
    let path = demo(&folder, 1);
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "typed/", "--types", "mit-dgc"])
        .expect(0);
    let sql = "select channel, sequence, payload from drive order by sequence";
    let of_log = text(&rows(&session("lcm-log", &path, &[]), sql));
    let of_tables = text(&rows(&session("parquet", &folder.at("typed"), &[]), sql));
    assert!(of_log == of_tables);
}
