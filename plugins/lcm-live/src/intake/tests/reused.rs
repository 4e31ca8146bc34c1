//! Numbers that a sender uses for several messages: none of them is lost silently.

use super::*;

fn named(sequence: u32, channel: &str, payload: &str) -> Vec<u8> {
    [b"LC02", &sequence.to_be_bytes()[..], channel.as_bytes(), b"\0", payload.as_bytes()].concat()
}

#[test]
fn two_programs_behind_one_socket_are_both_received() {
    let mut harness = IntakeHarness::default();
    for number in 0..100 {
        harness.take(1, &named(number, "A", "a"));
        harness.take(1, &named(number, "B", "b"));
    }
    assert_eq!((harness.delivered.len(), harness.counts().lost()), (200, 0));
    harness.check();
    // One of them is far ahead, and the other one comes to its numbers.
    let mut harness = IntakeHarness::default();
    for number in 0..6000 {
        harness.take(1, &named(number + 3000, "A", &number.to_string()));
        harness.take(1, &named(number, "B", &number.to_string()));
    }
    assert_eq!((harness.delivered.len(), harness.counts().lost()), (12_000, 0));
    harness.check();
}

#[test]
fn numbers_far_from_each_other_are_several_numberings_and_nothing_is_lost_between_them() {
    for starts in [[1000, 0], [0, 1000], [20, 100_000], [100_000, 20], [5000, 1000], [1 << 31, 7]] {
        let mut harness = IntakeHarness::default();
        // A loss before anything else.
        harness.short(1, [starts[0] + 1, starts[0] + 3]);
        for number in 4..54 {
            harness.take(1, &named(starts[0] + number, "A", "a"));
            harness.take(1, &named(starts[1] + number, "B", "b"));
        }
        let counts = harness.counts();
        assert_eq!(
            (harness.delivered.len(), counts.lost(), counts.mixed),
            (102, 1, 1),
            "{starts:?}"
        );
        harness.check();
        // After a silence, numbers count again.
        harness.now += 2 * SECOND;
        harness.short(1, [9, 12]);
        assert_eq!(harness.counts().lost(), 3, "{starts:?}");
        harness.check();
    }
}

#[test]
fn numbers_count_again_after_a_silence_although_the_first_one_continues() {
    let mut harness = IntakeHarness::default();
    for number in 0..50 {
        harness.short(1, [1000 + number, number]);
    }
    assert_eq!((harness.counts().lost(), harness.counts().mixed), (0, 1));
    harness.now += 2 * SECOND;
    harness.short(1, [1050, 1051, 1100]);
    assert_eq!((harness.delivered.len(), harness.counts().lost()), (103, 48));
    harness.check();
}

#[test]
fn after_a_silence_numbers_of_the_other_numbering_are_not_late() {
    for after in [[1050, 50, 1051, 51], [50, 1050, 51, 1051], [1050, 1049, 49, 50]] {
        let mut harness = IntakeHarness::default();
        for number in 0..50 {
            harness.short(1, [1000 + number, number]);
        }
        let before = harness.delivered.len();
        harness.now += 2 * SECOND;
        harness.short(1, after);
        let new = after.iter().filter(|number| !(1000..1050).contains(*number) && **number > 49);
        assert!(harness.delivered.len() >= before + new.count(), "{after:?}");
        harness.check();
    }
}

#[test]
fn three_programs_behind_one_socket_with_long_messages_are_received() {
    let mut harness = IntakeHarness::default();
    for number in 0..20 {
        let starts = [number, 9000 + number, 40_000 + number];
        let all = starts.map(|sequence| sent(sequence, b"C", &payload(200_000, sequence as u8)));
        for place in 0..all[0].len() {
            all.iter().for_each(|datagrams| harness.take(1, &datagrams[place]));
        }
    }
    let counts = harness.counts();
    assert!(counts.mixed == 1 && counts.missing == 0, "{counts:?}");
    assert!(harness.delivered.len() >= 57, "{counts:?}");
    harness.check();
}

