//! What is a message and what is damage, on bytes that nobody wrote and on bytes that somebody did.

use std::sync::Arc;

use proptest::prelude::*;
use sluice_kit::window::ReadAt;
use sluice_model::Error;
use sluice_vel::fuzzing::{
    AfterDamage, DeletedMessages, FileHead, FileStart, IMU_STATE, LASER_DATA, MARKER,
    MessageDamage, MessageNames, MessageScan, Rules, append_message, classify, find,
    messages_start, plausible_end, read_start, simple_hash,
};

const ODOMETRY: u32 = simple_hash(b"OdometryM");

/// Small, so that the limit is met.
fn rules() -> Rules {
    let names = Arc::new(MessageNames::with(["OdometryM"]).unwrap());
    Rules { max_message: 4096, names, ..Rules::default() }
}

fn message(type_id: u32, version: i32, ms: f64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_message(&mut bytes, MARKER, (type_id, version), ms, payload).unwrap();
    bytes
}

/// A message of no known type.
fn other(ms: f64) -> Vec<u8> {
    message(0xdead_beef, 5, ms, b"payload")
}

fn imu(ms: f64) -> Vec<u8> {
    message(IMU_STATE, 102, ms, &[&[0; 8][..], &[7; 28]].concat())
}

fn at(log: &[u8], pos: u64) -> MessageScan {
    classify(&mut &*log, pos, &rules()).unwrap()
}

fn next(log: &[u8]) -> Option<u64> {
    find(&mut &*log, 0..u64::MAX, &rules()).unwrap()
}

/// Judges a whole log, and holds the verdicts against each other.
fn tiled(log: &[u8], rules: &Rules) -> Vec<(u64, MessageScan)> {
    let (mut at, len, mut verdicts) = (0, log.len() as u64, Vec::new());
    loop {
        let verdict = classify(&mut &*log, at, rules).unwrap();
        let end = match &verdict {
            MessageScan::Message { header, end } => {
                assert_eq!(header.message_len(), end - at);
                *end
            }
            MessageScan::Damage { end, reason } => {
                assert!(!reason.to_string().is_empty());
                *end
            }
            MessageScan::End => return verdicts,
        };
        assert!(at < end && end <= len, "{at}..{end} of {len}");
        verdicts.push((at, verdict));
        at = end;
    }
}

#[test]
fn a_known_type_is_plausible_alone_and_another_in_a_row_only() {
    let junk = [9; 30];
    assert_eq!(next(&[&junk[..], &imu(1.0), &junk].concat()), Some(30));
    assert_eq!(next(&[&junk[..], &message(ODOMETRY, 7, 1.0, b"any"), &junk].concat()), Some(30));
    let others: Vec<u8> = (0..4).flat_map(|n| other(f64::from(n))).collect();
    assert_eq!(next(&[&junk[..], &others, &junk].concat()), Some(30));
    let three = &others[..others.len() - other(0.0).len()];
    assert_eq!(next(&[&junk[..], three, &junk].concat()), None);
    assert_eq!(next(&[&junk[..], three].concat()), Some(30));
    assert_eq!(next(&[&junk[..], three, &[0xff; 4], &junk].concat()), Some(30));
    assert_eq!(next(&[&junk[..], &other(0.0)].concat()), None);
}

#[test]
fn what_cannot_be_is_not_plausible() {
    let junk = [9; 30];
    for (why, bad) in [
        ("a time that is none", message(ODOMETRY, 7, f64::NAN, b"any")),
        ("a version that is none", message(ODOMETRY, -7, 1.0, b"any")),
        ("a payload that is too short", message(IMU_STATE, 102, 1.0, &[0; 35])),
        ("an hour in between", (0..4).flat_map(|n| other(f64::from(n) * 3.7e6)).collect()),
        ("above the limit", message(ODOMETRY, 7, 1.0, &[0; 4096])),
    ] {
        assert_eq!(next(&[&junk[..], &bad, &junk].concat()), None, "{why}");
    }
}

#[test]
fn an_intact_message_stays_whatever_follows_it() {
    for intact in [imu(1.0), other(1.0), message(ODOMETRY, 7, 1.0, &imu(2.0))] {
        for junk in [&[0; 50][..], &[9; 50], b"x", &[MARKER; 50]] {
            let log = [&intact[..], junk].concat();
            let MessageScan::Message { end, .. } = at(&log, 0) else { panic!("{:?}", at(&log, 0)) };
            assert_eq!(end, intact.len() as u64);
        }
    }
}

