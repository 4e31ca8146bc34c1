//! Records that hold what looks like other records, such as whole MCAP files: none of it is read.

use sluice_kit::contract::SourceContents;

use crate::kit::{channel, chunk, end, fields, header, message, read, schema, times};

fn declared(topic: &str) -> Vec<u8> {
    [schema(1, "t"), channel(1, 1, topic)].concat()
}

/// A file of two chunks, or without chunks, with a record between its messages.
fn file_around(is_chunked: bool, record: &[u8]) -> Vec<u8> {
    let [first, second] = [10, 12].map(|time| {
        let messages = [message(1, 0, time, b"x"), message(1, 0, time + 1, b"y")].concat();
        let records = if time == 10 { [declared("/a"), messages].concat() } else { messages };
        if is_chunked { chunk(time, time + 1, &records) } else { records }
    });
    [&header(), &first, record, &second, &end()[..]].concat()
}

/// What records may hold: a file, its chunk with further records, and a file between other bytes.
fn contents() -> [Vec<u8>; 3] {
    let messages = [message(1, 0, 500, b"n"), message(1, 0, 501, b"n")].concat();
    let chunk = chunk(500, 501, &[declared("/nested"), messages].concat());
    let metadata = fields().bytes(b"n").bytes(b"").record(12);
    let file = [&header(), &chunk, &metadata, &end()[..]].concat();
    let padded = [&[b'j'; 40], &file[..], b"junk"].concat();
    [file, [chunk, metadata.repeat(2)].concat(), padded]
}

fn attachment(name: &[u8], data: &[u8], unknown: &[u8]) -> Vec<u8> {
    let content = fields().u64(5).u64(5).bytes(name).bytes(b"x/y").u64(data.len() as u64);
    let content = content.raw(data);
    let crc = crc32fast::hash(&content.0);
    content.u32(crc).raw(unknown).record(9)
}

#[test]
fn records_in_records_that_hold_no_events_are_not_read() {
    let name = [b'a'; 600];
    for content in contents() {
        let entry = fields().bytes(b"k").bytes(&content).0;
        let records = [
            fields().raw(&content).record(0x80),
            fields().raw(&content).record(0xc1),
            attachment(b"a", &content, b""),
            attachment(&name, &content, b""),
            attachment(&name, &content, &[0; 4]),
            fields().bytes(b"a").bytes(&entry).record(12),
            fields().bytes(&name).bytes(&entry).record(12),
        ];
        for record in records {
            for is_chunked in [true, false] {
                let kind = record[0];
                let found = times(&file_around(is_chunked, &record));
                assert_eq!(found, [10, 11, 12, 13], "{kind:02x}, {is_chunked}");
            }
        }
    }
}

/// The times of the events, and the damaged ranges.
fn events_and_damage(found: &SourceContents) -> (Vec<i64>, Vec<(u64, u64)>) {
    let times = found.events.iter().map(|event| event.timestamp).collect();
    (times, found.damage.iter().map(|(at, len, _)| (*at, *len)).collect())
}

#[test]
fn records_in_messages_that_cannot_be_read_are_not_read() {
    let before = [message(1, 0, 10, b"x"), message(1, 0, 11, b"y")].concat();
    let at = (header().len() + declared("/a").len() + before.len()) as u64;
    for content in contents() {
        // Longer than `max_chunk`, and of a channel that is not declared.
        let long = [&vec![b'j'; 2 << 20], &content[..]].concat();
        for message in [message(1, 0, 12, &long), message(9, 0, 12, &content)] {
            let found = read(&file_around(false, &message));
            let expected = (vec![10, 11, 12, 13], vec![(at, message.len() as u64)]);
            assert_eq!(events_and_damage(&found), expected, "{:?}", found.damage);
        }
    }
}

/// A chunk without a checksum whose length leads nowhere, and in whose head records seem to begin.
fn chunk_with_records_in_its_head() -> Vec<u8> {
    let times = [[0, 0, 0, 0, 0, 15, 4, 0], [0, 0, 0, 0, 0, 0, 0, 1]].concat();
    let head = fields().raw(&times).raw(&[0, 0, 15, 4, 0, 0, 0, 0]).u32(0).bytes(b"");
    // The first byte of the length is that of a record, too.
    let len = 0x040f - 40;
    head.u64(len).raw(&vec![0x31; len as usize]).record(6)
}

#[test]
fn a_damaged_chunk_does_not_end_in_its_own_head() {
    let records = [declared("/a"), message(1, 0, 1, b"x")].concat();
    let front = [header(), chunk(1, 2, &records)].concat();
    let damaged = chunk_with_records_in_its_head();
    let metadata = fields().bytes(b"n").bytes(b"").record(12);
    let rest = [vec![0; 64], metadata.repeat(3), end()].concat();
    for file in [[&front, &damaged, &rest[..]].concat(), [&front, &damaged[..200]].concat()] {
        let (times, damage) = events_and_damage(&read(&file));
        assert_eq!(times, [1]);
        assert!(damage.first().is_some_and(|(at, _)| *at == front.len() as u64), "{damage:?}");
    }
}
