//! What the source `ros1-bag` makes of compressed bags of which frames are damaged.

use sluice_kit::contract::{PlainEvent, SourceContents, frames, gather, overwrite};

use crate::bags::{bag, source};

/// What is read of these parts of a bag if those with these numbers are damaged.
fn read(parts: &[&[u8]], damaged: &[usize]) -> SourceContents {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag.zst");
    overwrite(&path, &frames(parts, damaged)).unwrap();
    let found = gather(&*source(&path), u64::MAX).unwrap();
    let mut reached = 0;
    for (at, len, _) in &found.damage {
        assert!(*at >= reached, "{:?}", found.damage);
        reached = at + len;
    }
    let gaps = found.damage.iter().filter(|(.., why)| why.contains("damaged or cut off")).count();
    let runs = damaged.iter().filter(|part| !damaged.contains(&(*part + 1))).count();
    assert_eq!(gaps, runs, "{:?}", found.damage);
    found
}

/// Events without their numbers, which are unknown behind a gap.
fn unnumbered(found: &SourceContents) -> Vec<PlainEvent> {
    found.events.iter().map(|event| PlainEvent { sequence: 0, ..event.clone() }).collect()
}

/// Where the chunks of a bag begin, whose headers begin with their operation.
fn chunks(bag: &[u8]) -> Vec<usize> {
    memchr::memmem::find_iter(bag, b"\x04\0\0\0op=\x05").map(|at| at - 4).collect()
}

#[test]
fn chunks_behind_damaged_frames_are_read_and_those_cut_by_them_are_not_joined() {
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        let bag = bag(case);
        let whole = unnumbered(&read(&[&bag], &[]));
        let starts = chunks(&bag);
        let last = starts[starts.len() - 1];
        // The first chunk, which has all declarations, and pieces that no record ends.
        let (front, rest) = bag.split_at(starts[1]);
        let mut parts = vec![front];
        parts.extend(rest.chunks(170));
        for damaged in (1..parts.len()).flat_map(|n| [vec![n], vec![n, n + 1]]) {
            let damaged: Vec<_> = damaged.into_iter().filter(|n| *n < parts.len()).collect();
            let found = unnumbered(&read(&parts, &damaged));
            let mut all = whole.iter();
            assert!(
                found.iter().all(|event| all.any(|other| other == event)),
                "{case} {damaged:?}"
            );
            let missing = whole.len() - found.len();
            // A chunk has at most three messages, and a gap hits at most three chunks.
            assert!(missing <= 3 * damaged.len() + 3, "{case} {damaged:?}: {missing}");
            let is_behind = damaged[0] > (last - starts[1]) / 170 + 2;
            assert!(!is_behind || missing == 0, "{case} {damaged:?}");
            let is_before = damaged[damaged.len() - 1] < (last - starts[1]) / 170;
            assert!(!is_before || found.last() == whole.last(), "{case} {damaged:?}");
        }
    }
}

#[test]
fn messages_of_a_bag_whose_start_is_missing_do_not_have_the_connections_of_the_bag_before() {
    let first = bag("bag-plain");
    let mut second = first.clone();
    for at in memchr::memmem::find_iter(&first, b"/chatter") {
        second[at + 1] = b'C';
    }
    let starts = chunks(&second);
    let (front, rest) = second.split_at(starts[0]);
    let (chunk, rest) = rest.split_at(starts[1] - starts[0]);
    let topics = |damaged: &[usize]| -> Vec<String> {
        let found = read(&[&first, front, chunk, rest], damaged);
        found.events.iter().map(|event| event.channel.clone()).collect()
    };
    let count = |topics: &[String], topic| topics.iter().filter(|t| *t == topic).count();
    let all = topics(&[]);
    let chatter = count(&all, "/chatter");
    assert_eq!((chatter > 3, count(&all, "/Chatter")), (true, chatter));
    // The declarations are in the chunk.
    assert_eq!(topics(&[1]), all);
    for damaged in [&[2][..], &[1, 2]] {
        assert_eq!(topics(damaged), all[..all.len() / 2]);
    }
    assert_eq!(topics(&[0]), all[all.len() / 2..]);
}

#[test]
fn all_frames_that_follow_damage_may_be_damaged() {
    let bag = bag("bag-bz2");
    let starts = chunks(&bag);
    let parts = [&bag[..starts[1]], &bag[starts[1]..starts[2]], &bag[starts[2]..]];
    assert!(!read(&parts, &[1, 2]).events.is_empty());
    let found = read(&parts, &[0, 1, 2]);
    assert_eq!((found.events.len(), found.damage.len()), (0, 1), "{:?}", found.damage);
}
