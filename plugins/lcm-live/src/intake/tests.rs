mod memory;
mod properties;
mod reused;

use std::net::Ipv4Addr;

use super::*;
use crate::wire::{MAX_PAYLOAD_LEN, Reject, split_message};

const SECOND: u64 = 1_000_000_000;

/// Sender's port, sequence number, channel and payload of a message.
type DeliveredMessage = (u16, u32, Vec<u8>, Vec<u8>);

/// An intake with a clock and the messages it delivered; the port identifies a sender.
struct IntakeHarness {
    intake: Intake,
    now: u64,
    delivered: Vec<DeliveredMessage>,
}

impl IntakeHarness {
    fn new(limits: IntakeLimits) -> Self {
        Self { intake: Intake::new(limits), now: 0, delivered: Vec::new() }
    }

    fn take(&mut self, port: u16, datagram: &[u8]) {
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
        let wants = |channel: &[u8]| !channel.starts_with(b"NO");
        self.intake.take(datagram, from, self.now, wants, |message| {
            assert_eq!(message.from, from);
            self.delivered.push((
                port,
                message.sequence,
                message.channel.to_vec(),
                message.payload.to_vec(),
            ));
        });
    }

    fn take_all(&mut self, port: u16, datagrams: &[Vec<u8>]) {
        datagrams.iter().for_each(|datagram| self.take(port, datagram));
    }

    fn short(&mut self, port: u16, sequences: impl IntoIterator<Item = u32>) {
        sequences.into_iter().for_each(|sequence| self.take(port, &short(sequence)));
    }

    fn counts(&self) -> &IntakeCounts {
        self.intake.counts()
    }

    fn lost(&self, loss: LossReason) -> u64 {
        self.counts().incomplete.get(&loss).copied().unwrap_or_default()
    }

    /// Checks that the counts add up.
    #[track_caller]
    fn check(&self) {
        let mut sums = [0; 4];
        for sender in self.intake.senders() {
            assert_eq!(sender.sent, sender.messages + sender.lost() + sender.unfinished);
            let of_this = [sender.messages, sender.missing, sender.incomplete, sender.unfinished];
            sums.iter_mut().zip(of_this).for_each(|(sum, count)| *sum += count);
        }
        let counts = self.counts();
        assert_eq!(counts.messages, self.delivered.len() as u64);
        assert_eq!(counts.lost(), counts.losses().map(|(_, count)| count).sum::<u64>());
        assert_eq!(sums[3], self.intake.unfinished() as u64);
        if counts.forgotten == 0 {
            let totals = [counts.messages + counts.unwanted, counts.missing];
            assert_eq!(sums[..2], totals);
            assert_eq!(sums[2], counts.incomplete.values().sum::<u64>());
        }
    }
}

impl Default for IntakeHarness {
    fn default() -> Self {
        Self::new(IntakeLimits::default())
    }
}

fn short(sequence: u32) -> Vec<u8> {
    [b"LC02".as_slice(), &sequence.to_be_bytes(), b"S\0s"].concat()
}

fn fragment(sequence: u32, size: u32, offset: u32, place: (u16, u16), data: &[u8]) -> Vec<u8> {
    let (number, count) = place;
    [
        b"LC03".as_slice(),
        &sequence.to_be_bytes(),
        &size.to_be_bytes(),
        &offset.to_be_bytes(),
        &number.to_be_bytes(),
        &count.to_be_bytes(),
        data,
    ]
    .concat()
}

/// Nine bytes in three fragments of three.
fn nine(sequence: u32) -> [Vec<u8>; 3] {
    [
        fragment(sequence, 9, 0, (0, 3), b"C\0abc"),
        fragment(sequence, 9, 3, (1, 3), b"def"),
        fragment(sequence, 9, 6, (2, 3), b"ghi"),
    ]
}

fn nine_delivered(port: u16, sequence: u32) -> DeliveredMessage {
    (port, sequence, b"C".to_vec(), b"abcdefghi".to_vec())
}

fn payload(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect()
}

