//! What the source makes of compressed files of which frames are damaged.

use serde_json::json;
use sluice_kit::contract::{
    PlainEvent, SourceContents, frames, gather_with, overwrite, sample_positions,
};
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
    let runs = damaged.iter().filter(|part| !damaged.contains(&(*part + 1))).count();
    assert_eq!(found.gaps(), runs, "{:?}", found.damage);
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

fn read(parts: &[&[u8]], damaged: &[usize]) -> SourceContents {
    read_noted(parts, damaged).0
}

fn times(found: &SourceContents) -> Vec<i64> {
    found.events.iter().map(|event| event.timestamp).collect()
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
        assert_eq!(found.gaps(), runs, "{damaged:?}: {:?}", found.damage);
    }
    // Nothing else has the channel.
    let found = read(&parts, &[0]);
    assert_eq!((found.events.len(), found.gaps()), (0, 1));
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
    assert_eq!((times(&found), found.gaps()), (expected, 1), "{:?}", found.damage);
}

#[test]
fn all_frames_that_follow_damage_may_be_damaged_or_missing() {
    let (front, chunk, tail) = (front(), chunk_of(0..5), end());
    for damaged in [&[2, 3][..], &[3], &[0, 1, 2, 3]] {
        let found = read(&[&front, &chunk, &chunk_of(5..9), &tail], damaged);
        let count = 9 - 4 * usize::from(damaged.contains(&2)) - 5 * usize::from(damaged.len() == 4);
        assert_eq!((found.events.len(), found.damage.len()), (count, 1), "{:?}", found.damage);
        assert_eq!(found.gaps(), 1);
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
        assert_eq!((found.damage.len() < 3, found.gaps()), (true, 1), "{:?}", found.damage);
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
        assert_eq!(found.gaps(), usize::from(!damaged.is_empty()), "{:?}", found.damage);
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
        assert_eq!((found.events.len(), found.gaps()), (9, 1), "{:?}", found.damage);
        let is_told = found.damage.iter().any(|(.., why)| why.contains("another file"));
        assert_eq!((is_told, found.damage.len() == 1), (is_other, !is_other), "{:?}", found.damage);
    }
}

#[test]
fn declarations_behind_damage_in_a_summary_need_no_schema_unless_messages_follow() {
    let damaged = [0xff; 40];
    let summary = [&fields().u32(0).record(15), &damaged[..], &channel(1, 1, "/a")].concat();
    let first = [front(), messages(0..5), summary].concat();
    let folder = Folder::new();
    for (rest, count) in [
        (end(), 1),
        ([end(), header(), channel(1, 0, "/b"), chunk_of(5..9), end()].concat(), 1),
        ([chunk_of(5..9), end()].concat(), 2),
        ([messages(5..9), end()].concat(), 2),
    ] {
        let path = folder.write(&[&first[..], &rest].concat());
        let found = gather_with(&*source(&path), 1, &ReadContext::standalone("test")).unwrap();
        assert_eq!(found.damage.len(), count, "{:?}", found.damage);
    }
}

/// What is read of a file in which the wrong length of a chunk, whose records are wrong as well,
/// leads over these bytes and a chunk of `pad` bytes into another file.
fn read_behind_wrong_length(between: &[u8], pad: usize) -> (SourceContents, Vec<(String, u64)>) {
    let mut lost = chunk_of(5..9);
    *lost.last_mut().unwrap() ^= 1;
    lost.extend(between);
    lost.extend(chunk(0, 0, &message(2, 0, 0, &vec![0; pad])));
    let len = lost.len() as u64 - 9;
    lost[1..9].copy_from_slice(&len.to_le_bytes());
    let folder = Folder::new();
    let path = folder.write(&[front(), chunk_of(0..5), lost, chunk_of(9..12), end()].concat());
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&path), 1, &context).unwrap();
    (found, context.losses.take_notes())
}

#[test]
fn channels_behind_a_chunk_whose_wrong_length_leads_into_another_file_are_noted() {
    let second = [&[0xff; 30][..], &end(), &header(), &channel(1, 0, "/b")].concat();
    // Longer than chunks may be, and not.
    for pad in [3 << 20, 1 << 20] {
        let (found, notes) = read_behind_wrong_length(&second, pad);
        assert_eq!((topics(&found), found.damage.len()), (vec!["/a"; 8], 1), "{:?}", found.damage);
        assert!(matches!(&notes[..], [(what, _)] if what.contains("declared only")), "{notes:?}");
    }
}

