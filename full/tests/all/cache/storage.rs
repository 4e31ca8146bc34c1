//! The files of the cache, and the program that shares them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use sluice_query::cache::TableCache;
use sluice_query::session::SessionOptions;

use super::{answer, cache, cached_session, files, is_cached, log_tables, plain_session};
use crate::kit::{Folder, ProgramOutput, drive, log, sluice};
use crate::tables::{demo, number, rows, session_with, small};

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
