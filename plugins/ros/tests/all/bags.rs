//! What the source `ros1-bag` promises, whatever the bag looks like.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{
    PlainEvent, SourceContents, any_splitting_is_the_same, gather, gather_with, overwrite,
    sample_positions, splits_cover_the_inputs,
};
use sluice_model::{ChannelQuery, Pattern, Patterns, Query, ReadContext, Registry, Source};

pub(crate) fn bag(case: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case);
    std::fs::read(folder.join("log.bag")).unwrap()
}

pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    Registry::linked().source("ros1-bag", json!({ "path": path })).unwrap()
}

/// What is read of a bag, and the notes; `name` is that of its file.
pub(crate) fn read_noted(name: &str, bytes: &[u8]) -> (SourceContents, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    overwrite(&path, bytes).unwrap();
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&path), u64::MAX, &context).unwrap();
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

/// What is read of a bag that is not compressed as a whole.
pub(crate) fn read(bytes: &[u8]) -> SourceContents {
    read_noted("a.bag", bytes).0
}

fn contents(path: &Path) -> SourceContents {
    any_splitting_is_the_same(&*source(path), &[1, 100, 300, 5000])
}

#[test]
fn a_bag_is_the_same_in_any_splits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let mut all = Vec::new();
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        overwrite(&path, &bag(case)).unwrap();
        splits_cover_the_inputs(&*source(&path), 100);
        assert!(source(&path).splits(100, &Query::default()).unwrap().len() > 1);
        let found = contents(&path);
        assert_eq!(found.damage, []);
        assert_eq!(source(&path).events_in(&path).unwrap(), Some(found.events.len() as u64));
        assert_eq!(source(&path).faults(&path).unwrap(), [""; 0]);
        all.push(found.events);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_bag_that_has_changed_is_read_by_its_new_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    overwrite(&path, &bag("bag-plain")).unwrap();
    let known = source(&path);
    known.splits(100, &Query::default()).unwrap();
    overwrite(&path, &bag("bag-lz4")).unwrap();
    let expected = source(&path);
    let splits = |source: &dyn Source| source.splits(100, &Query::default()).unwrap();
    assert_eq!(splits(&*known), splits(&*expected));
    assert_eq!(gather(&*known, 100).unwrap(), gather(&*expected, 100).unwrap());
}

#[test]
fn a_cut_bag_has_the_events_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        let whole = bag(case);
        overwrite(&path, &whole).unwrap();
        let expected = contents(&path).events;
        let mut before = 0;
        let chunks =
            whole.windows(8).enumerate().filter(|(_, bytes)| bytes == b"\x04\0\0\0op=\x05");
        let mut cuts = sample_positions(whole.len(), 60);
        // Between two chunks, nothing is incomplete.
        cuts.extend(chunks.map(|(at, _)| at - 4));
        cuts.sort_unstable();
        for cut in cuts {
            overwrite(&path, whole.get(..cut).unwrap()).unwrap();
            let found = gather(&*source(&path), u64::MAX).unwrap();
            assert!(expected.starts_with(&found.events), "{case} cut at {cut}");
            assert!(found.events.len() >= before, "{case} cut at {cut}");
            before = found.events.len();
            let is_told = !found.damage.is_empty() || found.events.len() == expected.len();
            assert!(is_told, "{case} cut at {cut}");
            for (offset, length, reason) in &found.damage {
                assert!(offset + length <= cut as u64 && !reason.is_empty());
            }
        }
    }
}

/// A context that needs these times, and channels that match.
fn context(times: std::ops::Range<i64>, channel: &str) -> ReadContext {
    let none = Patterns::default();
    let patterns = Patterns(vec![Pattern::parse(channel).unwrap()]);
    let channels = ChannelQuery::from_patterns(&patterns, &none, &none);
    let query = Query { start: Some(times.start), end: Some(times.end), channels };
    ReadContext { query, ..ReadContext::standalone("test") }
}

