//! Logs that grow or shrink between planning and reading.

use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::json;
use sluice_model::{Query, ReadContext, Registry, Source, SplitStart};

use crate::kit::{BEGIN, Folder, LcmEvent, log};

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
