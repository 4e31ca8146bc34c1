//! Cached tables: a query has the same rows and findings whether it reads the log or the cache.

mod changes;
mod storage;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use serde_json::json;
use sluice_query::cache::TableCache;
use sluice_query::session::{Session, SessionOptions};
use sluice_query::table::LogTables;

use crate::kit::{BEGIN, Folder, drive, events, log};
use crate::tables::{
    damaged, demo, misleading, number, rows, session_with, small, tables_with, text,
};

/// A cache for logs of any length and age.
fn cache(folder: &Folder) -> TableCache {
    TableCache {
        min_log_bytes: 0,
        min_log_age: Duration::ZERO,
        ..TableCache::new(folder.at("cache"), "test".to_owned())
    }
}

fn log_tables(path: &Path, types: &[&str], cache: &TableCache) -> Arc<LogTables> {
    let tables = tables_with("lcm-log", json!({ "path": path }), types);
    let tables = Arc::into_inner(tables).unwrap();
    Arc::new(tables.with_cache(Arc::new(cache.clone()), "lcm-log"))
}

/// A new session with this log as `drive`, as another process would have it.
fn cached_session(path: &Path, types: &[&str], cache: &TableCache) -> Session {
    session_with(small(), log_tables(path, types, cache))
}

fn plain_session(path: &Path, types: &[&str]) -> Session {
    session_with(small(), tables_with("lcm-log", json!({ "path": path }), types))
}

fn is_cached(session: &Session, sql: &str) -> bool {
    text(&rows(session, &format!("explain {sql}"))).contains(", cached")
}

/// The rows of a query and what it reports, as text.
fn answer(session: &Session, sql: &str) -> (String, String) {
    drop(session.take_findings());
    let rows = rows(session, sql);
    let found = session.take_findings();
    let damage = found.damage.iter().map(|damage| damage.to_string());
    let damage: Vec<String> = damage.collect();
    let found = format!("{damage:?} {} {:?} {:?}", found.more_damage, found.left_out, found.notes);
    // For no rows, one session may return an empty batch and another none.
    let is_empty = rows.iter().all(|rows| rows.num_rows() == 0);
    (if is_empty { String::new() } else { text(&rows) }, found)
}

