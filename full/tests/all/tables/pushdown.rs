//! Pushdown never changes a result, and saves reading.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::json;
use sluice_query::session::Session;

use super::{damaged, misleading, number, rows, session, session_with, small, tables_with, text};
use crate::kit::{BEGIN, Folder, SeededRng, drive, log};

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