/// The datagrams of a message.
fn sent(sequence: u32, channel: &[u8], payload: &[u8]) -> Vec<Vec<u8>> {
    let datagram = |piece: wire::DatagramSpec| {
        let mut bytes = piece.header(sequence).to_vec();
        if piece.with_channel {
            bytes.extend([channel, b"\0"].concat());
        }
        bytes.extend(&payload[piece.payload]);
        bytes
    };
    split_message(channel, payload.len()).unwrap().map(datagram).collect()
}

#[test]
fn a_short_message_is_delivered_as_it_is() {
    let mut harness = IntakeHarness::default();
    harness.take(1, b"LC02\0\0\0\x05\0xy");
    assert_eq!(harness.delivered, [(1, 5, vec![], b"xy".to_vec())]);
    harness.check();
}

#[test]
fn fragments_may_come_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut harness = IntakeHarness::default();
        order.iter().for_each(|number: &usize| harness.take(1, &nine(4)[*number]));
        assert_eq!(harness.delivered, [nine_delivered(1, 4)]);
        assert_eq!((harness.intake.memory(), harness.intake.unfinished()), (0, 0));
        harness.check();
    }
}

#[test]
fn a_fragment_that_comes_twice_counts_once() {
    let mut harness = IntakeHarness::default();
    let [first, second, third] = nine(4);
    harness.take_all(1, &[third.clone(), third, first.clone(), first]);
    assert_eq!((harness.delivered.len(), harness.counts().duplicates), (0, 2));
    harness.take_all(1, &[second.clone(), second]);
    assert_eq!((harness.delivered.len(), harness.counts().duplicates), (1, 3));
    harness.check();
}

#[test]
fn copies_of_a_whole_message_are_dropped() {
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &nine(4));
    harness.take_all(1, &nine(4));
    harness.short(1, [5, 5]);
    assert_eq!((harness.delivered.len(), harness.counts().duplicates), (2, 4));
    harness.check();
}

#[test]
fn senders_with_equal_numbers_do_not_mix() {
    let mut harness = IntakeHarness::default();
    for datagram in nine(4) {
        harness.take(1, &datagram);
        harness.take(2, &datagram);
    }
    assert_eq!(harness.delivered, [nine_delivered(1, 4), nine_delivered(2, 4)]);
    harness.check();
}

#[test]
fn messages_of_one_sender_may_be_interleaved() {
    let mut harness = IntakeHarness::default();
    for (first, second) in nine(4).iter().zip(&nine(5)) {
        harness.take(1, first);
        harness.take(1, second);
    }
    assert_eq!(harness.delivered, [nine_delivered(1, 4), nine_delivered(1, 5)]);
    harness.check();
}

#[test]
fn losses_stand_for_as_many_datagrams_as_their_sender_may_have_sent() {
    let mut harness = IntakeHarness::default();
    harness.short(1, [0, 2]);
    assert_eq!(harness.intake.missing_datagrams(), 1);
    let [first, ..] = nine(3);
    harness.take(1, &first);
    harness.now = 3 * SECOND;
    harness.intake.expire(harness.now);
    assert_eq!(harness.intake.missing_datagrams(), 1 + 2);
    harness.short(1, [5]);
    harness.short(2, [0, 2]);
    assert_eq!(harness.intake.missing_datagrams(), 1 + 2 + 3 + 1);
    harness.short(1, [4]);
    assert_eq!(harness.intake.missing_datagrams(), 1 + 2 + 3 + 1);
    harness.check();
}

#[test]
fn a_message_of_which_a_fragment_never_comes_expires() {
    let mut harness = IntakeHarness::default();
    let [first, second, third] = nine(4);
    harness.take(1, &first);
    harness.now = 2 * SECOND;
    harness.take(1, &third);
    harness.now = 4 * SECOND;
    harness.intake.expire(harness.now);
    assert_eq!((harness.lost(LossReason::Expired), harness.intake.unfinished()), (0, 1));
    harness.intake.expire(harness.now + 1);
    assert_eq!((harness.lost(LossReason::Expired), harness.intake.memory()), (1, 0));
    harness.take(1, &second);
    assert_eq!((harness.counts().passed_over, harness.counts().lost()), (1, 1));
    harness.check();
}

