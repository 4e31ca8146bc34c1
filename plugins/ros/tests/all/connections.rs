//! Which connections the source `ros1-bag` knows if what declares them is damaged or missing.

use memchr::memmem;
use sluice_kit::contract::{PlainEvent, sample_positions};

use crate::bags::{self, bag, bag_chunk, closed_bag, connection, message};
use crate::gaps::{index, is_wrong_and_told, two_bags};

const CASES: [&str; 3] = ["bag-plain", "bag-bz2", "bag-lz4"];

/// The events of a bag without their numbers, which damage may change, and how much is damaged.
fn read(bytes: &[u8]) -> (Vec<PlainEvent>, usize) {
    let found = bags::read(bytes);
    let events = found.events.into_iter().map(|event| PlainEvent { sequence: 0, ..event });
    (events.collect(), found.damage.len())
}

/// Where records with this operation begin, whose headers begin with it.
pub(crate) fn records(bag: &[u8], operation: u8) -> Vec<usize> {
    let field = [b"\x04\0\0\0op=", &[operation][..]].concat();
    memmem::find_iter(bag, &field).map(|at| at - 4).collect()
}

/// The events of a bag by chunk, each of which holds those up to the next.
fn events_by_chunk(bag: &[u8]) -> Vec<Vec<PlainEvent>> {
    let chunks = records(bag, 5);
    let before = chunks.iter().map(|at| read(&bag[..*at]).0.len());
    let (all, _) = read(bag);
    let bounds: Vec<usize> = before.chain([all.len()]).collect();
    bounds.windows(2).map(|two| all[two[0]..two[1]].to_vec()).collect()
}

/// The events of all chunks but one.
fn without(chunks: &[Vec<PlainEvent>], lost: usize) -> Vec<PlainEvent> {
    let others = chunks.iter().enumerate().filter(|(n, _)| *n != lost);
    others.flat_map(|(_, events)| events.clone()).collect()
}

#[test]
fn a_changed_bit_in_the_head_of_a_chunk_loses_no_messages_of_other_chunks() {
    for case in CASES {
        let whole = bag(case);
        let (chunks, starts) = (events_by_chunk(&whole), records(&whole, 5));
        for (n, start) in starts.iter().enumerate() {
            let header = u32::from_le_bytes(whole[*start..start + 4].try_into().unwrap());
            // The lengths of the header and of the data are part of it.
            let len = header as usize + 8;
            for place in sample_positions(len, if n == 0 { len } else { 12 }) {
                let place = start + place;
                let mut bytes = whole.clone();
                bytes[place] ^= 1 << (place % 8);
                let (found, damage) = read(&bytes);
                let others = without(&chunks, n);
                let rest = found.iter().filter(|event| !chunks[n].contains(event));
                assert!(rest.eq(&others), "{case}, byte {place} of chunk {n}");
                assert!(damage > 0 || found.len() > others.len(), "{case}, byte {place}");
            }
        }
    }
}

#[test]
fn a_missing_chunk_loses_no_messages_of_other_chunks() {
    for case in CASES {
        let whole = bag(case);
        let (chunks, mut bounds) = (events_by_chunk(&whole), records(&whole, 5));
        // The connections behind the last index.
        let last = *records(&whole, 4).last().unwrap();
        bounds.push(*records(&whole, 7).iter().find(|at| **at > last).unwrap());
        for (n, bounds) in bounds.windows(2).enumerate() {
            let bytes = [&whole[..bounds[0]], &whole[bounds[1]..]].concat();
            let is_missing = |bytes: &[u8], name: &str| {
                let mut damage = bags::read_noted(name, bytes).0.damage;
                // Without an index, the connections are those of the first chunk.
                damage.retain(|(.., why)| n > 0 || !why.contains("undeclared"));
                let told = "chunks are missing: the bag has 4 of 5 chunks";
                let is_told = matches!(&damage[..], [(_, 0, why)] if why == told);
                assert!(is_told, "{case} without chunk {n}: {damage:?}");
            };
            is_missing(&bytes, "a.bag");
            is_missing(&sluice_io::frames::compress(&bytes, 1).unwrap(), "a.bag.zst");
            // Another bag behind it is whole.
            is_missing(&[&bytes[..], &whole].concat(), "a.bag");
            let (found, _) = read(&bytes);
            assert_eq!(found, without(&chunks, n), "{case} without chunk {n}");
        }
    }
}

#[test]
fn bytes_that_were_added_in_a_chunk_lose_no_messages_of_other_chunks() {
    for case in CASES {
        let whole = bag(case);
        let (chunks, starts) = (events_by_chunk(&whole), records(&whole, 5));
        for (n, start) in starts.iter().enumerate() {
            for added in [1, 7, 64] {
                let at = start + 60;
                let bytes = [&whole[..at], &vec![0x55; added], &whole[at..]].concat();
                let (found, damage) = read(&bytes);
                let rest = found.iter().filter(|event| !chunks[n].contains(event));
                assert!(rest.eq(&without(&chunks, n)), "{case}, {added} bytes in chunk {n}");
                assert!(damage > 0, "{case}, {added} bytes in chunk {n}");
            }
        }
    }
}

