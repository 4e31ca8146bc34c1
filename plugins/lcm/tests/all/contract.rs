//! The contract of the `lcm-log` plugins, for any log.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;
use sluice_io::files::is_text_bytes;
use sluice_kit::contract::{
    PlainEvent, SourceContents, any_splitting_is_the_same, gather, gather_splits, gather_with,
    splits_cover_the_inputs, trials,
};
use sluice_lcm::fuzzing::append_event;
use sluice_model::{BlockPool, PluginKind, Query, ReadContext, Registry, SniffResult, Source};

fn plugin_source(options: serde_json::Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    registry.source("lcm-log", options).unwrap()
}

fn source(path: &Path) -> Box<dyn Source> {
    plugin_source(json!({ "path": path }))
}

/// A log of events of many sizes; some payloads hold sync words and whole events.
fn log(events: usize) -> Vec<u8> {
    let mut log = Vec::new();
    for n in 0..events {
        let mut payload = vec![n as u8; n * 37 % 400];
        if n % 7 == 3 {
            append_event(&mut payload, 1, 2, b"INNER", b"not an event of this log").unwrap();
            payload.extend([0xED, 0xA1, 0xDA, 0x01]);
        }
        let channel = format!("CH_{}", n % 5);
        append_event(&mut log, n as i64, 1_000_000 + n as i64 * 500, channel.as_bytes(), &payload)
            .unwrap();
    }
    log
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.lcm");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// Reads with blocks of this size, so that small logs have many.
fn gathered_with_blocks(path: &Path, block: usize) -> SourceContents {
    let mut context = ReadContext::standalone("test");
    context.blocks = BlockPool::new(block, 2);
    gather_with(&*source(path), u64::MAX, &context).unwrap()
}

#[test]
fn a_clean_log_gives_every_event_however_it_is_cut() {
    let count = trials(150, 500) as usize;
    let (_folder, path) = written(&log(count));
    let all = any_splitting_is_the_same(&*source(&path), &[1, 17, 100, 1000, 10_000]);
    assert_eq!((all.events.len(), all.damage.len()), (count, 0));
    assert_eq!(all.events[7].sequence, 7);
    assert_eq!(all.events[7].timestamp, 1_003_500_000);
    splits_cover_the_inputs(&*source(&path), 1000);
}

#[test]
fn the_size_of_blocks_does_not_matter() {
    let (_folder, path) = written(&log(300));
    let all = gather(&*source(&path), u64::MAX).unwrap();
    for block in [1, 29, 64, 500, 4096] {
        assert_eq!(gathered_with_blocks(&path, block), all, "blocks of {block}");
    }
}

#[test]
fn long_damage_in_a_stream_is_stepped_over_without_keeping_it() {
    const DAMAGE: u64 = 5 << 20;
    let mut bytes = vec![0; DAMAGE as usize];
    bytes.extend(log(20));
    let folder = tempfile::tempdir().unwrap();
    for (name, packed) in
        [("front", bytes.clone()), ("back", [log(3), bytes[..4 << 20].to_vec()].concat())]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, zstd::encode_all(&packed[..], 1).unwrap()).unwrap();
    }
    let front = gather(&*source(&folder.path().join("front")), u64::MAX).unwrap();
    assert_eq!((front.events.len(), front.damage[0].0, front.damage[0].1), (20, 0, DAMAGE));
    let back = gather(&*source(&folder.path().join("back")), u64::MAX).unwrap();
    assert_eq!((back.events.len(), back.damage[0].1), (3, 4 << 20));
}

#[test]
fn sniffing_tells_logs_from_other_files() {
    let registry = Registry::linked();
    let sniff = registry.get(PluginKind::Source, "lcm-log").unwrap().sniff;
    assert_eq!(sniff(&log(1)), SniffResult::Yes);
    assert_eq!(sniff(&[b"xx", &log(1)[..]].concat()), SniffResult::Maybe);
    assert_eq!((sniff(b"PAR1"), sniff(b"")), (SniffResult::No, SniffResult::No));
}

fn window(start: Option<i64>, end: Option<i64>) -> Query {
    let nanos = |seconds: Option<i64>| seconds.map(|seconds| seconds * 1_000_000_000);
    Query { start: nanos(start), end: nanos(end), ..Query::default() }
}

/// What the engine reads of a log for this query.
fn queried(log: &dyn Source, query: &Query, target: u64, block: usize) -> SourceContents {
    let mut context = ReadContext::standalone("test");
    (context.query, context.blocks) = (query.clone(), BlockPool::new(block, 2));
    gather_splits(log, log.splits(target, query).unwrap(), &context).unwrap()
}