#[test]
fn a_size_that_would_swallow_messages_is_told_by_those() {
    let mut log = [other(1.0), imu(2.0), imu(3.0), imu(4.0)].concat();
    log[..4].copy_from_slice(&100u32.to_le_bytes());
    let own = other(1.0).len() as u64;
    let reason = MessageDamage::Contradicted { size: 100, at: own + imu(2.0).len() as u64 };
    assert_eq!(at(&log, 0), MessageScan::Damage { end: own, reason });
}

/// A log of messages, where the size of the first makes it end with message `last`.
fn swallowing(messages: &[Vec<u8>], last: usize) -> Vec<u8> {
    let mut log = messages.concat();
    let end: usize = messages.iter().take(last + 1).map(Vec::len).sum();
    log[..4].copy_from_slice(&(end as u32 - 4).to_le_bytes());
    log
}

#[test]
fn a_size_that_swallows_whole_messages_is_told_by_the_layout() {
    let deleted = |mut message: Vec<u8>| {
        message[4] = 0x30;
        message
    };
    for first in [imu(1.0), deleted(imu(1.0)), message(IMU_STATE, 102, 1e99, &imu(1.0)[21..])] {
        for second in [imu(2.0), other(2.0), deleted(imu(2.0))] {
            let own = first.len() as u64;
            let messages = [first.clone(), second, other(3.0), imu(4.0)];
            for last in 1..4 {
                let log = swallowing(&messages, last);
                let size = u32::from_le_bytes(*log.first_chunk().unwrap());
                let reason = MessageDamage::Payload(size);
                assert_eq!(at(&log, 0), MessageScan::Damage { end: own, reason }, "{last}");
                let stop = Rules { after_damage: AfterDamage::Stop, ..rules() };
                let all = MessageScan::Damage { end: log.len() as u64, reason };
                assert_eq!(classify(&mut &log[..], 0, &stop).unwrap(), all);
            }
        }
    }
}

#[test]
fn a_message_is_kept_whose_layout_does_not_tell_that_it_swallows_others() {
    let newer = message(IMU_STATE, 103, 1.0, &imu(1.0)[21..]);
    let odometry = message(ODOMETRY, 7, 1.0, b"any");
    for (what, first, more) in [
        ("of a newer version", newer, imu(2.0)),
        ("of an unknown layout", odometry, imu(2.0)),
        ("of an unknown type", other(1.0), imu(2.0)),
        ("with further bytes", imu(1.0), vec![MARKER; 40]),
        (
            "with a further string",
            imu(1.0),
            [&[21, 0, 0, 0][..], b"1 string of 21 letters"].concat(),
        ),
        ("with a further number", imu(1.0), vec![0; 4]),
    ] {
        let log = swallowing(&[first, more, imu(3.0)], 1);
        let end = log.len() as u64 - imu(3.0).len() as u64;
        let MessageScan::Message { end: found, .. } = at(&log, 0) else { panic!("{what}") };
        assert_eq!(found, end, "{what}");
    }
}

/// An image of a known layout with this content.
fn image(ms: f64, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u32).to_le_bytes();
    message(simple_hash(b"ImageM"), 102, ms, &[&[0; 20][..], &len, content].concat())
}

#[test]
fn bytes_missing_inside_a_message_do_not_cost_those_that_its_lengths_then_cover() {
    for marker in [MARKER, 0x30] {
        for messages in [2, 10, 70] {
            let image = image(1.0, &[0xd8; 4000]);
            let mut log: Vec<u8> =
                [image.clone(), (2..99).flat_map(|n| imu(f64::from(n))).collect()].concat();
            log[4] = marker;
            // As many bytes as the messages and a part of the next one have.
            let missing = messages * imu(0.0).len() + 3;
            log.drain(50..50 + missing);
            let own = (image.len() - missing) as u64;
            let MessageScan::Damage { end, .. } = at(&log, 0) else { panic!("{:?}", at(&log, 0)) };
            assert_eq!(end, own, "{messages} {marker:#x}");
        }
    }
}