#[test]
fn a_message_that_began_before_its_sender_was_heard_is_not_lost() {
    for first in [1, 2] {
        let mut harness = IntakeHarness::default();
        harness.take_all(1, &nine(4)[first..]);
        harness.now = 3 * SECOND;
        harness.intake.expire(harness.now);
        harness.take(1, &nine(4)[1]);
        let counts = harness.counts();
        assert_eq!((counts.lost(), counts.begun_before, counts.passed_over), (0, 1, 1));
        assert_eq!(harness.intake.missing_datagrams(), 0);
        harness.check();
        // The next one is.
        harness.take_all(1, &nine(5)[1..]);
        harness.now = 6 * SECOND;
        harness.intake.expire(harness.now);
        assert_eq!((harness.counts().lost(), harness.counts().begun_before), (1, 1));
        harness.check();
    }
    // Its fragments may only have changed places, or have been lost afterwards.
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &[nine(4)[1].clone(), nine(4)[0].clone()]);
    harness.now = 3 * SECOND;
    harness.intake.expire(harness.now);
    assert_eq!((harness.counts().lost(), harness.counts().begun_before), (1, 0));
    harness.check();
}

#[test]
fn a_message_that_very_many_others_have_overtaken_is_given_up() {
    let mut harness = IntakeHarness::default();
    let ([first, second, third], [next, ..]) = (nine(4), nine(1000));
    harness.take(1, &first);
    harness.short(1, 5..500);
    harness.take(1, &second);
    harness.short(1, 500..1000);
    harness.take(1, &next);
    assert_eq!((harness.lost(LossReason::Expired), harness.intake.unfinished()), (0, 2));
    harness.short(1, 1001..1100);
    let [another, ..] = nine(1100);
    harness.take(1, &another);
    assert_eq!((harness.lost(LossReason::Expired), harness.intake.unfinished()), (1, 2));
    harness.take(1, &third);
    assert_eq!((harness.counts().passed_over, harness.counts().lost()), (1, 1));
    harness.check();
}

#[test]
fn what_is_unfinished_at_the_end_is_lost() {
    let mut harness = IntakeHarness::default();
    harness.take(1, &nine(4)[1]);
    harness.intake.finish();
    assert_eq!(harness.lost(LossReason::Ended), 1);
    harness.check();
}

#[test]
fn contradicting_fragments_lose_their_message_once() {
    let [first, second, third] = nine(4);
    let contradictions = [
        ("size", fragment(4, 10, 3, (1, 3), b"def")),
        ("count", fragment(4, 9, 3, (1, 4), b"def")),
        ("overlap", fragment(4, 9, 2, (1, 3), b"def")),
        ("hole", fragment(4, 9, 4, (1, 3), b"def")),
        ("channel", fragment(4, 9, 0, (0, 3), b"D\0abc")),
        ("other bytes", fragment(4, 9, 0, (0, 3), b"C\0abd")),
        ("longer", fragment(4, 9, 0, (0, 3), b"C\0abcd")),
        ("other bytes, waiting", fragment(4, 9, 6, (2, 3), b"ghj")),
        ("other range, waiting", fragment(4, 9, 7, (2, 3), b"hi")),
    ];
    for (what, contradiction) in contradictions {
        let mut harness = IntakeHarness::default();
        harness.take_all(1, &[first.clone(), third.clone(), contradiction.clone(), contradiction]);
        harness.take_all(1, &[first.clone(), second.clone(), third.clone()]);
        assert_eq!(
            (harness.lost(LossReason::Contradictory), harness.counts().lost()),
            (1, 1),
            "{what}"
        );
        assert_eq!((harness.delivered.len(), harness.intake.unfinished()), (0, 0), "{what}");
        harness.check();
    }
}

#[test]
fn fragments_that_do_not_add_up_are_a_contradiction() {
    let mut harness = IntakeHarness::default();
    harness.take(1, &fragment(4, 9, 0, (0, 2), b"C\0abc"));
    harness.take(1, &fragment(4, 9, 3, (1, 2), b"def"));
    assert_eq!(harness.lost(LossReason::Contradictory), 1);
    harness.take(1, &fragment(5, 9, 1, (1, 3), b"bcdefghi"));
    harness.take(1, &fragment(5, 9, 2, (2, 3), b"cdefghi"));
    assert_eq!(harness.lost(LossReason::Contradictory), 2);
    harness.check();
}