/// A full read without the events outside the window.
fn filtered(path: &Path, query: &Query) -> SourceContents {
    let mut all = gather(&*source(path), u64::MAX).unwrap();
    all.events.retain(|event| query.window().wants_time(event.timestamp));
    all
}

/// A log with an event at each of these seconds, more than 16 MiB long.
fn long_log(seconds: &[i64]) -> Vec<u8> {
    let (mut bytes, payload) = (Vec::new(), vec![7; (26 << 20) / seconds.len()]);
    for (n, second) in seconds.iter().enumerate() {
        // Some are short, so that blocks hold both.
        let payload = if n % 3 == 0 { &payload[..20] } else { &payload };
        append_event(&mut bytes, n as i64, second * 1_000_000, b"POSE", payload).unwrap();
    }
    bytes
}

#[test]
fn a_window_has_every_event_of_it_in_whatever_order_times_are() {
    let jump = |n: i64| if (250..300).contains(&n) { n + 3600 } else { n };
    let two_in_one: Vec<i64> = (5000..5300).chain(0..300).collect();
    let clock_set_back: Vec<i64> = (0..400).chain(100..300).collect();
    let jumped: Vec<i64> = (0..600).map(jump).collect();
    for seconds in [two_in_one, clock_set_back, jumped] {
        let (_folder, path) = written(&long_log(&seconds));
        for (start, end) in [
            (Some(100), Some(300)),
            (Some(3850), None),
            (None, Some(150)),
            (Some(5100), Some(5101)),
            (Some(9000), None),
        ] {
            let query = window(start, end);
            let expected = filtered(&path, &query);
            let log = source(&path);
            assert_eq!(queried(&*log, &query, 2 << 20, 1 << 20), expected, "{start:?} {end:?}");
            let all = plugin_source(json!({ "path": path, "seek": false }));
            let mut read = queried(&*all, &query, 2 << 20, 1 << 20);
            assert_eq!(read.events.len(), seconds.len());
            read.events.retain(|event| query.window().wants_time(event.timestamp));
            assert_eq!(read, expected);
        }
    }
}

#[test]
fn damage_outside_of_a_window_is_reported_as_it_is_without_one() {
    let mut bytes = long_log(&(0..400).collect::<Vec<_>>());
    let at = bytes.len() / 4;
    bytes[at..at + 200_000].fill(0);
    bytes.truncate(bytes.len() - 5);
    let (_folder, path) = written(&bytes);
    let query = window(Some(300), Some(310));
    let all = queried(&*source(&path), &query, 1 << 20, 1 << 20);
    assert_eq!((all.events.len(), all.damage.len()), (10, 2), "{:?}", all.damage);
    assert_eq!(all, filtered(&path, &query));
}

