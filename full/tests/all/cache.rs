//! Cached tables: a query has the same rows and findings whether it reads the log or the cache.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use datafusion::arrow::array::RecordBatch;
use serde_json::json;
use sluice_query::cache::TableCache;
use sluice_query::session::{Session, SessionOptions};
use sluice_query::table::LogTables;

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, drive, events, log, root, sluice};
use crate::tables::{
    damaged, demo, error_of, misleading, number, planned, rows, session_with, small, tables_with,
    text,
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
fn a_changed_log_is_read_again() {
    let folder = Folder::new();
    let cache = cache(&folder);
    let bytes = log(&drive(3, 900));
    let path = folder.write("drive.lcm", &bytes);
    let sql = "select channel, count(*), sum(sequence) from drive group by 1 order by 1";
    let check = |what: &str| {
        let session = cached_session(&path, &[], &cache);
        assert!(!is_cached(&session, sql), "{what}");
        for _ in 0..2 {
            let session = cached_session(&path, &[], &cache);
            assert_eq!(answer(&session, sql), answer(&plain_session(&path, &[]), sql), "{what}");
        }
        assert!(is_cached(&cached_session(&path, &[], &cache), sql), "{what}");
    };
    check("new");
    let more = LcmEvent::new(900, BEGIN, "F", b"x").bytes();
    fs::write(&path, [&bytes[..], &more].concat()).unwrap();
    check("longer");
    fs::write(&path, &bytes).unwrap();
    check("as before, but written again");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    check("another time");
    let other = folder.write("other.lcm", log(&drive(4, 900)));
    File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(&other, &path).unwrap();
    check("replaced");
    let renamed = folder.at("renamed.lcm");
    fs::rename(&path, &renamed).unwrap();
    assert!(!is_cached(&cached_session(&renamed, &[], &cache), sql));
}

#[test]
fn a_log_that_changes_between_plan_and_execution_is_read() {
    let folder = Folder::new();
    let cache = cache(&folder);
    let path = folder.write("drive.lcm", log(&drive(3, 900)));
    rows(&cached_session(&path, &[], &cache), "select count(*) from drive");
    let session = cached_session(&path, &[], &cache);
    let plan = planned(&session, "select count(*) from drive");
    fs::write(&path, log(&drive(3, 950))).unwrap();
    let mut counted = Vec::new();
    let stop = Default::default();
    let take = &mut |rows: RecordBatch| {
        counted.push(rows);
        Ok(())
    };
    session.run_planned(&plan, &stop, take).unwrap();
    assert!(text(&counted).contains("950"), "{}", text(&counted));
    assert_eq!(files(&cache).len(), 1, "the plan was for another state of the log");
}

#[test]
fn queries_of_one_session_use_the_cache_until_the_log_changes() {
    let folder = Folder::new();
    let (path, cache) = (folder.write("drive.lcm", log(&drive(3, 900))), cache(&folder));
    let session = cached_session(&path, &[], &cache);
    let sql = "select channel, count(*) from drive group by 1 order by 1";
    let first = answer(&session, sql);
    let log = session.log("drive").unwrap();
    let read = log.bytes_read();
    assert_eq!(answer(&session, sql), first);
    assert_eq!(log.bytes_read(), read);
    let more = LcmEvent::new(900, BEGIN, "F", b"x").bytes();
    fs::write(&path, [fs::read(&path).unwrap(), more].concat()).unwrap();
    log.refresh().unwrap();
    assert!(answer(&session, sql).0.contains("| F "));
    assert_eq!(number(&session, "select count(*) from drive.F"), 1);
}

#[test]
fn a_log_that_another_replaces_has_other_channels() {
    let folder = Folder::new();
    let of = |channel: &str, count: i64| -> Vec<u8> {
        (0..count).flat_map(|n| LcmEvent::new(n, BEGIN + n, channel, b"x").bytes()).collect()
    };
    let path = folder.write("drive.lcm", of("P", 3));
    for sessions in [plain_session(&path, &[]), cached_session(&path, &[], &cache(&folder))] {
        fs::write(&path, of("P", 3)).unwrap();
        let log = sessions.log("drive").unwrap();
        log.refresh().unwrap();
        assert_eq!(number(&sessions, "select count(*) from drive.P"), 3);
        assert_eq!(log.channels().unwrap(), ["P"]);
        // Of the same length, and longer.
        for (channel, count) in [("R", 3), ("S", 4)] {
            let other = folder.write("other.lcm", of(channel, count));
            fs::rename(&other, &path).unwrap();
            log.refresh().unwrap();
            let sql = format!("select count(*) from drive.{channel}");
            assert_eq!(number(&sessions, &sql), count);
            assert_eq!(log.channels().unwrap(), [channel]);
            let told = error_of(&sessions, "select count(*) from drive.P");
            assert!(told.contains("there is no channel in `drive` called `P`"), "{told}");
        }
    }
}

#[test]
fn changed_types_are_noticed() {
    let folder = Folder::new();
    let (path, cache) = (demo(&folder, 1), cache(&folder));
    fs::create_dir(folder.at("types")).unwrap();
    let declared = fs::read_to_string(root().join("plugins/dgc/types/pose_t.lcm")).unwrap();
    let types = folder.write("types/pose_t.lcm", &declared);
    let types = &[types.to_str().unwrap()];
    let sql = "select count(*), min(vel[1]) from drive.POSE";
    rows(&cached_session(&path, types, &cache), sql);
    assert!(is_cached(&cached_session(&path, types, &cache), sql));
    fs::write(types[0], format!("// Changed.\n{declared}")).unwrap();
    assert!(!is_cached(&cached_session(&path, types, &cache), sql));
    fs::write(types[0], declared.replace("vel", "velocity")).unwrap();
    let count = "select count(*) from drive.POSE";
    assert!(!is_cached(&cached_session(&path, types, &cache), count));
}

#[test]
fn damaged_files_of_the_cache_are_absent() {
    let folder = Folder::new();
    let cache = cache(&folder);
    let path = folder.write("drive.lcm", log(&drive(3, 900)));
    let sql = "select channel, count(*), max(sequence) from drive group by 1 order by 1";
    let expected = answer(&plain_session(&path, &[]), sql);
    rows(&cached_session(&path, &[], &cache), sql);
    let [file] = &files(&cache)[..] else { panic!("{:?}", files(&cache)) };
    let intact = fs::read(file).unwrap();
    let changed = |at: usize| {
        let mut changed = intact.clone();
        changed[at] ^= 0x55;
        changed
    };
    let places = (0..intact.len()).step_by(intact.len() / 40);
    let mut damaged: Vec<Vec<u8>> = places.clone().map(changed).collect();
    damaged.extend(places.map(|at| intact[..at].to_vec()));
    damaged.extend((1..60).map(|from_end| changed(intact.len() - from_end)));
    damaged.push([&intact[..], &intact].concat());
    damaged.push(vec![0xff; 5_000]);
    damaged.push(Vec::new());
    for bytes in damaged {
        fs::write(file, bytes).unwrap();
        assert_eq!(answer(&cached_session(&path, &[], &cache), sql), expected);
        // The same query has stored the table again.
        assert!(is_cached(&cached_session(&path, &[], &cache), sql));
        let session = cached_session(&path, &[], &cache);
        assert_eq!(answer(&session, sql), expected);
        assert_eq!(session.log("drive").unwrap().bytes_read(), 0);
    }
    let other = TableCache { program: "another".to_owned(), ..cache.clone() };
    assert!(!is_cached(&cached_session(&path, &[], &other), sql));
}

#[test]
fn a_folder_that_cannot_be_used_changes_nothing() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(3, 900)));
    let sql = "select channel, count(*) from drive group by 1 order by 1";
    let expected = answer(&plain_session(&path, &[]), sql);
    let file = TableCache { folder: folder.write("file", "x").join("cache"), ..cache(&folder) };
    let shared = TableCache { folder: folder.at("shared"), ..cache(&folder) };
    fs::create_dir(&shared.folder).unwrap();
    fs::set_permissions(&shared.folder, fs::Permissions::from_mode(0o777)).unwrap();
    for cache in [file, shared] {
        for _ in 0..2 {
            let session = cached_session(&path, &[], &cache);
            assert_eq!(answer(&session, sql), expected);
            assert!(!is_cached(&session, sql) && files(&cache).is_empty());
        }
    }
}

