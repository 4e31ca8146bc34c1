//! What the source makes of compressed files of which frames are damaged.

use serde_json::json;
use sluice_kit::contract::{SourceContents, frames, gather_with, overwrite};
use sluice_model::ReadContext;

use crate::kit::{
    Folder, TestEvent, channel, chunk, end, event, fields, header, message, schema, source, write,
};

/// What is read of these parts if those with these numbers are damaged, and the notes.
fn read_noted(parts: &[&[u8]], damaged: &[usize]) -> (SourceContents, Vec<String>) {
    let folder = Folder::new();
    let path = folder.at("in.mcap.zst");
    overwrite(&path, &frames(parts, damaged)).unwrap();
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&path), 1, &context).unwrap();
    let mut reached = 0;
    for (at, len, _) in &found.damage {
        assert!(*at >= reached, "{:?}", found.damage);
        reached = at + len;
    }
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

fn read(parts: &[&[u8]], damaged: &[usize]) -> SourceContents {
    read_noted(parts, damaged).0
}

fn times(found: &SourceContents) -> Vec<i64> {
    found.events.iter().map(|event| event.timestamp).collect()
}

/// How often it is said that compressed data is damaged.
fn gaps(found: &SourceContents) -> usize {
    found.damage.iter().filter(|(.., why)| why.contains("damaged or cut off")).count()
}

/// A header, and a channel.
fn front() -> Vec<u8> {
    [header(), schema(1, "t"), channel(1, 1, "/a")].concat()
}

fn messages(times: std::ops::Range<u64>) -> Vec<u8> {
    times.flat_map(|n| message(1, n as u32, n, &[n as u8; 40])).collect()
}

fn chunk_of(times: std::ops::Range<u64>) -> Vec<u8> {
    chunk(times.start, times.end - 1, &messages(times))
}

#[test]
fn chunks_behind_damaged_frames_are_read_and_those_cut_by_them_are_not_joined() {
    let chunks: Vec<u8> = (0..20).flat_map(|n| chunk_of(n * 5..n * 5 + 5)).collect();
    let (front, len) = (front(), chunks.len() / 7 + 1);
    let mut parts = vec![&front[..]];
    parts.extend(chunks.chunks(len));
    let tail = end();
    parts.push(&tail);
    assert_eq!(times(&read(&parts, &[])), (0..100).collect::<Vec<_>>());
    for (damaged, runs) in [(&[2][..], 1), (&[2, 3], 1), (&[1, 3, 5], 3), (&[1, 2, 3, 4, 5, 6], 1)]
    {
        let found = read(&parts, damaged);
        let is_whole = |n: &i64| {
            let range =
                *n as usize / 5 * chunks.len() / 20..(*n as usize / 5 + 1) * chunks.len() / 20;
            (range.start / len..=(range.end - 1) / len).all(|part| !damaged.contains(&(part + 1)))
        };
        let times = times(&found);
        assert!(times.is_sorted() && times.iter().all(|n| (0..100).contains(n)), "{times:?}");
        assert!((0..100).filter(is_whole).all(|n| times.contains(&n)), "{damaged:?}: {times:?}");
        let payloads = found.events.iter().map(|event| &event.payload);
        assert!(payloads.zip(&times).all(|(payload, n)| *payload == [*n as u8; 40]));
        assert_eq!(gaps(&found), runs, "{damaged:?}: {:?}", found.damage);
    }
    // Nothing else has the channel.
    let found = read(&parts, &[0]);
    assert_eq!((found.events.len(), gaps(&found)), (0, 1));
    let [first, ..] = &found.damage[..] else { panic!() };
    assert!(first.2.contains("damaged or cut off"), "{first:?}");
}

#[test]
fn messages_behind_a_damaged_frame_are_read_without_chunks_too() {
    let records = messages(0..50);
    let parts = [&front()[..], &records[..1010], &records[1010..2020], &records[2020..], &end()];
    let found = read(&parts, &[2]);
    let len = records.len() as i64 / 50;
    let mut expected: Vec<i64> = (0..50).collect();
    expected.retain(|n| (n + 1) * len <= 1010 || n * len >= 2020);
    assert_eq!((times(&found), gaps(&found)), (expected, 1), "{:?}", found.damage);
}

