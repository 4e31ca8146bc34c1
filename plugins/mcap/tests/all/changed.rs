//! Files with changed bytes: what is read of them is what they had, and what is missing is told.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use sluice_io::files::InputFiles;
use sluice_kit::contract::{PlainEvent, SourceContents, frames, gather, overwrite};
use sluice_model::{Input, ReadContext, Split, SplitStart};

use crate::kit::{
    Folder, channel, chunk, chunk_with, end, event, header, message, read, source, write,
};

fn sample(compression: &str) -> Vec<u8> {
    let events: Vec<_> = (0..40u8)
        .map(|n| event(i64::from(n) * 1_000, ["a", "b", "c"][usize::from(n) % 3], &[n; 40]))
        .collect();
    write(&events, json!({ "chunk": 300, "compression": compression }))
}

/// Whether all of `some` are in `all`, in their order.
fn are_among(some: &[PlainEvent], all: &[PlainEvent]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|event| rest.any(|other| other == event))
}

/// The opcode of a message index is one bit away from that of a message.
#[test]
fn a_message_index_that_reads_as_a_message_is_no_event() {
    let sound = sample("zstd");
    let folder = Folder::new();
    let all = gather(&*source(&folder.write(&sound)), u64::MAX).unwrap().events;
    let len_at = |at: usize| u64::from_le_bytes(sound[at + 1..at + 9].try_into().unwrap());
    let (mut at, mut changes) = (8, 0);
    // The data section ends with opcode 0x0f.
    while sound[at] != 0x0f {
        if sound[at] == 0x07 {
            let mut changed = sound.clone();
            changed[at] = 0x05;
            let source = source(&folder.write(&changed));
            let found = gather(&*source, u64::MAX).unwrap();
            assert_eq!(found.events, all, "at {at}");
            assert_eq!(found.damage[0].0, at as u64);
            assert_eq!(gather(&*source, 1_000).unwrap(), found);
            changes += 1;
        }
        at += 9 + usize::try_from(len_at(at)).unwrap();
    }
    assert!(changes > 10, "{changes}");
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_read_ends_there() {
    let records = |times: std::ops::Range<u64>| -> Vec<u8> {
        times.flat_map(|n| message(1, 0, n, &[0; 40])).collect()
    };
    // More messages than a batch holds, so that the next chunk is known, but not read.
    let first = chunk(0, 20_000, &records(0..20_000));
    let front = [header(), channel(1, 0, "/a"), first].concat();
    let folder = Folder::new();
    let whole = [&front[..], &chunk(20_000, 20_009, &records(20_000..20_010)), &end()].concat();
    let path = folder.write(&whole);
    let source = source(&path);
    let splits: Vec<Split> = source.splits(u64::MAX, &Default::default()).unwrap();
    let context = ReadContext::standalone("test");
    // In a record, between records, and all of it.
    for left in [front.len() + 4, front.len(), 0] {
        std::fs::write(&path, &whole).unwrap();
        let mut reader = source.read(&splits[0], SplitStart::Search, &context).unwrap();
        let mut count = reader.next_batch().unwrap().unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(left as u64).unwrap();
        while let Ok(Some(batch)) = reader.next_batch() {
            count += batch.len();
        }
        assert_eq!(count, 20_000);
        let damage = context.damage.take();
        let last = damage.last().unwrap();
        assert_eq!(last.offset + last.length, whole.len() as u64, "{left}");
    }
}

#[test]
fn splits_that_a_file_lost_before_they_are_read_are_damage() {
    let file = sample("none");
    let folder = Folder::new();
    let path = folder.write(&file);
    let source = source(&path);
    let splits: Vec<Split> = source.splits(1_000, &Default::default()).unwrap();
    let noted = Arc::new(InputFiles::default());
    noted.note(&Input { path: path.clone(), bytes: Some(file.len() as u64) });
    let mut context = ReadContext::standalone("test");
    context.run = context.run.sharing(&noted);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert!(splits.len() > 2);
    for split in &splits[1..] {
        let mut reader = source.read(split, SplitStart::At(split.start), &context).unwrap();
        assert!(reader.next_batch().unwrap().is_none());
        let damage = context.damage.take();
        let [damage] = &damage[..] else { panic!("{damage:?}") };
        assert!(damage.reason.contains("became shorter"), "{damage:?}");
        let end = split.end.unwrap_or(file.len() as u64);
        assert_eq!((damage.offset, damage.offset + damage.length), (split.start, end));
    }
}

/// The starts of the chunks of a file, and their lengths.
fn chunks(file: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut chunks) = (8, Vec::new());
    // The data section ends with opcode 0x0f.
    while file[at] != 0x0f {
        let len = 9 + u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap()) as usize;
        if file[at] == 0x06 {
            chunks.push((at, len));
        }
        at += len;
    }
    chunks
}

