use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::wire::{MAX_PAYLOAD_LEN, Reject, cut};

const SECOND: u64 = 1_000_000_000;

/// Channel and payload of a message, with its sender and number.
type Got = (u16, u32, Vec<u8>, Vec<u8>);

/// An intake with a clock and all that it delivered; senders are told apart by their port.
struct Desk {
    intake: Intake,
    now: u64,
    got: Vec<Got>,
}

impl Desk {
    fn new(limits: Limits) -> Self {
        Self { intake: Intake::new(limits), now: 0, got: Vec::new() }
    }

    fn take(&mut self, port: u16, datagram: &[u8]) {
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
        let wants = |channel: &[u8]| !channel.starts_with(b"NO");
        self.intake.take(datagram, from, self.now, wants, |message| {
            assert_eq!(message.from, from);
            self.got.push((
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

    fn counts(&self) -> &Counts {
        self.intake.counts()
    }

    fn lost(&self, loss: Loss) -> u64 {
        self.counts().incomplete.get(&loss).copied().unwrap_or_default()
    }

    /// Whether the books add up.
    #[track_caller]
    fn check(&self) {
        let mut sums = [0; 4];
        for sender in self.intake.senders() {
            assert_eq!(sender.sent, sender.messages + sender.lost() + sender.unfinished);
            let of_this = [sender.messages, sender.missing, sender.incomplete, sender.unfinished];
            sums.iter_mut().zip(of_this).for_each(|(sum, count)| *sum += count);
        }
        let counts = self.counts();
        assert_eq!(counts.messages, self.got.len() as u64);
        assert_eq!(counts.lost(), counts.losses().map(|(_, count)| count).sum::<u64>());
        assert_eq!(sums[3], self.intake.unfinished() as u64);
        if counts.forgotten == 0 {
            let totals = [counts.messages + counts.unwanted, counts.missing];
            assert_eq!(sums[..2], totals);
            assert_eq!(sums[2], counts.incomplete.values().sum::<u64>());
        }
    }
}

impl Default for Desk {
    fn default() -> Self {
        Self::new(Limits::default())
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

fn nine_got(port: u16, sequence: u32) -> Got {
    (port, sequence, b"C".to_vec(), b"abcdefghi".to_vec())
}

fn payload(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect()
}

/// The datagrams that a sender makes of a message.
fn sent(sequence: u32, channel: &[u8], payload: &[u8]) -> Vec<Vec<u8>> {
    let datagram = |piece: wire::Piece| {
        let mut bytes = piece.header(sequence).to_vec();
        if piece.with_channel {
            bytes.extend([channel, b"\0"].concat());
        }
        bytes.extend(&payload[piece.payload]);
        bytes
    };
    cut(channel, payload.len()).unwrap().map(datagram).collect()
}

#[test]
fn a_short_message_is_delivered_as_it_is() {
    let mut desk = Desk::default();
    desk.take(1, b"LC02\0\0\0\x05\0xy");
    assert_eq!(desk.got, [(1, 5, vec![], b"xy".to_vec())]);
    desk.check();
}

#[test]
fn fragments_may_come_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut desk = Desk::default();
        order.iter().for_each(|number: &usize| desk.take(1, &nine(4)[*number]));
        assert_eq!(desk.got, [nine_got(1, 4)]);
        assert_eq!((desk.intake.memory(), desk.intake.unfinished()), (0, 0));
        desk.check();
    }
}

#[test]
fn a_fragment_that_comes_twice_counts_once() {
    let mut desk = Desk::default();
    let [first, second, third] = nine(4);
    desk.take_all(1, &[third.clone(), third, first.clone(), first]);
    assert_eq!((desk.got.len(), desk.counts().duplicates), (0, 2));
    desk.take_all(1, &[second.clone(), second]);
    assert_eq!((desk.got.len(), desk.counts().duplicates), (1, 3));
    desk.check();
}

#[test]
fn copies_of_a_whole_message_are_dropped() {
    let mut desk = Desk::default();
    desk.take_all(1, &nine(4));
    desk.take_all(1, &nine(4));
    desk.short(1, [5, 5]);
    assert_eq!((desk.got.len(), desk.counts().duplicates), (2, 4));
    desk.check();
}

#[test]
fn senders_with_equal_numbers_do_not_mix() {
    let mut desk = Desk::default();
    for datagram in nine(4) {
        desk.take(1, &datagram);
        desk.take(2, &datagram);
    }
    assert_eq!(desk.got, [nine_got(1, 4), nine_got(2, 4)]);
    desk.check();
}

#[test]
fn messages_of_one_sender_may_be_interleaved() {
    let mut desk = Desk::default();
    for (first, second) in nine(4).iter().zip(&nine(5)) {
        desk.take(1, first);
        desk.take(1, second);
    }
    assert_eq!(desk.got, [nine_got(1, 4), nine_got(1, 5)]);
    desk.check();
}

#[test]
fn a_message_of_which_a_fragment_never_comes_expires() {
    let mut desk = Desk::default();
    let [first, second, third] = nine(4);
    desk.take(1, &first);
    desk.now = 2 * SECOND;
    desk.take(1, &third);
    desk.now = 4 * SECOND;
    desk.intake.expire(desk.now);
    assert_eq!((desk.lost(Loss::Expired), desk.intake.unfinished()), (0, 1));
    desk.intake.expire(desk.now + 1);
    assert_eq!((desk.lost(Loss::Expired), desk.intake.memory()), (1, 0));
    desk.take(1, &second);
    assert_eq!((desk.counts().passed_over, desk.counts().lost()), (1, 1));
    desk.check();
}

#[test]
fn a_message_that_very_many_others_have_overtaken_is_given_up() {
    let mut desk = Desk::default();
    let ([first, second, third], [next, ..]) = (nine(4), nine(1000));
    desk.take(1, &first);
    desk.short(1, 5..500);
    desk.take(1, &second);
    desk.short(1, 500..1000);
    desk.take(1, &next);
    assert_eq!((desk.lost(Loss::Expired), desk.intake.unfinished()), (0, 2));
    desk.short(1, 1001..1100);
    let [another, ..] = nine(1100);
    desk.take(1, &another);
    assert_eq!((desk.lost(Loss::Expired), desk.intake.unfinished()), (1, 2));
    desk.take(1, &third);
    assert_eq!((desk.counts().passed_over, desk.counts().lost()), (1, 1));
    desk.check();
}

#[test]
fn what_is_unfinished_at_the_end_is_lost() {
    let mut desk = Desk::default();
    desk.take(1, &nine(4)[1]);
    desk.intake.finish();
    assert_eq!(desk.lost(Loss::Ended), 1);
    desk.check();
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
        ("short", short(4)),
    ];
    for (what, contradiction) in contradictions {
        let mut desk = Desk::default();
        desk.take_all(1, &[first.clone(), third.clone(), contradiction.clone(), contradiction]);
        desk.take_all(1, &[first.clone(), second.clone(), third.clone()]);
        assert_eq!((desk.lost(Loss::Contradictory), desk.counts().lost()), (1, 1), "{what}");
        assert_eq!((desk.got.len(), desk.intake.unfinished()), (0, 0), "{what}");
        desk.check();
    }
}

#[test]
fn fragments_that_do_not_add_up_are_a_contradiction() {
    let mut desk = Desk::default();
    desk.take(1, &fragment(4, 9, 0, (0, 2), b"C\0abc"));
    desk.take(1, &fragment(4, 9, 3, (1, 2), b"def"));
    assert_eq!(desk.lost(Loss::Contradictory), 1);
    desk.take(1, &fragment(5, 9, 1, (1, 3), b"bcdefghi"));
    desk.take(1, &fragment(5, 9, 2, (2, 3), b"cdefghi"));
    assert_eq!(desk.lost(Loss::Contradictory), 2);
    desk.check();
}

#[test]
fn a_message_without_payload_may_be_a_fragment() {
    let mut desk = Desk::default();
    desk.take(1, &fragment(4, 0, 0, (0, 1), b"C\0"));
    assert_eq!(desk.got, [(1, 4, b"C".to_vec(), vec![])]);
    desk.check();
}

#[test]
fn refused_datagrams_are_counted_by_reason() {
    let mut desk = Desk::default();
    desk.take_all(1, &[b"LC02".to_vec(), b"LC02\0\0\0\0a".to_vec(), b"????????????".to_vec()]);
    desk.take(1, &fragment(4, 9, u32::MAX, (1, 3), b"abc"));
    desk.take(1, &fragment(4, 9, 0, (3, 3), b"abc"));
    let rejected: Vec<_> = desk.counts().rejected.iter().map(|(reject, n)| (*reject, *n)).collect();
    let expected = [
        Reject::TooShort,
        Reject::Magic,
        Reject::EndlessChannel,
        Reject::Number,
        Reject::BeyondEnd,
    ];
    assert_eq!(rejected, expected.map(|reject| (reject, 1)));
    assert_eq!(desk.intake.senders().count(), 0);
}

#[test]
fn unwanted_messages_are_received_but_not_kept() {
    let mut desk = Desk::default();
    desk.take(1, b"LC02\0\0\0\x03NO\0x");
    let datagrams = sent(4, b"NO", &payload(200_000, 0));
    desk.take_all(1, &datagrams);
    assert_eq!((desk.counts().unwanted, desk.intake.memory()), (2, 0));
    assert_eq!((desk.counts().passed_over, desk.counts().duplicates), (3, 0));
    // The channel is known only when its fragment comes.
    let datagrams = sent(5, b"NO", &payload(200_000, 0));
    desk.take_all(1, &[datagrams[2].clone(), datagrams[0].clone(), datagrams[1].clone()]);
    assert_eq!((desk.counts().unwanted, desk.intake.memory()), (3, 0));
    assert_eq!((desk.counts().lost(), desk.got.len()), (0, 0));
    desk.check();
}

#[test]
fn memory_is_taken_by_what_came_not_by_what_is_claimed() {
    let mut desk = Desk::default();
    for sequence in 0..100 {
        desk.take(1, &fragment(sequence, 1 << 28, 9, (7, 65_535), b"x"));
    }
    assert!(desk.intake.memory() < 100 * 1000, "{}", desk.intake.memory());
    desk.take(1, &fragment(100, 1 << 28, 0, (0, 65_535), b"C\0x"));
    assert!(desk.intake.memory() < (4 << 20) + 100 * 1000, "{}", desk.intake.memory());
    desk.check();
}

#[test]
fn a_message_of_many_pieces_is_put_together() {
    let (mut desk, payload) = (Desk::default(), payload(9_500_000, 3));
    let mut datagrams = sent(4, b"LARGE", &payload);
    datagrams[40..100].reverse();
    datagrams.swap(0, 1);
    desk.take_all(1, &datagrams[..130]);
    assert!(desk.intake.memory() > 130 * 65_000);
    desk.take_all(1, &datagrams[60..]);
    assert_eq!(desk.got, [(1, 4, b"LARGE".to_vec(), payload)]);
    assert_eq!((desk.counts().duplicates, desk.intake.memory()), (70, 0));
    desk.check();
}

#[test]
fn the_longest_message_fits_into_the_usual_limits() {
    let mut desk = Desk::default();
    let data = vec![7; 65_487];
    let pieces = cut(b"C", MAX_PAYLOAD_LEN).unwrap();
    let last = pieces.len() - 1;
    for piece in pieces.take(last) {
        let front: &[u8] = if piece.with_channel { b"C\0" } else { b"" };
        desk.take(1, &[&piece.header(4), front, &data[..piece.payload.len()]].concat());
    }
    assert_eq!((desk.counts().lost(), desk.intake.unfinished()), (0, 1));
    assert!(desk.intake.memory() < 257 << 20);
}

#[test]
fn a_message_larger_than_the_memory_is_given_up_at_once() {
    let mut desk = Desk::new(Limits { bytes: 8, ..Limits::default() });
    desk.take_all(1, &nine(4));
    assert_eq!((desk.lost(Loss::TooLarge), desk.counts().passed_over), (1, 2));
    desk.check();
}

#[test]
fn a_sender_above_its_share_gives_up_its_own() {
    let mut desk = Desk::new(Limits { messages: 4, ..Limits::default() });
    (0..9).for_each(|sequence| desk.take(1, &nine(sequence)[1]));
    assert_eq!((desk.lost(Loss::Crowded), desk.intake.unfinished()), (5, 4));
    desk.take(2, &nine(0)[1]);
    assert_eq!((desk.lost(Loss::Crowded), desk.intake.unfinished()), (6, 4));
    desk.take(2, &nine(1)[1]);
    desk.take(1, &nine(9)[1]);
    desk.take_all(2, &nine(0));
    desk.take_all(2, &nine(1));
    assert_eq!(desk.got, [nine_got(2, 0), nine_got(2, 1)]);
    desk.check();
}

#[test]
fn a_sender_below_its_share_takes_from_who_holds_most() {
    let mut desk = Desk::new(Limits { messages: 5, ..Limits::default() });
    desk.take(2, &nine(0)[1]);
    (4..8).for_each(|sequence| desk.take(1, &nine(sequence)[1]));
    desk.take(3, &nine(0)[1]);
    desk.take_all(1, &nine(5));
    desk.take_all(2, &nine(0));
    desk.take_all(3, &nine(0));
    assert_eq!(desk.got, [nine_got(1, 5), nine_got(2, 0), nine_got(3, 0)]);
    desk.take_all(1, &nine(4));
    assert_eq!((desk.lost(Loss::Crowded), desk.counts().passed_over), (1, 3));
    desk.check();
}

#[test]
fn who_wants_more_than_its_share_does_not_take_from_its_equal() {
    let mut desk = Desk::new(Limits { messages: 6, ..Limits::default() });
    for sequence in 4..7 {
        desk.take(1, &nine(sequence)[1]);
        desk.take(2, &nine(sequence)[1]);
    }
    desk.take(1, &nine(7)[1]);
    (4..7).for_each(|sequence| desk.take_all(2, &nine(sequence)));
    assert_eq!(desk.got, [4, 5, 6].map(|sequence| nine_got(2, sequence)));
    assert_eq!(desk.lost(Loss::Crowded), 1);
    desk.check();
}

#[test]
fn the_last_message_of_a_sender_above_its_share_goes_itself() {
    let mut desk = Desk::new(Limits { bytes: 10 << 20, ..Limits::default() });
    let payload = payload(9 << 20, 0);
    let large = sent(4, b"C", &payload);
    let (one, other) = large.split_at(50);
    desk.take_all(1, one);
    desk.take_all(2, one);
    assert_eq!((desk.counts().lost(), desk.intake.unfinished()), (0, 2));
    desk.take_all(1, other);
    desk.take_all(2, other);
    assert_eq!(desk.got, [(2, 4, b"C".to_vec(), payload)]);
    assert_eq!((desk.lost(Loss::Crowded), desk.intake.memory()), (1, 0));
    desk.check();
}

#[test]
fn room_is_made_before_memory_is_taken() {
    let limits = Limits { bytes: 10 << 20, ..Limits::default() };
    let mut desk = Desk::new(limits.clone());
    for sequence in 0..4 {
        desk.take(1, &fragment(sequence, 4 << 20, 0, (0, 99), b"C\0x"));
        assert!(desk.intake.memory() <= limits.bytes);
    }
    assert_eq!((desk.lost(Loss::Crowded), desk.intake.unfinished()), (2, 2));
    desk.check();
}

#[test]
fn memory_does_not_depend_on_the_order_of_what_came() {
    let datagrams = sent(4, b"C", &payload(900_000, 0));
    let memory = |order: &mut dyn Iterator<Item = usize>| {
        let mut desk = Desk::default();
        order.for_each(|number| desk.take(1, &datagrams[number]));
        desk.intake.memory()
    };
    assert_eq!(memory(&mut (0..12)), memory(&mut (0..12).rev()));
}

#[test]
fn neighbours_that_change_places_do_not_overlap() {
    let mut desk = Desk::default();
    let payload = payload(1_000_000, 0);
    for pair in sent(4, b"C", &payload).chunks(2) {
        pair.iter().rev().for_each(|datagram| desk.take(1, datagram));
    }
    assert_eq!(desk.got, [(1, 4, b"C".to_vec(), payload)]);
    desk.check();
}

#[test]
fn a_flood_does_not_take_from_other_senders() {
    let limits = Limits { bytes: 20 << 20, messages: 40, ..Limits::default() };
    let mut desk = Desk::new(limits);
    let messages: Vec<Vec<u8>> = (0..8).map(|n| payload(800_000 + n, n as u8)).collect();
    let mut flood = 0;
    // Fragments of one datagram: some take memory, some only a place; some are of the same message.
    let mut flooded = |desk: &mut Desk| {
        for n in 0..20 {
            flood += 1;
            let (number, data): (u16, &[u8]) =
                if n % 3 == 0 { (0, b"C\0x") } else { (1, &[1; 65_000]) };
            let sequence = if n % 5 == 0 { flood - 1 } else { flood };
            desk.take(9, &fragment(sequence, 5 << 20, u32::from(number), (number, 999), data));
        }
    };
    for (sequence, message) in messages.iter().enumerate() {
        let datagrams = sent(sequence as u32, b"GOOD", message);
        for datagram in &datagrams {
            flooded(&mut desk);
            desk.take(1, datagram);
            desk.take(2, datagram);
        }
        desk.check();
    }
    let got: Vec<_> = desk.got.iter().map(|(port, _, _, payload)| (*port, payload)).collect();
    let expected: Vec<_> = messages.iter().flat_map(|m| [(1, m), (2, m)]).collect();
    assert!(got == expected);
    assert!(desk.lost(Loss::Crowded) > 1000);
}

#[test]
fn missing_numbers_are_lost_until_they_come() {
    let mut desk = Desk::default();
    desk.short(1, [10, 11, 14]);
    assert_eq!(desk.counts().lost(), 2);
    desk.short(1, [12, 15]);
    assert_eq!((desk.counts().lost(), desk.counts().late), (1, 1));
    assert_eq!(desk.got.iter().map(|got| got.1).collect::<Vec<_>>(), [10, 11, 14, 12, 15]);
    desk.check();
}

#[test]
fn a_sender_that_begins_anew_loses_nothing_by_it() {
    let mut desk = Desk::default();
    desk.short(1, 0..50);
    desk.take(1, &nine(50)[0]);
    desk.short(1, 0..50);
    assert_eq!((desk.counts().messages, desk.counts().restarts), (100, 1));
    assert_eq!((desk.lost(Loss::Restarted), desk.counts().lost()), (1, 1));
    desk.now += 2 * SECOND;
    desk.short(1, 7..20);
    assert_eq!((desk.counts().messages, desk.counts().restarts), (113, 2));
    assert_eq!(desk.counts().lost(), 1);
    desk.check();
}

#[test]
fn a_message_begun_far_away_outlives_the_restart_that_it_announced() {
    let mut desk = Desk::default();
    desk.short(1, [1_000_000]);
    desk.take(1, &nine(1_000_001)[0]);
    let [first, second, third] = nine(3);
    desk.take_all(1, &[first, second]);
    assert_eq!(desk.counts().restarts, 0);
    desk.short(1, [4]);
    desk.take(1, &third);
    assert_eq!(desk.got.last(), Some(&nine_got(1, 3)));
    assert_eq!((desk.counts().restarts, desk.lost(Loss::Restarted)), (1, 1));
    assert_eq!((desk.counts().lost(), desk.intake.memory()), (1, 0));
    desk.check();
}

#[test]
fn late_fragments_of_a_lost_message_are_no_restart() {
    let mut desk = Desk::default();
    let [first, second, third] = nine(4);
    desk.take(1, &second);
    desk.now += 3 * SECOND;
    desk.intake.expire(desk.now);
    desk.take_all(1, &[first, third]);
    desk.short(1, [5]);
    assert_eq!((desk.counts().restarts, desk.counts().lost()), (0, 1));
    desk.check();
}

#[test]
fn senders_heard_once_are_forgotten_before_others() {
    let mut desk = Desk::new(Limits { senders: 3, ..Limits::default() });
    desk.short(1, [1, 2]);
    desk.short(2, [1, 2]);
    desk.take(3, &nine(4)[0]);
    (10..100).for_each(|port| desk.short(port, [7]));
    assert_eq!((desk.counts().forgotten, desk.lost(Loss::Forgotten)), (90, 1));
    desk.short(2, [4]);
    desk.short(1, [4]);
    assert_eq!((desk.counts().missing, desk.intake.unfinished()), (2, 0));
    // Of those heard often, the one silent for longest.
    desk.short(99, [8]);
    desk.short(200, [1]);
    let mut known: Vec<_> = desk.intake.senders().map(|sender| sender.address.port()).collect();
    known.sort();
    assert_eq!(known, [1, 99, 200]);
    assert_eq!((desk.counts().lost(), desk.counts().messages), (3, 98));
    // One that is forgotten is met anew.
    desk.short(10, [3, 4]);
    assert!(desk.intake.senders().any(|sender| sender.address.port() == 10 && sender.sent == 2));
    desk.check();
}

#[test]
fn a_report_names_every_loss_once() {
    let mut desk = Desk::default();
    desk.short(1, [1, 3, 3]);
    desk.take(1, &nine(4)[0]);
    desk.take(1, b"?");
    desk.intake.finish();
    let losses: Vec<_> = desk.counts().losses().collect();
    let expected = [("messages of which nothing came", 1), ("messages unfinished at the end", 1)];
    assert_eq!(losses, expected);
    let observations: Vec<_> = desk.counts().observations().collect();
    assert_eq!(observations, [("datagrams that came twice", 1), ("shorter than its header", 1)]);
}

/// What happens to one datagram on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives { after: u8 },
    Twice { after: u8 },
    Lost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => (0u8..2).prop_map(|after| Fate::Arrives { after }),
        2 => (0u8..60).prop_map(|after| Fate::Arrives { after }),
        1 => (0u8..60).prop_map(|after| Fate::Twice { after }),
        1 => Just(Fate::Lost),
    ]
}

/// Which of the datagrams sent arrive, in their order of arrival.
fn network(fates: &[Fate]) -> Vec<usize> {
    let mut arrivals = Vec::new();
    for (number, fate) in fates.iter().enumerate() {
        match *fate {
            Fate::Arrives { after } => arrivals.push((number + usize::from(after), number)),
            Fate::Twice { after } => {
                arrivals.push((number, number));
                arrivals.push((number + usize::from(after), number));
            }
            Fate::Lost => {}
        }
    }
    arrivals.sort();
    arrivals.into_iter().map(|(_, number)| number).collect()
}

/// Datagrams that are mostly near to good ones, with few numbers, so that they meet.
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
        let mut desk = Desk::default();
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
        datagrams.iter().for_each(|(port, datagram)| desk.take(*port, datagram));
        desk.got.sort();
        expected.sort();
        prop_assert!(desk.got == expected, "{:?}", desk.counts());
        prop_assert_eq!(desk.counts().duplicates, copies.len() as u64);
        prop_assert_eq!((desk.counts().lost(), desk.intake.memory()), (0, 0));
        desk.check();
    }

