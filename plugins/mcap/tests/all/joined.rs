//! What the source makes of files that follow each other in one, if bytes are missing in them.

use std::ops::Range;

use serde_json::json;
use sluice_kit::contract::{PlainEvent, SourceContents, frames, gather_with, overwrite};
use sluice_model::ReadContext;

use crate::kit::{
    Folder, MAGIC, TestEvent, channel, chunk, event, fields, header, message, read, schema, source,
    write,
};

/// A file of messages that name their topic, in chunks. The first of them declares it.
fn chunked(topic: &str) -> Vec<u8> {
    let event = |n: i64| event(n, topic, topic.as_bytes());
    let events: Vec<TestEvent> = (0..6).map(event).collect();
    write(&events, json!({ "chunk": 60, "compression": "none" }))
}

/// The same without chunks.
fn unchunked(topic: &str, numbers: Range<u64>) -> Vec<u8> {
    let declared = [schema(1, "t"), channel(1, 1, topic)].concat();
    let messages = numbers.flat_map(|n| message(1, n as u32, n, topic.as_bytes()));
    let data = [header(), declared.clone(), messages.collect()].concat();
    summarized(data, &declared)
}

/// A file with these data, and a summary that declares this.
fn summarized(mut file: Vec<u8>, declared: &[u8]) -> Vec<u8> {
    file.extend(fields().u32(0).record(15));
    let footer = fields().u64(file.len() as u64).u64(0).u32(0).record(2);
    let (footer, _) = footer.split_last_chunk::<4>().unwrap();
    let summary = [declared, footer].concat();
    file.extend(&summary);
    file.extend(crc32fast::hash(&summary).to_le_bytes());
    file.extend(MAGIC);
    file
}

/// Where the records of a file begin, behind the magic bytes.
fn records(file: &[u8]) -> Vec<usize> {
    let (mut at, mut starts) = (MAGIC.len(), Vec::new());
    while at + MAGIC.len() < file.len() {
        starts.push(at);
        let len = u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap());
        at += 9 + len as usize;
    }
    starts
}

/// What is read of these bytes, as a file or as a stream, and the notes.
fn read_noted(bytes: &[u8], is_stream: bool) -> (SourceContents, Vec<String>) {
    let folder = Folder::new();
    let path = match is_stream {
        true => folder.at("in.mcap.zst"),
        false => folder.at("in.mcap"),
    };
    let stored = if is_stream { frames(&[bytes], &[]) } else { bytes.to_vec() };
    overwrite(&path, &stored).unwrap();
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&path), u64::MAX, &context).unwrap();
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

fn is_right(event: &PlainEvent) -> bool {
    event.channel.as_bytes() == event.payload
}

/// Whether damage says that declarations differ.
fn is_contradiction(why: &str) -> bool {
    ["another file", "otherwise", "differently"].iter().any(|what| why.contains(what))
}

/// Whether messages have channels of the other file, which has to be told.
fn is_wrong_and_told(bytes: &[u8], is_stream: bool) -> bool {
    let (found, notes) = read_noted(bytes, is_stream);
    let is_told = found.damage.iter().any(|(.., why)| is_contradiction(why))
        || notes.iter().any(|what| what.contains("declared only before"));
    let is_wrong = !found.events.iter().all(is_right);
    assert!(is_told || !is_wrong, "{:?}", found.damage);
    is_wrong
}

#[test]
fn no_message_silently_has_the_channel_of_a_file_whose_end_is_missing_with_the_start_of_the_next() {
    let mut told = 0;
    for (first, second) in [
        (chunked("/a"), chunked("/b")),
        (chunked("/a"), chunked("/longer")),
        (unchunked("/a", 0..3), unchunked("/b", 0..3)),
        (unchunked("/a", 0..3), unchunked("/longer", 0..4)),
    ] {
        let mut bounds = records(&second);
        let data_end = *bounds.iter().find(|at| second[**at] == 15).unwrap();
        bounds.push(second.len());
        for (from, to) in
            records(&first).iter().flat_map(|from| bounds.iter().map(move |to| (from, to)))
        {
            // The bytes that are left of the records that are cut.
            for (before, behind) in [(0, 0), (3, 0), (0, 3), (7, 8)] {
                let whole = [&first[..from + before], &second[to - behind..]].concat();
                told += usize::from(is_wrong_and_told(&whole, false));
                told += usize::from(is_wrong_and_told(&whole, true));
                // Without a summary, only damage tells.
                if (before, behind) != (0, 0) && *to < data_end {
                    let len = whole.len() - (second.len() - data_end);
                    told += usize::from(is_wrong_and_told(&whole[..len], false));
                }
            }
        }
    }
    assert!(told > 100, "{told}");
}

