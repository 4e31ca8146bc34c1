//! What the source makes of records that no checksum covers: those of chunks without one, and those
//! outside of chunks.

use serde_json::json;
use sluice_kit::contract::{PlainEvent, SourceContents, frames, gather, overwrite};

use crate::kit::{
    Folder, channel, chunk_with, end, event, fields, header, message, read, schema, source, times,
    write,
};

const START: u64 = 1_700_000_000_000_000_000;
const COUNT: u64 = 20;

fn front() -> Vec<u8> {
    [header(), schema(1, "t"), channel(1, 1, "/a")].concat()
}

/// The message with this number, whose payload is half zeros.
fn message_at(n: u64) -> Vec<u8> {
    message(1, n as u32, START + n, &[[n as u8 | 0x80; 8], [0; 8], [0x81; 8]].concat())
}

/// A file with a chunk without a checksum, the start of its records, and where its messages begin.
fn chunked() -> (Vec<u8>, usize, Vec<usize>) {
    let mut records = [schema(2, "u"), channel(2, 2, "/tf_b"), channel(1, 1, "/a")].concat();
    let mut offsets = Vec::new();
    for n in 0..COUNT {
        offsets.push(records.len());
        records.extend(message_at(n));
    }
    let (len, last) = (records.len() as u64, START + COUNT - 1);
    let front = front();
    let file = chunk_with(START, last, (len, 0), "", &records);
    let records_at = front.len() + file.len() - records.len();
    let file = [front, file, end()].concat();
    (file, records_at, offsets.into_iter().map(|at| at + records_at).collect())
}

/// The numbers of the messages that are read.
fn numbers(found: &SourceContents) -> Vec<u64> {
    found.events.iter().map(|event| event.timestamp as u64 - START).collect()
}

fn all_but(lost: u64) -> Vec<u64> {
    (0..COUNT).filter(|n| *n != lost).collect()
}

/// What is read of the same bytes as a stream.
fn read_stream(bytes: &[u8]) -> SourceContents {
    let folder = Folder::new();
    let path = folder.at("in.mcap.zst");
    overwrite(&path, &frames(&[bytes], &[])).unwrap();
    gather(&*source(&path), 1).unwrap()
}

#[test]
fn a_wrong_kind_of_a_message_in_a_chunk_without_checksum_is_damage_of_that_message() {
    let (file, _, places) = chunked();
    assert_eq!(times(&file).len() as u64, COUNT);
    for lost in [0, 7, COUNT - 1] {
        for bit in 0..8 {
            let mut file = file.clone();
            file[places[lost as usize]] ^= 1 << bit;
            let found = read(&file);
            assert_eq!(numbers(&found), all_but(lost), "bit {bit}: {:?}", found.damage);
            let len = message_at(0).len() as u64;
            let ranges: Vec<_> = found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
            assert_eq!(ranges, [(places[lost as usize] as u64, len)], "{:?}", found.damage);
        }
    }
}

#[test]
fn a_declaration_that_reads_as_a_message_is_no_event() {
    let (mut file, records, places) = chunked();
    file[records + schema(2, "u").len()] ^= 1;
    let found = read(&file);
    assert_eq!((numbers(&found), found.damage.len()), (all_but(COUNT), 1), "{:?}", found.damage);
    // Outside of chunks, a summary could declare its channel.
    let records = &file[places[0]..places[0] + COUNT as usize * message_at(0).len()];
    let mut declared = [channel(1, 1, "/a"), channel(1, 1, "/a")].concat();
    let len = declared.len() / 2;
    declared[len] ^= 1;
    let file = [header(), schema(1, "t"), declared, records.to_vec(), end()].concat();
    let found = read(&file);
    assert_eq!((numbers(&found), found.damage.len()), (all_but(COUNT), 1), "{:?}", found.damage);
}