#[test]
fn short_logs_fresh_logs_and_long_tables_are_not_stored() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(3, 40_000)));
    let sql = "select timestamp, sequence from drive";
    let usual = cache(&folder);
    let short = TableCache { min_log_bytes: 1 << 30, ..usual.clone() };
    let fresh = TableCache { min_log_age: Duration::from_secs(100_000), ..usual.clone() };
    let long = TableCache { max_table_bytes: 100_000, ..usual.clone() };
    for cache in [short, fresh, long] {
        rows(&cached_session(&path, &[], &cache), sql);
        assert!(files(&cache).is_empty(), "{cache:?}");
    }
    let options = SessionOptions { memory: 4 << 20, ..small() };
    rows(&session_with(options.clone(), log_tables(&path, &[], &usual)), sql);
    assert!(files(&usual).is_empty(), "an eighth of the memory is too little");
    rows(&cached_session(&path, &[], &usual), sql);
    assert_eq!(files(&usual).len(), 1);
    let session = session_with(options, log_tables(&path, &[], &usual));
    assert_eq!(number(&session, "select count(timestamp) from drive"), 40_000);
}

#[test]
fn an_interrupted_query_stores_nothing() {
    let folder = Folder::new();
    let (path, cache) = (folder.write("drive.lcm", log(&drive(3, 20_000))), cache(&folder));
    let session = cached_session(&path, &[], &cache);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ended = session.run("select sequence from drive", &stop, &mut |_| {
        Err(sluice_model::Error::invalid("enough"))
    });
    assert!(ended.is_err());
    drop(session);
    rows(&cached_session(&path, &[], &cache), "select * from (select sequence from drive) limit 3");
    assert!(files(&cache).is_empty(), "{:?}", files(&cache));
}

