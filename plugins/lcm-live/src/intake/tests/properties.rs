//! Properties that hold for any datagrams in any order.

use proptest::prelude::*;

use super::*;

/// What happens to one datagram on its way.
#[derive(Clone, Copy, Debug)]
enum NetworkOutcome {
    Arrives { after: u8 },
    Twice { after: u8 },
    Lost,
}

fn network_outcome() -> impl Strategy<Value = NetworkOutcome> {
    prop_oneof![
        6 => (0u8..2).prop_map(|after| NetworkOutcome::Arrives { after }),
        2 => (0u8..60).prop_map(|after| NetworkOutcome::Arrives { after }),
        1 => (0u8..60).prop_map(|after| NetworkOutcome::Twice { after }),
        1 => Just(NetworkOutcome::Lost),
    ]
}

/// The datagrams that arrive, in order of arrival.
fn network(fates: &[NetworkOutcome]) -> Vec<usize> {
    let mut arrivals = Vec::new();
    for (number, fate) in fates.iter().enumerate() {
        match *fate {
            NetworkOutcome::Arrives { after } => {
                arrivals.push((number + usize::from(after), number))
            }
            NetworkOutcome::Twice { after } => {
                arrivals.push((number, number));
                arrivals.push((number + usize::from(after), number));
            }
            NetworkOutcome::Lost => {}
        }
    }
    arrivals.sort();
    arrivals.into_iter().map(|(_, number)| number).collect()
}

/// Datagrams that are mostly almost valid, with few sequence numbers, so that they interact.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(b"C\0abc".to_vec()),
        (1usize..70_000).prop_map(|len| vec![1; len]),
    ];
    let size = prop_oneof![0u32..10, 10u32..(9 << 20), any::<u32>()];
    let sequence = prop_oneof![4 => 0u32..6, 1 => any::<u32>()];
    let offset = prop_oneof![Just(0), 0u32..10, any::<u32>()];
    let count = prop_oneof![1u16..4, any::<u16>()];
    let number = prop_oneof![3 => 0u16..3, 1 => any::<u16>()];
    let near = (sequence, size, offset, number, count, data.clone()).prop_map(
        |(sequence, size, offset, number, count, data)| {
            fragment(sequence, size, offset, (number, count), &data)
        },
    );
    prop_oneof![6 => near, 1 => data, 1 => (0u32..6).prop_map(short)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_message_arrives_once_whatever_the_order(
        lens in proptest::collection::vec((1u16..4, 0usize..300_000), 1..8),
        order: Vec<prop::sample::Index>, repeated: Vec<prop::sample::Index>,
    ) {
        let mut harness = IntakeHarness::default();
        let (mut datagrams, mut expected, mut next) = (Vec::new(), Vec::new(), [10; 4]);
        for (port, len) in lens {
            let sequence = next[usize::from(port)];
            next[usize::from(port)] += 1;
            let payload = payload(len, port as u8);
            datagrams.extend(sent(sequence, b"CH", &payload).into_iter().map(|d| (port, d)));
            expected.push((port, sequence, b"CH".to_vec(), payload));
        }
        let copies: Vec<_> = repeated.iter().map(|at| at.get(&datagrams).clone()).collect();
        datagrams.extend(copies.iter().cloned());
        for (from, to) in order.iter().enumerate() {
            let (from, to) = (from % datagrams.len(), to.index(datagrams.len()));
            datagrams.swap(from, to);
        }
        datagrams.iter().for_each(|(port, datagram)| harness.take(*port, datagram));
        harness.delivered.sort();
        expected.sort();
        prop_assert!(harness.delivered == expected, "{:?}", harness.counts());
        prop_assert_eq!(harness.counts().duplicates, copies.len() as u64);
        prop_assert_eq!((harness.counts().lost(), harness.intake.memory()), (0, 0));
        harness.check();
    }

    #[test]
    fn any_datagrams_stay_within_the_limits_and_the_counts_add_up(
        datagrams in proptest::collection::vec((0u16..6, 0u64..SECOND, hostile()), 0..200),
    ) {
        let limits =
            IntakeLimits { bytes: 6 << 20, messages: 5, senders: 4, ..IntakeLimits::default() };
        let mut harness = IntakeHarness::new(limits.clone());
        for (port, later, datagram) in datagrams {
            harness.now += later;
            harness.take(port, &datagram);
            prop_assert!(harness.intake.memory() <= limits.bytes + partial::CHUNK_LEN);
            prop_assert!(harness.intake.unfinished() <= limits.messages);
            prop_assert!(harness.intake.senders().count() <= limits.senders);
            harness.check();
            if later % 7 == 0 {
                harness.intake.expire(harness.now);
            }
        }
        harness.intake.finish();
        harness.check();
        prop_assert_eq!((harness.intake.memory(), harness.intake.unfinished()), (0, 0));
    }

    #[test]
    fn a_message_in_one_datagram_is_received_whatever_its_number(
        datagrams in proptest::collection::vec(
            (0u64..SECOND / 3, prop_oneof![0u32..6, 4096u32..4100, any::<u32>()], hostile()),
            0..200,
        ),
    ) {
        let mut harness = IntakeHarness::default();
        for (place, (later, sequence, hostile)) in datagrams.iter().enumerate() {
            harness.now += later * u64::from(place % 20 == 0) * 6;
            harness.take(1, hostile);
            let message = [&short(*sequence), &place.to_be_bytes()[..]].concat();
            let before = harness.delivered.len();
            harness.take_all(1, &[message.clone(), message]);
            let times = harness.delivered.len() - before;
            // A 0 may be that of a restarted sender.
            prop_assert!(times == 1 || times == 2 && *sequence == 0);
            harness.check();
        }
    }

    #[test]
    fn what_is_missing_is_what_the_network_lost(
        fates in proptest::collection::vec(network_outcome(), 1..3000), before_zero in 1u32..3000,
    ) {
        let mut harness = IntakeHarness::default();
        let first = 0u32.wrapping_sub(before_zero);
        // The first one has arrived before anything can happen, so that a 0 is where the numbers go
        // round.
        harness.short(1, [first]);
        let arrived = network(&fates);
        harness.short(1, arrived.iter().map(|number| first.wrapping_add(1 + *number as u32)));
        let mut known = arrived.clone();
        known.sort();
        known.dedup();
        let sent = known.last().map_or(0, |last| last + 1);
        let counts = harness.counts();
        prop_assert_eq!(counts.messages, 1 + known.len() as u64);
        prop_assert_eq!(counts.duplicates, (arrived.len() - known.len()) as u64);
        prop_assert_eq!(counts.missing, (sent - known.len()) as u64);
        prop_assert_eq!(counts.restarts, 0);
        harness.check();
    }
}