#[test]
fn a_message_without_payload_may_be_a_fragment() {
    let mut harness = IntakeHarness::default();
    harness.take(1, &fragment(4, 0, 0, (0, 1), b"C\0"));
    assert_eq!(harness.delivered, [(1, 4, b"C".to_vec(), vec![])]);
    harness.check();
}

#[test]
fn refused_datagrams_are_counted_by_reason() {
    let mut harness = IntakeHarness::default();
    harness.take_all(1, &[b"LC02".to_vec(), b"LC02\0\0\0\0a".to_vec(), b"????????????".to_vec()]);
    harness.take(1, &fragment(4, 9, u32::MAX, (1, 3), b"abc"));
    harness.take(1, &fragment(4, 9, 0, (3, 3), b"abc"));
    let rejected: Vec<_> =
        harness.counts().rejected.iter().map(|(reject, n)| (*reject, *n)).collect();
    let expected = [
        Reject::TooShort,
        Reject::Magic,
        Reject::EndlessChannel,
        Reject::Number,
        Reject::BeyondEnd,
    ];
    assert_eq!(rejected, expected.map(|reject| (reject, 1)));
    assert_eq!(harness.intake.senders().count(), 0);
}

#[test]
fn filtered_messages_are_received_but_not_kept() {
    let mut harness = IntakeHarness::default();
    harness.take(1, b"LC02\0\0\0\x03NO\0x");
    let datagrams = sent(4, b"NO", &payload(200_000, 0));
    harness.take_all(1, &datagrams);
    assert_eq!((harness.counts().unwanted, harness.intake.memory()), (2, 0));
    assert_eq!((harness.counts().passed_over, harness.counts().duplicates), (3, 0));
    // The channel is known only when its fragment comes.
    let datagrams = sent(5, b"NO", &payload(200_000, 0));
    harness.take_all(1, &[datagrams[2].clone(), datagrams[0].clone(), datagrams[1].clone()]);
    assert_eq!((harness.counts().unwanted, harness.intake.memory()), (3, 0));
    assert_eq!((harness.counts().lost(), harness.delivered.len()), (0, 0));
    harness.check();
}

#[test]
fn missing_numbers_are_lost_until_they_come() {
    let mut harness = IntakeHarness::default();
    harness.short(1, [10, 11, 14]);
    assert_eq!(harness.counts().lost(), 2);
    harness.short(1, [12, 15]);
    assert_eq!((harness.counts().lost(), harness.counts().late), (1, 1));
    assert_eq!(harness.delivered.iter().map(|got| got.1).collect::<Vec<_>>(), [10, 11, 14, 12, 15]);
    harness.check();
}

#[test]
fn a_sender_that_restarts_loses_nothing_by_it() {
    let mut harness = IntakeHarness::default();
    harness.short(1, 0..50);
    harness.take(1, &nine(50)[0]);
    harness.short(1, 0..50);
    assert_eq!((harness.counts().messages, harness.counts().restarts), (100, 1));
    assert_eq!((harness.lost(LossReason::Restarted), harness.counts().lost()), (1, 1));
    harness.now += 2 * SECOND;
    harness.short(1, 7..20);
    assert_eq!((harness.counts().messages, harness.counts().restarts), (113, 2));
    assert_eq!(harness.counts().lost(), 1);
    harness.check();
}

#[test]
fn a_zero_that_the_network_repeats_is_received_once_and_is_no_restart() {
    for after in 1..16 {
        let mut harness = IntakeHarness::default();
        harness.short(1, 0..after);
        harness.short(1, [0, after, 1, after + 1]);
        let counts = harness.counts();
        assert_eq!((counts.restarts, counts.missing, counts.duplicates), (0, 0, 2), "{after}");
        assert_eq!(counts.messages, u64::from(after) + 2);
        harness.check();
    }
}

