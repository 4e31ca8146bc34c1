//! Memory: what unfinished messages may use, and who loses a message when it is full.

use super::*;

#[test]
fn memory_grows_with_what_arrived_not_with_claims() {
    let mut harness = IntakeHarness::default();
    for sequence in 0..100 {
        harness.take(1, &fragment(sequence, 1 << 28, 9, (7, 65_535), b"x"));
    }
    assert!(harness.intake.memory() < 100 * 1000, "{}", harness.intake.memory());
    harness.take(1, &fragment(100, 1 << 28, 0, (0, 65_535), b"C\0x"));
    assert!(harness.intake.memory() < (4 << 20) + 100 * 1000, "{}", harness.intake.memory());
    harness.check();
}

#[test]
fn a_message_of_many_chunks_is_reassembled() {
    let (mut harness, payload) = (IntakeHarness::default(), payload(9_500_000, 3));
    let mut datagrams = sent(4, b"LARGE", &payload);
    datagrams[40..100].reverse();
    datagrams.swap(0, 1);
    harness.take_all(1, &datagrams[..130]);
    assert!(harness.intake.memory() > 130 * 65_000);
    harness.take_all(1, &datagrams[60..]);
    assert_eq!(harness.delivered, [(1, 4, b"LARGE".to_vec(), payload)]);
    assert_eq!((harness.counts().duplicates, harness.intake.memory()), (70, 0));
    harness.check();
}

#[test]
fn the_longest_message_fits_into_the_usual_limits() {
    let mut harness = IntakeHarness::default();
    let data = vec![7; 65_487];
    let pieces = split_message(b"C", MAX_PAYLOAD_LEN).unwrap();
    let last = pieces.len() - 1;
    for piece in pieces.take(last) {
        let front: &[u8] = if piece.with_channel { b"C\0" } else { b"" };
        harness.take(1, &[&piece.header(4), front, &data[..piece.payload.len()]].concat());
    }
    assert_eq!((harness.counts().lost(), harness.intake.unfinished()), (0, 1));
    assert!(harness.intake.memory() < 257 << 20);
}

#[test]
fn a_message_larger_than_the_memory_is_given_up_at_once() {
    let mut harness = IntakeHarness::new(IntakeLimits { bytes: 8, ..IntakeLimits::default() });
    harness.take_all(1, &nine(4));
    assert_eq!((harness.lost(LossReason::TooLarge), harness.counts().passed_over), (1, 2));
    harness.check();
}

#[test]
fn a_sender_above_its_share_gives_up_its_own() {
    let mut harness = IntakeHarness::new(IntakeLimits { messages: 4, ..IntakeLimits::default() });
    (0..9).for_each(|sequence| harness.take(1, &nine(sequence)[1]));
    assert_eq!((harness.lost(LossReason::Evicted), harness.intake.unfinished()), (5, 4));
    harness.take(2, &nine(0)[1]);
    assert_eq!((harness.lost(LossReason::Evicted), harness.intake.unfinished()), (6, 4));
    harness.take(2, &nine(1)[1]);
    harness.take(1, &nine(9)[1]);
    harness.take_all(2, &nine(0));
    harness.take_all(2, &nine(1));
    assert_eq!(harness.delivered, [nine_delivered(2, 0), nine_delivered(2, 1)]);
    harness.check();
}

#[test]
fn a_sender_below_its_share_takes_from_the_one_that_uses_most() {
    let mut harness = IntakeHarness::new(IntakeLimits { messages: 5, ..IntakeLimits::default() });
    harness.take(2, &nine(0)[1]);
    (4..8).for_each(|sequence| harness.take(1, &nine(sequence)[1]));
    harness.take(3, &nine(0)[1]);
    harness.take_all(1, &nine(5));
    harness.take_all(2, &nine(0));
    harness.take_all(3, &nine(0));
    assert_eq!(
        harness.delivered,
        [nine_delivered(1, 5), nine_delivered(2, 0), nine_delivered(3, 0)]
    );
    harness.take_all(1, &nine(4));
    assert_eq!((harness.lost(LossReason::Evicted), harness.counts().passed_over), (1, 3));
    harness.check();
}

#[test]
fn a_sender_above_its_share_does_not_take_from_its_equal() {
    let mut harness = IntakeHarness::new(IntakeLimits { messages: 6, ..IntakeLimits::default() });
    for sequence in 4..7 {
        harness.take(1, &nine(sequence)[1]);
        harness.take(2, &nine(sequence)[1]);
    }
    harness.take(1, &nine(7)[1]);
    (4..7).for_each(|sequence| harness.take_all(2, &nine(sequence)));
    assert_eq!(harness.delivered, [4, 5, 6].map(|sequence| nine_delivered(2, sequence)));
    assert_eq!(harness.lost(LossReason::Evicted), 1);
    harness.check();
}

