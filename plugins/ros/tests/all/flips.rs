//! What the source `ros1-bag` makes of bags in which one bit is wrong.

use std::ops::Range;

use sluice_kit::contract::{PlainEvent, SourceContents, sample_positions};

use crate::bags::{self, bag};
use crate::connections::records;

const CASES: [&str; 4] = ["bag-plain", "bag-bz2", "bag-lz4", "bag-one-chunk"];
const MAGIC: usize = b"#ROSBAG V2.0\n".len();

/// How a bag may be stored: as it is, and as a stream.
const NAMES: [&str; 2] = ["a.bag", "a.bag.zst"];

fn read_as(name: &str, bag: &[u8]) -> (SourceContents, Vec<String>) {
    match name.ends_with(".zst") {
        true => bags::read_noted(name, &sluice_io::frames::compress(bag, 1).unwrap()),
        false => bags::read_noted(name, bag),
    }
}

/// The events without their numbers, which damage may change.
fn events(found: &SourceContents) -> Vec<PlainEvent> {
    found.events.iter().map(|event| PlainEvent { sequence: 0, ..event.clone() }).collect()
}

fn flip(bag: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bag.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// The length at a place, and the bytes behind it.
fn part(bag: &[u8], at: usize) -> Range<usize> {
    let len = u32::from_le_bytes(bag[at..at + 4].try_into().unwrap()) as usize;
    at + 4..at + 4 + len
}

/// Where the length of the data of a record is.
fn data_len_at(bag: &[u8], record: usize) -> usize {
    part(bag, record).end
}

/// The record at a place.
fn range(bag: &[u8], at: usize) -> Range<usize> {
    at..part(bag, data_len_at(bag, at)).end
}

#[test]
fn a_wrong_length_of_a_record_without_messages_loses_nothing_else_and_is_told() {
    for case in CASES {
        let whole = bag(case);
        let all = events(&bags::read(&whole));
        let others = [4, 6].into_iter().flat_map(|operation| records(&whole, operation));
        for at in [MAGIC].into_iter().chain(others) {
            let len_at = data_len_at(&whole, at);
            for bit in [0, 3, 5, 9, 11, 13, 20, 31] {
                let bytes = flip(&whole, len_at * 8 + bit);
                for name in NAMES {
                    let (found, _) = read_as(name, &bytes);
                    let what = format!("{case}, bit {bit} of the length at {len_at}, {name}");
                    assert_eq!(events(&found), all, "{what}: {:?}", found.damage);
                    let is_told = found.damage.iter().any(|(from, len, _)| {
                        (*from..=from + len).contains(&(at as u64)) && *len > 0
                    });
                    assert!(is_told, "{what}: {:?}", found.damage);
                }
            }
        }
    }
}

#[test]
fn a_description_that_cannot_be_read_in_a_chunk_loses_no_messages() {
    for case in ["bag-plain", "bag-one-chunk"] {
        let whole = bag(case);
        let all = events(&bags::read(&whole));
        let end = *records(&whole, 4).last().unwrap();
        for at in records(&whole, 7).into_iter().filter(|at| *at < end) {
            // The first field of the description, and the number of the connection.
            let field = data_len_at(&whole, at) + 4;
            let header = part(&whole, at);
            let number = memchr::memmem::find(&whole[header.clone()], b"conn=").unwrap();
            for bit in [field * 8 + 4, field * 8 + 17, (header.start + number + 5) * 8 + 9] {
                let found = bags::read(&flip(&whole, bit));
                assert_eq!(events(&found), all, "{case}, bit {bit}: {:?}", found.damage);
                assert!(!found.damage.is_empty(), "{case}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_wrong_number_of_a_connection_at_the_end_loses_no_messages() {
    for case in CASES {
        let whole = bag(case);
        let all = events(&bags::read(&whole));
        let index = *records(&whole, 4).last().unwrap();
        for at in records(&whole, 7).into_iter().filter(|at| *at > index) {
            let header = part(&whole, at);
            let number = memchr::memmem::find(&whole[header.clone()], b"conn=").unwrap();
            for bit in [4, 9, 31] {
                let found = bags::read(&flip(&whole, (header.start + number + 5) * 8 + bit));
                assert_eq!(events(&found), all, "{case}, bit {bit}: {:?}", found.damage);
            }
        }
    }
}

/// A bit of each byte of a bag but those of the spaces in its head.
fn bits(bag: &[u8]) -> Vec<usize> {
    let head = part(bag, data_len_at(bag, MAGIC));
    (0..bag.len()).filter(|byte| !head.contains(byte)).map(|byte| byte * 8 + byte % 8).collect()
}

/// Where the record of each message is, or the chunk that holds it if that is compressed.
fn places(bag: &[u8]) -> Vec<Range<usize>> {
    let range = |at: usize| range(bag, at);
    let messages: Vec<_> = records(bag, 2).into_iter().map(range).collect();
    if !messages.is_empty() {
        return messages;
    }
    let counts = |at| bags::read(&bag[..at]).events.len();
    let chunks = records(bag, 5).into_iter().map(range);
    chunks.flat_map(|chunk| vec![chunk.clone(); counts(chunk.end) - counts(chunk.start)]).collect()
}

/// Checks what is read of a bag in which a bit is wrong, by its events and their places.
fn check(bag: &[u8], (all, places): (&[PlainEvent], &[Range<usize>]), bit: usize, name: &str) {
    let (found, notes) = read_as(name, &flip(bag, bit));
    let events = events(&found);
    let what = format!("{name}, bit {} of byte {}: {:?}", bit % 8, bit / 8, found.damage);
    let is_hit = |range: &Range<usize>| range.contains(&(bit / 8));
    // If a chunk declares a connection otherwise than the end, nothing tells which is right.
    let index = records(bag, 4).into_iter().max().unwrap();
    let declared = records(bag, 7).into_iter().filter(|at| *at < index);
    let is_declaration = declared.into_iter().any(|at| is_hit(&range(bag, at)));
    let is_same = |event: &PlainEvent, other: &PlainEvent| {
        let channel = if is_declaration { &event.channel } else { &other.channel };
        (event.timestamp, &event.channel, &event.payload)
            == (other.timestamp, channel, &other.payload)
    };
    let mut rest = all.iter();
    let mut wrong = 0;
    for event in &events {
        let mut others = rest.clone();
        match others.any(|other| is_same(event, other)) {
            true => rest = others,
            false => wrong += 1,
        }
    }
    // A message has no checksum, unless a chunk that is compressed has one.
    let is_plain = !records(bag, 2).is_empty();
    let changed = usize::from(is_plain && places.iter().any(is_hit));
    assert!(wrong <= changed, "{wrong} wrong events, {what}");
    let is_silent = found.damage.is_empty() && notes.is_empty();
    assert!(!is_silent || events.len() == all.len(), "{what}");
    for (event, place) in all.iter().zip(places) {
        let is_read = events.iter().any(|other| is_same(event, other));
        let mut ranges = found.damage.iter().map(|(at, len, _)| *at as usize..(at + len) as usize);
        let is_told = ranges.any(|range| range.start < place.end && place.start < range.end);
        assert!(is_read || is_hit(place) || is_told, "{place:?} is missing, {what}");
    }
}

#[test]
fn a_wrong_bit_anywhere_loses_nothing_silently() {
    for case in ["bag-plain", "bag-bz2", "bag-one-chunk"] {
        let whole = bag(case);
        let (all, places, bits) = (events(&bags::read(&whole)), places(&whole), bits(&whole));
        assert_eq!(all.len(), places.len());
        for n in sample_positions(bits.len(), 300) {
            for name in NAMES {
                check(&whole, (&all, &places), bits[n], name);
            }
        }
    }
}

#[test]
fn a_wrong_length_of_a_message_hides_no_other_one() {
    let whole = bag("bag-one-chunk");
    let (all, places) = (events(&bags::read(&whole)), places(&whole));
    for at in records(&whole, 2) {
        let len_at = data_len_at(&whole, at);
        for bit in 0..10 {
            check(&whole, (&all, &places), len_at * 8 + bit, "a.bag");
        }
    }
}