#[test]
fn chunks_are_skipped_only_if_nothing_in_them_is_needed_whatever_the_index_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        let sound = bag(case);
        let field = b"index_pos=";
        let at = sound.windows(field.len()).position(|bytes| bytes == field).unwrap() + field.len();
        let index_at = u64::from_le_bytes(sound[at..at + 8].try_into().unwrap()) as usize;
        let mut changed = vec![sound.clone()];
        for place in sample_positions(sound.len() - index_at, 30) {
            let mut bytes = sound.clone();
            bytes[(index_at + place).min(sound.len() - 1)] ^= 1 << (place % 8);
            changed.push(bytes);
        }
        for bytes in changed {
            overwrite(&path, &bytes).unwrap();
            let whole = gather(&*source(&path), 1).unwrap();
            let (first, last) = match (whole.events.first(), whole.events.last()) {
                (Some(first), Some(last)) => (first.timestamp, last.timestamp),
                _ => continue,
            };
            let middle = first + (last - first) / 2;
            let topic = whole.events[0].channel.clone();
            for (times, channel) in
                [(first..middle, "*"), (middle..last, "*"), (first..last + 1, &*topic), (0..1, "*")]
            {
                let needed = |event: &&PlainEvent| {
                    times.contains(&event.timestamp) && (channel == "*" || event.channel == channel)
                };
                let expected: Vec<_> = whole.events.iter().filter(needed).cloned().collect();
                let found = gather_with(&*source(&path), 1, &context(times.clone(), channel));
                assert_eq!(found.unwrap().events, expected, "{case}");
            }
        }
    }
}

#[test]
fn a_chunk_that_is_not_needed_is_not_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let mut bytes = bag("bag-bz2");
    let chunks: Vec<usize> = memchr::memmem::find_iter(&bytes, b"BZh").map(|at| at + 10).collect();
    // The first has the declarations that are compared with the index.
    let last = *chunks.last().unwrap();
    bytes[last] ^= 0x55;
    overwrite(&path, &bytes).unwrap();
    assert_eq!(gather(&*source(&path), 1).unwrap().damage.len(), 1);
    let found = gather_with(&*source(&path), 1, &context(0..1, "*")).unwrap();
    assert_eq!((found.events.len(), found.damage.len()), (0, 0));
}

/// What follows a damaged record in a chunk belongs to connections of the index.
#[test]
fn messages_behind_damage_in_a_chunk_keep_their_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let mut bytes = bag("bag-plain");
    let all = {
        overwrite(&path, &bytes).unwrap();
        contents(&path).events.len()
    };
    // A message is a header of 38 bytes with `op=\x02` first.
    let messages = memchr::memmem::find_iter(&bytes, b"\x26\0\0\0\x04\0\0\0op=\x02");
    let places: Vec<usize> = messages.collect();
    assert_eq!(places.len(), all);
    for place in places {
        bytes[place] = 0;
        overwrite(&path, &bytes).unwrap();
        let found = contents(&path);
        assert_eq!((found.events.len(), found.damage.len()), (all - 1, 1), "at {place}");
        bytes[place] = 0x26;
    }
}

#[test]
fn messages_behind_a_damaged_chunk_have_the_same_numbers_in_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let (path, packed) = (folder.path().join("a.bag"), folder.path().join("a.bag.zst"));
    let whole = bag("bag-bz2");
    let chunks: Vec<usize> = memchr::memmem::find_iter(&whole, b"BZh").map(|at| at + 10).collect();
    assert!(chunks.len() > 2);
    for (n, chunk) in chunks.iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[*chunk] ^= 0x55;
        overwrite(&path, &bytes).unwrap();
        overwrite(&packed, &sluice_io::frames::compress(&bytes, 1).unwrap()).unwrap();
        let numbers = |path| -> Vec<i64> {
            let found = gather(&*source(path), u64::MAX).unwrap();
            assert!(!found.damage.is_empty() && !found.events.is_empty());
            found.events.iter().map(|event| event.sequence).collect()
        };
        // The first has the declarations that the others need; only an index has them, too.
        if n > 0 {
            assert_eq!(numbers(&packed), numbers(&path), "chunk {n}");
        }
    }
}

