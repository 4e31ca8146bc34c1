//! LCM over UDP: datagrams of several senders, and the messages reassembled from them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use sluice_lcm_live::fuzzing::{Datagram, Intake, IntakeLimits, MAX_CHANNEL_LEN, parse};

const PIECE: usize = 4 << 20;

/// The next datagram: sender, milliseconds since the last one, length, bytes.
///
/// A length of 255 stands for a fragment of its eight bytes, so that the fuzzer need not find the
/// magic.
fn next(input: &mut &[u8]) -> Option<(u16, u64, Vec<u8>)> {
    let ([port, later, len], rest) = input.split_first_chunk()?;
    let (datagram, rest) = match len {
        255 => {
            let ([sequence, size, offset, number, count, len, fill, first], rest) =
                rest.split_first_chunk()?;
            let mut bytes = [b"LC03\0\0\0".as_slice(), &[*sequence, 0, 0, 0, *size]].concat();
            bytes.extend([0, 0, 0, *offset, 0, *number, 0, *count]);
            bytes.extend([*first, 0].iter().filter(|_| *number == 0));
            bytes.extend(vec![*fill; usize::from(*len)]);
            (bytes, rest)
        }
        len => {
            let (datagram, rest) = rest.split_at(usize::from(*len).min(rest.len()));
            (datagram.to_vec(), rest)
        }
    };
    *input = rest;
    Some((u16::from(port % 5), u64::from(*later) * 10, datagram))
}

/// Any datagrams of several senders: delivered messages were sent, memory is limited, and the
/// accounting balances.
pub fn lcm_datagrams(input: &[u8]) {
    // Small, so that the fuzzer meets them.
    let limits = IntakeLimits { bytes: 3000, messages: 4, age: Duration::from_secs(2), senders: 3 };
    let mut intake = Intake::new(limits.clone());
    let (mut rest, mut now, mut delivered, mut unwanted, mut datagrams) = (input, 0, 0, 0, 0);
    while let Some((port, later, datagram)) = next(&mut rest) {
        now += later * 1_000_000;
        let parsed = parse(&datagram);
        let wants = |channel: &[u8]| channel.first() != Some(&b'n');
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        intake.take(&datagram, from, now, wants, |message| {
            assert_eq!(message.from, from);
            assert!(wants(message.channel) && message.channel.len() <= MAX_CHANNEL_LEN);
            delivered += 1;
            match parsed {
                Ok(Datagram::Short { sequence, channel, payload }) => {
                    assert_eq!((message.sequence, message.channel), (sequence, channel));
                    assert_eq!(&*message.payload, payload);
                }
                Ok(Datagram::Fragment(last)) => {
                    assert_eq!(message.sequence, last.sequence);
                    assert_eq!(message.payload.len(), last.size as usize);
                    assert!(message.payload[last.offset as usize..].starts_with(last.data));
                }
                Err(reject) => panic!("delivered what is {reject}"),
            }
        });
        datagrams += 1;
        assert!(intake.memory() <= limits.bytes + PIECE);
        assert!(intake.unfinished() <= limits.messages);
        if later == 0 {
            intake.expire(now);
        }
        unwanted = check(&intake, delivered, datagrams, unwanted);
    }
    intake.finish();
    check(&intake, delivered, datagrams, unwanted);
    assert_eq!((intake.memory(), intake.unfinished()), (0, 0));
}

/// Checks the accounting; returns the number of unwanted messages, which never shrinks.
fn check(intake: &Intake, delivered: u64, datagrams: u64, unwanted: u64) -> u64 {
    let counts = intake.counts();
    let rejected: u64 = counts.rejected.values().sum();
    assert_eq!((counts.messages, counts.datagrams), (delivered, datagrams));
    assert!(rejected <= datagrams && counts.unwanted >= unwanted);
    assert_eq!(counts.lost(), counts.losses().map(|(_, count)| count).sum::<u64>());
    let (mut missing, mut unfinished, mut received) = (0, 0, 0);
    for sender in intake.senders() {
        assert_eq!(sender.sent, sender.messages + sender.lost() + sender.unfinished);
        missing += sender.missing;
        unfinished += sender.unfinished;
        received += sender.messages;
    }
    assert!(intake.senders().count() <= 3);
    assert_eq!(unfinished, intake.unfinished() as u64);
    assert!(missing <= counts.missing && received <= counts.messages + counts.unwanted);
    if counts.forgotten == 0 {
        assert_eq!((missing, received), (counts.missing, counts.messages + counts.unwanted));
    }
    counts.unwanted
}
