//! Logs that grow, shrink or are overwritten between planning and reading.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use serde_json::json;
use sluice_model::{Query, ReadContext, Registry, Source, SplitStart};

use crate::kit::{BEGIN, Folder, LcmEvent, log, report_skip, run_sluice};

/// A log of a thousand events of 100 bytes.
fn folder_with_log() -> Folder {
    let events: Vec<LcmEvent> =
        (0..1_000).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", &[n as u8; 68])).collect();
    let folder = Folder::new();
    folder.write("in.lcm", log(&events));
    folder
}

/// Splits `in.lcm` into pieces of `target` bytes, applies `change` to it, and reads it. Returns
/// event numbers, and offsets and lengths of damage.
fn read_after(
    folder: &Folder,
    target: u64,
    change: impl Fn(&std::path::Path),
) -> (Vec<i64>, Vec<(u64, u64)>) {
    let path = folder.at("in.lcm");
    let source: Box<dyn Source> =
        Registry::linked().source("lcm-log", json!({ "path": path })).unwrap();
    let splits = source.splits(target, &Query::default()).unwrap();
    change(&path);
    let context = ReadContext::standalone("log");
    let (mut numbers, mut ended) = (Vec::new(), None);
    for split in &splits {
        // As the engine does: each split starts where the previous one stopped.
        let entry = SplitStart::At(ended.unwrap_or(split.start));
        let mut reader = source.read(split, entry, &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            numbers.extend_from_slice(batch.sequences());
        }
        ended = reader.seam().ended;
    }
    let damage = context.damage.take();
    (numbers, damage.iter().map(|d| (d.offset, d.length)).collect())
}

fn truncate(path: &std::path::Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn bytes_that_a_log_lost_are_damage() {
    for target in [u64::MAX, 30_000] {
        let folder = folder_with_log();
        let (numbers, damage) = read_after(&folder, target, |path| truncate(path, 50_000));
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
        let missing: u64 = damage.iter().map(|(_, length)| length).sum();
        assert_eq!((damage[0].0, missing), (50_000, 50_000), "pieces of {target}: {damage:?}");
    }
}

#[test]
fn a_log_cut_in_an_event_keeps_those_before() {
    let folder = folder_with_log();
    let (numbers, damage) = read_after(&folder, u64::MAX, |path| truncate(path, 50_050));
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    let missing: u64 = damage.iter().map(|(_, length)| length).sum();
    assert_eq!((damage[0].0, missing), (50_000, 50_000), "{damage:?}");
}

#[test]
fn a_log_that_became_empty_is_damage_from_its_first_byte() {
    let folder = folder_with_log();
    let (numbers, damage) = read_after(&folder, u64::MAX, |path| truncate(path, 0));
    assert_eq!((numbers, damage), (Vec::new(), vec![(0, 100_000)]));
}

#[test]
fn events_appended_during_reading_are_read() {
    for target in [u64::MAX, 30_000] {
        let folder = folder_with_log();
        let (numbers, damage) = read_after(&folder, target, |path| {
            let more: Vec<LcmEvent> =
                (1_000..1_010).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", b"more")).collect();
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&log(&more)).unwrap();
        });
        assert_eq!((numbers, damage), ((0..1_010).collect::<Vec<_>>(), Vec::new()));
    }
}

#[test]
fn a_vanished_log_fails_the_run() {
    let folder = folder_with_log();
    let source =
        Registry::linked().source("lcm-log", json!({ "path": folder.at("in.lcm") })).unwrap();
    let split = source.splits(u64::MAX, &Query::default()).unwrap().remove(0);
    fs::remove_file(folder.at("in.lcm")).unwrap();
    let opened = source.read(&split, SplitStart::At(0), &ReadContext::standalone("log"));
    assert!(opened.is_err_and(|e| e.to_string().contains("in.lcm")));
}