#[test]
fn losses_and_late_messages_are_no_several_numberings() {
    let mut harness = IntakeHarness::default();
    harness.short(1, (0..100).chain(300..400).chain(100..150).chain(700..800).chain(150..160));
    let counts = harness.counts();
    assert_eq!((counts.mixed, counts.late, counts.missing), (0, 60, 140 + 300));
    // A restart, with messages that come late.
    harness.short(1, (801..5000).chain(0..10).chain([5000, 10, 11]));
    assert_eq!(harness.counts().mixed, 0);
    harness.check();
    // Late messages between current ones.
    let mut harness = IntakeHarness::default();
    harness.short(1, (0..100).chain(300..400));
    (0..15).for_each(|number| harness.short(1, [100 + number, 400 + number]));
    harness.short(1, [420]);
    let counts = harness.counts();
    assert_eq!((counts.mixed, counts.late, counts.missing), (0, 15, 185 + 5));
    harness.check();
    // Every second message takes a slow path.
    let mut harness = IntakeHarness::default();
    for number in 0..500 {
        harness.short(1, [2 * (number + 100)]);
        harness.short(1, (number > 100).then_some(2 * number + 1));
    }
    let counts = harness.counts();
    assert_eq!((counts.mixed, counts.late, counts.missing), (0, 399, 100));
    harness.check();
}

#[test]
fn a_number_that_never_changes_is_that_of_many_messages() {
    for number in [0, 7] {
        let mut harness = IntakeHarness::default();
        for place in 0..50 {
            let datagram = named(number, "C", &place.to_string());
            // Networks repeat datagrams.
            harness.take_all(1, &[datagram.clone(), datagram]);
        }
        let counts = harness.counts();
        assert_eq!((counts.messages, counts.reused, counts.duplicates), (50, 49, 50), "{number}");
        assert_eq!(counts.lost(), 0);
        harness.check();
    }
    // Far from all others.
    let mut harness = IntakeHarness::default();
    harness.short(1, [1_000_000]);
    for place in 0..50 {
        harness.take(1, &named(7, "C", &place.to_string()));
    }
    assert_eq!((harness.counts().messages, harness.counts().duplicates), (51, 0));
    harness.check();
}

#[test]
fn a_restart_of_which_the_first_message_is_lost_loses_no_other() {
    let mut harness = IntakeHarness::default();
    harness.short(1, 0..6);
    for number in 1..6 {
        harness.take(1, &named(number, "S", "anew"));
    }
    assert_eq!((harness.delivered.len(), harness.counts().lost()), (11, 0));
    harness.check();
}

#[test]
fn messages_lost_behind_the_equal_zero_of_a_restart_are_counted() {
    for lost in 1..4 {
        let mut harness = IntakeHarness::default();
        harness.short(1, (0..10).chain([0]).chain(lost + 1..12));
        let counts = harness.counts();
        assert_eq!((counts.messages, counts.duplicates), (21 - u64::from(lost), 1));
        assert_eq!((counts.restarts, counts.missing), (1, u64::from(lost)));
        harness.check();
    }
}

#[test]
fn fragments_of_another_message_with_the_same_number_are_put_together() {
    let mut harness = IntakeHarness::default();
    let other = sent(4, b"D", &payload(200_000, 9));
    for datagrams in [&nine(4)[..], &other, &other, &nine(4)] {
        harness.take_all(1, datagrams);
    }
    let channels: Vec<_> = harness.delivered.iter().map(|message| message.2.clone()).collect();
    assert_eq!(channels, [b"C", b"D", b"C"]);
    assert_eq!((harness.counts().reused, harness.counts().duplicates), (2, 4));
    assert_eq!(harness.counts().lost(), 0);
    harness.check();
    // Of a channel that is filtered out, too.
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &sent(4, b"NO", &payload(200_000, 0)));
    harness.take_all(1, &nine(4));
    harness.take(1, &named(4, "S", "s"));
    assert_eq!((harness.delivered.len(), harness.counts().unwanted), (2, 1));
    harness.check();
}

/// A message in three datagrams, unlike those of other seeds.
fn three(sequence: u32, seed: u8) -> [Vec<u8>; 3] {
    sent(sequence, b"C", &payload(150_000, seed)).try_into().unwrap()
}

#[test]
fn a_loss_with_a_number_that_never_changes_costs_only_the_messages_it_concerns() {
    // The number is known to repeat.
    for number in [0, 7] {
        let mut harness = IntakeHarness::default();
        for seed in 0..40 {
            let sent = if seed % 20 == 15 { 2 } else { 3 };
            harness.take_all(1, &three(number, seed)[..sent]);
        }
        harness.take(1, &named(number, "S", "short"));
        // The first fragment of the next message shows the loss, so that one is lost, too.
        let counts = harness.counts();
        assert_eq!((counts.messages, counts.lost()), (37, 4), "{number}");
        assert_eq!(harness.lost(LossReason::Contradictory), 4, "{number}");
        harness.check();
        let delivered = harness.delivered.iter().take(36);
        assert!(delivered.map(|message| message.3.len()).all(|len| len == 150_000));
    }
}

