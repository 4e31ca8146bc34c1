//! Events whose lengths of channel or data are odd or wrong.

use super::*;

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
fn a_length_that_ends_in_a_second_damage_is_found_out_by_the_numbers_before_it() {
    for reached in 2..20 {
        let before = 3..3 + reached;
        let (lost, after) = (before.end, before.end + 1..40);
        let reach = concat(before.clone()).len() + 50;
        let bad = relabelled(event(2), |header| header.data_len += reach as i32);
        let mut stretches = vec![good(1), Damage(bad)];
        stretches.extend(before.map(good));
        stretches.push(Damage(vec![0x55; event(lost).len()]));
        stretches.extend(after.map(good));
        let found = expect(&stretches);
        assert!(matches!(found.reasons[0], EventDamage::Contradicted { at: 153, .. }), "{reached}");
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
fn a_length_that_is_too_short_keeps_the_event_and_damages_its_end() {
    for less in 1..46 {
        let short = relabelled(event(2), |header| header.data_len -= less);
        let (kept, lost) = short.split_at(short.len() - less as usize);
        expect(&[good(1), Event(kept.to_vec()), Damage(lost.to_vec()), good(3)]);
    }
}
