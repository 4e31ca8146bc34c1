//! What is found in intact, odd and damaged logs: the events, and the bytes that are none.

use std::io;
use std::ops::Range;

use proptest::prelude::*;
use sluice_kit::window::ReadAt;
use sluice_lcm::fuzzing::{
    EventDamage, EventScan, HEADER_LEN, LcmHeader, SYNC, ScanLimits, append_event, classify,
    next_event,
};
use sluice_model::{Error, ErrorKind};

/// All that a walk over a log finds.
#[derive(Debug, Default, PartialEq)]
struct LogLayout {
    events: Vec<Range<u64>>,
    damage: Vec<Range<u64>>,
    reasons: Vec<EventDamage>,
}

/// Classifies a log from its first byte to its last, and checks that the results tile it.
fn walk_with(log: &mut impl ReadAt, len: u64, limits: &ScanLimits) -> LogLayout {
    let mut found = LogLayout::default();
    let mut pos = 0;
    loop {
        let verdict = classify(log, pos, limits).expect("memory can be read");
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
    walk_with(&mut &*log, log.len() as u64, &ScanLimits::default())
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
fn a_channel_of_any_length_up_to_a_mebibyte_is_an_event_between_events() {
    for len in [0, 1, 999, 1000, 1001, 5000, 1 << 20] {
        expect(&[good(1), Event(event_of(2, &vec![b'c'; len], b"data")), good(3)]);
        expect(&[good(1), Event(event_of(2, &vec![b'c'; len], b"data"))]);
    }
    let len = (1 << 20) + 1;
    let found = expect(&[good(1), Damage(event_of(2, &vec![b'c'; len], b"data")), good(3)]);
    assert_eq!(found.reasons[0].to_string(), "channel length 1048577 is not plausible");
}

#[test]
fn an_event_in_front_of_garbage_needs_a_usual_channel() {
    for len in [1, 999, 1000] {
        expect(&[good(1), Event(event_of(2, &vec![b'c'; len], b"data")), junk(9), good(3)]);
    }
    for len in [0, 1001, 5000] {
        let mut bytes = event_of(2, &vec![b'c'; len], b"data");
        bytes.extend_from_slice(b"garbage");
        let found = expect(&[good(1), Damage(bytes), good(3)]);
        assert_eq!(found.reasons, [EventDamage::ChannelLength(len as i32)]);
    }
    let mut bytes = event_of(2, b"PO\0SE", b"data");
    expect(&[good(1), Event(bytes.clone()), good(3)]);
    bytes.extend_from_slice(b"garbage");
    let found = expect(&[good(1), Damage(bytes), good(3)]);
    assert_eq!(found.reasons[0].to_string(), "channel name with a NUL byte is not plausible");
}

#[test]
fn a_wrong_channel_length_costs_its_event_only() {
    for len in [0, 999, 1000, 5000, 1 << 20, i32::MAX, -1, i32::MIN] {
        let bad = relabelled(event(2), |header| header.channel_len = len);
        let mut log = [event(1), bad].concat();
        let start = log.len();
        log.extend((3..60).flat_map(event));
        let found = walk(&log);
        assert_eq!(found.events[0], 0..75, "{len}");
        let rest: Vec<_> = ranges(3..60)
            .into_iter()
            .map(|range| range.start + start as u64..range.end + start as u64)
            .collect();
        assert!(found.events.ends_with(&rest), "{len}: {found:?}");
    }
}

#[test]
fn an_event_without_data_is_an_event() {
    let empty = event_of(2, b"POSE", b"");
    expect(&[good(1), Event(empty.clone()), good(3)]);
    expect(&[good(1), Event(empty.clone())]);
    expect(&[good(1), Event(empty), junk(9), good(3)]);
}

#[test]
fn a_length_that_reaches_into_later_events_costs_its_event_only() {
    // 81 and 84 are the whole events behind it, which rule 2 cannot tell from a payload.
    for more in (1..240).filter(|more| ![81, 81 + 84].contains(more)) {
        let bad = relabelled(event(2), |header| header.data_len += more);
        let found = expect(&[good(1), Damage(bad), good(3), good(4), good(5), good(6)]);
        assert!(matches!(found.reasons[0], EventDamage::Contradicted { .. }), "{more}");
    }
}

#[test]
fn a_length_that_is_wrong_over_many_events_is_found_out_by_their_number() {
    let mut log = relabelled(event(2), |header| header.data_len += 100_000);
    for _ in 0..10 {
        log.extend((0..100).flat_map(event));
    }
    let found = walk(&log);
    assert_eq!((found.damage.len(), found.damage[0].end), (1, 78));
    assert_eq!(found.events.len(), 1000);
}

#[test]
fn a_length_reaching_over_a_second_damage_is_found_out() {
    for events_before in [0, 1, 2, 12] {
        let before = 3..3 + events_before;
        let reach = concat(before.clone()).len() + 500;
        let bad = relabelled(event(2), |header| header.data_len += reach as i32);
        let mut stretches = vec![good(1), Damage(bad)];
        stretches.extend(before.map(good));
        if events_before == 0 {
            stretches.push(good(20));
        }
        stretches.push(junk(77));
        stretches.extend((20..40).map(good));
        expect(&stretches);
    }
}

#[test]
fn a_length_reaching_into_an_event_with_an_unusual_channel_is_found_out() {
    for channel in [&b""[..], b"\0", &[b'c'; 2000]] {
        let bad = relabelled(event(2), |header| header.data_len += 10);
        expect(&[good(1), Damage(bad), Event(event_of(3, channel, b"data")), good(4)]);
    }
}

#[test]
fn an_event_cut_off_by_its_outer_event_disproves_it_only_with_a_readable_channel() {
    for channel in [&b"a\x07"[..], b"a\xff", "a\u{85}".as_bytes(), b""] {
        let inner = event_of(7, channel, &[1; 100]);
        expect(&[good(1), Event(event_of(2, b"LOG", &inner[..60])), junk(200), good(3)]);
    }
    // Known: this is what a wrong length in front of an event looks like.
    let inner = event_of(7, b"POSE", &[1; 100]);
    let outer = event_of(2, b"LOG", &inner[..60]);
    expect(&[good(1), Event(outer.clone()), good(3)]);
    let found = walk(&[event(1), outer, vec![b'x'; 200], event(3)].concat());
    assert!(matches!(found.reasons[0], EventDamage::Contradicted { .. }));
}

#[test]
fn a_length_that_is_too_short_keeps_the_event_and_damages_its_end() {
    for less in 1..46 {
        let short = relabelled(event(2), |header| header.data_len -= less);
        let (kept, lost) = short.split_at(short.len() - less as usize);
        expect(&[good(1), Event(kept.to_vec()), Damage(lost.to_vec()), good(3)]);
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
fn a_sync_word_in_a_payload_is_payload() {
    let mut data = vec![7; 100];
    data[50..54].copy_from_slice(&SYNC);
    let odd = event_of(2, b"POSE", &data);
    expect(&[good(1), Event(odd.clone()), good(3)]);
    expect(&[good(1), Event(odd.clone()), junk(50), good(3)]);
    expect(&[good(1), Event(odd)]);
    let ends_with_sync = event_of(2, b"POSE", &SYNC);
    expect(&[good(1), Event(ends_with_sync.clone()), good(3)]);
    expect(&[good(1), Event(ends_with_sync), junk(50), good(3)]);
}

#[test]
fn whole_events_in_a_payload_are_payload() {
    for count in [1, 2, 9, 60] {
        let inner = concat(10..10 + count);
        for padding in [0, 5] {
            let data = [&b"xxxxx"[..padding], &inner, &b"xxxxx"[..padding]].concat();
            let outer = event_of(2, b"LOG", &data);
            expect(&[good(1), Event(outer.clone()), good(3)]);
            expect(&[good(1), Event(outer.clone()), junk(1), good(3)]);
            expect(&[good(1), Event(outer.clone()), junk(300), good(3)]);
            expect(&[good(1), Event(outer.clone()), junk(300)]);
            expect(&[good(1), Event(outer)]);
        }
    }
}

/// Known: a payload with this many events is taken for a wrong length unless an event follows.
#[test]
fn more_events_in_a_payload_than_are_followed_are_payload_between_events_only() {
    let inner: Vec<_> = (0..100).map(|_| event(5)).collect();
    let outer = event_of(2, b"LOG", &inner.concat());
    expect(&[good(1), Event(outer.clone()), good(3)]);
    let found = walk(&[event(1), outer, b"garbage".to_vec(), event(3)].concat());
    assert_eq!(found.events.len(), 102);
    assert!(matches!(found.reasons[0], EventDamage::Contradicted { .. }));
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

/// A log that counts what is read of it.
struct CountingLog<'a> {
    log: &'a [u8],
    bytes: u64,
    reads: u64,
}

impl ReadAt for CountingLog<'_> {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let there = self.log.read_at(pos, buf)?;
        self.bytes += there as u64;
        self.reads += 1;
        Ok(there)
    }
}

/// How many times its own size is read of a log, at most, to walk it.
fn work(log: &[u8]) -> u64 {
    let mut counting = CountingLog { log, bytes: 0, reads: 0 };
    walk_with(&mut counting, log.len() as u64, &ScanLimits::default());
    assert!(counting.reads <= log.len() as u64 * 2, "{} reads", counting.reads);
    counting.bytes.div_ceil(log.len() as u64)
}

const MEGABYTE: usize = 1 << 20;

/// Events of 32 bytes with false lengths, each of them tempting to search the rest of the log.
fn claims(channel: &[u8; 4], len: impl Fn(usize) -> usize) -> Vec<u8> {
    let claim = |i: usize| {
        let data_len = i32::try_from(len(i)).expect("short");
        relabelled(event_of(1, channel, b""), |header| header.data_len = data_len)
    };
    (0..MEGABYTE / 32).flat_map(claim).collect()
}

#[test]
fn nested_claims_are_read_a_bounded_number_of_times() {
    let half = MEGABYTE / 2;
    for channel in [b"GOOD", b"\x01\x02\x03\x04"] {
        for tail in [vec![], vec![0; MEGABYTE], event(200), event(200)[..50].to_vec()] {
            let same_length = [claims(channel, |_| half + 5), tail.clone()].concat();
            assert!(work(&same_length) <= 64, "same length");
            let same_end = [claims(channel, |i| 2 * half - 32 * i + 10), tail.clone()].concat();
            assert!(work(&same_end) <= 64, "same end");
            let shrinking = [claims(channel, |i| 2 * half - 31 * i + 10), tail].concat();
            assert!(work(&shrinking) <= 64, "shrinking");
        }
    }
}

/// Each claim here is disproved by the last of the walks begun inside it, and by no other.
#[test]
fn claims_that_are_disproved_late_are_read_a_bounded_number_of_times() {
    for distance in [32, 100, 600, 5000] {
        let mut log = Vec::new();
        for i in 0..MEGABYTE / distance {
            let end = MEGABYTE + 1000 + i / 8 * 100 - i % 8;
            let data_len = i32::try_from(end - log.len() - 32).expect("short");
            let claim = event_of(1, b"GOOD", b"");
            log.extend(relabelled(claim, |header| header.data_len = data_len));
            log.resize((i + 1) * distance, 0);
        }
        let disproved = log.len() as u64;
        log.resize(2 * MEGABYTE, 0);
        assert!(work(&log) <= 64, "{distance}");
        let found = walk(&log);
        assert!(found.damage[0].end + 8 * distance as u64 >= disproved, "{:?}", found.damage);
    }
}

#[test]
fn sync_words_only_are_read_a_bounded_number_of_times() {
    assert!(work(&SYNC.repeat(MEGABYTE / 4)) <= 64);
}

/// Logs made of what the rules look at, so that random ones meet all of them.
fn odd_log() -> impl Strategy<Value = Vec<u8>> {
    let header = (-3..40i32, -3..200i32).prop_map(|(channel_len, data_len)| {
        LcmHeader { number: 1, utime: 2, channel_len, data_len }.write().to_vec()
    });
    let stretch = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(b'a'..=b'z', 0..60),
        (1..5usize).prop_map(|len| SYNC[..len.min(4)].to_vec()),
        (0..90usize).prop_map(|len| vec![0; len]),
        (0..60u8).prop_map(event),
        header,
    ];
    prop::collection::vec(stretch, 0..40).prop_map(|stretches| stretches.concat())
}

/// One damage done to a log: what is there instead of which bytes.
type LogEdit = (prop::sample::Index, usize, Vec<u8>);

fn edit() -> impl Strategy<Value = LogEdit> {
    let new = prop_oneof![
        Just(vec![]),
        prop::collection::vec(any::<u8>(), 1..28),
        (1..28usize).prop_map(|len| vec![0; len]),
    ];
    (any::<prop::sample::Index>(), 0..28usize, new)
}

/// Where the edit begins, and by how much it ends earlier in the old log than in the new one.
fn apply(log: &mut Vec<u8>, (index, len, new): &LogEdit) -> (Range<usize>, usize) {
    let start = index.index(log.len() + 1);
    let old = start..(start + len).min(log.len());
    log.splice(old.clone(), new.iter().copied());
    (old, new.len())
}

proptest! {
    #[test]
    fn any_bytes_are_tiled(log in prop::collection::vec(any::<u8>(), 0..300)) {
        walk(&log);
    }

    #[test]
    fn odd_logs_are_tiled_and_damage_ends_at_an_event(log in odd_log()) {
        let found = walk(&log);
        for damage in &found.damage {
            let range = damage.start..u64::MAX;
            let next = next_event(&mut &log[..], range, &ScanLimits::default()).unwrap();
            prop_assert_eq!(next.unwrap_or(log.len() as u64), damage.end);
        }
    }

    #[test]
    fn an_edit_costs_no_event_that_it_does_not_touch(edit in edit()) {
        let mut log = concat(0..12);
        let (old, new_len) = apply(&mut log, &edit);
        let found = walk(&log);
        for event in ranges(0..12) {
            let moved = if event.end <= old.start as u64 {
                event
            } else if old.end as u64 <= event.start {
                let shift = |at: u64| at + new_len as u64 - (old.end - old.start) as u64;
                shift(event.start)..shift(event.end)
            } else {
                continue;
            };
            // A false length that ends exactly before an event cannot be told from a true one.
            let confirmed = |outer: &Range<u64>| {
                outer.start < moved.start
                    && moved.end <= outer.end
                    && SYNC.starts_with(&log[outer.end as usize..][..4.min(log.len() - outer.end as usize)])
            };
            prop_assert!(
                found.events.contains(&moved) || found.events.iter().any(confirmed),
                "{:?} in {:?}", moved, found
            );
        }
    }

    #[test]
    fn many_edits_are_tiled(
        edits in prop::collection::vec(edit(), 1..12), cut: prop::sample::Index,
    ) {
        let mut log = concat(0..12);
        for edit in &edits {
            apply(&mut log, edit);
        }
        log.truncate(cut.index(log.len() + 1));
        walk(&log);
    }
}
