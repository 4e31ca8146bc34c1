//! Logs as tables: their rows, order, damage and memory.

mod fields;
mod pushdown;
mod statements;
mod stopping;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::arrow::array::{AsArray, BinaryViewArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::ExecutionPlan;
use serde_json::{Value, json};
use sluice_model::{Registry, Source};
use sluice_query::session::{PlannedQuery, QueryError, Session, SessionOptions, Spill};
use sluice_query::table::{Findings, LogTables};

use crate::kit::{BEGIN, Folder, LcmEvent, SeededRng, drive, log, run_sluice};

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