#[test]
fn a_window_of_a_compressed_log_or_a_pipe_is_the_same() {
    let bytes = long_log(&(200..400).chain(0..300).collect::<Vec<_>>());
    let (folder, path) = written(&bytes);
    let packed = folder.path().join("log.lcm.zst");
    std::fs::write(&packed, zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    let query = window(Some(250), Some(260));
    assert_eq!(queried(&*source(&packed), &query, 1 << 20, 1 << 20), filtered(&path, &query));
}

/// Bytes read for a window of a log, and the range they are in.
fn sorted_part(path: &Path, query: &Query) -> (u64, u64, Option<u64>) {
    let log = plugin_source(json!({ "path": path, "seek": "sorted" }));
    let splits = log.splits(1 << 20, query).unwrap();
    let read = splits.iter().filter_map(|split| split.bytes).sum();
    (read, splits[0].start, splits.last().unwrap().end)
}

#[test]
fn a_log_that_is_said_to_be_sorted_is_read_in_part_and_gives_all_of_the_window() {
    let mut bytes = Vec::new();
    let payload = vec![7; 4000];
    for n in 0..10_000i64 {
        // Ten events a second; every hundredth a little out of order.
        let jitter = if n % 100 == 50 { -300_000 } else { 0 };
        append_event(&mut bytes, n, n * 100_000 + jitter, b"C", &payload).unwrap();
    }
    let (_folder, path) = written(&bytes);
    let (read, first, last) = sorted_part(&path, &window(Some(500), Some(510)));
    assert!(read < bytes.len() as u64 / 10, "{read} of {}", bytes.len());
    let record = |n: u64| n * (28 + 1 + 4000);
    let last = last.unwrap();
    assert!(first <= record(4_990) && last >= record(5_110), "{first}..{last}");
}

#[test]
fn a_log_that_is_not_as_sorted_as_was_said_is_read_whole_where_samples_show_it() {
    let (_folder, path) = written(&long_log(&(0..1_000).map(|n| n % 200).collect::<Vec<_>>()));
    let len = std::fs::metadata(&path).unwrap().len();
    assert_eq!(sorted_part(&path, &window(Some(5), Some(6))).0, len);
}

#[test]
fn other_words_for_seeking_are_refused() {
    let registry = Registry::linked();
    let error = registry
        .source("lcm-log", json!({ "path": "x", "seek": "rising" }))
        .map(|_| ())
        .unwrap_err();
    let said = error.to_string();
    assert!(said.contains("true, false or \"sorted\", found \"rising\""), "{said}");
}

/// Reads the splits of `before` after the file has changed to `after`.
fn read_after_change(before: &[u8], after: &[u8]) -> SourceContents {
    let (_folder, path) = written(before);
    let log = source(&path);
    let splits = log.splits(1000, &Query::default()).unwrap();
    std::fs::write(&path, after).unwrap();
    gather_splits(&*log, splits, &ReadContext::standalone("test")).unwrap()
}

#[test]
fn what_is_appended_after_the_log_was_cut_into_splits_is_read_too() {
    let (before, after) = (log(50), log(60));
    let all = read_after_change(&before[..before.len() - 3], &after);
    assert_eq!((all.events.len(), all.damage.len()), (60, 0));
}

#[test]
fn what_a_log_lost_since_it_was_cut_into_splits_is_damage() {
    let (before, after) = (log(60), log(20));
    let all = read_after_change(&before, &after);
    assert_eq!(all.events.len(), 20);
    let (first, lost) =
        (all.damage[0].0, all.damage.iter().map(|(_, length, _)| length).sum::<u64>());
    assert_eq!((first, first + lost), (after.len() as u64, before.len() as u64));
    assert!(all.damage[0].2.contains("became shorter"), "{:?}", all.damage);
}

fn mutation() -> impl Strategy<Value = (u8, usize, usize)> {
    (0u8..5, any::<usize>(), 1usize..400)
}

fn damaged(mut log: Vec<u8>, mutations: &[(u8, usize, usize)]) -> Vec<u8> {
    for (kind, at, len) in mutations {
        let at = at % log.len().max(1);
        let end = (at + len).min(log.len());
        match kind {
            0 if at < log.len() => log[at] ^= 1 << (len % 8),
            1 => drop(log.drain(at..end)),
            2 => drop(log.splice(at..at, std::iter::repeat_n(0xED, *len))),
            3 => log[at..end].fill(0),
            _ => log.truncate(at),
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn damaged_logs_are_the_same_however_they_are_cut_and_blocked(
        mutations in proptest::collection::vec(mutation(), 1..6),
        target in 1u64..3000, block in 1usize..2000)
    {
        let bytes = damaged(log(60), &mutations);
        // What is left may be a few letters, which are refused as text.
        prop_assume!(bytes.is_empty() || !is_text_bytes(&bytes));
        let (_folder, path) = written(&bytes);
        let all = any_splitting_is_the_same(&*source(&path), &[target, target * 3, 64]);
        prop_assert_eq!(&gathered_with_blocks(&path, block), &all);
        let lost: u64 = all.damage.iter().map(|(_, length, _)| length).sum();
        let len = |e: &PlainEvent| (28 + e.channel.len() + e.payload.len()) as u64;
        let kept: u64 = all.events.iter().map(len).sum();
        // Names that are not UTF-8 are longer as text than in the log.
        if all.events.iter().all(|e| !e.channel.contains('\\')) {
            prop_assert_eq!(lost + kept, bytes.len() as u64);
        }
    }

    #[test]
    fn a_window_of_a_damaged_log_is_what_a_filter_leaves_of_it(
        mutations in proptest::collection::vec(mutation(), 0..5),
        times in proptest::collection::vec(0i64..40, 60),
        longest in 1usize..30_000,
        start in proptest::option::of(0i64..40), end in proptest::option::of(0i64..40),
        target in 1u64..300_000, block in 1usize..100_000)
    {
        let mut bytes = Vec::new();
        for (n, time) in times.iter().enumerate() {
            let payload = vec![n as u8; n * 7919 % longest];
            append_event(&mut bytes, n as i64, time * 1_000_000, b"C", &payload).unwrap();
        }
        let bytes = damaged(bytes, &mutations);
        prop_assume!(bytes.is_empty() || !is_text_bytes(&bytes));
        let (_folder, path) = written(&bytes);
        let (query, log) = (window(start, end), source(&path));
        prop_assert_eq!(queried(&*log, &query, target, block), filtered(&path, &query));
    }
}
