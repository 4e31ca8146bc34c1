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