    #[test]
    fn any_datagrams_keep_within_the_limits_and_the_books_add_up(
        datagrams in proptest::collection::vec((0u16..6, 0u64..SECOND, hostile()), 0..200),
    ) {
        let limits = Limits { bytes: 6 << 20, messages: 5, senders: 4, ..Limits::default() };
        let mut desk = Desk::new(limits.clone());
        for (port, later, datagram) in datagrams {
            desk.now += later;
            desk.take(port, &datagram);
            prop_assert!(desk.intake.memory() <= limits.bytes + partial::PIECE);
            prop_assert!(desk.intake.unfinished() <= limits.messages);
            prop_assert!(desk.intake.senders().count() <= limits.senders);
            desk.check();
            if later % 7 == 0 {
                desk.intake.expire(desk.now);
            }
        }
        desk.intake.finish();
        desk.check();
        prop_assert_eq!((desk.intake.memory(), desk.intake.unfinished()), (0, 0));
    }

    #[test]
    fn what_is_missing_is_what_the_network_lost(
        fates in proptest::collection::vec(fate(), 1..3000), before_zero in 1u32..3000,
    ) {
        let mut desk = Desk::default();
        let first = 0u32.wrapping_sub(before_zero);
        // The first one has arrived before anything can happen, so that a 0 is where the numbers go round.
        desk.short(1, [first]);
        let arrived = network(&fates);
        desk.short(1, arrived.iter().map(|number| first.wrapping_add(1 + *number as u32)));
        let mut known = arrived.clone();
        known.sort();
        known.dedup();
        let sent = known.last().map_or(0, |last| last + 1);
        let counts = desk.counts();
        prop_assert_eq!(counts.messages, 1 + known.len() as u64);
        prop_assert_eq!(counts.duplicates, (arrived.len() - known.len()) as u64);
        prop_assert_eq!(counts.missing, (sent - known.len()) as u64);
        prop_assert_eq!(counts.restarts, 0);
        desk.check();
    }
}