#[test]
fn a_late_one_behind_a_repeated_zero_is_no_restart() {
    for numbers in [&[0, 2, 3, 0, 1, 4][..], &[0, 2, 3, 0, 1, 1, 4]] {
        let mut harness = IntakeHarness::default();
        harness.short(1, numbers.iter().copied());
        let (counts, duplicates) = (harness.counts(), numbers.len() as u64 - 5);
        assert_eq!((counts.messages, counts.duplicates, counts.late), (5, duplicates, 1));
        assert_eq!((counts.restarts, counts.lost()), (0, 0));
        harness.check();
    }
}

#[test]
fn an_equal_zero_that_an_equal_one_follows_is_that_of_a_restart() {
    let mut harness = IntakeHarness::default();
    harness.short(1, (0..10).chain(0..10));
    let counts = harness.counts();
    // Only the 0 itself is considered repeated.
    assert_eq!((counts.messages, counts.duplicates, counts.restarts), (19, 1, 1));
    assert_eq!(counts.lost(), 0);
    harness.check();
}

#[test]
fn a_message_begun_far_away_outlives_the_restart_that_it_announced() {
    let mut harness = IntakeHarness::default();
    harness.short(1, [1_000_000]);
    harness.take(1, &nine(1_000_001)[0]);
    let [first, second, third] = nine(3);
    harness.take_all(1, &[first, second]);
    assert_eq!(harness.counts().restarts, 0);
    harness.short(1, [4]);
    harness.take(1, &third);
    assert_eq!(harness.delivered.last(), Some(&nine_delivered(1, 3)));
    assert_eq!((harness.counts().restarts, harness.lost(LossReason::Restarted)), (1, 1));
    assert_eq!((harness.counts().lost(), harness.intake.memory()), (1, 0));
    harness.check();
}

#[test]
fn late_fragments_of_a_lost_message_are_no_restart() {
    let mut harness = IntakeHarness::default();
    let [first, second, third] = nine(4);
    harness.short(1, [3]);
    harness.take(1, &second);
    harness.now += 3 * SECOND;
    harness.intake.expire(harness.now);
    harness.take_all(1, &[first, third]);
    harness.short(1, [5]);
    assert_eq!((harness.counts().restarts, harness.counts().lost()), (0, 1));
    harness.check();
}

#[test]
fn senders_heard_once_are_forgotten_before_others() {
    let mut harness = IntakeHarness::new(IntakeLimits { senders: 3, ..IntakeLimits::default() });
    harness.short(1, [1, 2]);
    harness.short(2, [1, 2]);
    harness.take(3, &nine(4)[0]);
    (10..100).for_each(|port| harness.short(port, [7]));
    assert_eq!((harness.counts().forgotten, harness.lost(LossReason::Forgotten)), (90, 1));
    harness.short(2, [4]);
    harness.short(1, [4]);
    assert_eq!((harness.counts().missing, harness.intake.unfinished()), (2, 0));
    // Of those heard often, the one silent for longest.
    harness.short(99, [8]);
    harness.short(200, [1]);
    let mut known: Vec<_> = harness.intake.senders().map(|sender| sender.address.port()).collect();
    known.sort();
    assert_eq!(known, [1, 99, 200]);
    assert_eq!((harness.counts().lost(), harness.counts().messages), (3, 98));
    // A forgotten sender is added again.
    harness.short(10, [3, 4]);
    assert!(harness.intake.senders().any(|sender| sender.address.port() == 10 && sender.sent == 2));
    harness.check();
}

#[test]
fn a_report_names_every_loss_once() {
    let mut harness = IntakeHarness::default();
    harness.short(1, [1, 3, 3]);
    harness.take(1, &nine(4)[0]);
    harness.take(1, b"?");
    harness.intake.finish();
    let losses: Vec<_> = harness.counts().losses().collect();
    let expected = [("messages of which nothing came", 1), ("messages unfinished at the end", 1)];
    assert_eq!(losses, expected);
    let observations: Vec<_> = harness.counts().observations().collect();
    assert_eq!(observations, [("duplicate datagrams", 1), ("shorter than its header", 1)]);
}
