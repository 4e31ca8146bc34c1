//! Payloads that hold sync words and whole events.

use super::*;

/// The event is found between events, in front of garbage, and at the end.
fn expect_anywhere(bytes: &[u8]) {
    let event = || Event(bytes.to_vec());
    expect(&[good(1), event(), good(3)]);
    expect(&[good(1), event()]);
    for len in [1, 9, 50, 300] {
        expect(&[good(1), event(), junk(len), good(3)]);
        expect(&[good(1), event(), junk(len)]);
    }
}

#[test]
fn an_event_without_data_is_an_event() {
    expect_anywhere(&event_of(2, b"POSE", b""));
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
fn a_sync_word_in_a_payload_is_payload() {
    let mut data = vec![7; 100];
    data[50..54].copy_from_slice(&SYNC);
    expect_anywhere(&event_of(2, b"POSE", &data));
    expect_anywhere(&event_of(2, b"POSE", &SYNC));
}

#[test]
fn whole_events_in_a_payload_are_payload() {
    for count in [1, 2, 9, 60] {
        let inner = concat(10..10 + count);
        for padding in [0, 5] {
            let data = [&b"xxxxx"[..padding], &inner, &b"xxxxx"[..padding]].concat();
            expect_anywhere(&event_of(2, b"LOG", &data));
        }
    }
}

#[test]
fn whole_events_in_a_payload_that_continue_its_number_are_payload_up_to_its_end() {
    for first in [0, 2, 3, 4] {
        let data = [b"xxxxx", &concat(first..first + 9)[..]].concat();
        expect_anywhere(&event_of(2, b"LOG", &data));
    }
}

#[test]
fn whole_events_before_other_bytes_of_a_payload_disprove_it_only_if_they_continue_it() {
    let at = |number, time, channel: &[u8]| {
        relabelled(event_of(number, channel, b"data"), |header| header.utime = time)
    };
    let now = 1_700_000_000_000_000;
    let unlike = [
        // One is not enough.
        at(3, now + 3, b"A"),
        [at(3, now + 3, b"A"), at(5, now + 5, b"A")].concat(),
        [at(2, now + 3, b"A"), at(3, now + 4, b"A"), at(4, now + 5, b"A")].concat(),
        // As in an older log.
        [at(3, now - 9, b"A"), at(4, now - 8, b"A")].concat(),
    ];
    for inner in unlike {
        expect_anywhere(&event_of(2, b"LOG", &[&inner, &b"more"[..]].concat()));
    }
    // Known: this is what a wrong length looks like that ends in other damage.
    let inner = [at(3, now + 3, b"A"), at(4, now + 4, b"\xff")].concat();
    let outer = event_of(2, b"LOG", &[&inner, &b"more"[..]].concat());
    expect(&[good(1), Event(outer.clone()), good(3)]);
    let found = walk(&[event(1), outer, b"garbage".to_vec(), event(3)].concat());
    assert!(matches!(found.reasons[0], EventDamage::Contradicted { .. }));
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