/// The files in the cache.
fn files(cache: &TableCache) -> Vec<PathBuf> {
    let entries = fs::read_dir(&cache.folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Queries on a log of five channels, `A` to `E`.
const QUERIES: [&str; 32] = [
    "select count(*) from drive",
    "select channel, count(*) from drive group by channel order by channel",
    "select * except (payload) from drive",
    "select sequence, timestamp from drive",
    "select source, channel, source as again from drive",
    "select distinct source from drive",
    "select min(timestamp), max(timestamp), sum(sequence) from drive",
    "select sequence from drive where channel = 'A'",
    "select sequence from drive where channel <> 'A'",
    "select sequence from drive where channel in ('A', 'C', 'none')",
    "select sequence from drive where channel not in ('A', 'C', 'none')",
    "select sequence from drive where channel like 'INN%' or channel = 'B'",
    "select sequence from drive where channel like '_' and channel > 'B'",
    "select channel from drive where source = 'log' and sequence % 7 = 3",
    "select channel from drive where source <> 'log'",
    "select count(*) from drive where timestamp >= '2007-11-03T14:00:00.4Z'",
    "select sequence from drive where timestamp < '2007-11-03T14:00:00.4Z'",
    "select sequence from drive where timestamp between '2007-11-03T14:00:00.1Z' and \
     '2007-11-03T14:00:00.2Z' and channel = 'D'",
    "select sequence from drive where timestamp = timestamp '2007-11-03T14:00:00Z'",
    "select count(*) from drive where timestamp > now()",
    "select count(*) from drive where sequence < 0",
    "select sequence * 2 from drive where length(channel) + sequence > 900",
    "select timestamp, lag(sequence) over (partition by channel order by sequence) from drive",
    "select a.sequence from drive a join drive b on a.sequence = b.sequence + 1 order by 1",
    "select sequence from drive limit 5",
    "select sequence from drive limit 5 offset 1200",
    "select sequence from drive where channel = 'C' limit 3",
    "select sequence from drive order by timestamp desc, sequence limit 7",
    "select channel from (select channel from drive limit 100) group by 1 order by 1",
    "select count(*) from drive.B",
    "select timestamp, sequence from drive.B where sequence > 100 limit 9",
    "select source, sequence from drive.B where source = 'log' and timestamp > \
     '2007-11-03T14:00:00.7Z'",
];

#[test]
fn rows_and_findings_are_those_of_the_log() {
    let folder = Folder::new();
    let logs = [
        log(&drive(3, 1_500)),
        log(&misleading(4, 1_500)),
        damaged(5, log(&drive(6, 1_500))),
        damaged(7, log(&misleading(8, 1_500))),
    ];
    for (at, bytes) in logs.into_iter().enumerate() {
        let path = folder.write(&format!("{at}.lcm"), bytes);
        let cache = TableCache { folder: folder.at(&format!("cache-{at}")), ..cache(&folder) };
        for sql in [
            "select timestamp, source, channel, sequence from drive",
            "select timestamp, source, sequence from drive.B",
        ] {
            rows(&cached_session(&path, &[], &cache), sql);
        }
        let plain = plain_session(&path, &[]);
        let is_sound = answer(&plain, "select timestamp from drive").1 == "[] 0 {} {}";
        assert_eq!(is_sound, at < 2);
        for sql in QUERIES {
            let session = cached_session(&path, &[], &cache);
            assert!(is_cached(&session, sql) || !is_sound, "log {at}: {sql}");
            let (ours, expected) = (answer(&session, sql), answer(&plain, sql));
            assert!(ours == expected, "log {at}: {sql}\n{ours:.3000?}\n{expected:.3000?}");
            // For `drive.B`, planning looks for its first event.
            if is_sound && !sql.contains("drive.") {
                assert_eq!(session.log("drive").unwrap().bytes_read(), 0, "log {at}: {sql}");
            }
        }
        let stored = files(&cache);
        assert!(!is_sound || stored.len() == 2, "what is cached is not stored again: {stored:?}");
    }
}

#[test]
fn a_damaged_log_is_cached_for_queries_that_meet_all_of_its_damage() {
    let folder = Folder::new();
    let mut bytes = log(&drive(3, 1_500));
    bytes.truncate(bytes.len() - 13);
    let (path, cache) = (folder.write("drive.lcm", bytes), cache(&folder));
    rows(&cached_session(&path, &[], &cache), "select timestamp, channel from drive");
    for (sql, expected) in [
        ("select count(*) from drive", true),
        ("select channel from drive where length(channel) = 1", true),
        ("select channel from drive where channel = 'A'", false),
        ("select channel from drive where timestamp > '2007-11-03T14:00:01Z'", false),
        ("select channel from drive limit 3", false),
    ] {
        let session = cached_session(&path, &[], &cache);
        assert_eq!(is_cached(&session, sql), expected, "{sql}");
        assert_eq!(answer(&session, sql), answer(&plain_session(&path, &[]), sql), "{sql}");
    }
}

#[test]
fn fields_of_messages_are_those_of_the_log() {
    let folder = Folder::new();
    let (path, cache) = (demo(&folder, 2), cache(&folder));
    let types = &["mit-dgc"];
    rows(&cached_session(&path, types, &cache), "select timestamp, pos, vel from drive.POSE");
    for sql in [
        "select avg(vel[1]), count(*) from drive.POSE",
        "select pos, vel from drive.POSE where pos[1] > 0.5 and vel[2] < 9",
        "select vel[1] from drive.POSE where timestamp > '2007-11-03T14:00:01Z'",
        "select sum(pos[1]), stddev(vel[1]), avg(pos[2] * 0.1) from drive.POSE where vel[1] < 0.3",
        "select array_sort(pos) from drive.POSE order by vel[1], timestamp limit 20",
        "select count(*) from drive.POSE",
    ] {
        let session = cached_session(&path, types, &cache);
        assert!(is_cached(&session, sql), "{sql}");
        assert_eq!(answer(&session, sql), answer(&plain_session(&path, types), sql), "{sql}");
    }
    let session = cached_session(&path, types, &cache);
    assert!(!is_cached(&session, "select accel from drive.POSE"), "another column");
    assert!(!is_cached(&session, "select count(*) from drive"), "another table");
    assert!(!is_cached(&cached_session(&path, &[], &cache), "select count(*) from drive.POSE"));
}

#[test]
fn each_set_of_columns_is_stored_by_the_first_query_that_reads_it() {
    let folder = Folder::new();
    let (path, cache) = (folder.write("drive.lcm", log(&drive(3, 900))), cache(&folder));
    for (sql, stored) in [
        ("select count(*) from drive", 1),
        ("select channel, count(*) from drive group by 1", 2),
        ("select sequence from drive where sequence > 3 and channel > 'A'", 3),
        ("select channel from drive where sequence > 5", 3),
        ("select sequence from drive limit 5", 3),
        ("select timestamp from drive limit 5", 3),
        ("select timestamp from drive where channel = 'A'", 3),
        ("select sequence, timestamp from drive where timestamp > '2007-11-03T14:00:00.1Z'", 3),
        ("select payload, timestamp from drive", 3),
        ("select count(*) from drive where timestamp > '2007-11-03T14:00:00.1Z'", 3),
        ("explain select timestamp from drive", 3),
        ("select timestamp from drive", 4),
    ] {
        rows(&cached_session(&path, &[], &cache), sql);
        assert_eq!(files(&cache).len(), stored, "{sql}");
    }
    let names = files(&cache);
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|e| e == "table");
    assert!(names.iter().all(is_whole), "{names:?}");
}

#[test]
fn undecodable_events_and_times_out_of_range_are_reported_each_time() {
    let folder = Folder::new();
    let mut all = events(&fs::read(demo(&folder, 1)).unwrap());
    let mut poses = all.iter_mut().filter(|event| event.channel == b"POSE");
    poses.next().unwrap().payload = b"no message at all".to_vec();
    poses.next();
    poses.next().unwrap().utime = BEGIN * 1_000;
    let path = folder.write("changed.lcm", log(&all));
    let cache = cache(&folder);
    for sql in [
        "select count(*) from drive.POSE",
        "select timestamp, pos from drive.POSE",
        // Without times, those out of range are not noted.
        "select pos from drive.POSE",
        "select pos from drive.POSE where timestamp < '2007-11-03T14:00:00.5Z'",
        "select pos from drive.POSE limit 1",
        "select count(timestamp) from drive",
        "select count(*) from drive",
    ] {
        let expected = answer(&plain_session(&path, &["mit-dgc"]), sql);
        for _ in 0..3 {
            let ours = answer(&cached_session(&path, &["mit-dgc"], &cache), sql);
            assert_eq!(ours, expected, "{sql}");
        }
    }
    let session = cached_session(&path, &["mit-dgc"], &cache);
    for sql in ["select pos from drive.POSE", "select timestamp, pos from drive.POSE"] {
        assert!(is_cached(&session, sql), "{sql}");
    }
    assert!(answer(&session, "select timestamp, pos from drive.POSE").1.contains("outside the"));
}

#[test]
fn partitions_share_the_rows() {
    let folder = Folder::new();
    let (path, cache) = (folder.write("drive.lcm", log(&drive(3, 90_000))), cache(&folder));
    for _ in 0..2 {
        let options = SessionOptions { partitions: 4, ..small() };
        let session = session_with(options, log_tables(&path, &[], &cache));
        assert_eq!(number(&session, "select count(distinct sequence) from drive"), 90_000);
    }
    let session =
        session_with(SessionOptions { partitions: 4, ..small() }, log_tables(&path, &[], &cache));
    let all = rows(&session, "select sequence from drive");
    assert_eq!(session.log("drive").unwrap().bytes_read(), 0);
    assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), 90_000);
}

#[test]
fn a_cached_log_lists_its_channels() {
    let folder = Folder::new();
    let (path, cache) = (folder.write("drive.lcm", log(&misleading(3, 900))), cache(&folder));
    rows(&cached_session(&path, &[], &cache), "select count(*) from drive");
    let session = cached_session(&path, &[], &cache);
    rows(&session, "select count(*) from drive");
    let log = session.log("drive").unwrap();
    assert_eq!(log.known_channels(), ["A", "B", "C", "D", "E"]);
    assert_eq!(log.channels().unwrap(), log.known_channels());
    assert_eq!(log.bytes_read(), 0);
}