/// What is read of a file, and of the same bytes compressed, which are read in one pass.
fn read_both_ways(file: &[u8]) -> [SourceContents; 2] {
    let folder = Folder::new();
    let packed = folder.at("in.mcap.zst");
    overwrite(&packed, &frames(&[file], &[])).unwrap();
    [read(file), gather(&*source(&packed), u64::MAX).unwrap()]
}

#[test]
fn a_chunk_of_zeros_is_damage() {
    for compression in ["none", "zstd"] {
        let sound = sample(compression);
        // The first one declares the channels.
        for (at, len) in chunks(&sound).split_off(1) {
            let mut zeroed = sound.clone();
            zeroed[at + 9..at + len].fill(0);
            for found in read_both_ways(&zeroed) {
                assert!(found.events.len() < 40);
                let [(offset, length, reason)] = &found.damage[..] else { panic!("{found:?}") };
                assert_eq!((*offset, *length), (at as u64, len as u64), "{reason}");
                assert!(reason.contains("has no records"), "{reason}");
            }
        }
    }
}

#[test]
fn bytes_behind_the_records_of_a_chunk_that_are_more_than_fields_are_damage() {
    for (added, is_damage) in [(10, false), (500, true)] {
        let mut chunk = chunk(0, 4, &message(1, 0, 4, &[0; 40]));
        chunk.extend(vec![0xaa; added]);
        let len = (chunk.len() - 9) as u64;
        chunk[1..9].copy_from_slice(&len.to_le_bytes());
        let file = [header(), channel(1, 0, "/a"), chunk, end()].concat();
        for found in read_both_ways(&file) {
            assert_eq!((found.events.len(), found.damage.len() == 1), (1, is_damage));
            let lengths = found.damage.iter().map(|(_, length, _)| *length);
            assert!(lengths.into_iter().all(|length| length == added as u64));
        }
    }
}

#[test]
fn what_is_wrong_in_a_chunk_and_behind_its_records_is_told_in_order_and_once() {
    let records = [message(1, 0, 4, &[0; 40]), message(9, 0, 4, &[0; 40])].concat();
    let packed = zstd::encode_all(&records[..], 1).unwrap();
    let form = (records.len() as u64, crc32fast::hash(&records));
    for (compression, packed) in [("", &records), ("zstd", &packed)] {
        let mut chunk = chunk_with(0, 4, form, compression, packed);
        chunk.extend([0xaa; 500]);
        let len = (chunk.len() - 9) as u64;
        chunk[1..9].copy_from_slice(&len.to_le_bytes());
        let file = [header(), channel(1, 0, "/a"), chunk, end()].concat();
        for found in read_both_ways(&file) {
            assert_eq!((found.events.len(), found.gaps()), (1, 0));
            let [inside, behind] = &found.damage[..] else { panic!("{:?}", found.damage) };
            assert!(inside.2.contains("channel 9") && behind.1 == 500, "{:?}", found.damage);
        }
    }
}

