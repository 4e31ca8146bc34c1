//! What the sink `vel` writes and reports.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::gather;
use sluice_model::{
    BatchBuilder, BlockPool, Channel, Clock, Encoding, Input, Name, PrepareContext, Query,
    ReadContext, Registry, RunInput, RunOrigin, SinkContext, SplitStart,
};
use sluice_vel::fuzzing::{FileHead, Rules, inspect};

use crate::kit::{body, log, log_of, message, plugin_source, source, written};

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
