//! What the `vel` plugins promise, whatever the log looks like.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{
    SourceContents, any_splitting_is_the_same, gather, gather_with, overwrite,
    splits_cover_the_inputs,
};
use sluice_kit::{CodecOptions, Codecs, TypePaths};
use sluice_model::{
    BatchBuilder, BlockPool, Channel, Clock, Encoding, Input, Name, PluginKind, PrepareContext,
    Query, ReadContext, Registry, RunInput, RunOrigin, SinkContext, SniffResult, Source,
    SplitStart,
};
use sluice_vel::fuzzing::{
    FileHead, IMU_STATE, IndexBuilder, LASER_CONFIG, LASER_DATA, MARKER, Rules, UNUSED,
    append_message, inspect, simple_hash,
};

const ODOMETRY: &str = "OdometryM";

fn plugin_source(options: serde_json::Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    registry.source("vel", options).unwrap()
}

fn source(path: &Path) -> Box<dyn Source> {
    plugin_source(json!({ "path": path }))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The type, version and payload of message `n`; some payloads hold whole messages.
fn message(n: usize) -> (u32, i32, Vec<u8>) {
    let named =
        |rest: &[u8]| [text("brand"), text(["left", "right"][n % 2]), rest.to_vec()].concat();
    let count = n * 7 % 60;
    let values = [&(count as u32).to_le_bytes()[..], &vec![n as u8; count * 4]].concat();
    match n % 6 {
        0 => (LASER_DATA, 102, named(&[&values[..], &values, &[0; 4]].concat())),
        1 => (IMU_STATE, 102, named(&[0x31; 28])),
        2 => (LASER_DATA, 100, values),
        3 => (LASER_CONFIG, 100, named(&[n as u8; 40])),
        4 => {
            let mut inner = Vec::new();
            append_message(&mut inner, MARKER, (IMU_STATE, 102), 5.0, &named(&[0; 28])).unwrap();
            (simple_hash(ODOMETRY.as_bytes()), 3, inner)
        }
        _ => (0x1234_5678, 7, vec![n as u8; n % 50]),
    }
}

/// A log of `count` messages, ten a second, with a right index and some entries that are not used.
fn log(count: usize) -> Vec<u8> {
    log_of((0..count).map(|n| (n as f64 * 100.0, message(n))))
}

fn log_of(messages: impl Iterator<Item = (f64, (u32, i32, Vec<u8>))>) -> Vec<u8> {
    let (mut body, mut seconds) = (Vec::new(), IndexBuilder::new(1000));
    for (ms, (type_id, version, payload)) in messages {
        seconds.add_message(body.len() as u64, ms);
        append_message(&mut body, MARKER, (type_id, version), ms, &payload).unwrap();
    }
    let head = FileHead::new(seconds.positions().len() as u32 + 3);
    let places = seconds.positions().iter().map(|place| (head.body() + place) as i64);
    let entries: Vec<u8> = places.chain([UNUSED; 3]).flat_map(i64::to_le_bytes).collect();
    [&head.write()[..], &entries, &body].concat()
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.vel");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// Reads with blocks of this size, so that small logs have many.
fn gathered_with_blocks(path: &Path, block: usize) -> SourceContents {
    let mut context = ReadContext::standalone("test");
    context.blocks = BlockPool::new(block, 2);
    gather_with(&*source(path), u64::MAX, &context).unwrap()
}

/// Bytes of the file that an event takes.
fn taken(all: &SourceContents) -> u64 {
    let events: u64 = all.events.iter().map(|event| 21 + event.payload.len() as u64).sum();
    events + all.damage.iter().map(|(_, length, _)| length).sum::<u64>()
}

fn body(bytes: &[u8]) -> u64 {
    FileHead::parse(bytes.first_chunk().unwrap()).unwrap().1.body()
}

#[test]
fn a_clean_log_gives_every_event_however_it_is_cut() {
    let bytes = log(300);
    let (_folder, path) = written(&bytes);
    let all = any_splitting_is_the_same(&*source(&path), &[1, 7, 100, 1000, 10_000]);
    assert_eq!((all.events.len(), all.damage.len()), (300, 0), "{:?}", all.damage);
    assert_eq!(taken(&all) + body(&bytes), bytes.len() as u64);
    for (n, event) in all.events.iter().enumerate() {
        let (_, _, payload) = message(n);
        assert_eq!((event.timestamp, &event.payload), (n as i64 * 100_000_000, &payload));
        assert!(bytes[event.sequence as usize + 21..].starts_with(&payload));
    }
    splits_cover_the_inputs(&*source(&path), 10);
}

#[test]
fn a_channel_says_its_type_version_and_clock() {
    let (_folder, path) = written(&log(6));
    for (options, clock) in [
        (json!({ "path": path }), Clock::Relative),
        (json!({ "path": path, "epoch": "2007-11-03" }), Clock::Utc),
    ] {
        let context = ReadContext::standalone("test");
        gather_with(&*plugin_source(options), u64::MAX, &context).unwrap();
        let channel = context.channels.get(sluice_model::ChannelId(5));
        assert_eq!((channel.type_name.as_deref(), channel.clock), (Some("0x12345678.v7"), clock));
        let metadata: Vec<_> = channel.metadata.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        assert_eq!(metadata, [("vel.type", "0x12345678"), ("vel.version", "7")]);
    }
}

#[test]
fn the_first_message_is_looked_for_once() {
    let (_folder, path) = written(&log_of((0..3).map(|n| (5_000.0, message(n)))));
    let log = plugin_source(json!({ "path": path, "first": "2007-11-03" }));
    let first = |log: &dyn Source| gather(log, u64::MAX).unwrap().events[0].timestamp;
    assert_eq!(first(&*log), 1_194_048_000_000_000_000);
    // If it were looked for again, it would be found elsewhere.
    std::fs::write(&path, log_of((0..3).map(|n| (6_000.0, message(n))))).unwrap();
    assert_eq!(first(&*log), 1_194_048_001_000_000_000);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let registry = Registry::linked();
    for (options, says) in [
        (json!({ "path": "x", "epoch": "2007-11-03", "first": "2007-11-04" }), "one of them"),
        (json!({ "path": "x", "epoch": "+1" }), "points in time"),
        (json!({ "path": "x", "message_names": ["bab", "aca"] }), "`bab` and `aca`"),
        (json!({ "path": "x", "color": "red" }), "color"),
    ] {
        let error = registry.source("vel", options).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_size_of_blocks_does_not_matter() {
    let (_folder, path) = written(&log(200));
    let all = gather(&*source(&path), u64::MAX).unwrap();
    for block in [1, 29, 64, 500, 4096] {
        assert_eq!(gathered_with_blocks(&path, block), all, "blocks of {block}");
    }
}

#[test]
fn a_stream_reads_as_a_file_does() {
    let mut bytes = log(100);
    bytes.splice(3000..3003, []);
    let (folder, path) = written(&bytes);
    let packed = folder.path().join("log.vel.zst");
    std::fs::write(&packed, zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    let all = gather(&*source(&path), u64::MAX).unwrap();
    assert_eq!(gather(&*source(&packed), u64::MAX).unwrap(), all);
    assert!(!all.damage.is_empty());
}

#[test]
fn a_log_cut_off_anywhere_gives_every_whole_message_and_says_what_is_missing() {
    let bytes = log(14);
    let body = body(&bytes);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    for len in 0..bytes.len() {
        overwrite(&path, &bytes[..len]).unwrap();
        let all = any_splitting_is_the_same(&*source(&path), &[170]);
        let kept =
            whole.events.iter().filter(|e| e.sequence as usize + 21 + e.payload.len() <= len);
        assert!(all.events.iter().eq(kept), "cut at {len}");
        let head = if len as u64 >= body { body } else { 0 };
        assert_eq!(taken(&all) + head, len as u64, "cut at {len}: {:?}", all.damage);
    }
}

#[test]
fn a_wrong_size_costs_its_own_message_only() {
    let bytes = log(60);
    let (_folder, path) = written(&bytes);
    let whole = gather(&*source(&path), u64::MAX).unwrap();
    for n in [0, 1, 3, 6, 12, 13, 31] {
        for flip in [0x10u8, 0x80] {
            for byte in 0..4 {
                let mut bad = bytes.clone();
                bad[whole.events[n].sequence as usize + byte] ^= flip;
                overwrite(&path, &bad).unwrap();
                let all = any_splitting_is_the_same(&*source(&path), &[100, 1000]);
                let others = whole.events.iter().enumerate().filter(|(m, _)| *m != n);
                // A size that was cut short may leave a message with less in it, which its payload
                // tells.
                let lost: Vec<_> =
                    others.filter(|(_, e)| !all.events.contains(e)).map(|(m, _)| m).collect();
                assert_eq!(lost, [0usize; 0], "message {n}, byte {byte} ^ {flip:#x}");
                assert!(!all.events.contains(&whole.events[n]));
            }
        }
    }
}

#[test]
fn sniffing_tells_logs_from_other_files() {
    let registry = Registry::linked();
    let sniff = registry.get(PluginKind::Source, "vel").unwrap().sniff;
    assert_eq!(sniff(&log(1)), SniffResult::Yes);
    assert_eq!(
        (sniff(b"PAR1"), sniff(b"\xa4VE"), sniff(b"")),
        (SniffResult::No, SniffResult::No, SniffResult::No)
    );
}

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
    let all = sluice_kit::contract::gather_splits(&*log, splits, &context).unwrap();
    assert_eq!(all.events[0].timestamp, 190_000_000_000);
    assert!(all.events.last().unwrap().timestamp >= 219_000_000_000);
    assert_eq!(all.damage, []);
}

/// What the engine reads of a log where this is asked for.
fn queried(path: &Path, seek: serde_json::Value, query: &Query) -> SourceContents {
    let log = plugin_source(json!({ "path": path, "seek": seek }));
    let splits = log.splits(1 << 20, query).unwrap();
    let context = ReadContext { query: query.clone(), ..ReadContext::standalone("test") };
    sluice_kit::contract::gather_splits(&*log, splits, &context).unwrap()
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

/// What the sink wrote and reported.
struct WrittenLog {
    bytes: Vec<u8>,
    losses: Vec<&'static str>,
    notes: Vec<(String, u64)>,
    refused: usize,
}

/// Reads with one plugin and writes with the other, at `name` in the folder of the log.
fn converted(from: serde_json::Value, to: serde_json::Value) -> WrittenLog {
    let log = plugin_source(from);
    let inputs = log.inputs().unwrap();
    let target = PathBuf::from(to["path"].as_str().unwrap());
    let registry = Registry::linked();
    let sink = registry.sink("vel", to).unwrap();
    let mut context = SinkContext::standalone();
    let inputs = inputs.iter().map(|input: &Input| RunInput::unhashed(input)).collect();
    context.origin = Arc::new(RunOrigin { inputs, ..RunOrigin::default() });
    let reading =
        ReadContext { channels: Arc::clone(&context.channels), ..ReadContext::standalone("test") };
    let buffers = BlockPool::new(1 << 10, 4);
    let mut output = sink.open(&context, &TaskPool::default()).unwrap();
    let mut losses = std::collections::BTreeSet::new();
    let mut refused = 0;
    for split in log.splits(u64::MAX, &Query::default()).unwrap() {
        let mut reader = log.read(&split, SplitStart::At(0), &reading).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            let mut encoding = PrepareContext::new(&context.channels, &buffers);
            let block = sink.prepare(batch, &mut encoding).unwrap();
            output.push(block).unwrap();
            losses.append(&mut encoding.report.losses);
            refused += encoding.report.refused.len();
        }
    }
    let notes = output.finish().unwrap().notes;
    context.outputs.publish(|_, _| Ok(String::new())).unwrap();
    let bytes = std::fs::read(target).unwrap();
    WrittenLog { bytes, losses: losses.into_iter().collect(), notes, refused }
}

#[test]
fn a_log_that_is_not_changed_is_written_byte_for_byte() {
    let mut bytes = log(100);
    let (folder, path) = written(&bytes);
    let deleted = gather(&*source(&path), u64::MAX).unwrap().events[50].sequence as usize;
    bytes[deleted + 4] = 0x7f;
    // A time that is not in whole nanoseconds.
    bytes[deleted + 13..deleted + 21].copy_from_slice(&5_000.000_244_140_625f64.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let epoch = "2007-11-03T14:00:00Z";
    for (n, (from, to)) in [
        (json!({}), json!({})),
        (json!({ "epoch": epoch }), json!({ "epoch": epoch })),
        (json!({}), json!({ "index": 13 })),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut from, mut to) = (from, to);
        from["path"] = json!(path);
        from["deleted"] = json!("keep");
        to["path"] = json!(folder.path().join(format!("{n}.vel")));
        let sunk = converted(from, to);
        assert!(sunk.bytes == bytes, "case {n}");
        assert_eq!(
            (sunk.losses.len(), sunk.notes.len(), sunk.refused),
            (0, 0, 0),
            "{:?}",
            sunk.losses
        );
    }
}

#[test]
fn the_end_mark_and_the_minor_version_of_the_only_log_are_kept() {
    for index in [json!("exact"), json!("none"), json!(13)] {
        let mut bytes = log(100);
        bytes[6] = 7;
        if index == "none" {
            bytes = [
                &FileHead { minor: 7, ..FileHead::new(0) }.write(),
                &bytes[body(&bytes) as usize..],
            ]
            .concat();
        }
        bytes.extend([0xff; 4]);
        let (folder, path) = written(&bytes);
        let to = folder.path().join("out.vel");
        let sunk = converted(json!({ "path": path }), json!({ "path": to, "index": index }));
        assert!(sunk.bytes == bytes, "{index}");
        // What follows the mark is no part of the log.
        std::fs::write(&path, [&bytes[..], b"rest"].concat()).unwrap();
        let to = folder.path().join("again.vel");
        let sunk = converted(json!({ "path": path }), json!({ "path": to, "index": index }));
        assert!(sunk.bytes == bytes, "{index}");
    }
}

#[test]
fn a_jump_in_time_does_not_make_an_index_that_is_longer_than_the_log_can_justify() {
    let times = [0.0, 1_500.0, 1e11, 1e11 + 1.0];
    let bytes = log_of(times.into_iter().zip((0..4).map(message)));
    let bytes = [&FileHead::new(0).write(), &bytes[body(&bytes) as usize..]].concat();
    let (folder, path) = written(&bytes);
    let sunk = converted(json!({ "path": path }), json!({ "path": folder.path().join("out.vel") }));
    assert_eq!(sunk.bytes.len(), bytes.len() + 2 * 8);
    assert!(sunk.notes[0].0.contains("ends after 2 seconds"), "{:?}", sunk.notes);
}

#[test]
fn wrong_options_of_the_sink_are_refused_before_anything_is_written() {
    let registry = Registry::linked();
    for (options, says) in [
        (json!({ "path": "out/" }), "found a folder: out/"),
        (
            json!({ "path": "x", "index": "foo" }),
            "string \"foo\", expected `exact`, `none`, or a number",
        ),
        (
            json!({ "path": "x", "index": 20_000_000 }),
            "expected `exact`, `none`, or a number of seconds up to 10000000",
        ),
        (json!({ "path": "x", "index": -1 }), "`-1`, expected"),
    ] {
        let error = registry.sink("vel", options).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn an_index_is_as_long_as_asked_for() {
    let (folder, path) = written(&log(100));
    let body = &log(100)[body(&log(100)) as usize..];
    for (name, index, entries) in [
        ("none.vel", json!("none"), 0),
        ("short.vel", json!(4), 4),
        ("long.vel", json!(40), 40),
        ("exact.vel", json!("exact"), 13),
        ("packed.vel.zst", json!("exact"), 13),
        ("none.vel.zst", json!("none"), 0),
    ] {
        let to = folder.path().join(name);
        let sunk = converted(json!({ "path": path }), json!({ "path": to, "index": index }));
        let bytes = sluice_io::files::head(&to, 1 << 20).unwrap();
        assert_eq!(bytes.len(), 12 + 8 * entries + body.len(), "{name}");
        assert!(bytes.ends_with(body), "{name}");
        let verdict = inspect(&to, &Rules::default()).unwrap().unwrap();
        let right = entries.min(10) as u64;
        assert_eq!((verdict.right, verdict.wrong), (right, 0), "{name}: {verdict}");
        assert_eq!(sunk.notes.len(), usize::from(name == "short.vel"), "{:?}", sunk.notes);
    }
}

#[test]
fn absolute_times_count_from_the_first_event_or_from_the_epoch() {
    let (folder, path) = written(&log_of((0..9).map(|n| (5_000.0 + n as f64, message(n)))));
    let from = json!({ "path": path, "epoch": "2007-11-03T14:00:00Z" });
    let read = |name: &str, mut to: serde_json::Value| {
        let target = folder.path().join(name);
        to["path"] = json!(target);
        let sunk = converted(from.clone(), to);
        let first = gather(&*source(&target), u64::MAX).unwrap().events[0].timestamp;
        (first, sunk.losses.iter().any(|loss| loss.contains("relative to the first event")))
    };
    assert_eq!(read("a.vel", json!({})), (0, true));
    assert_eq!(read("b.vel", json!({ "epoch": "2007-11-03T13:59:59Z" })), (6_000_000_000, false));
}

/// Writes these channels' events, one each, and says what is lost and noted.
fn write_channels(channels: Vec<Channel>) -> (Vec<u8>, Vec<&'static str>, Vec<(String, u64)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.vel");
    let registry = Registry::linked();
    let sink = registry.sink("vel", json!({ "path": path })).unwrap();
    let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 10, 4));
    let mut batch = BatchBuilder::default();
    for (n, channel) in channels.into_iter().enumerate() {
        batch.push_copy(n as i64, 0, context.channels.intern(channel).unwrap(), b"payload");
    }
    let mut encoding = PrepareContext::new(&context.channels, &buffers);
    let mut output = sink.open(&context, &TaskPool::default()).unwrap();
    let block = sink.prepare(batch.finish(), &mut encoding).unwrap();
    output.push(block).unwrap();
    let notes = output.finish().unwrap().notes;
    context.outputs.publish(|_, _| Ok(String::new())).unwrap();
    (std::fs::read(path).unwrap(), encoding.report.losses.into_iter().collect(), notes)
}

#[test]
fn events_of_other_formats_are_written_by_the_numbers_of_their_channels() {
    let mut channel = Channel::new(Name::from_text("bab"), "robot", Encoding::Lcm);
    channel.clock = Clock::Relative;
    let other = Channel { name: Name::from_text("aca"), ..channel.clone() };
    let (bytes, losses, notes) = write_channels(vec![channel, other]);
    assert_eq!(bytes[body(&bytes) as usize + 5..][..8], [0x58, 0x89, 0, 0, 0, 0, 0, 0]);
    for loss in ["names", "numbers", "sources", "encodings"] {
        assert!(losses.iter().any(|said| said.contains(loss)), "{loss}: {losses:?}");
    }
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].0.contains("0x00008958: `aca`, `bab`"), "{notes:?}");
}

fn mutation() -> impl Strategy<Value = (u8, usize, usize)> {
    (0u8..6, any::<usize>(), 1usize..400)
}

fn damaged(mut log: Vec<u8>, mutations: &[(u8, usize, usize)]) -> Vec<u8> {
    for (kind, at, len) in mutations {
        // The head of a file is damaged elsewhere: most of what could be done to it refuses the
        // file.
        let at = 12 + at % log.len().saturating_sub(12).max(1);
        let end = (at + len).min(log.len());
        match kind {
            0 if at < log.len() => log[at] ^= 1 << (len % 8),
            1 if at < log.len() => drop(log.drain(at..end)),
            2 if at < log.len() => drop(log.splice(at..at, std::iter::repeat_n(0x31, *len))),
            3 if at < log.len() => log[at..end].fill(0),
            4 if at < log.len() => log[at..end].fill(0x31),
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
        let (_folder, path) = written(&bytes);
        let all = any_splitting_is_the_same(&*source(&path), &[target, target * 3, 64]);
        prop_assert_eq!(&gathered_with_blocks(&path, block), &all);
        let events = all.events.iter().map(|e| e.sequence as u64);
        let starts = events.chain(all.damage.iter().map(|d| d.0));
        let first = starts.min().unwrap_or(bytes.len() as u64);
        prop_assert_eq!(taken(&all) + first, bytes.len() as u64);
    }

    #[test]
    fn events_outside_of_the_damage_are_as_they_were(
        at in 100usize..9_000, len in 1usize..300,
        fill in prop_oneof![Just(0u8), Just(0x31), Just(0xfe), any::<u8>()])
    {
        // The last ones are of known types: a single one of another type is not plausible after
        // damage.
        let clean = log(62);
        let (_folder, path) = written(&clean);
        let whole = gather(&*source(&path), u64::MAX).unwrap();
        let mut bytes = clean.clone();
        let at = (at % clean.len()).max(body(&clean) as usize);
        let end = (at + len).min(clean.len());
        // Four such bytes where a size is due would end the log.
        prop_assume!(fill != 0xff);
        bytes[at..end].fill(fill);
        // A size that leads to a later message, or to the end, cannot be told from a right one.
        let starts = whole.events.iter().map(|event| event.sequence as usize);
        let ends: Vec<usize> = starts.clone().chain([clean.len()]).collect();
        let misleads = |start: usize| {
            let size = bytes[start..].first_chunk().copied().map(u32::from_le_bytes);
            let next = size.and_then(|size| (start + 4).checked_add(size as usize));
            start < end && at < start + 4 && next.is_some_and(|next| ends.contains(&next))
        };
        prop_assume!(!starts.clone().any(misleads));
        std::fs::write(&path, &bytes).unwrap();
        let all = gather(&*source(&path), u64::MAX).unwrap();
        for event in &whole.events {
            let span = event.sequence as usize..event.sequence as usize + 21 + event.payload.len();
            if span.end <= at || span.start >= end {
                let is_there = all.events.contains(event);
                prop_assert!(is_there, "event at {} is gone: {:?}", span.start, all.damage);
            }
        }
    }
}

#[test]
fn a_built_in_set_is_parsed_once_in_a_process_unless_there_are_options() {
    let registry = Registry::linked();
    let types = TypePaths(vec!["vel".into()]);
    let codecs = |options: &CodecOptions| Codecs::from_paths(&registry, &types, options).unwrap();
    let place = |codecs: &Codecs| std::ptr::from_ref(codecs.get("vel").unwrap()).cast::<u8>();
    let (first, again) = (codecs(&CodecOptions::default()), codecs(&CodecOptions::default()));
    assert_eq!(place(&first), place(&again));
    let other = codecs(&CodecOptions { depth: Some(2), ..CodecOptions::default() });
    assert_ne!(place(&first), place(&other));
}