#[test]
fn a_record_of_any_length_is_not_waited_for_in_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag.zst");
    let mut bytes = bag("bag-plain");
    // The length of the data of the head.
    let at = b"#ROSBAG V2.0\n".len();
    let header = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    bytes[at + 4 + header..at + 8 + header].fill(0xf0);
    overwrite(&path, &sluice_io::frames::compress(&bytes, 1).unwrap()).unwrap();
    let found = gather(&*source(&path), u64::MAX).unwrap();
    let [(place, _, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert_eq!(*place, at as u64);
    assert!(reason.contains("exceeds `max_chunk`"), "{reason}");
}

/// A header or a description: names and values after their lengths.
fn bag_fields(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let field = |(name, value): &(&str, &[u8])| {
        let text = [name.as_bytes(), b"=", value].concat();
        [&(text.len() as u32).to_le_bytes()[..], &text].concat()
    };
    fields.iter().flat_map(field).collect()
}

pub(crate) fn bag_record(header: &[(&str, &[u8])], data: &[u8]) -> Vec<u8> {
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    [part(&bag_fields(header)), part(data)].concat()
}

pub(crate) fn connection(id: u32, topic: &[u8]) -> Vec<u8> {
    let description = bag_fields(&[("topic", topic), ("type", b"t/T")]);
    bag_record(&[("op", &[7]), ("conn", &id.to_le_bytes()), ("topic", topic)], &description)
}

/// The time in the form of bags: whole seconds.
fn bag_time(seconds: u32) -> Vec<u8> {
    [seconds.to_le_bytes(), [0; 4]].concat()
}

pub(crate) fn message(id: u32, seconds: u32) -> Vec<u8> {
    let time = bag_time(seconds);
    bag_record(&[("op", &[2]), ("conn", &id.to_le_bytes()), ("time", &time)], b"data")
}

pub(crate) fn bag_chunk(records: &[u8]) -> Vec<u8> {
    let len = (records.len() as u32).to_le_bytes();
    bag_record(&[("op", &[5]), ("compression", b"none"), ("size", &len)], records)
}

#[test]
fn messages_of_a_connection_that_is_declared_again_differently_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let head: [(&str, &[u8]); 4] =
        [("op", &[3]), ("index_pos", &[0; 8]), ("conn_count", &[0; 4]), ("chunk_count", &[0; 4])];
    let front = [b"#ROSBAG V2.0\n".to_vec(), bag_record(&head, b"")].concat();
    let records = [connection(0, b"/a"), message(0, 1), connection(0, b"/b"), message(0, 2)];
    let records = [&records.concat()[..], &connection(1, b"/b"), &message(1, 3)].concat();
    for bag in [[&front[..], &records].concat(), [front.clone(), bag_chunk(&records)].concat()] {
        overwrite(&path, &bag).unwrap();
        let found = contents(&path);
        let events: Vec<(i64, &str)> =
            found.events.iter().map(|e| (e.timestamp / 1_000_000_000, &*e.channel)).collect();
        assert_eq!(events, [(1, "/a"), (3, "/b")]);
        let reason = &found.damage[0].2;
        assert!(reason.contains("the connection 0 is declared again"), "{reason}");
    }
}

/// A chunk of a closed bag: when its messages are, when the index behind it says that they are, and
/// from when to when the end of the bag says so.
pub(crate) type IndexedChunk = ([u32; 3], [u32; 3], (u32, u32));

pub(crate) fn closed_bag(chunks: &[IndexedChunk]) -> Vec<u8> {
    let magic = b"#ROSBAG V2.0\n".to_vec();
    let (zero, one, three) = (0u32.to_le_bytes(), 1u32.to_le_bytes(), 3u32.to_le_bytes());
    let chunk_count = (chunks.len() as u32).to_le_bytes();
    let head = |index_at: u64| {
        let index_at = index_at.to_le_bytes();
        let fields: [(&str, &[u8]); 4] = [
            ("op", &[3]),
            ("index_pos", &index_at),
            ("conn_count", &one),
            ("chunk_count", &chunk_count),
        ];
        bag_record(&fields, b"")
    };
    let front_len = magic.len() + head(0).len();
    let (mut data, mut end) = (Vec::new(), connection(0, b"/a"));
    for (times, indexed, (first, last)) in chunks {
        let chunk_at = ((front_len + data.len()) as u64).to_le_bytes();
        let (mut records, mut entries) = (connection(0, b"/a"), Vec::new());
        for (time, listed) in times.iter().zip(indexed) {
            let place = (records.len() as u32).to_le_bytes().to_vec();
            entries.extend([bag_time(*listed), place].concat());
            records.extend(message(0, *time));
        }
        data.extend(bag_chunk(&records));
        let index: [(&str, &[u8]); 4] =
            [("op", &[4]), ("ver", &one), ("conn", &zero), ("count", &three)];
        data.extend(bag_record(&index, &entries));
        let (start_time, end_time) = (bag_time(*first), bag_time(*last));
        let info: [(&str, &[u8]); 6] = [
            ("op", &[6]),
            ("ver", &one),
            ("chunk_pos", &chunk_at),
            ("start_time", &start_time),
            ("end_time", &end_time),
            ("count", &one),
        ];
        end.extend(bag_record(&info, &[zero, three].concat()));
    }
    let index_at = (front_len + data.len()) as u64;
    [magic, head(index_at), data, end].concat()
}