#[test]
fn all_frames_that_follow_damage_may_be_damaged_or_missing() {
    let (front, chunk, tail) = (front(), chunk_of(0..5), end());
    for damaged in [&[2, 3][..], &[3], &[0, 1, 2, 3]] {
        let found = read(&[&front, &chunk, &chunk_of(5..9), &tail], damaged);
        let count = 9 - 4 * usize::from(damaged.contains(&2)) - 5 * usize::from(damaged.len() == 4);
        assert_eq!((found.events.len(), found.damage.len()), (count, 1), "{:?}", found.damage);
        assert_eq!(gaps(&found), 1);
    }
}

#[test]
fn a_summary_behind_a_gap_is_no_damage() {
    let events: Vec<TestEvent> = (0..200).map(|n| event(n, "/a", &[n as u8; 50])).collect();
    let file = write(&events, json!({ "chunk": 500, "compression": "none" }));
    // In the data, in the data with all that ends it, and in the summary.
    let data_end = fields().u32(0).record(15).len();
    let at = u64::from_le_bytes(file[file.len() - 28..][..8].try_into().unwrap()) as usize;
    for gap in [at / 2..at / 2 + 900, at / 2..at + 60, at - data_end..at + 60, at + 60..at + 99] {
        let (found, notes) =
            read_noted(&[&file[..gap.start], &file[gap.clone()], &file[gap.end..]], &[1]);
        assert!(found.events.len() > 90, "{gap:?}");
        assert_eq!((found.damage.len() < 3, gaps(&found)), (true, 1), "{:?}", found.damage);
        assert_eq!(notes, [""; 0], "{gap:?}");
    }
}

#[test]
fn a_file_behind_a_gap_at_the_end_of_another_has_its_own_channels() {
    let first = [front(), chunk_of(0..5)].concat();
    let other = [header(), channel(1, 0, "/b")].concat();
    let rest = chunk_of(5..9);
    let names = |damaged| {
        let found = read(&[&first, &end(), &other, &rest, &end()], damaged);
        assert_eq!(gaps(&found), usize::from(!damaged.is_empty()), "{:?}", found.damage);
        found.events.iter().map(|event| event.channel.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), [["/a"; 5].as_slice(), &["/b"; 4]].concat());
    assert_eq!(names(&[1]), names(&[]));
    assert_eq!(names(&[0]), ["/b"; 4]);
    assert_eq!(names(&[2]), ["/a"; 5]);
}

#[test]
fn messages_with_the_channels_of_a_file_whose_end_is_missing_are_told_by_the_summary() {
    let first = [front(), chunk_of(0..5)].concat();
    for (name, topic, is_other) in [("t", "/a", false), ("t", "/b", true), ("u", "/a", true)] {
        let declared = [schema(1, name), channel(1, 1, topic)].concat();
        let between = [end(), header(), declared.clone()].concat();
        let data_end = fields().u32(0).record(15);
        let tail = [data_end, declared, end()].concat();
        let found = read(&[&first, &between, &chunk_of(5..9), &tail], &[1]);
        assert_eq!((found.events.len(), gaps(&found)), (9, 1), "{:?}", found.damage);
        let is_told = found.damage.iter().any(|(.., why)| why.contains("another file"));
        assert_eq!((is_told, found.damage.len() == 1), (is_other, !is_other), "{:?}", found.damage);
    }
}

#[test]
fn what_looks_like_an_endless_attachment_behind_a_gap_is_not_waited_for() {
    let attachment = fields().u64(0).u64(0).bytes(&[b'x'; 200]).record(9);
    let endless = [&[9][..], &(1u64 << 38).to_le_bytes(), &attachment[9..]].concat();
    let records: Vec<u8> = (0..5).flat_map(|n| message(1, 0, n, &endless)).collect();
    let cut = chunk(0, 4, &records);
    let (first, second) = cut.split_at(cut.len() / 2);
    let front = [front(), chunk_of(10..13)].concat();
    // More than is looked at.
    let rest: Vec<u8> = (0..3_000).flat_map(|n| chunk_of(n * 4..n * 4 + 4)).collect();
    let found = read(&[&front, first, second, &rest, &end()], &[1]);
    let expected: Vec<i64> = [10, 11, 12].into_iter().chain(0..12_000).collect();
    assert!(times(&found) == expected && gaps(&found) == 1, "{:?}", found.damage);
    // Finding its end would take as much memory as the stream is long.
    let is_believed = found.damage.iter().any(|(.., why)| why.contains("Attachment"));
    assert!(!is_believed, "{:?}", found.damage);
}
