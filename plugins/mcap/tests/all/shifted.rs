//! Bytes that are added before records or missing between them: what the lengths of records lead to
//! then, and what positions tell.

use serde_json::json;
use sluice_kit::contract::{SourceContents, gather, gather_with};
use sluice_model::{ReadContext, Registry};

use crate::kit::{
    Folder, channel, chunk, end, event, fields, header, message, read, schema, source, write,
};

fn times(found: &SourceContents) -> Vec<i64> {
    found.events.iter().map(|event| event.timestamp).collect()
}

/// A message index with one entry.
fn index() -> Vec<u8> {
    fields().u16(1).bytes(&[0; 16]).record(7)
}

/// Where a byte before a message index makes its length lead, from the byte.
const LED_TO: usize = 9 + 7 + 256 * 22;

/// A file with a message index at the second position, and a chunk of which a byte is at the third,
/// which that leads to.
fn file_with_index(at_led: &[u8]) -> (Vec<u8>, usize) {
    let declared = [schema(1, "t"), channel(1, 1, "/a"), message(1, 0, 0, b"x")].concat();
    let front = [header(), chunk(0, 0, &declared)].concat();
    let index = index();
    let before = |payload: &[u8]| chunk(1, 1, &message(1, 1, 1, payload)).len() - payload.len();
    let mut payload = vec![0; LED_TO - 1 - index.len() - before(b"")];
    payload.extend(at_led);
    payload.extend([0; 100]);
    let chunks = [chunk(1, 1, &message(1, 1, 1, &payload)), chunk(2, 2, &message(1, 2, 2, b""))];
    let file = [&front[..], &index, &chunks.concat(), &index, &end()].concat();
    (file, front.len())
}

#[test]
fn a_byte_before_a_message_index_costs_no_chunk_whatever_its_length_leads_to_then() {
    let cut = fields().raw(&[5]).u64(1 << 30).0;
    // Nothing, a message, what looks like a record that is cut off, an unknown one before that.
    let unknown = [fields().record(0x90), cut.clone()].concat();
    for led_to in [vec![], message(1, 9, 1, b""), cut, unknown] {
        let (file, at) = file_with_index(&led_to);
        assert_eq!((times(&read(&file)), read(&file).damage), (vec![0, 1, 2], vec![]));
        for kind in (1..=16).chain([0x31, 0xb6, 0xde, 0xe8]) {
            let file = [&file[..at], &[kind], &file[at..]].concat();
            let found = read(&file);
            assert_eq!(times(&found), [0, 1, 2], "{kind:02x}: {:?}", found.damage);
            let ranges: Vec<_> = found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
            assert_eq!(ranges, [(at as u64, 1)], "{kind:02x}: {:?}", found.damage);
        }
    }
}

#[test]
fn a_length_that_leads_to_a_later_chunk_hides_no_chunk() {
    let declared = [schema(1, "t"), channel(1, 1, "/a"), message(1, 0, 0, b"x")].concat();
    let front = [header(), chunk(0, 0, &declared)].concat();
    let (index, between) = (index(), chunk(1, 1, &message(1, 1, 1, b"y")));
    let metadata = |len: usize| fields().bytes(&vec![b'n'; len]).bytes(b"").record(12);
    let pad = LED_TO - 1 - index.len() - between.len() - metadata(0).len();
    let last = chunk(2, 2, &message(1, 2, 2, b"z"));
    let rest = [index, between, metadata(pad), last, end()].concat();
    for kind in [7, 0x31, 0xb6] {
        let found = read(&[&front[..], &[kind], &rest].concat());
        assert_eq!(times(&found), [0, 1, 2], "{kind:02x}: {:?}", found.damage);
        assert_eq!(found.damage.len(), 1, "{kind:02x}: {:?}", found.damage);
    }
}

/// A file of chunks with an index, and the ranges of these without what follows them.
fn indexed() -> (Vec<u8>, Vec<(usize, usize)>) {
    let events: Vec<_> = (0..30).map(|n| event(n, "/a", b"twelve bytes")).collect();
    let file = write(&events, json!({ "chunk": 200, "compression": "none" }));
    let (mut at, mut chunks) = (8, Vec::new());
    while file[at] != 15 {
        let len = u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap()) as usize;
        if file[at] == 6 {
            chunks.push((at, at + 9 + len));
        }
        at += 9 + len;
    }
    (file, chunks)
}

#[test]
fn a_chunk_that_is_missing_as_a_whole_is_damage_by_the_summary() {
    let (file, chunks) = indexed();
    assert!(chunks.len() > 3);
    for (number, (at, end)) in chunks.iter().enumerate().skip(1) {
        // With what follows it, and without.
        let next = chunks.get(number + 1).map_or(*end, |(next, _)| *next);
        for end in [*end, next] {
            let file = [&file[..*at], &file[end..]].concat();
            let found = read(&file);
            assert!(found.events.len() < 30);
            let [(_, 0, why)] = &found.damage[..] else { panic!("{:?}", found.damage) };
            let expected = format!("1 of {} chunks that the summary lists", chunks.len());
            assert!(why.starts_with(&expected), "{why}");
            let folder = Folder::new();
            let mut context = ReadContext::standalone("test");
            context.query.start = Some(1);
            let found = gather_with(&*source(&folder.write(&file)), 1, &context).unwrap();
            assert_eq!(found.damage, [], "in a window");
        }
    }
    // Other damage tells of it.
    let (at, len) = (chunks[1].0, 20);
    assert_eq!(read(&[&file[..at], &file[at + len..]].concat()).damage.len(), 1);
}

#[test]
fn a_file_whose_head_is_damaged_is_read_from_its_first_record() {
    let (file, chunks) = indexed();
    let [first, second] = [chunks[0].0 as u64, chunks[1].0 as u64];
    let zeroed = [&vec![0; chunks[0].0 + 60], &file[chunks[0].0 + 60..]].concat();
    let added = [b"abc", &file[..]].concat();
    let cases = [(file[1..].to_vec(), 30, first - 1), (zeroed, 0, second), (added, 30, 3)];
    for (file, events, len) in cases {
        let found = read(&file);
        let ranges: Vec<_> = found.damage.iter().map(|(at, len, _)| (*at, *len)).collect();
        assert!(found.events.len() >= events, "{:?}", found.damage);
        // What follows a changed first byte may look like the index of the chunk.
        assert!(ranges[0].0 == 0 && ranges[0].1 <= len, "{:?}", found.damage);
        assert_eq!(ranges.len(), 1, "{:?}", found.damage);
    }
}

#[test]
fn a_file_with_nothing_of_an_mcap_file_is_refused() {
    let text = "timestamp,channel\n1,/a\n".repeat(1000);
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in [&[0; 5000][..], text.as_bytes(), &noise, b"abcdefgh", b"x"] {
        let folder = Folder::new();
        let options = json!({ "path": folder.write(bytes) });
        let source = Registry::linked().source("mcap", options).unwrap();
        let error = gather(&*source, 1).unwrap_err().to_string();
        assert!(error.contains("not an MCAP file") && error.contains("name the plugin"), "{error}");
    }
}