#[test]
fn a_changed_declaration_is_told_by_the_summary_of_its_file_whatever_follows() {
    let first = unchunked("/a", 0..6);
    let topic = first.windows(2).position(|bytes| bytes == b"/a").unwrap() + 1;
    let mut changed = first.clone();
    changed[topic] = b'z';
    let second = unchunked("/b", 0..6);
    for both in [[changed.clone(), second.clone()].concat(), [second, changed].concat()] {
        let found = read(&both);
        let [(.., why)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(why.contains("declares channel 1 otherwise"), "{why}");
    }
    // A summary that its checksum contradicts tells nothing.
    let mut broken = first.clone();
    let topic = broken.windows(2).rposition(|bytes| bytes == b"/a").unwrap() + 1;
    broken[topic] = b'z';
    let second = unchunked("/b", 0..6);
    for both in [[broken.clone(), second.clone()].concat(), [second, broken].concat()] {
        assert_eq!(read(&both).damage, []);
    }
}

/// A file in chunks whose first chunk, which declares its channel, is wrong.
fn without_declaration(topic: &str) -> Vec<u8> {
    let mut file = chunked(topic);
    let declared = file.windows(2).position(|bytes| bytes == topic.as_bytes()).unwrap();
    file[declared] ^= 1;
    file
}

/// A file in chunks that lacks the record with this number.
fn without_record(file: &[u8], number: usize) -> Vec<u8> {
    let starts = records(file);
    [&file[..starts[number]], &file[starts[number + 1]..]].concat()
}

#[test]
fn a_misplaced_summary_declares_channels_only_of_its_own_file() {
    let (first, second) = (without_declaration("/a"), chunked("/b"));
    // Behind the header and the first chunk.
    for number in 2..6 {
        let (found, _) =
            read_noted(&[&first[..], &without_record(&second, number)].concat(), false);
        assert!(found.events.iter().all(is_right), "{number}: {:?}", found.damage);
        assert!(found.events.len() >= 4, "{number}: {:?}", found.damage);
    }
    let (first, second) = (chunked("/a"), without_declaration("/b"));
    for number in 2..6 {
        let both = [&first[..], &without_record(&second, number)].concat();
        let (found, notes) = read_noted(&both, false);
        assert!(found.events.iter().all(is_right), "{number}: {:?}", found.damage);
        let of_second = found.events.iter().filter(|event| event.channel == "/b").count();
        assert!(of_second >= 2, "{number}: {of_second}, {:?}", found.damage);
        assert!(notes.iter().any(|what| what.contains("read by the summary")), "{notes:?}");
    }
}

#[test]
fn messages_read_by_the_summary_of_a_file_that_begins_behind_them_are_damage() {
    let (first, second) = (without_declaration("/a"), chunked("/b"));
    // As many bytes are lost as the first file has behind its first chunk.
    let added = chunk(0, 99, &message(1, 0, 50, &vec![b'x'; first.len()]));
    let starts = records(&second);
    let data = [&second[..starts[2]], &added, &second[starts[2]..starts[3]]].concat();
    let declared = [schema(1, "t"), channel(1, 1, "/b")].concat();
    let second = summarized(data, &declared);
    let second = [&second[..starts[2]], &second[starts[2] + added.len()..]].concat();
    let (found, _) = read_noted(&[first, second].concat(), false);
    assert!(found.events.iter().any(|event| !is_right(event)), "{:?}", found.damage);
    let is_told = found.damage.iter().any(|(.., why)| why.contains("another file"));
    assert!(is_told, "{:?}", found.damage);
}

#[test]
fn what_is_verified_of_a_misplaced_summary_contradicts_nothing() {
    let folder = Folder::new();
    let file = chunked("/a");
    // The last records before the summary are those that end the data.
    for number in 2..6 {
        let path = folder.write(&without_record(&file, number));
        let faults = source(&path).faults(&path).unwrap();
        let count = |what| faults.iter().filter(|why| why.contains(what)).count();
        assert_eq!(count("the summary is not where the footer says"), 1, "{number}: {faults:?}");
        assert_eq!(count("the summary cannot be used"), 0, "{number}: {faults:?}");
    }
}

#[test]
fn a_misplaced_summary_declares_the_channels_behind_damage_in_front_of_its_file() {
    let mut file = unchunked("/a", 0..6);
    // Behind the kind of the record that declares the channel.
    let at = records(&file)[2] + 1;
    file.splice(at..at, [0; 40]);
    let (found, _) = read_noted(&file, false);
    assert_eq!((found.events.len(), found.damage.len()), (6, 1), "{:?}", found.damage);
    assert!(found.events.iter().all(is_right));
}

#[test]
fn a_wrong_summary_of_intact_data_is_no_damage() {
    let file = chunked("/a");
    let topic = file.windows(2).rposition(|bytes| bytes == b"/a").unwrap() + 1;
    let mut changed = file.clone();
    changed[topic] = b'z';
    assert_eq!(read(&changed).damage, []);
    // Damage in it is, but tells nothing of the data.
    let damaged = [&file[..topic], &[0; 40], &file[topic..]].concat();
    let found = read(&damaged);
    assert!(!found.damage.iter().any(|(.., why)| is_contradiction(why)), "{:?}", found.damage);
}

/// A file with a summary that has no checksum.
fn without_crc(mut file: Vec<u8>) -> Vec<u8> {
    let crc = file.len() - MAGIC.len() - 4;
    file[crc..crc + 4].fill(0);
    file
}

#[test]
fn damage_in_a_summary_is_another_file_only_if_messages_follow() {
    let mut lost = channel(1, 0, "/b");
    lost[0] = 0x91;
    let messages = |numbers: Range<u64>| {
        numbers.flat_map(|n| message(1, n as u32, n, b"/b")).collect::<Vec<_>>()
    };
    let header_record = &header()[MAGIC.len()..];
    let data = [header(), lost, messages(0..3)].concat();
    let damaged = [&channel(1, 0, "/b"), header_record].concat();
    let found = read(&without_crc(summarized(data.clone(), &damaged)));
    assert_eq!((found.events.len(), found.damage.len()), (3, 1), "{:?}", found.damage);

    let end = fields().u32(0).record(15);
    let data = [&data, &end, header_record, &channel(1, 0, "/b"), &messages(3..6)].concat();
    let found = read(&without_crc(summarized(data, &channel(1, 0, "/b"))));
    let told = found.damage.iter().filter(|(.., why)| why.contains("another file begins"));
    assert_eq!((found.events.len(), told.count()), (6, 1), "{:?}", found.damage);
}

#[test]
fn a_sound_summary_contradicts_the_data_wherever_its_footer_says_that_it_begins() {
    let declared = channel(1, 0, "/a");
    let data = [header(), declared, message(1, 0, 0, b""), message(1, 1, 1, b"")].concat();
    let end = fields().u32(0).record(15);
    let private = fields().raw(b"private").record(0x90);
    let statistics = fields().raw(&[0; 46]).record(11);
    let other = channel(1, 0, "/b");
    for (before, summary) in [
        (end.clone(), other.clone()),
        ([end, private].concat(), other.clone()),
        (Vec::new(), [statistics, other].concat()),
    ] {
        let data = [&data[..], &before].concat();
        let footer = fields().u64(data.len() as u64).u64(0).u32(0).record(2);
        let (footer, _) = footer.split_last_chunk::<4>().unwrap();
        let crc = crc32fast::hash(&[&summary, footer].concat());
        for (crc, expected) in [(crc, 1), (crc ^ 1, 0)] {
            let file = [&data, &summary, footer, &crc.to_le_bytes(), MAGIC].concat();
            // The last summary of an input is read before it.
            let found = read(&[file, unchunked("/c", 0..6)].concat());
            let told = found.damage.iter().filter(|(.., why)| why.contains("1 otherwise"));
            assert_eq!(told.count(), expected, "{before:?}: {:?}", found.damage);
        }
    }
}

#[test]
fn a_schema_that_the_data_declare_twice_is_damage_once() {
    let declared = [schema(1, "t"), channel(1, 1, "/a"), message(1, 0, 0, b"/a")].concat();
    let again = [schema(1, "u"), message(1, 1, 1, b"/a")].concat();
    let summary = [schema(1, "u"), channel(1, 1, "/a")].concat();
    let file = without_crc(summarized([header(), declared, again].concat(), &summary));
    for is_stream in [false, true] {
        let (found, _) = read_noted(&file, is_stream);
        let [(.., why)] = &found.damage[..] else { panic!("{:?}", found.damage) };
        assert!(why.contains("declared again, differently"), "{why}");
    }
}

#[test]
fn damage_comes_in_order_where_a_wrong_declaration_behind_damage_may_be_of_a_summary() {
    let start = [header(), schema(1, "t"), channel(1, 1, "/a"), message(1, 0, 0, b"xyz")].concat();
    let data_end = fields().u32(0).record(15);
    let declared = channel(1, 0, "/a");
    let wrong = fields().u16(2).u16(0).bytes(b"/b").bytes(b"").u32(99).record(4);
    // Nothing but the start of a file has a header. The kind of the message is wrong.
    let misplaced = &header()[MAGIC.len()..];
    let mut damage = message(1, 1, 1, b"xyz");
    damage[0] |= 0x80;
    let rest = message(1, 2, 2, b"xyz");
    let whole = [&start[..], &data_end, misplaced, &declared, &wrong, &damage, &rest].concat();
    let first = start.len() + data_end.len();
    let held = first + misplaced.len() + declared.len();
    let at = [first, held, held + wrong.len()].map(|at| at as u64);
    for is_stream in [false, true] {
        let (found, _) = read_noted(&whole, is_stream);
        let starts: Vec<u64> = found.damage.iter().map(|(at, ..)| *at).collect();
        assert_eq!(starts, at, "{:?}", found.damage);
        assert_eq!(found.events.len(), 2);
    }
}