#[test]
fn a_message_with_a_log_inside_is_kept_where_another_follows_or_the_log_ends() {
    let inner: Vec<u8> = (0..70).flat_map(|n| imu(f64::from(n))).collect();
    for outer in [image(1.0, &inner), message(ODOMETRY, 7, 1.0, &inner)] {
        for next in [imu(2.0), other(2.0), vec![0xff; 4], vec![]] {
            let log = [outer.clone(), next].concat();
            let MessageScan::Message { end, .. } = at(&log, 0) else { panic!("{:?}", at(&log, 0)) };
            assert_eq!(end, outer.len() as u64);
        }
    }
}

#[test]
fn bytes_that_lead_to_a_message_are_no_deleted_one_without_a_possible_time_and_version() {
    let deleted = |version: i32, ms: f64| {
        let mut message = message(0x6e65_5358, version, ms, b"payload");
        message[4] = 0;
        message
    };
    for (version, ms) in [(7, 1e99), (0x544d_5f73, 1.0)] {
        let torn = deleted(version, ms);
        let log = [torn.clone(), imu(2.0), imu(3.0)].concat();
        let reason = MessageDamage::Marker(0);
        assert_eq!(at(&log, 0), MessageScan::Damage { end: torn.len() as u64, reason });
        // Nor do they confirm a message whose layout ends elsewhere.
        let mut before = message(IMU_STATE, 102, 1.0, &[0; 40]);
        let own = before.len() as u64;
        before.extend(&log);
        let reason = MessageDamage::Payload(57);
        let end = own + torn.len() as u64;
        assert_eq!(at(&before, 0), MessageScan::Damage { end, reason });
    }
}

#[test]
fn a_marker_that_nothing_confirms_is_no_deleted_message() {
    let mut log = [other(1.0), imu(2.0)].concat();
    log[4] = 0;
    let own = other(1.0).len() as u64;
    assert_eq!(at(&log, 0), MessageScan::Damage { end: own, reason: MessageDamage::Deleted(0) });
    log[0] += 1;
    assert_eq!(at(&log, 0), MessageScan::Damage { end: own, reason: MessageDamage::Marker(0) });
}

#[test]
fn deleted_messages_in_a_row_are_each_their_own() {
    let mut log: Vec<u8> = (0..50).flat_map(|n| other(f64::from(n))).collect();
    let len = other(0.0).len();
    (0..50).for_each(|n| log[n * len + 4] = 0x30);
    let verdicts = tiled(&log, &rules());
    assert_eq!(verdicts.len(), 50);
    assert!(verdicts.iter().all(|(_, v)| matches!(
        v,
        MessageScan::Damage { reason: MessageDamage::Deleted(0x30), .. }
    )));
    let kept = tiled(&log, &Rules { deleted: DeletedMessages::Keep, ..rules() });
    assert!(kept.iter().all(|(_, v)| matches!(v, MessageScan::Message { .. })));
}

#[test]
fn a_head_that_is_none_is_refused_or_damage() {
    let log = |bytes: &[u8]| read_start(&mut &*bytes, &rules()).unwrap();
    assert_eq!(log(b""), FileStart::Empty);
    assert!(matches!(log(b"\xa4VE"), FileStart::Damaged { end: 3, .. }));
    assert!(matches!(log(b"\xa4VF"), FileStart::Refused { at: 0, .. }));
    let mut file = FileHead::new(0).write().to_vec();
    assert_eq!(log(&file), FileStart::Sound { body: 12, head: FileHead::new(0) });
    file[4] = 3;
    assert!(matches!(log(&file), FileStart::Refused { at: 4, .. }));
}

#[test]
fn bytes_missing_in_the_head_do_not_cost_the_first_message() {
    for count in [1, 10] {
        let messages: Vec<u8> = (0..count).flat_map(|n| imu(f64::from(n))).collect();
        for missing in 1..=4 {
            let head = FileHead::new(0).write();
            let log = [&head[..12 - missing], &messages].concat();
            let start = read_start(&mut &log[..], &rules()).unwrap();
            let FileStart::Damaged { end, .. } = start else { panic!("{missing}: {start:?}") };
            assert_eq!(end, 12 - missing as u64);
        }
    }
}

/// Nested messages that all end at one mark, far before the next message.
fn ended_by_marks(count: usize) -> Vec<u8> {
    let mut log = Vec::new();
    for left in (1..=count).rev() {
        let mut head = message(IMU_STATE, 102, 1.0, &[0; 9]);
        head[..4].copy_from_slice(&(left as u32 * 30 - 4).to_le_bytes());
        log.extend(head);
    }
    log.extend([0xff; 60_000]);
    [log, imu(1.0)].concat()
}

