//! What the sink cannot write, and what it copies.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_io::output::faults::{FaultInjector, OutputStep, StepFault};
use sluice_io::output::{Outputs, Overwrite};
use sluice_io::tasks::TaskPool;
use sluice_kit::SinkPlugins;
use sluice_kit::contract::{frames, gather_with};
use sluice_model::{
    EmbeddedSchema, Input, Query, ReadContext, Registry, RunInput, RunOrigin, SinkContext,
};

use crate::kit::{
    Folder, MAGIC, TestEvent, channel, chunk, end, event, fields, header, message, read, schema,
    source, times, try_write_with, write, write_with,
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
fn all_channels_of_a_run_have_numbers() {
    let count = i64::from(u16::MAX) + 1;
    let events: Vec<_> = (0..count).map(|n| event(n, &format!("{n}"), b"")).collect();
    let context = SinkContext::standalone();
    let file = write_with(&events, json!({}), (5_000, &TaskPool::default(), &context));
    assert_eq!((file.written.events, file.written.skipped.len()), (count as u64, 0));
    assert_eq!(times(&file.bytes), (0..count).collect::<Vec<_>>());
}

#[test]
fn a_level_without_zstd_is_refused() {
    for compression in ["lz4", "none"] {
        let options = json!({ "path": "a.mcap", "compression": compression, "level": 9 });
        let error = Registry::linked().sink("mcap", options).err().unwrap();
        assert_eq!(error.path, ["level"]);
        assert_eq!(error.message, "`level` needs `compression = \"zstd\"`");
    }
}

#[test]
fn a_schema_beyond_the_last_number_is_an_error_that_names_its_channel() {
    let count = i64::from(u16::MAX);
    let with_schema = |n: i64| {
        let mut event = event(n, &format!("{n}"), b"");
        event.channel.type_name = Some(format!("{n}").into());
        event
    };
    let mut events: Vec<_> = (0..count).map(with_schema).collect();
    let write = |events: &[TestEvent]| {
        let context = SinkContext::standalone();
        try_write_with(events, json!({}), (5_000, &TaskPool::default(), &context))
    };
    assert_eq!(times(&write(&events).unwrap().bytes).len(), count as usize);
    events.push(with_schema(count));
    let error = write(&events).err().unwrap().to_string();
    for what in ["65535 schemas", "`65535`", "--channel", "--start", "out.mcap"] {
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_channel_without_messages_beyond_the_last_number_is_noted() {
    let channels = (0..=u16::MAX).flat_map(|id| channel(id, 0, &format!("/{id}")));
    let statistics = fields().u64(0).u16(0).u32(1 << 16).u32(0).u32(0).u32(0).u64(0).u64(0);
    let summary = [channels.collect(), statistics.bytes(b"").record(11)].concat();
    let front = [header(), fields().u32(0).record(15)].concat();
    let footer = fields().u64(front.len() as u64).u64(0).u32(0).record(2);
    let (folder, input) = (Folder::new(), [&front[..], &summary, &footer, MAGIC].concat());
    for (topic, is_left_out) in [("/7", false), ("/another", true)] {
        let context = SinkContext { origin: origin(&folder, &input), ..SinkContext::standalone() };
        let events = [event(1, topic, b"")];
        let file = write_with(&events, json!({}), (7, &TaskPool::default(), &context));
        let notes: Vec<_> = file.written.notes.iter().filter(|(_, count)| *count == 1).collect();
        assert_eq!(notes.len(), usize::from(is_left_out), "{:?}", file.written.notes);
        assert!(notes.iter().all(|(what, _)| what.contains("such as `/65535`")), "{notes:?}");
    }
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

/// A run that reads these bytes.
fn origin(folder: &Folder, input: &[u8]) -> Arc<RunOrigin> {
    let input = Input { path: folder.write(input), bytes: Some(input.len() as u64) };
    Arc::new(RunOrigin { inputs: vec![RunInput::unhashed(&input)], ..RunOrigin::default() })
}

/// The file of these events in a run that reads `input`.
fn write_from(input: &[u8], events: &[TestEvent]) -> Vec<u8> {
    write_from_with(input, events, json!({}))
}

/// The same, with these options besides `path`.
fn write_from_with(input: &[u8], events: &[TestEvent], options: Value) -> Vec<u8> {
    let folder = Folder::new();
    let context = SinkContext { origin: origin(&folder, input), ..SinkContext::standalone() };
    write_with(events, options, (7, &TaskPool::default(), &context)).bytes
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
    let compressed = frames(&[&input], &[]);
    assert!(write_from(&compressed, &events) == first, "of a compressed file");
    let folder = Folder::new();
    let path = folder.write(&compressed);
    let findings = source(&path).findings(&path).unwrap().join("\n");
    assert!(findings.contains("3 channels without messages: /silent, /bare"), "{findings}");
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
fn without_statistics_channels_that_no_chunk_has_are_kept() {
    let front = [header(), channel(1, 0, "/a")].concat();
    let packed = chunk(1, 1, &message(1, 0, 1, b""));
    let offsets = fields().u16(1).u64((front.len() + packed.len()) as u64).0;
    let index = fields().u16(1).bytes(&fields().u64(1).u64(0).0).record(7);
    let chunk_index = fields().u64(1).u64(1).u64(front.len() as u64).u64(packed.len() as u64);
    let sizes = message(1, 0, 1, b"").len() as u64;
    let chunk_index = chunk_index.bytes(&offsets).u64(index.len() as u64).bytes(b"");
    let chunk_index = chunk_index.u64(sizes).u64(sizes).record(8);
    let data = [&front[..], &packed, &index, &fields().u32(0).record(15)].concat();
    let summary = [channel(1, 0, "/a"), channel(2, 0, "/silent"), chunk_index].concat();
    let footer = fields().u64(data.len() as u64).u64(0).u32(0).record(2);
    let input = [&data[..], &summary, &footer, MAGIC].concat();
    assert_eq!(read(&input).damage, []);
    let folder = Folder::new();
    let path = folder.write(&input);
    let findings = source(&path).findings(&path).unwrap().join("\n");
    assert!(findings.contains("1 channel without messages: /silent"), "{findings}");
    let copy = write_from(&input, &[event(1, "/a", b"")]);
    assert!(copy.windows(7).any(|bytes| bytes == b"/silent"));
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
fn metadata_and_attachments_are_noted_once_a_file_if_no_sink_copies_them() {
    let (input, attachment, metadata) = with_attachment();
    let events: Vec<_> = (0..50).map(|n| event(n, "/a", b"")).collect();
    let in_splits = write_from_with(&input, &events, json!({ "chunk": 100 }));
    let bytes = attachment.len() + metadata.len();
    let expected = format!("metadata records (1) and attachments (1) of {bytes} bytes are lost");
    let folder = Folder::new();
    for file in [&input, &in_splits, &frames(&[&input], &[])] {
        let path = folder.write(file);
        let splits = source(&path).splits(1, &Query::default()).unwrap().len();
        assert_eq!(splits > 5, file == &in_splits);
        for (sinks, notes) in
            [(&["parquet"][..], 1), (&["parquet", "mcap"], 0), (&["mcap"], 0), (&[], 0)]
        {
            let mut context = ReadContext::standalone("test");
            let plugins = SinkPlugins(sinks.iter().copied().collect());
            context.run = context.run.sharing(&Arc::new(plugins));
            for target in [1, u64::MAX] {
                gather_with(&*source(&path), target, &context).unwrap();
                let found = context.losses.take_notes();
                assert_eq!(found.len(), notes, "{sinks:?}: {found:?}");
                assert!(found.iter().all(|(what, _)| what.contains(&expected)), "{found:?}");
            }
        }
    }
    let path =
        folder.write(&[header(), channel(1, 0, "/a"), message(1, 0, 1, b""), end()].concat());
    let mut context = ReadContext::standalone("test");
    context.run = context.run.sharing(&Arc::new(SinkPlugins(["parquet"].into())));
    gather_with(&*source(&path), 1, &context).unwrap();
    assert_eq!(context.losses.take_notes(), []);
}

#[test]
fn attachments_of_any_length_of_compressed_files_are_copied_and_listed() {
    let front = [header(), channel(1, 0, "/a"), message(1, 0, 1, b"")].concat();
    for len in [5_000, 100_000, 300_000, 600_000] {
        let data: Vec<u8> = (0..len).map(|n: u64| ((n * n) >> 7) as u8).collect();
        let content = fields().u64(2).u64(1).bytes(b"name").bytes(b"text/plain").u64(len);
        let attachment = content.raw(&data).u32(0).record(9);
        let metadata = fields().bytes(b"about").bytes(&fields().bytes(b"").bytes(&data).0);
        let metadata = metadata.record(12);
        let chunk = chunk(1, 1, &message(1, 0, 1, &vec![0; 300_000]));
        for behind in [&[][..], &chunk] {
            let input = [&front[..], &attachment, &metadata, behind, &end()].concat();
            let input = frames(&[&input], &[]);
            let file = write_from(&input, &[event(1, "/a", b"")]);
            let has = |record: &[u8]| file.windows(record.len()).any(|bytes| bytes == record);
            assert!(has(&attachment) && has(&metadata), "{len}");
            let folder = Folder::new();
            let path = folder.write(&input);
            let findings = source(&path).findings(&path).unwrap().join("\n");
            for expected in [
                "no profile, written by `test`".to_owned(),
                format!("attachment `name`: text/plain, {len} bytes"),
                "metadata `about`".to_owned(),
            ] {
                assert!(findings.contains(&expected), "{findings}");
            }
        }
    }
}

#[test]
fn metadata_and_attachments_behind_damaged_frames_are_copied_too() {
    let (input, attachment, metadata) = with_attachment();
    let chunk = chunk(1, 1, &message(1, 0, 1, b""));
    let front = [header(), channel(1, 0, "/a")].concat();
    let tail = [&attachment[..], &metadata, &end()].concat();
    let parts: [&[u8]; 5] = [&front, &chunk, &chunk, &tail, &input];
    for (damaged, copies) in
        [(&[][..], 2), (&[0], 2), (&[1], 2), (&[1, 2], 2), (&[3], 1), (&[2, 3, 4], 0)]
    {
        let file = write_from(&frames(&parts, damaged), &[event(1, "/a", b"")]);
        for record in [&attachment, &metadata] {
            let found = file.windows(record.len()).filter(|bytes| *bytes == &record[..]).count();
            assert_eq!(found, copies, "{damaged:?}");
        }
    }
}

#[test]
fn metadata_and_attachments_of_a_file_with_wrong_first_bytes_are_copied() {
    let (mut input, attachment, metadata) = with_attachment();
    input[3] ^= 1;
    let file = write_from(&input, &[event(1, "/a", b"")]);
    for record in [&attachment, &metadata] {
        assert!(file.windows(record.len()).any(|bytes| bytes == &record[..]));
    }
}

#[test]
fn metadata_and_attachments_with_wrong_lengths_are_copied_with_right_ones() {
    let (input, attachment, metadata) = with_attachment();
    let folder = Folder::new();
    for record in [&attachment, &metadata] {
        let at = input.windows(record.len()).position(|bytes| bytes == &record[..]).unwrap();
        for further in [1, 20] {
            let mut wrong = input.clone();
            let len = record.len() as u64 - 9 + further;
            wrong[at + 1..at + 9].copy_from_slice(&len.to_le_bytes());
            let found = read(&wrong);
            assert_eq!((found.events.len(), found.damage.len()), (1, 1), "{:?}", found.damage);
            let file = write_from(&wrong, &[event(1, "/a", b"")]);
            for record in [&attachment, &metadata] {
                assert!(file.windows(record.len()).any(|bytes| bytes == &record[..]), "{further}");
            }
            let path = folder.write(&file);
            assert_eq!(source(&path).faults(&path).unwrap(), [""; 0]);
        }
    }
}

#[test]
fn a_record_whose_name_is_too_long_to_be_copied_is_noted() {
    let (input, attachment, _) = with_attachment();
    let long = fields().bytes(&vec![b'n'; 70_000]).bytes(b"").record(12);
    let input = [&input[..input.len() - end().len()], &long, &end()].concat();
    let folder = Folder::new();
    let context = SinkContext { origin: origin(&folder, &input), ..SinkContext::standalone() };
    let events = [event(1, "/a", b"")];
    let file = write_with(&events, json!({}), (7, &TaskPool::default(), &context));
    assert!(file.bytes.windows(attachment.len()).any(|bytes| bytes == &attachment[..]));
    let [(what, _)] = &file.written.notes[..] else { panic!("{:?}", file.written.notes) };
    assert!(what.contains("Metadata record at byte") && what.contains("64 KiB"), "{what}");
}

#[test]
fn a_file_that_grows_is_closed_and_listed_if_there_is_no_room_for_what_it_copies() {
    let folder = Folder::new();
    let path = folder.at("out.mcap");
    let origin = origin(&folder, &with_attachment().0);
    let mut failed_writes = 0;
    for step in 0.. {
        let faults = Arc::new(FaultInjector::at(step, StepFault::Short));
        let outputs = Outputs::new(Overwrite::Replace, false, &[]).in_place(true);
        let outputs = Arc::new(outputs.with_faults(Arc::clone(&faults)));
        let origin = Arc::clone(&origin);
        let context = SinkContext { origin, outputs, ..SinkContext::standalone() };
        let sink = Registry::linked().sink("mcap", json!({ "path": path })).unwrap();
        let Ok(output) = sink.open(&context, &TaskPool::default()) else { continue };
        let finished = output.finish();
        match faults.failed_step() {
            None => break,
            Some(OutputStep::Write) => failed_writes += 1,
            Some(_) => continue,
        }
        assert!(finished.is_err(), "{step}");
        let files = context.outputs.publish(|_, _| Ok(String::new())).unwrap();
        assert!(files.iter().any(|file| file.path == path), "{step}: {files:?}");
        assert!(std::fs::read(&path).unwrap().ends_with(MAGIC), "{step}");
    }
    // The attachment, the metadata, and the summary.
    assert!(failed_writes >= 3, "{failed_writes}");
}

#[test]
fn a_profile_can_be_chosen() {
    let file = write(&[], json!({ "profile": "ros1" }));
    let folder = Folder::new();
    let path = folder.write(&file);
    assert!(source(&path).findings(&path).unwrap()[0].starts_with("profile `ros1`"));
}
