//! What is found in intact, odd and damaged logs: the events, and the bytes that are none.

use std::io;
use std::ops::Range;

use sluice_kit::window::ReadAt;
use sluice_lcm::fuzzing::{
    EventDamage, EventScan, HEADER_LEN, LcmHeader, SYNC, ScanLimits, append_event, classify,
    next_event,
};
use sluice_model::{Error, ErrorKind};

mod effort;
mod lengths;
mod payloads;
mod random_logs;

/// All that a walk over a log finds.
#[derive(Debug, Default, PartialEq)]
struct LogLayout {
    events: Vec<Range<u64>>,
    damage: Vec<Range<u64>>,
    reasons: Vec<EventDamage>,
}

/// Classifies a log from its first byte to its last, and checks that the results tile it.
fn walk_with(log: &mut impl ReadAt, len: u64) -> LogLayout {
    let mut found = LogLayout::default();
    let mut pos = 0;
    loop {
        let verdict = classify(log, pos, &ScanLimits::default()).expect("memory can be read");
        let end = match verdict {
            EventScan::Event { end, .. } => {
                found.events.push(pos..end);
                end
            }
            EventScan::Damage { end, reason } => {
                assert_ne!(found.damage.last().map(|last| last.end), Some(pos), "one range each");
                found.damage.push(pos..end);
                found.reasons.push(reason);
                end
            }
            EventScan::End => break,
        };
        assert!(pos < end && end <= len, "{pos}..{end} of {len}");
        pos = end;
    }
    assert_eq!(pos, len, "the walk ends where the log ends");
    found
}

fn walk(log: &[u8]) -> LogLayout {
    walk_with(&mut &*log, log.len() as u64)
}

fn reason(log: &[u8]) -> String {
    let found = walk(log);
    assert_eq!(found.reasons.len(), 1, "{found:?}");
    found.reasons[0].to_string()
}

/// A stretch of a log and what it is expected to be.
#[derive(Clone)]
enum LogRange {
    Event(Vec<u8>),
    Damage(Vec<u8>),
}

use LogRange::{Damage, Event};

/// Builds the log, walks it, and compares.
fn expect(stretches: &[LogRange]) -> LogLayout {
    let mut log = Vec::new();
    let mut expected = LogLayout::default();
    for stretch in stretches {
        let start = log.len() as u64;
        let (bytes, ranges) = match stretch {
            Event(bytes) => (bytes, &mut expected.events),
            Damage(bytes) => (bytes, &mut expected.damage),
        };
        log.extend_from_slice(bytes);
        ranges.push(start..log.len() as u64);
    }
    let found = walk(&log);
    assert_eq!(found.events, expected.events, "events");
    assert_eq!(found.damage, expected.damage, "damage");
    found
}

fn event_of(number: i64, channel: &[u8], data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append_event(&mut out, number, 1_700_000_000_000_000 + number, channel, data)
        .expect("short enough");
    out
}

/// An event whose length differs from that of its neighbours.
fn event(number: u8) -> Vec<u8> {
    event_of(number.into(), b"POSE", &vec![number; 40 + usize::from(number) * 3])
}

fn good(number: u8) -> LogRange {
    Event(event(number))
}

fn junk(len: usize) -> LogRange {
    Damage((0..len).map(|i| b"garbage!"[i % 8]).collect())
}

/// The bytes with a header whose lengths are replaced.
fn relabelled(mut bytes: Vec<u8>, change: impl Fn(&mut LcmHeader)) -> Vec<u8> {
    let front: &[u8; HEADER_LEN] = bytes.first_chunk().expect("a whole header");
    let mut header = LcmHeader::parse(front).expect("a sync word");
    change(&mut header);
    bytes[..HEADER_LEN].copy_from_slice(&header.write());
    bytes
}

fn concat(numbers: Range<u8>) -> Vec<u8> {
    numbers.flat_map(event).collect()
}

/// The ranges of the events that `concat` puts in a log.
fn ranges(numbers: Range<u8>) -> Vec<Range<u64>> {
    let mut end = 0;
    let mut ranges = Vec::new();
    for number in numbers {
        let start = end;
        end += event(number).len() as u64;
        ranges.push(start..end);
    }
    ranges
}