/// Reads a log of `plugin` that grows by more than a block once the run has begun.
fn read_growing(plugin: &str, name: &str, begin: &[u8], more: &[u8]) {
    let folder = Folder::new();
    let made = Command::new("mkfifo").arg(folder.at("pipe")).status();
    if !made.is_ok_and(|made| made.success()) {
        return report_skip("a named pipe: there is no mkfifo");
    }
    let path = folder.write(name, begin);
    let text = format!(
        "[sources.log]\nplugin = \"{plugin}\"\npath = [\"pipe\", \"{name}\"]\n\
         [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"events.jsonl\"\n\
         [sinks.tables]\nplugin = \"parquet\"\nfrom = \"log\"\npath = \"tables/\"\n"
    );
    folder.write("p.toml", text);
    let ran = std::thread::scope(|scope| {
        let fill = || {
            // Opening waits for the run, which has listed its inputs by then.
            let mut pipe = OpenOptions::new().write(true).open(folder.at("pipe")).unwrap();
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            more.chunks(begin.len()).for_each(|piece| file.write_all(piece).unwrap());
            pipe.write_all(begin).unwrap();
        };
        scope.spawn(fill);
        run_sluice(&folder, &["run", "p.toml"])
    });
    let len = begin.len();
    let told = format!("the {} bytes added after byte {len} are not read", more.len());
    ran.expect(0).expect_stderr(&told);
    let events = folder.read("events.jsonl");
    assert_eq!(events.iter().filter(|byte| **byte == b'\n').count(), 20, "{name}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&folder.read("tables/_manifest.json")).unwrap();
    assert!(manifest.to_string().contains(&format!("\"bytes\":{len}")), "{manifest}");
}

#[test]
fn of_a_log_that_grows_during_the_run_what_was_there_before_is_read() {
    let events = |count: i64| {
        let events = (0..count).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", &[n as u8; 68]));
        log(&events.collect::<Vec<_>>())
    };
    read_growing("lcm-log", "in.lcm", &events(10), &events(60_000));
    let line = "{\"timestamp_ns\":1,\"source\":\"log\",\"channel\":\"A\",\"sequence\":0,\
                \"size\":2,\"payload\":\"YWI=\"}\n";
    let line = line.as_bytes();
    read_growing("jsonl", "in.jsonl", &line.repeat(10), &line.repeat(120_000));
    let (head, row) = (&b"timestamp_ns,channel,x\n"[..], b"1,POSE,1\n");
    let rows = |count: usize| row.repeat(count);
    read_growing("csv", "in.csv", &[head, &rows(10)].concat(), &rows(700_000));
}

#[test]
fn a_file_that_belongs_to_a_log_and_grows_during_the_run_is_noted() {
    let folder = folder_with_log();
    let made = Command::new("mkfifo").arg(folder.at("pipe")).status();
    if !made.is_ok_and(|made| made.success()) {
        return report_skip("a named pipe: there is no mkfifo");
    }
    fs::create_dir(folder.at("orca")).unwrap();
    folder.write(
        "make.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [sinks.out]\nplugin = \"orca\"\nfrom = \"log\"\npath = \"orca/log.txt\"\n",
    );
    run_sluice(&folder, &["run", "make.toml"]).expect(0);
    let mut files = fs::read_dir(folder.at("orca")).unwrap().map(|entry| entry.unwrap().path());
    let subfile = files.find(|path| !path.ends_with("log.txt")).unwrap();
    folder.write(
        "p.toml",
        "[sources.log]\nplugin = \"orca\"\npath = \"orca/log.txt\"\n\
         [sources.pipe]\nplugin = \"lcm-log\"\npath = \"pipe\"\n\
         [sinks.out]\nplugin = \"null\"\nfrom = [\"log\", \"pipe\"]\n",
    );
    let ran = std::thread::scope(|scope| {
        let fill = || {
            // Opening waits for the run, which has listed its inputs by then.
            let mut pipe = OpenOptions::new().write(true).open(folder.at("pipe")).unwrap();
            let mut file = OpenOptions::new().append(true).open(&subfile).unwrap();
            file.write_all(b"more").unwrap();
            pipe.write_all(&folder.read("in.lcm")).unwrap();
        };
        scope.spawn(fill);
        run_sluice(&folder, &["run", "p.toml"])
    });
    let name = subfile.file_name().unwrap().to_str().unwrap();
    let told = format!("are not read: orca/{name}");
    ran.expect_stderr("the 4 bytes added after byte").expect_stderr(&told);
}

#[test]
fn a_log_that_is_overwritten_during_the_run_fails_it() {
    let folder = folder_with_log();
    let made = Command::new("mkfifo").arg(folder.at("pipe")).status();
    if !made.is_ok_and(|made| made.success()) {
        return report_skip("a named pipe: there is no mkfifo");
    }
    let other = log(&(0..2_000)
        .map(|n| LcmEvent::new(n, BEGIN + 9 * n, "POSE", &[n as u8; 68]))
        .collect::<Vec<_>>());
    folder.write(
        "p.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = [\"pipe\", \"in.lcm\"]\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n",
    );
    let ran = std::thread::scope(|scope| {
        let fill = || {
            // Opening waits for the run, which has listed its inputs by then.
            let mut pipe = OpenOptions::new().write(true).open(folder.at("pipe")).unwrap();
            folder.write("in.lcm", &other);
            pipe.write_all(&other).unwrap();
        };
        scope.spawn(fill);
        run_sluice(&folder, &["run", "p.toml"])
    });
    ran.expect(1).expect_stderr("the input was overwritten while it was read");
    assert!(!folder.at("out.lcm").exists());
}