#[test]
fn a_number_of_which_a_message_was_lost_is_received_once_it_is_known_to_repeat() {
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &three(0, 0)[..2]);
    for seed in 1..100 {
        harness.take_all(1, &three(0, seed));
    }
    let counts = harness.counts();
    assert_eq!((counts.messages, counts.lost()), (92, 8));
    assert!(harness.delivered.last().unwrap().3 == payload(150_000, 99));
    harness.check();
}

#[test]
fn fragments_of_several_messages_with_one_number_are_never_put_together() {
    let payloads: Vec<_> = (0..4).map(|seed| payload(150_000, seed)).collect();
    let mut harness = IntakeHarness::default();
    for number in 0..30 {
        let all: Vec<_> = payloads.iter().map(|payload| sent(number, b"C", payload)).collect();
        harness.take_all(1, &[&all[0][0], &all[1][0], &all[2][0]].map(Clone::clone));
        harness.take_all(1, &all[0][1..]);
        harness.take(1, &all[3][0]);
        all[1..].iter().for_each(|datagrams| harness.take_all(1, &datagrams[1..]));
    }
    let mut delivered = harness.delivered.iter();
    assert!(delivered.all(|message| payloads.contains(&message.3)));
    assert!(harness.counts().lost() >= 30);
    harness.check();
}

#[test]
fn a_message_is_lost_if_one_that_is_filtered_out_has_its_number() {
    let mut harness = IntakeHarness::default();
    harness.take(1, &three(4, 0)[0]);
    harness.take_all(1, &sent(4, b"NO", &payload(150_000, 1)));
    harness.take_all(1, &three(4, 0)[1..]);
    assert_eq!((harness.delivered.len(), harness.lost(LossReason::Contradictory)), (0, 1));
    harness.check();
}

#[test]
fn fragments_of_several_messages_far_from_all_others_are_never_put_together() {
    for neighbour in [false, true] {
        let mut harness = IntakeHarness::default();
        harness.short(1, [1_000_000]);
        let [a, b, c] = [0, 1, 2].map(|seed| three(7, seed));
        harness.take_all(1, &[&a[0], &b[0]].map(Clone::clone));
        harness.short(1, neighbour.then_some(8));
        harness.take_all(1, &[&c[0], &a[1], &a[2], &b[1], &b[2], &c[1], &c[2]].map(Clone::clone));
        assert_eq!(harness.delivered.len(), 1 + usize::from(neighbour));
        assert_eq!(harness.lost(LossReason::Contradictory), 1);
        harness.check();
        // The number is received again.
        (3..20).for_each(|seed| harness.take_all(1, &three(7, seed)));
        assert!(harness.delivered.last().unwrap().3 == payload(150_000, 19));
        harness.check();
    }
}

#[test]
fn after_a_silence_the_number_of_a_lost_message_is_received_at_once() {
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &three(7, 0)[..2]);
    for seed in 1..5 {
        harness.now += 3 * SECOND;
        harness.intake.expire(harness.now);
        harness.take_all(1, &three(7, seed));
    }
    assert_eq!((harness.delivered.len(), harness.lost(LossReason::Expired)), (4, 1));
    assert_eq!(harness.counts().lost(), 1);
    harness.check();
}

#[test]
fn a_message_in_one_datagram_and_one_in_fragments_may_have_the_same_number() {
    let [first, second, third] = nine(4);
    let datagrams = [short(4), first, second, third];
    for order in (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]) {
        if (0..4).any(|datagram| !order.contains(&datagram)) {
            continue;
        }
        let mut harness = IntakeHarness::default();
        // Networks repeat datagrams, at once and later.
        for at in order.into_iter().chain(order) {
            harness.take_all(1, &[datagrams[at].clone(), datagrams[at].clone()]);
        }
        harness.delivered.sort();
        let expected = [nine_delivered(1, 4), (1, 4, b"S".to_vec(), b"s".to_vec())];
        assert_eq!(harness.delivered, expected, "{order:?}");
        let counts = harness.counts();
        assert_eq!((counts.reused, counts.duplicates, counts.lost()), (1, 12, 0), "{order:?}");
        harness.check();
    }
}