#[test]
fn a_wrong_length_in_a_chunk_without_checksum_is_damage_of_that_message() {
    let (file, _, places) = chunked();
    for lost in [0, 7, COUNT - 1] {
        for bit in 0..64 {
            let mut file = file.clone();
            file[places[lost as usize] + 1 + bit / 8] ^= 1 << (bit % 8);
            let found = read(&file);
            assert_eq!(numbers(&found), all_but(lost), "bit {bit}: {:?}", found.damage);
            assert_eq!(found.damage.len(), 1, "bit {bit}: {:?}", found.damage);
        }
    }
}

#[test]
fn a_chunk_without_checksum_that_lost_or_gained_bytes_is_read_but_for_what_they_hit() {
    let (file, _, places) = chunked();
    let (whole, len) = (file.len() - end().len(), message_at(0).len());
    let next = chunk_with(START, START + COUNT, (0, 0), "", &[]);
    for rest in [end(), [next, end()].concat()] {
        let file = [&file[..whole], &rest].concat();
        // Of how many messages bytes are missing: some, or all.
        for (removed, hit) in [(1, 1), (10, 1), (len + 1, 2), (3 * len + 5, 4)] {
            let at = places[7] + 30;
            let file = [&file[..at], &file[at + removed..]].concat();
            let expected: Vec<_> = (0..COUNT).filter(|n| !(7..7 + hit).contains(n)).collect();
            for found in [read(&file), read_stream(&file)] {
                assert_eq!(numbers(&found), expected, "-{removed}: {:?}", found.damage);
                assert!(!found.damage.is_empty());
            }
        }
        let lost = [&file[..places[7]], &file[places[8]..]].concat();
        for found in [read(&lost), read_stream(&lost)] {
            assert_eq!((numbers(&found), found.damage.len()), (all_but(7), 1));
        }
        for added in [1, 10, 100, 3000] {
            let at = places[7] + 30;
            let file = [&file[..at], &vec![0xee; added], &file[at..]].concat();
            for found in [read(&file), read_stream(&file)] {
                assert_eq!(numbers(&found), all_but(7), "+{added}: {:?}", found.damage);
                assert!(!found.damage.is_empty());
            }
        }
    }
}

#[test]
fn records_of_unknown_kinds_in_a_chunk_without_checksum_are_skipped() {
    let unknown = |len: usize| fields().raw(&vec![0x31; len]).record(0x90);
    let records = [unknown(0), message_at(0), unknown(30), unknown(3), message_at(1), unknown(9)];
    let records = records.concat();
    for (first, last) in [(START, START + 1), (0, 0), (u64::MAX, 0), (5, 9)] {
        let chunk = chunk_with(first, last, (records.len() as u64, 0), "", &records);
        let file = [front(), chunk, end()].concat();
        assert_eq!(times(&file).len(), 2, "{first} to {last}");
    }
}

/// A file without chunks, and where its messages begin.
fn unchunked() -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut places) = (front(), Vec::new());
    for n in 0..COUNT {
        places.push(file.len());
        file.extend(message_at(n));
    }
    (file, places)
}

#[test]
fn a_wrong_kind_or_length_of_a_message_outside_of_chunks_is_damage_of_that_message() {
    let (file, places) = unchunked();
    let file = [file, end()].concat();
    assert_eq!(times(&file).len() as u64, COUNT);
    let most = message_at(0).len() as u64 - 9;
    for (lost, bits) in [(0, 0..8), (7, 0..72), (COUNT - 1, 0..72)] {
        for bit in bits {
            let mut file = file.clone();
            let place = places[lost as usize];
            file[place + bit / 8] ^= 1 << (bit % 8);
            let len = u64::from_le_bytes(file[place + 1..place + 9].try_into().unwrap());
            for found in [read(&file), read_stream(&file)] {
                let mut expected = all_but(lost);
                // What no record can have as its length does not show where the one before ends.
                if len < 22 || len > most << 20 {
                    expected.retain(|n| n + 1 != lost || numbers(&found).contains(n));
                }
                assert_eq!(numbers(&found), expected, "bit {bit}: {:?}", found.damage);
                assert_eq!(found.damage.len(), 1, "bit {bit}: {:?}", found.damage);
            }
        }
    }
}