/// The first chunk of the first bag, which has its declarations, is lost, and so are its end and
/// the start of the second bag.
#[test]
fn connections_at_the_end_of_another_bag_are_not_used() {
    let both = two_bags();
    let (starts, end) = (records(&both, 5), index(&both));
    let step = both.len() / 60;
    for from in sample_positions(end - starts[1], 12).into_iter().map(|from| starts[1] + from) {
        for to in (both.len() / 2 + step..both.len()).step_by(step) {
            let mut bytes = both.clone();
            bytes[starts[0]..starts[1]].fill(0xff);
            bytes[from..to].fill(0xff);
            let (found, notes) = bags::read_noted("a.bag", &bytes);
            assert!(!is_wrong_and_told(&found, &notes), "{from} to {to}");
        }
    }
}

/// The end of the first bag is whole, but that of the second one, which would tell, is missing.
#[test]
fn messages_of_a_bag_whose_start_is_overwritten_do_not_have_the_connections_of_the_bag_before() {
    let first = closed_bag(&[([1, 2, 3], [1, 2, 3], (1, 3))]);
    let (front, messages) = (connection(0, b"/b"), [message(0, 4), message(0, 5)].concat());
    let chunk = bag_chunk(&[&front[..], &messages].concat());
    let second = [&first[..records(&first, 5)[0]], &chunk].concat();
    let mut bytes = [&first[..], &second].concat();
    let behind = bytes.len() - messages.len();
    bytes[first.len()..behind].fill(0xff);
    let found = bags::read(&bytes);
    let topics: Vec<&str> = found.events.iter().map(|event| &*event.channel).collect();
    assert_eq!(topics, ["/a"; 3], "{:?}", found.damage);
    let places: Vec<u64> = found.damage.iter().map(|(at, ..)| *at).collect();
    let second_message = bytes.len() - messages.len() / 2;
    assert_eq!(places, [first.len(), behind, second_message].map(|at| at as u64));
}

/// Where the records of a bag begin, behind the magic bytes, and the length of the bag.
fn bounds(bag: &[u8]) -> Vec<usize> {
    let len = |at: usize| u32::from_le_bytes(bag[at..at + 4].try_into().unwrap()) as usize + 4;
    let mut all = vec![b"#ROSBAG V2.0\n".len()];
    while let Some(at) = all.last().copied().filter(|at| *at < bag.len()) {
        let data_at = at + len(at);
        all.push(data_at + len(data_at));
    }
    all
}

/// The end of the first bag and the start of the second one are missing, and few bytes are left of
/// the records that are cut.
#[test]
fn no_message_silently_has_the_connection_of_a_bag_whose_end_is_missing() {
    let both = two_bags();
    let (first, second) = both.split_at(both.len() / 2);
    let (firsts, seconds) = (bounds(first), bounds(second));
    // Messages in chunks, too, whose length is then wrong.
    let messages: Vec<usize> = records(second, 2);
    let mut told = 0;
    for from in firsts.iter().step_by(2) {
        for to in seconds.iter().step_by(2).chain(messages.iter().step_by(3)) {
            for (before, behind) in [(0, 0), (9, 0), (0, 9), (20, 50)] {
                let from = first.len().min(from + before);
                let whole = [&first[..from], &second[to - behind.min(*to)..]].concat();
                let (found, notes) = bags::read_noted("a.bag", &whole);
                told += usize::from(is_wrong_and_told(&found, &notes));
                // Without its end, only damage tells.
                if (before, behind) != (0, 0) && *to < index(second) {
                    let len = whole.len() - (second.len() - index(second));
                    let (found, notes) = bags::read_noted("a.bag", &whole[..len]);
                    told += usize::from(is_wrong_and_told(&found, &notes));
                }
            }
        }
    }
    assert!(told > 10, "{told}");
}

#[test]
fn bytes_that_were_added_in_the_last_chunk_lose_only_the_message_before_them() {
    let bag = bag("bag-one-chunk");
    let all = read(&bag).0;
    let messages = records(&bag, 2);
    // No connection is declared between the last ones.
    for (number, at) in messages.iter().enumerate().skip(messages.len() - 6) {
        let mut expected = all.clone();
        expected.remove(number - 1);
        for added in [1, 20, 60, 76, 77, 100, 400] {
            let bytes = [&bag[..*at], &vec![0xff; added], &bag[*at..]].concat();
            let (found, damage) = read(&bytes);
            assert_eq!((&found, damage), (&expected, 2), "{added} bytes before message {number}");
        }
    }
}
