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
    // The length of the data of the first index.
    let at = memchr::memmem::find(&bytes, b"\x04\0\0\0op=\x04").unwrap() - 4;
    let header = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    bytes[at + 4 + header..at + 8 + header].fill(0xf0);
    overwrite(&path, &sluice_io::frames::compress(&bytes, 1).unwrap()).unwrap();
    let found = gather(&*source(&path), u64::MAX).unwrap();
    let [(place, _, reason)] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert_eq!(*place, at as u64);
    assert!(reason.contains("exceeds `max_chunk`"), "{reason}");
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