#[test]
fn any_number_of_records_of_unknown_kinds_may_follow_a_message() {
    let (file, _) = unchunked();
    for count in [0, 1, 2, 3, 40] {
        let unknown = fields().raw(&[0x31; 7]).record(0x90).repeat(count);
        let file = [&file[..], &unknown, &message_at(COUNT), &unknown, &end()].concat();
        assert_eq!(times(&file).len() as u64, COUNT + 1, "{count}");
    }
}

#[test]
fn records_of_unknown_kinds_between_messages_behind_damage_are_passed() {
    for (kind, count) in [(0x90, 1), (0x90, 4), (0x70, 1), (0x70, 4)] {
        let unknown = fields().raw(&[0x31; 7]).record(kind).repeat(count);
        let messages = (0..COUNT).map(message_at);
        let records: Vec<u8> =
            messages.flat_map(|message| [message, unknown.clone()].concat()).collect();
        let at = front().len() + records.len() / COUNT as usize * 7;
        let mut file = [front(), records, end()].concat();
        // A length that leads nowhere.
        file[at + 1] ^= 0x80;
        for found in [read(&file), read_stream(&file)] {
            assert_eq!(numbers(&found), all_but(7), "{kind:x} {count}: {:?}", found.damage);
            assert_eq!(found.damage.len(), 1, "{kind:x} {count}: {:?}", found.damage);
        }
    }
}

/// A record of this kind with the fields of a message.
fn like_message(kind: u8, n: u64) -> Vec<u8> {
    fields().u16(1).u32(n as u32).u64(START + n).u64(0).raw(b"note").record(kind)
}

/// Each message followed by a record of this kind that reads like it, in a chunk without a
/// checksum and outside of chunks.
fn with_notes(kind: u8) -> [Vec<u8>; 2] {
    let records: Vec<_> =
        (0..COUNT).flat_map(|n| [message_at(n), like_message(kind, n)].concat()).collect();
    let chunk = chunk_with(START, START + COUNT - 1, (records.len() as u64, 0), "", &records);
    [[front(), chunk, end()].concat(), [front(), records, end()].concat()]
}

#[test]
fn a_private_record_that_reads_as_a_message_is_no_damage() {
    for kind in [0x80, 0x81, 0x90, 0xff] {
        for file in with_notes(kind) {
            for found in [read(&file), read_stream(&file)] {
                assert_eq!(found.damage, [], "{kind:x}");
                assert_eq!(numbers(&found), all_but(COUNT), "{kind:x}");
            }
        }
    }
}

#[test]
fn a_record_of_a_kind_that_is_not_private_and_reads_as_a_message_is_damage_of_that_record() {
    for kind in [0x10, 0x15, 0x25, 0x45, 0x7f, 0x85] {
        for file in with_notes(kind) {
            let found = read(&file);
            assert_eq!(numbers(&found), all_but(COUNT), "{kind:x}: {:?}", found.damage);
            let len = like_message(kind, 0).len() as u64;
            assert!(found.damage.iter().all(|damage| damage.1 == len), "{:?}", found.damage);
        }
    }
}

#[test]
fn a_private_record_that_is_cut_off_does_not_affect_the_message_before_it() {
    let (file, _) = unchunked();
    let private = fields().raw(&[0x31; 100]).record(0x90);
    // Another private record shows the end of the message only if the head of the next is there.
    for cut in (1..private.len()).chain(private.len() + 9..2 * private.len()) {
        let file = [&file[..], &private.repeat(2)[..cut]].concat();
        for found in [read(&file), read_stream(&file)] {
            assert_eq!(numbers(&found), all_but(COUNT), "{cut}: {:?}", found.damage);
            assert_eq!(found.damage.len(), 1, "{cut}: {:?}", found.damage);
        }
    }
}