#[test]
fn a_message_in_one_datagram_is_received_although_one_with_its_number_was_given_up() {
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &three(7, 0)[..2]);
    harness.take(1, &three(7, 1)[0]);
    harness.take_all(1, &[named(7, "A", "a"), named(7, "B", "b"), named(7, "B", "b")]);
    harness.take_all(1, &three(7, 0)[2..]);
    let counts = harness.counts();
    assert_eq!((harness.delivered.len(), counts.duplicates, counts.passed_over), (2, 1, 1));
    assert_eq!((harness.lost(LossReason::Contradictory), counts.lost()), (1, 1));
    harness.check();
}

#[test]
fn a_program_that_alternates_between_a_few_numbers_loses_only_the_messages_that_it_counts() {
    for numbers in [2, 3, 5] {
        let mut harness = IntakeHarness::default();
        for seed in 0..100 {
            let sent = if seed == 11 { 2 } else { 3 };
            harness.take_all(1, &three(7 + u32::from(seed) % numbers, seed)[..sent]);
        }
        let counts = harness.counts();
        assert_eq!(counts.messages + counts.lost(), 100, "{numbers}");
        assert!(counts.lost() <= 8 && counts.reused > 80, "{numbers}: {counts:?}");
        harness.check();
    }
}

#[test]
fn what_the_network_repeats_is_received_once_also_from_numberings_far_from_each_other() {
    for starts in [[100_000, 20], [20, 100_000], [5000, 1 << 30], [9, 4096 + 9], [1 << 31, 7]] {
        for delay in [0, 1, 7, 100] {
            let mut harness = IntakeHarness::default();
            let both = |number: u32| starts.map(|start| short(start + number));
            for number in 1..200 + delay {
                harness.take_all(1, &both(number));
                if number > delay {
                    harness.take_all(1, &both(number - delay));
                }
            }
            let expected = 2 * (199 + delay) as usize;
            let counts = harness.counts();
            assert_eq!(
                (harness.delivered.len(), counts.duplicates, counts.lost()),
                (expected, 398, 0),
                "{starts:?} {delay}"
            );
            harness.check();
        }
    }
}

#[test]
fn repeated_fragments_of_numberings_far_from_each_other_start_no_message() {
    let mut harness = IntakeHarness::default();
    for number in 1..60 {
        for start in [100_000, 20] {
            harness.take_all(1, &three(start + number, 0));
            harness.take_all(1, &sent(start + 1000 + number, b"NO", &payload(150_000, 0)));
        }
        // In any order.
        for start in [20, 100_000] {
            let mut repeated = three(start + number, 0);
            repeated.rotate_left(number as usize % 3);
            harness.take_all(1, &repeated);
            harness.take(1, &sent(start + 1000 + number, b"NO", &payload(150_000, 0))[1]);
        }
    }
    harness.now = 3 * SECOND;
    harness.intake.expire(harness.now);
    let counts = harness.counts();
    assert_eq!((counts.messages, counts.unwanted, counts.duplicates), (118, 118, 6 * 59));
    assert_eq!((counts.lost(), harness.intake.unfinished()), (0, 0));
    harness.check();
}

#[test]
fn a_message_that_was_lost_counts_once_although_another_numbering_follows() {
    let mut harness = IntakeHarness::default();
    for number in 1..20 {
        harness.short(1, [20 + number, 100_000 + number]);
    }
    let [first, second, third] = nine(40);
    harness.take(1, &first);
    harness.short(1, (0..600).map(|number| 100_020 + number));
    harness.take(1, &nine(100_620)[0]);
    assert_eq!(harness.lost(LossReason::Expired), 1);
    harness.take_all(1, &[second, third]);
    harness.take_all(1, &nine(100_620)[1..]);
    let counts = harness.counts();
    assert_eq!((counts.lost(), counts.passed_over, harness.intake.unfinished()), (1, 2, 0));
    harness.check();
}

#[test]
fn a_sender_with_several_numberings_that_restarts_loses_nothing_by_it() {
    let mut harness = IntakeHarness::default();
    for number in 0..100 {
        harness.short(1, [100_000 + number, number % 50]);
    }
    assert_eq!((harness.delivered.len(), harness.counts().lost()), (200, 0));
    harness.check();
}
