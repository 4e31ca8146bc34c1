//! What the source makes of unusual files.

use std::sync::Arc;

use sluice_kit::InputFaults;
use sluice_kit::contract::{frames, gather, gather_with};
use sluice_model::{
    ChannelLog, ChannelQuery, Pattern, Patterns, Query, ReadContext, Registry, Split,
};

use crate::kit::{
    Folder, MAGIC, channel, chunk, chunk_with, end, event, fields, header, message, read, schema,
    source, times, write,
};

/// A header, and a channel.
fn front() -> Vec<u8> {
    [header(), schema(1, "t"), channel(1, 1, "/a")].concat()
}

fn chunk_of(times: std::ops::Range<u64>) -> Vec<u8> {
    let records: Vec<u8> = times.clone().flat_map(|n| message(1, n as u32, n, b"xyz")).collect();
    chunk(times.start, times.end - 1, &records)
}

#[test]
fn a_chunk_uses_channels_declared_before_it() {
    assert_eq!(times(&[front(), chunk_of(0..3), chunk_of(3..5), end()].concat()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_message_of_an_undeclared_channel_is_damage() {
    let file = [front(), message(1, 0, 5, b""), message(7, 0, 6, b""), end()].concat();
    let contents = read(&file);
    assert_eq!(contents.events.len(), 1);
    let [(_, 31, reason)] = &contents.damage[..] else { panic!("{:?}", contents.damage) };
    assert!(reason.contains("channel 7, which is not declared"), "{reason}");
}

#[test]
fn a_channel_that_is_declared_twice_differently_has_no_messages_after_that() {
    let file = [front(), message(1, 0, 5, b""), channel(1, 0, "/b"), message(1, 0, 6, b""), end()];
    let contents = read(&file.concat());
    assert_eq!(contents.events.len(), 1);
    let reasons: Vec<&str> = contents.damage.iter().map(|(_, _, reason)| &**reason).collect();
    assert_eq!(
        reasons,
        [
            "channel 1 is declared again, differently",
            "a message of channel 1, which is declared twice, differently"
        ]
    );
}

#[test]
fn messages_in_cdr_that_are_compressed_one_by_one_are_refused() {
    let packed = [&sluice_io::frames::MAGIC[..], b"..."].concat();
    let raw = fields().u16(2).u16(0).bytes(b"/b").bytes(b"raw").bytes(b"").record(4);
    let other = [raw, message(2, 0, 5, &packed)].concat();
    assert_eq!(times(&[front(), other.clone(), end()].concat()), [5]);
    let records = [other, message(1, 0, 6, &packed)].concat();
    let folder = Folder::new();
    for records in [chunk(5, 6, &records), records] {
        let path = folder.write(&[front(), records, end()].concat());
        let error = gather(&*source(&path), 1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("/a are compressed one by one"), "{error}");
        assert!(error.contains("in.mcap"), "{error}");
        // Other channels can be read.
        let mut context = ReadContext::standalone("test");
        let (all, none) = (Patterns::default(), Patterns::default());
        let exclude = Patterns(vec![Pattern::parse("/a").unwrap()]);
        context.query.channels = ChannelQuery::from_patterns(&all, &exclude, &none);
        assert_eq!(gather_with(&*source(&path), 1, &context).unwrap().events.len(), 1);
    }
}

#[test]
fn a_cut_file_keeps_its_whole_chunks_and_messages() {
    let (front, whole) = (front(), chunk_of(0..3));
    let cut = &chunk_of(3..9)[..100];
    let contents = read(&[&front[..], &whole, cut].concat());
    assert_eq!(contents.events.len(), 4);
    let [(at, 17, reason)] = &contents.damage[..] else { panic!("{:?}", contents.damage) };
    assert_eq!(*at, (front.len() + whole.len() + 49 + 34) as u64);
    assert!(reason.starts_with("a Chunk record is cut off: 100 of its"), "{reason}");
}

#[test]
fn after_a_wrong_length_reading_goes_on_at_the_next_chunk() {
    let mut wrong = chunk_of(3..6);
    wrong[1] += 50;
    let file = [front(), chunk_of(0..3), wrong, chunk_of(6..9), chunk_of(9..12), end()].concat();
    let contents = read(&file);
    let times: Vec<i64> = contents.events.iter().map(|event| event.timestamp).collect();
    // The records of the chunk are right; only its length is not.
    assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(contents.damage.len(), 1);
}

#[test]
fn zeros_behind_a_file_are_damage() {
    let contents = read(&[front(), chunk_of(0..3), end(), vec![0; 1000]].concat());
    assert_eq!((contents.events.len(), contents.damage.len()), (3, 1));
    assert_eq!(contents.damage[0].1, 1000);
}

#[test]
fn a_file_may_follow_another() {
    let other = [header(), channel(1, 0, "/other"), message(1, 0, 9, b""), end()].concat();
    let contents = read(&[front(), chunk_of(0..1), end(), other].concat());
    let names: Vec<&str> = contents.events.iter().map(|event| &*event.channel).collect();
    assert_eq!((names, contents.damage), (vec!["/a", "/other"], vec![]));
}

#[test]
fn lengths_of_chunks_are_not_trusted() {
    let records = message(1, 0, 1, b"xyz");
    let packed = zstd::encode_all(&records[..], 1).unwrap();
    let (len, crc) = (records.len() as u64, crc32fast::hash(&records));
    let bomb = zstd::encode_all(&vec![0u8; 4 << 20][..], 1).unwrap();
    let cases = [
        (chunk_with(1, 1, (len + 1, crc), "zstd", &packed), "uncompressed bytes, found"),
        (chunk_with(1, 1, (len - 1, crc), "zstd", &packed), "uncompressed bytes, found more"),
        (chunk_with(1, 1, (len + 1, crc), "", &records), "uncompressed bytes, found"),
        (chunk_with(1, 1, (u64::MAX, crc), "zstd", &packed), "exceeds `max_chunk`"),
        (chunk_with(1, 1, (4 << 20, 0), "zstd", &bomb), "exceeds `max_chunk`"),
        (chunk_with(1, 1, (len, 0), "zstd", &bomb), "uncompressed bytes, found more"),
        (chunk_with(1, 1, (len, crc ^ 1), "zstd", &packed), "expected the checksum"),
        (chunk_with(1, 1, (len, crc), "zstd", &packed[1..]), "a chunk cannot be read"),
        (chunk_with(1, 1, (len, crc), "lz4", &packed), "a chunk cannot be read"),
        (chunk_with(1, 1, (len, crc), "brotli", &packed), "`brotli` is none of"),
    ];
    for (chunk, expected) in cases {
        let contents = read(&[front(), chunk, chunk_of(5..6), end()].concat());
        assert_eq!(contents.events.len(), 1, "{expected}");
        let [(_, _, reason)] = &contents.damage[..] else { panic!("{:?}", contents.damage) };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn zstd_frames_may_lack_their_length_and_have_padding() {
    let records = message(1, 0, 1, b"xyz");
    let (len, crc) = (records.len() as u64, crc32fast::hash(&records));
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_contentsize(false).unwrap();
    std::io::Write::write_all(&mut encoder, &records).unwrap();
    let frame = encoder.finish().unwrap();
    let padded = [&frame[..], &[0; 50]].concat();
    let (first, second) = records.split_at(10);
    let two = [first, second].map(|half| zstd::encode_all(half, 1).unwrap()).concat();
    for packed in [frame, padded, two] {
        let chunk = chunk_with(1, 1, (len, crc), "zstd", &packed);
        assert_eq!(times(&[front(), chunk, end()].concat()), [1]);
    }
}

#[test]
fn a_file_with_changed_line_endings_is_refused_with_the_cause() {
    let folder = Folder::new();
    let mangled = [&b"\x89MCAP0\n"[..], &front()[8..]].concat();
    let error = gather(&*source(&folder.write(&mangled)), 1).unwrap_err().to_string();
    assert!(error.contains("CR LF") && error.contains("binary"), "{error}");
    let mangled = [&b"\x89MCAP0\r\r\n"[..], &front()[8..]].concat();
    let error = gather(&*source(&folder.write(&mangled)), 1).unwrap_err().to_string();
    assert!(error.contains("LF of this MCAP file was replaced by CR LF"), "{error}");
    let newer = [&b"\x89MCAP1\r\n"[..], &front()[8..]].concat();
    let error = gather(&*source(&folder.write(&newer)), 1).unwrap_err().to_string();
    assert!(error.contains("version 0, found 1"), "{error}");
}

#[test]
fn metadata_and_attachments_that_no_summary_lists_are_found() {
    let folder = Folder::new();
    let map = fields().bytes(b"key").bytes(b"value").0;
    let metadata = |name: &str| fields().bytes(name.as_bytes()).bytes(&map).record(12);
    let attachment = fields().u64(2).u64(1).bytes(b"note").bytes(b"text/plain").u64(3);
    let attachment = attachment.raw(b"abc").u32(0).record(9);
    let records = [metadata("about"), attachment].concat();
    let file = [front(), message(1, 0, 1, b""), records].concat();
    let broken = fields().u64(1 << 40).u64(0).u32(0).record(2);
    let broken = [&fields().u32(0).record(15), &broken, MAGIC].concat();
    // Without a footer, without a summary, and with one that cannot be used.
    for end in [Vec::new(), end(), broken] {
        let path = folder.write(&[&file[..], &end].concat());
        let findings = source(&path).findings(&path).unwrap();
        // Who reads the file notes it.
        let says = |all: &[String]| all.iter().any(|what| what.contains("no footer"));
        assert!(!says(&findings), "{findings:?}");
        assert_eq!(says(&source(&path).faults(&path).unwrap()), end.is_empty());
        for expected in ["metadata `about`: key = value", "attachment `note`: text/plain, 3 bytes"]
        {
            assert!(findings.iter().any(|found| found == expected), "{findings:?}");
        }
    }
    let many: Vec<u8> = (0..30).flat_map(|n| metadata(&n.to_string())).collect();
    let path = folder.write(&[front(), many, end()].concat());
    let findings = source(&path).findings(&path).unwrap();
    assert_eq!(findings.iter().filter(|found| found.starts_with("metadata")).count(), 20);
    assert!(findings.last().unwrap().contains("not listed here"), "{findings:?}");
}

#[test]
fn attachments_that_no_summary_lists_are_verified_too() {
    let folder = Folder::new();
    let attachment = |crc: u32| {
        let fields = fields().u64(2).u64(1).bytes(b"note").bytes(b"text/plain").u64(3);
        fields.raw(b"abc").u32(crc).record(9)
    };
    let file = |crc: u32| [front(), message(1, 0, 1, b""), attachment(crc)].concat();
    // Unfinished, and without a summary.
    for end in [Vec::new(), end()] {
        for (crc, is_wrong) in [(0, false), (123, true)] {
            let path = folder.write(&[&file(crc)[..], &end].concat());
            let faults = source(&path).faults(&path).unwrap();
            let found = faults.iter().any(|fault| fault.contains("attachment `note`: expected"));
            assert_eq!(found, is_wrong, "{faults:?}");
        }
    }
    // With a summary that lists another place, and one that lists none of them.
    let data = [file(0), fields().u32(0).record(15)].concat();
    let entry = fields().u64(9).u64(attachment(0).len() as u64).u64(2).u64(1).u64(3);
    let entry = entry.bytes(b"note").bytes(b"text/plain").record(10);
    let statistics = fields().u64(1).u16(1).u32(1).u32(1).u32(0).u32(0).u64(1).u64(1);
    let statistics = statistics.bytes(&fields().u16(1).u64(1).0).record(11);
    let footer = fields().u64(data.len() as u64).u64(0).u32(0).record(2);
    let path = folder.write(&[&data[..], &entry, &statistics, &footer, MAGIC].concat());
    let faults = source(&path).faults(&path).unwrap().join("; ");
    assert!(faults.contains("attachment") && faults.contains("index"), "{faults}");
}

#[test]
fn behind_damage_attachments_and_the_data_section_are_verified() {
    let attachment = fields().u64(2).u64(1).bytes(b"note").bytes(b"text/plain").u64(3);
    let attachment = attachment.raw(b"abc").u32(123).record(9);
    let damaged = [chunk_of(0..1), vec![0xff; 40], chunk_of(1..2)].concat();
    let data = [front(), damaged, attachment].concat();
    let folder = Folder::new();
    for is_wrong in [false, true] {
        let crc = crc32fast::hash(&data) ^ u32::from(is_wrong);
        let file = [&data[..], &fields().u32(crc).record(15), &end()[13..]].concat();
        assert_eq!((read(&file).events.len(), read(&file).damage.len()), (2, 1));
        let path = folder.write(&file);
        let faults = source(&path).faults(&path).unwrap();
        assert!(faults[0].contains("attachment `note`: expected"), "{faults:?}");
        let rest = &faults[1..];
        assert_eq!(rest.len(), usize::from(is_wrong), "{faults:?}");
        assert!(rest.iter().all(|fault| fault.contains("the data section: expected")), "{rest:?}");
        // A compressed file is read only once.
        let found = Arc::new(InputFaults::collecting());
        let mut context = ReadContext::standalone("test");
        context.run = context.run.sharing(&found);
        gather_with(&*source(&folder.write(&frames(&[&file], &[]))), 1, &context).unwrap();
        assert_eq!(found.take(), faults[..1]);
    }
}

#[test]
fn fields_that_a_later_version_adds_to_the_end_of_the_data_cost_no_message() {
    let file = [front(), message(1, 0, 1, b"a"), message(1, 0, 2, b"b")].concat();
    for added in [&b""[..], b"yy", &[0xFF; 16]] {
        let data_end = fields().u32(crc32fast::hash(&file)).raw(added).record(15);
        let whole = [&file[..], &data_end, &end()[13..]].concat();
        assert_eq!(times(&whole), [1, 2]);
        // Its checksum is found there.
        let folder = Folder::new();
        for is_wrong in [false, true] {
            let mut changed = whole.clone();
            changed[file.len() - 1] ^= u8::from(is_wrong);
            let path = folder.write(&changed);
            let faults = source(&path).faults(&path).unwrap();
            assert_eq!(faults.len(), usize::from(is_wrong), "{added:?}: {faults:?}");
        }
    }
}

#[test]
fn channels_without_messages_are_found_in_the_summary() {
    let folder = Folder::new();
    let events = [event(1, "/a", b"x"), event(2, "/b", b"y")];
    let path = folder.write(&write(&events, serde_json::json!({})));
    let source = source(&path);
    assert_eq!(source.events_in(&path).unwrap(), Some(2));
    assert_eq!(source.faults(&path).unwrap(), Vec::<String>::new());
    let findings = source.findings(&path).unwrap().join("\n");
    assert!(findings.contains("1 chunk (1 with zstd)"), "{findings}");
}

/// A context that needs these times, and these channels.
fn context(start: i64, end: i64, channel: Option<&str>) -> ReadContext {
    let patterns = |name: &str| Patterns(vec![Pattern::parse(name).unwrap()]);
    let none = Patterns::default();
    let channels = channel.map(|name| ChannelQuery::from_patterns(&patterns(name), &none, &none));
    let channels = channels.unwrap_or_default();
    let query = Query { start: Some(start), end: Some(end), channels };
    ReadContext { query, ..ReadContext::standalone("test") }
}

#[test]
fn chunks_that_are_not_needed_are_skipped_if_their_indexes_agree() {
    let events = (0..60).map(|n| event(n, if n < 30 { "/a" } else { "/b" }, &[7; 50]));
    let mut file = write(&events.collect::<Vec<_>>(), serde_json::json!({ "chunk": 500 }));
    let folder = Folder::new();
    let read = |file: &[u8], context: ReadContext| {
        let source = source(&folder.write(file));
        let contents = gather_with(&*source, 1, &context).unwrap();
        (contents.events.len(), contents.damage.len())
    };
    assert_eq!(read(&file, context(10, 20, None)), (10, 0));
    assert_eq!(read(&file, context(0, 60, Some("/b"))), (30, 0));
    // A broken chunk is not missed when nothing of it is needed.
    let first = file.windows(4).position(|bytes| bytes == b"zstd").unwrap();
    file[first + 20] ^= 1;
    assert_eq!(read(&file, context(40, 60, None)), (20, 0));
    assert_eq!(read(&file, context(0, 60, None)).1, 1);
}

#[test]
fn a_channel_without_messages_is_known_to_whoever_asks_for_it() {
    let front = [header(), channel(1, 0, "/a"), message(1, 0, 1, b"")].concat();
    let data = [&front[..], &fields().u32(0).record(15)].concat();
    let statistics = fields().u64(1).u16(0).u32(2).u32(0).u32(0).u32(0).u64(1).u64(1);
    let counts = fields().u16(1).u64(1).0;
    let summary = [channel(1, 0, "/a"), channel(2, 0, "/silent")].concat();
    let summary = [summary, statistics.bytes(&counts).record(11)].concat();
    let footer = fields().u64(data.len() as u64).u64(0).u32(0).record(2);
    let folder = Folder::new();
    let path = folder.write(&[&data[..], &summary, &footer, MAGIC].concat());
    let (log, mut query) = (ChannelLog::default(), context(0, 9, Some("/silent")));
    query.query.channels = query.query.channels.with_log(log.clone());
    assert_eq!(gather_with(&*source(&path), 1, &query).unwrap().events, []);
    assert_eq!(log.names().iter().map(|name| &**name).collect::<Vec<_>>(), ["/a", "/silent"]);
}

#[test]
fn a_chunk_whose_index_omits_a_channel_is_not_skipped() {
    let declared = [channel(1, 0, "/a"), channel(2, 0, "/b")].concat();
    let (mut records, mut pairs) = (declared.clone(), [fields(), fields()]);
    for (id, time) in [(1, 1), (2, 2), (1, 3)] {
        let of = &mut pairs[usize::from(id) - 1];
        *of = std::mem::take(of).u64(time).u64(records.len() as u64);
        records.extend(message(id, 0, time, b""));
    }
    let [first, second] = [(1, &pairs[0]), (2, &pairs[1])]
        .map(|(id, pairs)| fields().u16(id).bytes(&pairs.0).record(7));
    let (at, chunk) = (header().len() as u64, chunk(1, 3, &records));
    let offsets = fields().u16(1).u64(at + chunk.len() as u64);
    let entry = fields().u64(1).u64(3).u64(at).u64(chunk.len() as u64).bytes(&offsets.0);
    let len = records.len() as u64;
    let entry = entry.u64(first.len() as u64).bytes(b"").u64(len).u64(len).record(8);
    let statistics = fields().u64(3).u16(0).u32(2).u32(0).u32(0).u32(1).u64(1).u64(3);
    let summary = [declared, entry, statistics.bytes(b"").record(11)].concat();
    let data = [header(), chunk, first, second, fields().u32(0).record(15)].concat();
    let footer = fields().u64(data.len() as u64).u64(0);
    let crc = crc32fast::hash(&[&summary[..], &[2], &20u64.to_le_bytes(), &footer.0].concat());
    let file = [&data[..], &summary, &footer.u32(crc).record(2), MAGIC].concat();
    assert_eq!(times(&file), [1, 2, 3]);
    let (folder, query) = (Folder::new(), context(0, 9, Some("/b")));
    let found = gather_with(&*source(&folder.write(&file)), 1, &query).unwrap();
    assert_eq!(found.events.len(), 1);
}

#[test]
fn an_index_with_wrong_times_hides_no_event() {
    let events: Vec<_> = (0..60).map(|n| event(n, "/a", &[7; 50])).collect();
    let sound = write(&events, serde_json::json!({ "chunk": 500, "compression": "none" }));
    let (folder, all) = (Folder::new(), read(&sound));
    let footer = sound.len() - 28;
    let start = u64::from_le_bytes(sound[footer..footer + 8].try_into().unwrap()) as usize;
    for at in start..footer {
        let mut wrong = sound.clone();
        wrong[at] ^= 0x40;
        // Without a checksum, nothing tells that the summary is wrong.
        wrong[footer + 16..footer + 20].fill(0);
        let source = source(&folder.write(&wrong));
        let query = context(20, 30, None);
        let times = gather_with(&*source, 1, &query).unwrap().events;
        assert_eq!(times.len(), 10, "byte {at}");
        assert!(gather(&*source, 1).unwrap().events == all.events, "byte {at}");
    }
}

/// A file whose summary has no checksum.
fn without_crc(mut file: Vec<u8>) -> Vec<u8> {
    let footer = file.len() - 28;
    file[footer + 16..footer + 20].fill(0);
    file
}

#[test]
fn a_summary_without_a_checksum_says_which_channels_damage_has_declared() {
    let events: Vec<_> = (0..60).map(|n| event(n, "/a", &[7; 50])).collect();
    let mut file = without_crc(write(&events, serde_json::json!({ "chunk": 500 })));
    let first = file.windows(4).position(|bytes| bytes == b"zstd").unwrap();
    file[first + 20] ^= 1;
    let contents = read(&file);
    assert_eq!(contents.damage.len(), 1, "{:?}", contents.damage);
    assert!(contents.events.len() > 40, "{}", contents.events.len());
    assert!(contents.events.iter().all(|event| event.channel == "/a"));
}

#[test]
fn what_may_hold_any_number_of_bytes_is_not_read_at_once() {
    let events: Vec<_> = (0..60).map(|n| event(n, "/a", &[7; 50])).collect();
    let whole = write(&events, serde_json::json!({ "chunk": 500 }));
    let folder = Folder::new();
    let splits = |file: &[u8]| {
        let source = source(&folder.write(file));
        source.splits(1 << 20, &Query::default()).unwrap()
    };
    let is_short = |split: &Split| split.bytes.unwrap() <= Split::MAX_TASK_BYTES;
    assert!(splits(&whole).iter().all(is_short));
    for file in [without_crc(whole.clone()), whole[..whole.len() - 50].to_vec()] {
        assert!(!splits(&file).iter().any(is_short));
    }
}

#[test]
fn a_chunk_of_no_messages_may_have_the_times_its_writer_began_with() {
    for start in [i64::MAX as u64, u64::MAX] {
        let file = [front(), chunk(start, 0, b""), chunk_of(1..4), end()].concat();
        assert_eq!(times(&file), [1, 2, 3]);
    }
}

#[test]
fn messages_at_time_0_are_no_fault_of_the_statistics() {
    let folder = Folder::new();
    let events = [event(0, "/a", b"x"), event(0, "/a", b"y"), event(9, "/a", b"z")];
    let path = folder.write(&write(&events, serde_json::json!({ "chunk": 1 })));
    let source = source(&path);
    assert_eq!(source.faults(&path).unwrap(), [""; 0]);
}

#[test]
fn declarations_take_only_so_much_memory() {
    let metadata = fields().bytes(b"key").bytes(&vec![b'x'; 1 << 20]).0;
    let declare = |id: u16| {
        let channel = fields().u16(id).u16(0).bytes(b"/a").bytes(b"cdr").bytes(&metadata).record(4);
        let packed = zstd::encode_all(&channel[..], 1).unwrap();
        chunk_with(0, 0, (channel.len() as u64, crc32fast::hash(&channel)), "zstd", &packed)
    };
    let file = [header(), (0..80).flat_map(declare).collect(), end()].concat();
    let contents = read(&file);
    assert_eq!(contents.damage.len(), 17);
    assert!(contents.damage[0].2.contains("longer than 64 MiB"), "{:?}", contents.damage[0]);
}

#[test]
fn unknown_records_are_skipped() {
    let private = fields().raw(b"private").record(0x93);
    let reserved = fields().raw(&[0; 40]).record(0x20);
    let inner = [private.clone(), message(1, 0, 1, b"x"), private.clone()].concat();
    let file = [front(), private, reserved, chunk(1, 1, &inner), message(1, 0, 2, b""), end()];
    assert_eq!(times(&file.concat()), [1, 2]);
}

#[test]
fn the_source_declares_that_types_are_in_its_files() {
    let registry = Registry::linked();
    let plugin = registry.get(sluice_model::PluginKind::Source, "mcap").unwrap();
    assert_eq!(plugin.types, ["embedded"]);
}

#[test]
fn what_looks_like_the_start_of_a_file_is_the_same_in_every_split() {
    let events: Vec<_> = (0..12).map(|n| event(n, "/a", &[7; 20])).collect();
    let options = serde_json::json!({ "chunk": 100, "compression": "none" });
    let whole = write(&events, options);
    // Each MessageIndex in turn is overwritten by magic bytes and a Header.
    let (mut at, mut changed) = (8, 0);
    while whole[at] != 15 {
        let len = 9 + u64::from_le_bytes(whole[at + 1..at + 9].try_into().unwrap()) as usize;
        if whole[at] == 7 {
            let library = vec![b'x'; len - MAGIC.len() - 9 - 8];
            let start = [MAGIC, &fields().bytes(b"").bytes(&library).record(1)].concat();
            let mut file = whole.clone();
            file[at..at + len].copy_from_slice(&start);
            assert_eq!((read(&file).events.len(), read(&file).damage), (12, vec![]));
            changed += 1;
        }
        at += len;
    }
    assert!(changed > 3);
}
