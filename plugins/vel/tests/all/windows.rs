//! Windows of time, and the index that they are found by.

use std::path::Path;

use serde_json::json;
use sluice_kit::contract::{SourceContents, gather_splits};
use sluice_model::{Query, ReadContext};
use sluice_vel::fuzzing::{IMU_STATE, LASER_DATA, Rules, inspect};

use crate::kit::{body, log, log_of, plugin_source, source, text, written};

/// A log of more than 16 MiB, ten messages a second.
fn long_log() -> Vec<u8> {
    log_of((0..4500).map(|n| {
        (n as f64 * 100.0, (IMU_STATE, 102, [text("b"), text("n"), vec![7; 4000]].concat()))
    }))
}

fn window() -> Query {
    Query { start: Some(200_000_000_000), end: Some(210_000_000_000), ..Query::default() }
}

#[test]
fn a_window_of_a_sorted_log_with_a_right_index_reads_a_part_of_it_and_gives_all_of_the_window() {
    let bytes = long_log();
    let (_folder, path) = written(&bytes);
    let log = plugin_source(json!({ "path": path, "seek": "sorted" }));
    let splits = log.splits(1 << 20, &window()).unwrap();
    let read: u64 = splits.iter().filter_map(|split| split.bytes).sum();
    assert!(read < bytes.len() as u64 / 10, "{read} of {}", bytes.len());
    let context = ReadContext::standalone("test");
    let all = gather_splits(&*log, splits, &context).unwrap();
    assert_eq!(all.events[0].timestamp, 190_000_000_000);
    assert!(all.events.last().unwrap().timestamp >= 219_000_000_000);
    assert_eq!(all.damage, []);
}

/// What the engine reads of a log where this is asked for.
fn queried(path: &Path, seek: serde_json::Value, query: &Query) -> SourceContents {
    let log = plugin_source(json!({ "path": path, "seek": seek }));
    let splits = log.splits(1 << 20, query).unwrap();
    let context = ReadContext { query: query.clone(), ..ReadContext::standalone("test") };
    gather_splits(&*log, splits, &context).unwrap()
}

#[test]
fn a_window_has_every_message_of_it_whatever_times_and_index_say() {
    let image = |ms: f64| (ms, (IMU_STATE, 102, [text("b"), text("n"), vec![7; 40_000]].concat()));
    let seconds = |n: i64| n as f64 * 1000.0;
    let two_in_one: Vec<i64> = (5000..5300).chain(0..300).collect();
    let clock_set_back: Vec<i64> = (0..400).chain(100..300).collect();
    let jump = |n: i64| if (250..300).contains(&n) { n + 3600 } else { n };
    for times in [two_in_one, clock_set_back, (0..600).map(jump).collect()] {
        let mut bytes = log_of(times.iter().map(|n| image(seconds(*n))));
        // An index that lies: every entry leads to the last message but one.
        let head = body(&bytes) as usize;
        let last = (bytes.len() - 2 * (21 + 40_012)) as i64;
        bytes[12..head].chunks_exact_mut(8).for_each(|e| e.copy_from_slice(&last.to_le_bytes()));
        let (_folder, path) = written(&bytes);
        for (start, end) in
            [(Some(100), Some(300)), (Some(3850), None), (None, Some(150)), (Some(9000), None)]
        {
            let nanos = |second: Option<i64>| second.map(|second| second * 1_000_000_000);
            let query = Query { start: nanos(start), end: nanos(end), ..Query::default() };
            let mut all = queried(&path, json!(false), &query);
            assert_eq!(all.events.len(), times.len());
            all.events.retain(|event| query.window().wants_time(event.timestamp));
            assert_eq!(queried(&path, json!(true), &query), all, "{start:?} {end:?}");
        }
    }
}

#[test]
fn a_message_before_a_window_whose_size_swallows_those_of_the_window_is_damage() {
    let scan = [&10_000u32.to_le_bytes()[..], &[7; 40_000]].concat();
    let scans = || (0..40).map(|n| (n as f64 * 1000.0, (LASER_DATA, 100, scan.clone())));
    let mut bytes = log_of(scans());
    let len = 21 + scan.len();
    let at = body(&bytes) as usize + 5 * len;
    bytes[at..at + 4].copy_from_slice(&(20 * len as u32 - 4).to_le_bytes());
    let (_folder, path) = written(&bytes);
    let query =
        Query { start: Some(15_000_000_000), end: Some(30_000_000_000), ..Query::default() };
    let all = queried(&path, json!(true), &query);
    assert_eq!((all.events.len(), all.damage.len()), (15, 1));
    assert_eq!((all.damage[0].0, all.damage[0].1), (at as u64, len as u64));
}

#[test]
fn a_window_is_whole_where_one_time_is_wrong_or_the_clock_begins_anew() {
    let image = |ms: f64| (ms, (IMU_STATE, 102, [text("b"), text("n"), vec![7; 8000]].concat()));
    let rising = || (0..2200).map(|n| f64::from(n) * 100.0);
    let stray = rising().take(500).chain([1e6]).chain(rising().skip(500));
    for times in [stray.collect::<Vec<_>>(), rising().chain(rising()).collect()] {
        let (_folder, path) = written(&log_of(times.iter().copied().map(image)));
        let query =
            Query { start: Some(60_000_000_000), end: Some(100_000_000_000), ..Query::default() };
        let wanted = 60_000_000_000..100_000_000_000;
        let inside = |all: SourceContents| {
            all.events.iter().filter(|event| wanted.contains(&event.timestamp)).count()
        };
        let found = inside(queried(&path, json!(true), &query));
        assert_eq!(inside(queried(&path, json!("sorted"), &query)), found);
        let expected = times.iter().filter(|ms| (60_000.0..100_000.0).contains(*ms)).count();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_wrong_index_is_not_followed() {
    let (mut bytes, whole) = (long_log(), long_log().len() as u64);
    // Second 190 begins a second too late; then the index says nothing; then seeking is turned off.
    let entry = 12 + 190 * 8;
    let next: [u8; 8] = bytes[entry + 8..entry + 16].try_into().unwrap();
    bytes[entry..entry + 8].copy_from_slice(&next);
    let (_folder, path) = written(&bytes);
    let read = |options| -> (u64, u64) {
        let splits = plugin_source(options).splits(1 << 20, &window()).unwrap();
        (splits[0].start, splits.iter().filter_map(|split| split.bytes).sum())
    };
    assert_eq!(read(json!({ "path": path, "seek": "sorted" })).0, 0);
    std::fs::write(&path, long_log()).unwrap();
    assert_eq!(read(json!({ "path": path, "seek": false })), (0, whole));
    assert_eq!(read(json!({ "path": path })), (0, whole));
    bytes[12..body(&long_log()) as usize].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(read(json!({ "path": path, "seek": "sorted" })), (0, whole));
}

#[test]
fn an_index_is_told_right_from_wrong() {
    let (_folder, path) = written(&log(30));
    let inspect = || inspect(&path, &Rules::default()).unwrap().unwrap().to_string();
    assert_eq!(inspect(), "index: 6 entries, 3 right, 3 unused, 0 wrong");
    let mut bytes = log(30);
    bytes[20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(inspect(), "index: 6 entries, 2 right, 3 unused, 1 wrong");
    let said = source(&path).findings(&path).unwrap();
    assert!(said.len() == 2 && said[1].starts_with("entry 1 points to byte "), "{said:?}");
}