#[test]
fn a_record_of_a_stream_that_is_too_long_is_not_said_to_be_cut() {
    let long = message(1, 0, 1, &[7; 4 << 20]);
    let last = chunk(2, 2, &message(1, 0, 2, b"x"));
    for record in [chunk(1, 1, &long), long] {
        let front = [header(), channel(1, 0, "/a"), chunk(0, 0, &message(1, 0, 0, b""))];
        for found in read_both_ways(&[&front.concat()[..], &record, &last, &end()].concat()) {
            assert_eq!((found.events.len(), found.damage.len()), (2, 1));
            assert!(found.damage[0].2.contains("exceeds `max_chunk` (2MiB)"), "{found:?}");
        }
    }
}

#[test]
fn a_chunk_with_a_wrong_length_is_read_whether_an_index_lists_it_or_not() {
    let sound = sample("zstd");
    let all = read(&sound).events;
    let chunks = chunks(&sound);
    for (at, len) in &chunks[..chunks.len() - 2] {
        // The last three lead past the end of the file, and no stream waits for the last two.
        for further in [1, 60, 400, 1 << 20, 1 << 35, 1 << 62] {
            let mut changed = sound.clone();
            let wrong = (len - 9 + further) as u64;
            changed[at + 1..at + 9].copy_from_slice(&wrong.to_le_bytes());
            let found = read_both_ways(&changed);
            for found in &found {
                assert_eq!(found.events, all, "{further} bytes more at byte {at}");
                assert_eq!((found.damage[0].0, found.damage[0].1), (*at as u64, 9));
            }
            assert_eq!(found[0], found[1]);
        }
    }
}

#[test]
fn a_chunk_that_looks_like_an_unknown_record_is_missed_if_an_index_lists_it() {
    for compression in ["zstd", "none"] {
        let mut changed = sample(compression);
        let (at, len) = chunks(&changed)[1];
        // Its opcode, and the length of the name of its compression.
        changed[at] ^= 0x10;
        changed[at + 9 + 28] ^= 1;
        let found = read(&changed);
        assert!(found.events.len() < 40);
        let [(offset, length, reason)] = &found.damage[..] else { panic!("{found:?}") };
        assert_eq!((*offset, *length), (at as u64, len as u64), "{reason}");
        assert!(reason.contains("where the index has a chunk"), "{reason}");
    }
}

proptest! {
    #[test]
    fn chunks_with_wrong_bytes_are_told(
        compression in prop_oneof![Just("zstd"), Just("lz4"), Just("none")],
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), 1u8..), 1..4),
        target in 1u64..3_000,
    ) {
        let sound = sample(compression);
        let folder = Folder::new();
        let path = folder.write(&sound);
        let all = gather(&*source(&path), u64::MAX).unwrap().events;
        let mut changed = sound.clone();
        let mut places = Vec::new();
        for (place, bits) in &changes {
            let place = place.index(changed.len() - 8) + 8;
            changed[place] ^= bits;
            places.push((place, sound[place], changed[place]));
        }
        let source = source(&folder.write(&changed));
        let whole = gather(&*source, u64::MAX).unwrap();
        prop_assert_eq!(&gather(&*source, target).unwrap(), &whole);
        // A chunk that is neither compressed nor found by its head or the index is read record by
        // record, without its checksum.
        let is_unchecked = compression == "none" && changes.len() > 1 && !whole.damage.is_empty();
        let wrong = whole.events.iter().filter(|event| !all.contains(event)).count();
        let is_bounded = is_unchecked && wrong <= changes.len();
        prop_assert!(is_bounded || are_among(&whole.events, &all), "{:?}", whole.events);
        let is_complete = whole.events.len() == all.len();
        prop_assert!(is_complete || !whole.damage.is_empty(), "lost silently: {places:?}");
        for (offset, length, _) in &whole.damage {
            prop_assert!(offset + length <= changed.len() as u64);
        }
    }

    #[test]
    fn any_bytes_behind_a_header_are_read(
        bytes in proptest::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..300),
        target in 1u64..300,
    ) {
        let file = [crate::kit::header(), bytes].concat();
        let folder = Folder::new();
        let source = source(&folder.write(&file));
        let whole = gather(&*source, u64::MAX).unwrap();
        prop_assert_eq!(&gather(&*source, target).unwrap(), &whole);
    }
}