/// Counts what is read.
struct CountingReader<'l> {
    log: &'l [u8],
    bytes: u64,
    reads: u64,
}

impl ReadAt for CountingReader<'_> {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let read = self.log.read_at(pos, buf)?;
        self.bytes += read as u64;
        self.reads += 1;
        Ok(read)
    }
}

/// Bytes read per byte of the log, and reads per possible message.
fn cost(log: &[u8], rules: &Rules) -> (u64, u64) {
    let mut counted = CountingReader { log, bytes: 0, reads: 0 };
    let mut at = 0;
    loop {
        at = match classify(&mut counted, at, rules).unwrap() {
            MessageScan::Message { end, .. } | MessageScan::Damage { end, .. } => end,
            MessageScan::End => break,
        }
    }
    (counted.bytes / log.len() as u64, counted.reads / (log.len() as u64 / 21))
}

#[test]
fn hostile_logs_cost_no_more_than_in_proportion_to_their_length() {
    let large = Rules { max_message: 256 << 20, ..rules() };
    let count = 4000;
    let nested = |type_id: u32, version: i32, step: usize| -> Vec<u8> {
        let len = count * step + count + 100;
        let mut log = vec![9; len];
        for n in 0..count {
            // Each ends one byte before the one around it, in bytes that are no message.
            let size = (len - n * step - n - 30 - 4) as u32;
            let mut head = message(type_id, version, 1.0, b"");
            head[..4].copy_from_slice(&size.to_le_bytes());
            log[n * step..n * step + 21].copy_from_slice(&head);
        }
        log
    };
    // The same with numbers of ranges that agree with the sizes.
    let mut counted = nested(LASER_DATA, 100, 27);
    counted.extend([9; 3]);
    for n in 0..count {
        let size = (counted.len() - n * 28 - 34) as u32;
        counted[n * 27..n * 27 + 4].copy_from_slice(&size.to_le_bytes());
        counted[n * 27 + 21..n * 27 + 25].copy_from_slice(&((size - 21) / 4).to_le_bytes());
    }
    assert!(matches!(classify(&mut &counted[..], 0, &large), Ok(MessageScan::Damage { .. })));
    for (what, log) in [
        ("nested, of an exact layout", counted),
        ("nested, of a given name", nested(ODOMETRY, 7, 21)),
        ("nested and far apart", nested(ODOMETRY, 7, 200)),
        ("nested, of a newer version", nested(LASER_DATA, 110, 30)),
        ("nested, of no known type", nested(5, 5, 21)),
        ("markers", vec![MARKER; 100_000]),
        ("sizes and markers", [0x31, 0x31, 0, 0].repeat(25_000)),
        ("zeros", vec![0; 100_000]),
        ("end marks", vec![0xff; 100_000]),
        ("end marks and messages", [vec![0xff; 25], imu(1.0)].concat().repeat(2_000)),
        ("end marks before messages", [vec![0xff; 90_000], imu(1.0)].concat()),
        ("messages that end before an end mark", ended_by_marks(2_000)),
        ("messages without payload", message(5, 5, 1.0, b"").repeat(5_000)),
        ("rising versions", (0..5_000).flat_map(|n| message(5, n * 100, 1.0, b"")).collect()),
    ] {
        let (bytes, reads) = cost(&log, &large);
        assert!(bytes < 1_000 && reads < 1_000, "{what}: {bytes} a byte, {reads} a header");
    }
}

/// A log that is mostly zeros, which tracks how far it was read.
struct Sparse {
    pieces: Vec<(u64, Vec<u8>)>,
    len: u64,
    furthest: u64,
}

impl Sparse {
    /// Messages that claim these sizes, and have no contents.
    fn with_messages(messages: &[(u8, u32)]) -> Self {
        let (mut pieces, mut len) = (Vec::new(), 0);
        for (marker, size) in messages {
            let mut header = other(1.0)[..21].to_vec();
            header[..4].copy_from_slice(&size.to_le_bytes());
            header[4] = *marker;
            pieces.push((len, header));
            len += u64::from(*size) + 4;
        }
        Self { pieces, len, furthest: 0 }
    }
}