#[test]
fn the_tables_not_used_for_longest_are_removed() {
    let folder = Folder::new();
    let cache = cache(&folder);
    let path = folder.write("drive.lcm", log(&drive(3, 20_000)));
    let queries = ["sequence", "timestamp", "channel"].map(|column| {
        let sql = format!("select max({column}) from drive");
        let before = files(&cache);
        rows(&cached_session(&path, &[], &cache), &sql);
        let new = files(&cache).into_iter().find(|file| !before.contains(file)).unwrap();
        (sql, new)
    });
    for (at, (_, file)) in queries.iter().enumerate() {
        let time = SystemTime::now() - Duration::from_secs(1_000 - at as u64);
        File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    }
    let old = folder.write("cache/.killed.tmp", "x");
    let time = SystemTime::UNIX_EPOCH;
    File::options().write(true).open(&old).unwrap().set_modified(time).unwrap();
    folder.write("cache/foreign", "x");
    // The oldest one is used again, so it stays.
    rows(&cached_session(&path, &[], &cache), &queries[0].0);
    let bytes: u64 = queries.iter().map(|(_, file)| fs::metadata(file).unwrap().len()).sum();
    let full = TableCache { max_bytes: bytes, ..cache.clone() };
    rows(&cached_session(&path, &[], &full), "select max(sequence) from drive.A");
    let is_there = queries.each_ref().map(|(_, file)| file.exists());
    assert_eq!(is_there, [true, false, true], "{:?}", files(&cache));
    assert!(!old.exists() && folder.at("cache/foreign").exists());
    let few = TableCache { max_tables: 1, ..cache.clone() };
    rows(&cached_session(&path, &[], &few), "select min(timestamp) from drive.B");
    assert_eq!(files(&cache).len(), 2, "a table and a foreign file");
}

#[test]
fn processes_share_a_cache() {
    let folder = Folder::new();
    let cache = cache(&folder);
    let path = folder.write("drive.lcm", log(&drive(3, 5_000)));
    let sql = "select channel, count(*), sum(sequence) from drive group by 1 order by 1";
    let expected = answer(&plain_session(&path, &[]), sql);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let session = cached_session(&path, &[], &cache);
                    assert_eq!(answer(&session, sql), expected);
                }
            });
        }
    });
    assert_eq!(files(&cache).len(), 1, "{:?}", files(&cache));
    assert!(is_cached(&cached_session(&path, &[], &cache), sql));
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

/// Runs a query with a cache in the folder.
fn query(folder: &Folder, sql: &str, more: &[&str]) -> ProgramOutput {
    let mut command = sluice(folder);
    command.env("XDG_CACHE_HOME", folder.at("user-cache")).arg("query").arg(sql).args(more);
    ProgramOutput::from_output(command.output().unwrap())
}

#[test]
fn the_program_caches_long_logs_unless_told_otherwise() {
    let folder = Folder::new();
    let path = demo(&folder, 15);
    assert!(fs::metadata(&path).unwrap().len() > 64 << 20, "a log that is long enough");
    let mut cut = fs::read(&path).unwrap();
    cut.truncate(cut.len() - 7);
    fs::write(&path, cut).unwrap();
    let sql = "select channel, count(*) from drive group by 1 order by 1";
    let explain = format!("explain {sql}");
    let tables = folder.at("user-cache/sluice/queries");
    let first = query(&folder, sql, &["drive.lcm", "--no-cache"]).expect(3);
    assert!(!tables.exists());
    // The log was written a moment ago, so that the first queries may not store it yet.
    let end = Instant::now() + Duration::from_secs(300);
    while !query(&folder, &explain, &["drive.lcm"]).expect(0).text().contains(", cached") {
        assert!(Instant::now() < end, "the table is never stored");
        query(&folder, sql, &["drive.lcm"]).expect(3);
    }
    let again = query(&folder, sql, &["drive.lcm"]).expect(3);
    assert_eq!((&again.stdout, &again.stderr), (&first.stdout, &first.stderr));
    let explained = query(&folder, &explain, &["drive.lcm", "--no-cache"]).expect(0).text();
    assert!(explained.contains("splits="), "{explained}");
    let option = ["drive.lcm", "--source-option", "seek=false"];
    let explained = query(&folder, &explain, &option).expect(0).text();
    assert!(explained.contains("splits="), "{explained}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tables), 0o700);
    for entry in fs::read_dir(&tables).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    let mut homeless = sluice(&folder);
    homeless.args(["query", "select count(*) from drive", "drive.lcm"]);
    homeless.env_remove("XDG_CACHE_HOME").env_remove("HOME");
    ProgramOutput::from_output(homeless.output().unwrap()).expect(3);
}
