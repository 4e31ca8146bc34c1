//! What the source `ros1-bag` makes of compressed bags of which frames are damaged.

use sluice_kit::contract::{
    PlainEvent, SourceContents, frames, gather_with, overwrite, sample_positions,
};
use sluice_model::ReadContext;

use crate::bags::{self, bag, source};

/// What is read of these parts of a bag if those with these numbers are damaged.
fn read(parts: &[&[u8]], damaged: &[usize]) -> SourceContents {
    read_noted(parts, damaged).0
}

/// The same, and the notes.
fn read_noted(parts: &[&[u8]], damaged: &[usize]) -> (SourceContents, Vec<String>) {
    let (found, notes) = bags::read_noted("a.bag.zst", &frames(parts, damaged));
    let runs = damaged.iter().filter(|part| !damaged.contains(&(*part + 1))).count();
    assert_eq!(found.gaps(), runs, "{:?}", found.damage);
    (found, notes)
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
    let second = other(&first);
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

/// The same bag with the topic `/Chatter` in place of `/chatter`.
fn other(bag: &[u8]) -> Vec<u8> {
    let mut other = bag.to_vec();
    for at in memchr::memmem::find_iter(bag, b"/chatter") {
        other[at + 1] = b'C';
    }
    other
}

/// Counts of the events with each topic, and the damage besides the gap.
fn outline(found: &SourceContents) -> ([usize; 2], Vec<&str>) {
    let count = |topic: &str| found.events.iter().filter(|e| e.channel == topic).count();
    let damage = found.damage.iter().map(|(.., why)| &**why);
    let damage = damage.filter(|why| !why.contains("damaged or cut off"));
    ([count("/chatter"), count("/Chatter")], damage.collect())
}

/// Where the index of a bag begins, behind its chunks.
pub(crate) fn index(bag: &[u8]) -> usize {
    let at = memchr::memmem::find(bag, b"index_pos=").unwrap() + b"index_pos=".len();
    u64::from_le_bytes(bag[at..at + 8].try_into().unwrap()) as usize
}

#[test]
fn connections_of_a_bag_whose_end_is_missing_are_contradicted_by_those_behind_the_gap() {
    let first = bag("bag-plain");
    let (second, starts) = (other(&first), chunks(&first));
    let read = |second: &[u8], (to, from): (usize, usize)| {
        let lost = [&first[to..], &second[..from]].concat();
        read_noted(&[&first[..to], &lost, &second[from..]], &[1])
    };
    // The index of the second bag tells.
    let (found, notes) = read(&second, (starts[3], starts[3]));
    let (counts, damage) = outline(&found);
    assert_eq!((counts, notes), ([5 + 3, 0], vec![]));
    assert!(matches!(damage[..], [why] if why.contains("another bag")), "{damage:?}");
    // More chunks follow than the first bag has.
    let (found, notes) = read(&second, (starts[3], starts[2]));
    let (counts, damage) = outline(&found);
    assert_eq!((counts, notes), ([5 + 4, 0], vec![]));
    let [undeclared, told] = damage[..] else { panic!("{damage:?}") };
    assert!(undeclared.contains("undeclared") && told.contains("another bag"), "{damage:?}");
    // All chunks of the first bag are there.
    let (found, notes) = read(&second, (index(&first), starts[1]));
    let (counts, damage) = outline(&found);
    assert_eq!((counts, notes), ([8, 0], vec![]));
    assert!(damage.len() == 4 && damage.iter().all(|why| why.contains("undeclared")));
    // The second bag says that it begins, but not its first bytes.
    let (found, notes) = read(&second, (starts[3], 13));
    assert_eq!((outline(&found), notes), (([5, 8], vec![]), vec![]));
    // The second bag has the same connections.
    let (found, notes) = read(&first, (starts[3], starts[3]));
    assert_eq!((outline(&found), notes), (([5 + 3, 0], vec![]), vec![]));
}

#[test]
fn connections_that_are_declared_only_before_a_gap_are_noted_if_messages_behind_it_have_them() {
    let bag = bag("bag-plain");
    let (starts, end) = (chunks(&bag), index(&bag));
    let (first, lost) = (&bag[..starts[1]], &bag[starts[1]..starts[2]]);
    for (rest, is_noted) in [
        (&bag[starts[2]..], false),
        (&bag[starts[2]..starts[4]], true),
        (&bag[starts[2]..end], true),
        (&bag[end..], false),
        (&[&bag[starts[2]..end], &bag].concat(), true),
    ] {
        let (found, notes) = read_noted(&[first, lost, rest], &[1]);
        assert_eq!(outline(&found).1, [""; 0]);
        let noted = notes.iter().filter(|what| what.contains("declared only before")).count();
        assert_eq!((noted, notes.len()), (is_noted.into(), is_noted.into()), "{notes:?}");
    }
}

/// Two bags after each other, whose connections have the same numbers, and the messages of the
/// second are a second later.
pub(crate) fn two_bags() -> Vec<u8> {
    const SECONDS: &[u8] = b"time=\x00\xf1Se";
    let first = bag("bag-plain");
    let mut second = other(&first);
    for at in memchr::memmem::find_iter(&first, SECONDS) {
        second[at + b"time=".len()] = 1;
    }
    [first, second].concat()
}

/// Whether messages have connections of the other bag, which has to be told.
pub(crate) fn is_wrong_and_told(found: &SourceContents, notes: &[String]) -> bool {
    let is_wrong = found.events.iter().any(|event| {
        let is_second = event.timestamp >= 1_700_000_001_000_000_000;
        event.channel == if is_second { "/chatter" } else { "/Chatter" }
    });
    let is_contradiction =
        |why: &str| ["another bag", "is declared again"].iter().any(|what| why.contains(what));
    let is_told = found.damage.iter().any(|(.., why)| is_contradiction(why))
        || notes.iter().any(|what| what.contains("declared only before"));
    assert!(is_told || !is_wrong, "{:?}", found.damage);
    is_wrong
}

#[test]
fn no_message_silently_has_the_connection_of_a_bag_that_precedes_a_gap() {
    let both = two_bags();
    let parts: Vec<&[u8]> = both.chunks(both.len() / 60 + 1).collect();
    let mut told = 0;
    for from in sample_positions(parts.len() - 1, 12).into_iter().map(|from| from + 1) {
        for to in from..parts.len().min(from + 34) {
            let (found, notes) = read_noted(&parts, &(from..=to).collect::<Vec<_>>());
            told += usize::from(is_wrong_and_told(&found, &notes));
        }
    }
    assert!(told > 10, "{told}");
}

#[test]
fn no_message_silently_has_the_connection_of_a_bag_that_precedes_overwritten_bytes() {
    let both = two_bags();
    let folder = tempfile::tempdir().unwrap();
    let (path, len) = (folder.path().join("a.bag"), both.len() / 60 + 1);
    let mut told = 0;
    for from in sample_positions(59, 12).into_iter().map(|from| (from + 1) * len) {
        for to in (from + len..both.len().min(from + 34 * len)).step_by(len) {
            let mut bytes = both.clone();
            bytes[from..to].fill(0xff);
            overwrite(&path, &bytes).unwrap();
            let context = ReadContext::standalone("test");
            let found = gather_with(&*source(&path), u64::MAX, &context).unwrap();
            let notes = context.losses.take_notes().into_iter().map(|(what, _)| what);
            told += usize::from(is_wrong_and_told(&found, &notes.collect::<Vec<_>>()));
        }
    }
    assert!(told > 10, "{told}");
}

#[test]
fn messages_behind_damage_in_the_last_chunk_keep_their_connections() {
    let bag = bag("bag-one-chunk");
    // A message is a header of 38 bytes with `op=\x02` first.
    let messages = memchr::memmem::find_iter(&bag, b"\x26\0\0\0\x04\0\0\0op=\x02");
    let places: Vec<usize> = messages.collect();
    let (from, to) = (places[3], places[5]);
    let mut overwritten = bag.clone();
    overwritten[from..to].fill(0xff);
    let lost = [&bag[..from], &bag[from..to], &bag[to..]];
    for (parts, damaged) in [(&[&overwritten[..]][..], &[][..]), (&lost, &[1])] {
        let (found, notes) = read_noted(parts, damaged);
        assert_eq!(found.events.len(), places.len() - 2, "{:?}", found.damage);
        // A gap also makes the length of the chunk wrong. The index declares connections again.
        let damage = 1 + damaged.len();
        assert_eq!((found.damage.len(), notes), (damage, vec![]), "{:?}", found.damage);
    }
}