#[test]
fn an_index_that_does_not_list_the_messages_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let times = [10, 11, 12];
    let index = "the indexes behind 1 of 1 chunks";
    let end = "what the end of the bag says of 1 of 1 chunks";
    for (indexed, described, expected) in [
        (times, (10, 12), &[][..]),
        (times, (11, 12), &[end]),
        ([10, 11, 13], (10, 12), &[index]),
        ([13; 3], (13, 13), &[index, end]),
    ] {
        overwrite(&path, &closed_bag(&[(times, indexed, described)])).unwrap();
        let found = contents(&path);
        assert_eq!((found.events.len(), found.damage.len()), (3, 0));
        let faults = source(&path).faults(&path).unwrap();
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        assert!(
            faults.iter().zip(expected).all(|(found, part)| found.contains(part)),
            "{faults:?}"
        );
    }
}

/// The seconds of the messages from `from` to before `to`, and the damage.
fn in_window(path: &Path, splits: u64, (from, to): (u32, u32)) -> (Vec<i64>, Vec<String>) {
    let second = 1_000_000_000;
    let times = i64::from(from) * second..i64::from(to) * second;
    let found = gather_with(&*source(path), splits, &context(times, "*")).unwrap();
    let seconds = found.events.iter().map(|event| event.timestamp / second).collect();
    (seconds, found.damage.into_iter().map(|(.., reason)| reason).collect())
}

/// A chunk whose messages are at other times than all of the bag says.
const MISINDEXED: [IndexedChunk; 3] = [
    ([10, 11, 12], [110, 111, 112], (110, 112)),
    ([13, 14, 15], [113, 114, 115], (113, 115)),
    ([16, 17, 18], [116, 117, 118], (116, 118)),
];

#[test]
fn a_window_is_complete_if_the_first_chunk_of_a_connection_contradicts_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    overwrite(&path, &closed_bag(&MISINDEXED)).unwrap();
    for splits in [1, u64::MAX] {
        assert_eq!(in_window(&path, splits, (11, 18)), ((11..18).collect(), vec![]));
        assert_eq!(in_window(&path, splits, (100, 200)), (vec![], vec![]));
    }
}

#[test]
fn messages_that_contradict_the_index_by_which_others_are_skipped_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let first = ([1, 2, 3], [1, 2, 3], (1, 3));
    let [second, third, fourth] = MISINDEXED;
    overwrite(&path, &closed_bag(&[first, second, third, fourth])).unwrap();
    for splits in [1, u64::MAX] {
        // The index has nothing there, and no chunk is read.
        assert_eq!(in_window(&path, splits, (10, 19)), (vec![], vec![]));
        // By the index, the second and the third chunk are needed.
        let (seconds, damage) = in_window(&path, splits, (13, 114));
        assert_eq!(seconds, [13, 14, 15]);
        assert_eq!(damage.len(), 2);
        assert!(damage.iter().all(|why| why.contains("may be missing")), "{damage:?}");
    }
    // Without a window, the index decides nothing.
    assert_eq!(contents(&path).damage, []);
    // Where the bag contradicts itself, too, nothing is skipped.
    let second = ([10, 11, 12], [10, 11, 12], (110, 112));
    overwrite(&path, &closed_bag(&[first, second])).unwrap();
    assert_eq!(in_window(&path, u64::MAX, (11, 112)), (vec![11, 12], vec![]));
}

proptest! {
    #[test]
    fn any_change_is_read_the_same_in_pieces(
        case in prop_oneof![Just("bag-plain"), Just("bag-lz4")],
        at in any::<prop::sample::Index>(),
        len in 0usize..12,
        put in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bag");
        let mut bytes = bag(case);
        let at = at.index(bytes.len()).max(13);
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, put);
        overwrite(&path, &bytes).unwrap();
        let found = contents(&path);
        let mut last = 0;
        for (offset, length, reason) in &found.damage {
            prop_assert!(*offset >= last && !reason.is_empty(), "{:?}", found.damage);
            last = offset + length;
        }
        prop_assert!(last <= bytes.len() as u64);
    }
}