#[test]
fn a_channel_of_a_summary_that_reads_as_a_message_is_no_event() {
    let (file, _) = unchunked();
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let mut file = [file.clone(), summary(file.len(), &declared)].concat();
    let place = file.len() - crate::kit::MAGIC.len() - 29 - channel(1, 1, "/a").len();
    assert_eq!(file[place], 4);
    file[place] ^= 1;
    let found = read(&file);
    assert_eq!((numbers(&found), found.damage.len()), (all_but(COUNT), 1), "{:?}", found.damage);
}

/// A summary with these declarations, and the end of a file whose data ends at `at`.
fn summary(at: usize, declared: &[u8]) -> Vec<u8> {
    let data_end = fields().u32(0).record(15);
    let footer = fields().u64((at + data_end.len()) as u64).u64(0).record(2);
    let mut footer = footer;
    footer[1] += 4;
    let crc = crc32fast::hash(&[declared, &footer].concat());
    [&data_end, declared, &footer, &crc.to_le_bytes(), crate::kit::MAGIC].concat()
}

#[test]
fn a_declaration_of_a_stream_that_its_summary_contradicts_is_damage() {
    let (file, _) = unchunked();
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let same = [file.clone(), summary(file.len(), &declared)].concat();
    assert_eq!(read_stream(&same).damage, []);
    for (what, declared) in [
        ("channel 1", [schema(1, "t"), channel(1, 1, "/b")].concat()),
        ("schema 1", [schema(1, "u"), channel(1, 1, "/a")].concat()),
    ] {
        let other = [file.clone(), summary(file.len(), &declared)].concat();
        let found = read_stream(&other);
        let [(.., why)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(why.contains(&format!("declares {what} otherwise")), "{why}");
        assert!(!read(&other).damage.is_empty(), "as a file");
    }
}

#[test]
fn the_summary_of_a_file_that_lost_or_gained_bytes_declares_its_channels() {
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let records = |times: std::ops::Range<u64>| times.flat_map(message_at).collect::<Vec<_>>();
    let chunk_of = |declared: &[u8], times: std::ops::Range<u64>| {
        let records = [declared, &records(times.clone())].concat();
        crate::kit::chunk(START + times.start, START + times.end - 1, &records)
    };
    let front = [header(), chunk_of(&declared, 0..5)].concat();
    let rest = [chunk_of(&[], 5..10), chunk_of(&[], 10..15)].concat();
    let file = [front.clone(), rest].concat();
    let file = [file.clone(), summary(file.len(), &declared)].concat();
    assert_eq!(times(&file).len(), 15);
    let at = front.len() - 40;
    for (removed, added) in [(1, 0), (40, 0), (0, 1), (0, 3000)] {
        let file = [&file[..at], &vec![7; added], &file[at + removed..]].concat();
        let found = read(&file);
        assert_eq!(numbers(&found), (5..15).collect::<Vec<_>>(), "{:?}", found.damage);
        let folder = Folder::new();
        let path = folder.write(&file);
        let faults = source(&path).faults(&path).unwrap();
        assert!(faults.iter().any(|why| why.contains("the summary is not where")), "{faults:?}");
    }
}

#[test]
fn the_summary_of_an_appended_file_declares_no_channels_of_the_first() {
    let file = |topic: &str| {
        let events: Vec<_> = (0..30).map(|n| event(n, topic, topic.as_bytes())).collect();
        write(&events, json!({ "chunk": 60, "compression": "none" }))
    };
    let mut both = [file("/a"), file("/b")].concat();
    assert_eq!(times(&both).len(), 60);
    // In the chunk that declares the channel.
    both[130] ^= 1;
    let found = read(&both);
    let is_right = |event: &PlainEvent| event.channel.as_bytes() == event.payload;
    assert!(!found.damage.is_empty() && found.events.iter().all(is_right), "{:?}", found.damage);
    assert_eq!(found.events.len(), 30, "{:?}", found.damage);
}