#[test]
fn the_last_message_of_a_sender_above_its_share_goes_itself() {
    let mut harness =
        IntakeHarness::new(IntakeLimits { bytes: 10 << 20, ..IntakeLimits::default() });
    let payload = payload(9 << 20, 0);
    let large = sent(4, b"C", &payload);
    let (one, other) = large.split_at(50);
    harness.take_all(1, one);
    harness.take_all(2, one);
    assert_eq!((harness.counts().lost(), harness.intake.unfinished()), (0, 2));
    harness.take_all(1, other);
    harness.take_all(2, other);
    assert_eq!(harness.delivered, [(2, 4, b"C".to_vec(), payload)]);
    assert_eq!((harness.lost(LossReason::Evicted), harness.intake.memory()), (1, 0));
    harness.check();
}

#[test]
fn messages_are_evicted_before_memory_is_taken() {
    let limits = IntakeLimits { bytes: 10 << 20, ..IntakeLimits::default() };
    let mut harness = IntakeHarness::new(limits.clone());
    for sequence in 0..4 {
        harness.take(1, &fragment(sequence, 4 << 20, 0, (0, 99), b"C\0x"));
        assert!(harness.intake.memory() <= limits.bytes);
    }
    assert_eq!((harness.lost(LossReason::Evicted), harness.intake.unfinished()), (2, 2));
    harness.check();
}

#[test]
fn memory_does_not_depend_on_the_order_of_arrival() {
    let datagrams = sent(4, b"C", &payload(900_000, 0));
    let memory = |order: &mut dyn Iterator<Item = usize>| {
        let mut harness = IntakeHarness::default();
        order.for_each(|number| harness.take(1, &datagrams[number]));
        harness.intake.memory()
    };
    assert_eq!(memory(&mut (0..12)), memory(&mut (0..12).rev()));
}

#[test]
fn neighbours_that_change_places_do_not_overlap() {
    let mut harness = IntakeHarness::default();
    let payload = payload(1_000_000, 0);
    for pair in sent(4, b"C", &payload).chunks(2) {
        pair.iter().rev().for_each(|datagram| harness.take(1, datagram));
    }
    assert_eq!(harness.delivered, [(1, 4, b"C".to_vec(), payload)]);
    harness.check();
}

#[test]
fn a_flood_does_not_take_from_other_senders() {
    let limits = IntakeLimits { bytes: 20 << 20, messages: 40, ..IntakeLimits::default() };
    let mut harness = IntakeHarness::new(limits);
    let messages: Vec<Vec<u8>> = (0..8).map(|n| payload(800_000 + n, n as u8)).collect();
    let mut flood = 0;
    // Fragments of one datagram: some take memory, some only a place; some are of the same message.
    let mut flooded = |harness: &mut IntakeHarness| {
        for n in 0..20 {
            flood += 1;
            let (number, data): (u16, &[u8]) =
                if n % 3 == 0 { (0, b"C\0x") } else { (1, &[1; 65_000]) };
            let sequence = if n % 5 == 0 { flood - 1 } else { flood };
            harness.take(9, &fragment(sequence, 5 << 20, u32::from(number), (number, 999), data));
        }
    };
    for (sequence, message) in messages.iter().enumerate() {
        let datagrams = sent(sequence as u32, b"GOOD", message);
        for datagram in &datagrams {
            flooded(&mut harness);
            harness.take(1, datagram);
            harness.take(2, datagram);
        }
        harness.check();
    }
    let got: Vec<_> =
        harness.delivered.iter().map(|(port, _, _, payload)| (*port, payload)).collect();
    let expected: Vec<_> = messages.iter().flat_map(|m| [(1, m), (2, m)]).collect();
    assert!(got == expected);
    assert!(harness.lost(LossReason::Evicted) > 1000);
}

#[test]
fn fragments_without_data_complete_a_message_and_are_charged() {
    let all = [
        fragment(4, 3, 0, (0, 3), b"C\0abc"),
        fragment(4, 3, 3, (1, 3), b""),
        fragment(4, 3, 3, (2, 3), b""),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut harness = IntakeHarness::default();
        order.iter().for_each(|number: &usize| harness.take(1, &all[*number]));
        assert_eq!((harness.delivered.len(), harness.counts().lost()), (1, 0), "{order:?}");
        harness.check();
    }
    let mut harness = IntakeHarness::default();
    let (count, before) = (u16::MAX, harness.intake.memory());
    (1..count).for_each(|number| harness.take(1, &fragment(4, 3, 3, (number, count), b"")));
    assert!(harness.intake.memory() - before >= 64 * usize::from(count - 1));
    harness.check();
}