impl ReadAt for Sparse {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let there = self.len.saturating_sub(pos).min(buf.len() as u64) as usize;
        self.furthest = self.furthest.max(pos + there as u64);
        let buf = &mut buf[..there];
        buf.fill(0);
        for (at, bytes) in &self.pieces {
            for (n, byte) in bytes.iter().enumerate() {
                let to = (at + n as u64).checked_sub(pos).map(|to| to as usize);
                if let Some(to) = to.and_then(|to| buf.get_mut(to)) {
                    *to = *byte;
                }
            }
        }
        Ok(there)
    }
}

#[test]
fn what_follows_a_message_is_not_looked_at_far_away() {
    let rules = Rules::default();
    let (small, large) = (1 << 10, 20 << 20);
    for (marker, is_confirmed) in [(0x30, false), (MARKER, true)] {
        let mut log = Sparse::with_messages(&[
            (0x30, small),
            (marker, large),
            (0x30, large),
            (MARKER, small),
        ]);
        let MessageScan::Damage { reason, .. } = classify(&mut log, 0, &rules).unwrap() else {
            panic!("it is deleted")
        };
        assert_eq!(reason == MessageDamage::Deleted(0x30), is_confirmed, "{marker:#x}: {reason}");
        if is_confirmed {
            assert!(log.furthest <= u64::from(small) + 100, "{}", log.furthest);
        }
    }
    let mut chain = Sparse::with_messages(&[
        (MARKER, small),
        (MARKER, large),
        (MARKER, large),
        (MARKER, small),
    ]);
    assert_eq!(plausible_end(&mut chain, 0, &rules).unwrap(), None);
    assert!(chain.furthest <= u64::from(small) + 100, "{}", chain.furthest);
    let mut near = Sparse::with_messages(&[
        (MARKER, small),
        (MARKER, 7 << 20),
        (MARKER, 7 << 20),
        (MARKER, small),
    ]);
    assert_eq!(plausible_end(&mut near, 0, &rules).unwrap(), Some(u64::from(small) + 4));
}

#[test]
fn deleted_messages_that_are_not_far_away_are_stepped_over() {
    let mut log =
        Sparse::with_messages(&[(0x30, 100), (0x30, 7 << 20), (0x30, 7 << 20), (MARKER, 100)]);
    let verdict = classify(&mut log, 0, &Rules::default()).unwrap();
    assert_eq!(verdict, MessageScan::Damage { end: 104, reason: MessageDamage::Deleted(0x30) });
}

proptest! {
    #[test]
    fn any_bytes_are_messages_and_damage(
        log in proptest::collection::vec(
            prop_oneof![4 => Just(0u8), 3 => Just(MARKER), 2 => 16u8..30, 1 => any::<u8>()], 0..400),
        keeps: bool, stops: bool,
    ) {
        let deleted = if keeps { DeletedMessages::Keep } else { DeletedMessages::Skip };
        let after_damage = if stops { AfterDamage::Stop } else { AfterDamage::Search };
        tiled(&log, &Rules { deleted, after_damage, ..rules() });
        let start = read_start(&mut &log[..], &rules()).unwrap();
        if let FileStart::Sound { body: found, head: _ } = start {
            prop_assert_eq!(messages_start(&mut &log[..], &rules()).unwrap(), Some(found));
        }
    }

    #[test]
    fn messages_among_junk_are_found_and_held_apart(
        pieces in proptest::collection::vec(
            prop_oneof![
                (0u8..4, 0f64..1e5).prop_map(|(kind, ms)| match kind {
                    0 => imu(ms),
                    1 => other(ms),
                    2 => message(ODOMETRY, 7, ms, &imu(ms)),
                    _ => message(LASER_DATA, 100, ms, &[0; 4]),
                }),
                proptest::collection::vec(any::<u8>(), 0..60),
            ],
            0..12),
    ) {
        let log = pieces.concat();
        for (at, verdict) in tiled(&log, &rules()) {
            if let MessageScan::Damage { end, reason } = verdict {
                let alone = matches!(reason, MessageDamage::Deleted(_) | MessageDamage::Time(_));
                let next = find(&mut &log[..], at + 1..u64::MAX, &rules()).unwrap();
                prop_assert!(alone || next.unwrap_or(log.len() as u64) == end);
                if end < log.len() as u64 && !alone {
                    prop_assert!(plausible_end(&mut &log[..], end, &rules()).unwrap().is_some());
                }
            }
        }
    }
}