#[test]
fn garbage_of_any_length_costs_no_event() {
    for len in (1..40).chain([511, 512, 513, 65_535, 65_536, 65_537, 200_000]) {
        expect(&[junk(len), good(1), good(2)]);
        expect(&[good(1), junk(len), good(2)]);
        expect(&[good(1), good(2), junk(len)]);
        expect(&[junk(len), good(1), junk(len), good(2), junk(len)]);
    }
}

#[test]
fn garbage_only_is_one_damage() {
    assert_eq!(reason(b"this is no log at all"), "not an event (no sync word)");
}

#[test]
fn half_a_sync_word_in_front_of_an_event_is_damage() {
    for len in 1..SYNC.len() {
        expect(&[good(1), Damage(SYNC[..len].to_vec()), good(2)]);
    }
}

#[test]
fn a_log_cut_at_any_byte_keeps_every_whole_event() {
    let log = concat(1..5);
    for cut in 0..log.len() as u64 {
        let found = walk(&log[..cut as usize]);
        let mut whole = ranges(1..5);
        whole.retain(|range| range.end <= cut);
        let rest = whole.last().map_or(0, |last| last.end)..cut;
        assert_eq!(found.events, whole, "cut at {cut}");
        assert_eq!(found.damage, if rest.is_empty() { vec![] } else { vec![rest.clone()] });
        for reason in found.reasons {
            let has_now = rest.end - rest.start;
            assert!(
                matches!(reason, EventDamage::CutOff { needs, has } if has == has_now && has < needs),
                "cut at {cut}: {reason}"
            );
        }
    }
}

#[test]
fn a_damaged_sync_word_costs_its_event_only() {
    for byte in 0..SYNC.len() {
        let mut bad = event(2);
        bad[byte] ^= 0x10;
        let found = expect(&[good(1), Damage(bad), good(3)]);
        assert_eq!(found.reasons, [EventDamage::NoSync]);
    }
}

#[test]
fn a_flipped_bit_in_a_header_costs_its_event_only() {
    for bit in 0..HEADER_LEN * 8 {
        let mut bad = event(8);
        bad[bit / 8] ^= 1 << (bit % 8);
        let log = [concat(0..8), bad, concat(9..90)].concat();
        let found = walk(&log);
        let mut others = ranges(0..90);
        others.remove(8);
        for other in others {
            assert!(found.events.contains(&other), "bit {bit}: {other:?} in {found:?}");
        }
    }
}

#[test]
fn a_hole_over_headers_costs_the_events_it_touches() {
    let log = concat(1..8);
    for len in [1, 4, 28, 60, 200] {
        for start in 0..log.len() - len {
            let hole = start as u64..(start + len) as u64;
            let mut log = log.clone();
            log[start..start + len].fill(0);
            let found = walk(&log);
            for other in ranges(1..8) {
                if other.end <= hole.start || hole.end <= other.start {
                    assert!(found.events.contains(&other), "{hole:?} {other:?} {found:?}");
                }
            }
        }
    }
}

#[test]
fn positions_behind_the_log_are_its_end() {
    let log = event(1);
    for pos in [75, 76, u64::MAX] {
        assert_eq!(classify(&mut &log[..], pos, &ScanLimits::default()).unwrap(), EventScan::End);
        assert_eq!(next_event(&mut &log[..], pos..u64::MAX, &ScanLimits::default()).unwrap(), None);
    }
}

#[test]
fn a_clean_log_cut_in_two_anywhere_has_the_same_events() {
    let log = concat(1..30);
    for cut in 0..=log.len() as u64 {
        let expected = ranges(1..30).into_iter().map(|range| range.start).find(|&at| at >= cut);
        let found = next_event(&mut &log[..], cut..u64::MAX, &ScanLimits::default()).unwrap();
        assert_eq!(found, expected, "cut at {cut}");
    }
}

#[test]
fn an_error_of_the_log_is_handed_on() {
    struct BrokenLog;
    impl ReadAt for BrokenLog {
        fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<usize, Error> {
            Err(Error::io("read", "log", io::ErrorKind::TimedOut.into()))
        }
    }
    let error = classify(&mut BrokenLog, 0, &ScanLimits::default()).unwrap_err();
    let ErrorKind::Io { source, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::TimedOut);
}