#[test]
fn a_file_that_follows_a_wrong_chunk_with_a_wrong_length_is_read() {
    let second = [end(), header(), channel(1, 0, "/b")].concat();
    for pad in [3 << 20, 1 << 20] {
        let (found, notes) = read_behind_wrong_length(&second, pad);
        assert_eq!(topics(&found), [["/a"; 5].as_slice(), &["/b"; 3]].concat());
        let [wrong, _] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert_eq!(wrong.1, chunk_of(5..9).len() as u64);
        // A chunk that is not read may end that file, too.
        assert_eq!(notes.len(), usize::from(pad > 2 << 20), "{notes:?}");
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
    assert!(times(&found) == expected && found.gaps() == 1, "{:?}", found.damage);
    // Finding its end would take as much memory as the stream is long.
    let is_believed = found.damage.iter().any(|(.., why)| why.contains("Attachment"));
    assert!(!is_believed, "{:?}", found.damage);
}

fn message_of(channel: u16, time: u64) -> Vec<u8> {
    message(channel, time as u32, time, &[channel as u8; 40])
}

/// The topics of the events, in order.
fn topics(found: &SourceContents) -> Vec<&str> {
    found.events.iter().map(|event| &*event.channel).collect()
}

#[test]
fn a_declaration_behind_a_gap_that_contradicts_one_before_it_is_of_another_file() {
    let first = [header(), channel(1, 0, "/a"), channel(2, 0, "/x")].concat();
    let lost = [chunk_of(5..9), end(), header(), channel(1, 0, "/b")].concat();
    let declared = [channel(2, 0, "/y"), message_of(2, 21), message_of(2, 22)].concat();
    let before = [message_of(1, 1), message_of(2, 2)].concat();
    for is_chunked in [true, false] {
        let records = |records: &[u8]| match is_chunked {
            true => chunk(0, 30, records),
            false => records.to_vec(),
        };
        let read = |behind: &[&[u8]]| {
            let first = [&first[..], &records(&before)].concat();
            let behind: Vec<u8> = behind.iter().flat_map(|part| records(part)).collect();
            read_noted(&[&first, &lost, &behind, &end()], &[1])
        };
        // Only it has messages.
        let (found, notes) = read(&[&declared]);
        assert_eq!(topics(&found), ["/a", "/x", "/y", "/y"]);
        assert_eq!((found.damage.len(), notes.len()), (1, 0), "{:?}", found.damage);
        // Messages before it had the channels of the file before.
        let (found, notes) = read(&[&message_of(1, 20), &declared]);
        assert_eq!(topics(&found), ["/a", "/x", "/a", "/y", "/y"]);
        let is_told = found.damage.iter().any(|(.., why)| why.contains("another file"));
        assert_eq!((is_told, found.damage.len(), notes.len()), (true, 2, 0), "{:?}", found.damage);
        // Those behind it have not.
        let (found, _) = read(&[&declared, &message_of(1, 23)]);
        assert_eq!(topics(&found), ["/a", "/x", "/y", "/y"]);
        let is_lost = found.damage.iter().any(|(.., why)| why.contains("not declared before it"));
        assert_eq!((is_lost, found.damage.len()), (true, 2), "{:?}", found.damage);
    }
}

#[test]
fn a_schema_behind_a_gap_that_contradicts_one_before_it_is_of_another_file() {
    let first = [front(), chunk_of(0..5)].concat();
    let lost = [end(), header()].concat();
    let records = [schema(1, "u"), channel(1, 1, "/b"), messages(5..9)].concat();
    let found = read(&[&first, &lost, &chunk(5, 8, &records), &end()], &[1]);
    assert_eq!(topics(&found), [["/a"; 5].as_slice(), &["/b"; 4]].concat());
    assert_eq!((found.damage.len(), found.gaps()), (1, 1), "{:?}", found.damage);
}

#[test]
fn channels_that_are_declared_only_before_a_gap_are_noted_if_messages_behind_it_have_them() {
    let first = [front(), chunk_of(0..5)].concat();
    let (lost, behind) = (chunk_of(5..9), chunk_of(9..12));
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let data_end = fields().u32(0).record(15);
    let again = chunk(12, 12, &[declared.clone(), messages(12..13)].concat());
    let other = [end(), header(), schema(1, "t"), channel(1, 1, "/c"), messages(3..4)].concat();
    for (rest, is_noted) in [
        (end(), true),
        ([data_end.clone(), declared, end()].concat(), false),
        ([again, end()].concat(), false),
        // The schema may be another one.
        ([data_end.clone(), channel(1, 1, "/a"), end()].concat(), true),
        ([data_end, schema(1, "t"), end()].concat(), true),
        ([other, end()].concat(), true),
    ] {
        let (found, notes) = read_noted(&[&first, &lost, &behind, &rest], &[1]);
        assert!(topics(&found).starts_with(&["/a"; 8]) && found.gaps() == 1);
        assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
        let noted = notes.iter().filter(|what| what.contains("declared only before")).count();
        assert_eq!((noted, notes.len()), (is_noted.into(), is_noted.into()), "{notes:?}");
        let (_, notes) = read_noted(&[&first, &lost, &rest], &[1]);
        assert_eq!(notes, [""; 0]);
    }
}

#[test]
fn channels_that_are_declared_again_are_sure_until_the_next_gap() {
    let first = [front(), chunk_of(0..5)].concat();
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let again = chunk(9, 11, &[declared, messages(9..12)].concat());
    let lost = chunk_of(5..9);
    for (rest, is_noted) in [(end(), false), ([chunk_of(12..14), end()].concat(), true)] {
        let (found, notes) = read_noted(&[&first, &lost, &again, &lost, &rest], &[1, 3]);
        assert_eq!((found.gaps(), notes.len()), (2, is_noted.into()), "{notes:?}");
    }
}

/// Two files after each other, whose channels have the same numbers, and messages that name their
/// file.
fn two_files() -> Vec<u8> {
    let file = |topic: &str| {
        let event = |n: i64| event(n, &format!("{topic}{}", n % 3), topic.as_bytes());
        let events: Vec<TestEvent> = (0..30).map(event).collect();
        write(&events, json!({ "chunk": 60, "compression": "none" }))
    };
    [file("/a"), file("/b")].concat()
}

/// Whether messages have channels of the other file, which has to be told.
fn is_wrong_and_told(found: &SourceContents, notes: &[String]) -> bool {
    let is_right = |event: &PlainEvent| event.channel.as_bytes().starts_with(&event.payload);
    let is_told = found.damage.iter().any(|(.., why)| why.contains("another file"))
        || notes.iter().any(|what| what.contains("declared only before"));
    let is_wrong = !found.events.iter().all(is_right);
    assert!(is_told || !is_wrong, "{:?}", found.damage);
    is_wrong
}

#[test]
fn no_message_silently_has_the_channel_of_a_file_that_precedes_a_gap() {
    let both = two_files();
    let parts: Vec<&[u8]> = both.chunks(both.len() / 40 + 1).collect();
    let mut told = 0;
    for from in sample_positions(parts.len() - 1, 12).into_iter().map(|from| from + 1) {
        for to in from..parts.len().min(from + 20) {
            let (found, notes) = read_noted(&parts, &(from..=to).collect::<Vec<_>>());
            told += usize::from(is_wrong_and_told(&found, &notes));
        }
    }
    assert!(told > 10, "{told}");
}

#[test]
fn no_message_silently_has_the_channel_of_a_file_that_precedes_overwritten_bytes() {
    let both = two_files();
    let (folder, len) = (Folder::new(), both.len() / 40 + 1);
    let mut told = 0;
    for from in sample_positions(39, 12).into_iter().map(|from| (from + 1) * len) {
        for to in (from + len..both.len().min(from + 20 * len)).step_by(len) {
            let mut bytes = both.clone();
            bytes[from..to].fill(0);
            let context = ReadContext::standalone("test");
            let found = gather_with(&*source(&folder.write(&bytes)), 1, &context).unwrap();
            let notes = context.losses.take_notes().into_iter().map(|(what, _)| what);
            told += usize::from(is_wrong_and_told(&found, &notes.collect::<Vec<_>>()));
        }
    }
    assert!(told > 10, "{told}");
}
