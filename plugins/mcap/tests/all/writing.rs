//! What the sink cannot write, and what it copies.

use std::sync::Arc;

use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_model::{EmbeddedSchema, Input, RunInput, RunOrigin, SinkContext};

use crate::kit::{
    Folder, MAGIC, TestEvent, channel, end, event, fields, header, message, read, schema, source,
    times, write, write_with,
};

#[test]
fn times_before_1970_are_refused_with_a_reason() {
    let events = [event(-1, "a", b""), event(0, "a", b"")];
    let context = SinkContext::standalone();
    let file = write_with(&events, json!({}), (7, &TaskPool::default(), &context));
    assert_eq!(file.refused, ["MCAP has no times before 1970"]);
    assert_eq!(times(&file.bytes), [0]);
}

#[test]
fn numbers_beyond_32_bits_become_0() {
    let mut events = [event(1, "a", b""), event(2, "a", b""), event(3, "a", b"")];
    (events[0].number, events[1].number) = (1 << 32, -1);
    events[2].number = u32::MAX.into();
    let numbers: Vec<i64> =
        read(&write(&events, json!({}))).events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [0, 0, u32::MAX.into()]);
}

#[test]
fn events_of_channels_beyond_the_last_number_are_told() {
    let count = i64::from(u16::MAX) + 1;
    let events: Vec<_> = (0..count).map(|n| event(n, &format!("{n}"), b"")).collect();
    let context = SinkContext::standalone();
    let file = write_with(&events, json!({}), (5_000, &TaskPool::default(), &context));
    assert_eq!(file.written.events, count as u64 - 1);
    assert_eq!(file.written.skipped.len(), 1);
    assert!(file.written.notes[0].0.contains("65535 channels"), "{:?}", file.written.notes);
    assert_eq!(times(&file.bytes).len(), count as usize - 1);
}

#[test]
fn an_empty_file_is_a_file() {
    assert_eq!(times(&write(&[], json!({}))), Vec::<i64>::new());
}

/// A file with an attachment, metadata, and a profile.
fn with_attachment() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let content = fields().u64(2).u64(1).bytes(b"name").bytes(b"text/plain").u64(3).raw(b"abc");
    let attachment = content.u32(0).record(9);
    let map = fields().bytes(b"key").bytes(b"value").0;
    let metadata = fields().bytes(b"about").bytes(&map).record(12);
    let front = fields().bytes(b"ros2").bytes(b"test").record(1);
    let front = [&header()[..8], &front, &channel(1, 0, "/a"), &metadata, &attachment];
    let file = [&front.concat()[..], &message(1, 0, 1, b""), &end()].concat();
    (file, attachment, metadata)
}

/// The file of these events in a run that reads `input`.
fn write_from(input: &[u8], events: &[TestEvent]) -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.write(input);
    let input = Input { path, bytes: Some(input.len() as u64) };
    let origin = RunOrigin { inputs: vec![RunInput::unhashed(&input)], ..RunOrigin::default() };
    let context = SinkContext { origin: Arc::new(origin), ..SinkContext::standalone() };
    write_with(events, json!({}), (7, &TaskPool::default(), &context)).bytes
}

#[test]
fn channels_without_messages_of_inputs_are_kept() {
    // As rosbag2 leaves it: declarations of silent channels are in the summary only.
    let front = [header(), schema(1, "pkg/msg/T"), channel(1, 1, "/a"), message(1, 0, 1, b"")];
    let front = [&front.concat()[..], &fields().u32(0).record(15)].concat();
    let counts = fields().u16(1).u64(1).0;
    let statistics = fields().u64(1).u16(2).u32(4).u32(0).u32(0).u32(0).u64(1).u64(1);
    let summary = [
        schema(1, "pkg/msg/T"),
        schema(2, "pkg/msg/Silent"),
        channel(1, 1, "/a"),
        channel(2, 2, "/silent"),
        channel(3, 0, "/bare"),
        channel(4, 7, "/undeclared"),
        statistics.bytes(&counts).record(11),
    ];
    let start = front.len() as u64;
    let footer = fields().u64(start).u64(0).u32(0).record(2);
    let input = [&front[..], &summary.concat(), &footer, MAGIC].concat();
    let mut events = [event(1, "/a", b"")];
    events[0].channel.type_name = Some("pkg/msg/T".into());
    events[0].channel.schema =
        Some(EmbeddedSchema { encoding: "ros2msg".into(), data: (*b"int32 x").into() });
    let first = write_from(&input, &events);
    let folder = Folder::new();
    let path = folder.write(&first);
    let findings = source(&path).findings(&path).unwrap().join("\n");
    assert!(findings.contains("2 channels without messages: /silent, /bare"), "{findings}");
    assert_eq!(source(&path).faults(&path).unwrap(), Vec::<String>::new());
    crate::doctor::check(&first);
    assert!(write_from(&first, &events) == first, "the second copy differs from the first");
    // Nothing but channels is a file, too.
    let empty = write_from(&write_from(&first, &[]), &[]);
    let count = empty.windows(7).filter(|bytes| bytes == b"/silent").count();
    assert_eq!(count, 2, "in the data and in the summary");
}

#[test]
fn metadata_and_attachments_of_inputs_are_copied() {
    let (input, attachment, metadata) = with_attachment();
    let folder = Folder::new();
    let file = write_from(&input, &[event(1, "/a", b"")]);
    let has = |record: &[u8]| file.windows(record.len()).any(|bytes| bytes == record);
    assert!(has(&attachment) && has(&metadata));
    let path = folder.write(&file);
    let findings = source(&path).findings(&path).unwrap().join("\n");
    for expected in [
        "profile `ros2`",
        "metadata `about`: key = value",
        "attachment `name`: text/plain, 3 bytes",
    ] {
        assert!(findings.contains(expected), "{findings}");
    }
    assert_eq!(source(&path).faults(&path).unwrap(), Vec::<String>::new());
}

#[test]
fn a_profile_can_be_chosen() {
    let file = write(&[], json!({ "profile": "ros1" }));
    let folder = Folder::new();
    let path = folder.write(&file);
    assert!(source(&path).findings(&path).unwrap()[0].starts_with("profile `ros1`"));
}
