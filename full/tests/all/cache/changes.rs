//! Logs and types that change after they were cached.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::RecordBatch;

use super::{answer, cache, cached_session, files, is_cached, plain_session};
use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, root};
use crate::tables::{demo, error_of, number, planned, rows, text};

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
