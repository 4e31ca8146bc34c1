//! How often a log is read at most, however its false lengths mislead the search.

use super::*;

/// A log that counts what is read of it.
struct CountingLog<'a> {
    log: &'a [u8],
    bytes: u64,
    reads: u64,
}

impl ReadAt for CountingLog<'_> {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let there = self.log.read_at(pos, buf)?;
        self.bytes += there as u64;
        self.reads += 1;
        Ok(there)
    }
}

/// How many times its own size is read of a log, at most, to walk it.
fn work(log: &[u8]) -> u64 {
    let mut counting = CountingLog { log, bytes: 0, reads: 0 };
    walk_with(&mut counting, log.len() as u64);
    assert!(counting.reads <= log.len() as u64 * 2, "{} reads", counting.reads);
    counting.bytes.div_ceil(log.len() as u64)
}

const MEGABYTE: usize = 1 << 20;

/// Events of 32 bytes with false lengths, each of them tempting to search the rest of the log.
fn claims(channel: &[u8; 4], len: impl Fn(usize) -> usize) -> Vec<u8> {
    let claim = |i: usize| {
        let data_len = i32::try_from(len(i)).expect("short");
        relabelled(event_of(1, channel, b""), |header| header.data_len = data_len)
    };
    (0..MEGABYTE / 32).flat_map(claim).collect()
}

#[test]
fn nested_claims_are_read_a_bounded_number_of_times() {
    let half = MEGABYTE / 2;
    for channel in [b"GOOD", b"\x01\x02\x03\x04"] {
        for tail in [vec![], vec![0; MEGABYTE], event(200), event(200)[..50].to_vec()] {
            let same_length = [claims(channel, |_| half + 5), tail.clone()].concat();
            assert!(work(&same_length) <= 64, "same length");
            let same_end = [claims(channel, |i| 2 * half - 32 * i + 10), tail.clone()].concat();
            assert!(work(&same_end) <= 64, "same end");
            let shrinking = [claims(channel, |i| 2 * half - 31 * i + 10), tail].concat();
            assert!(work(&shrinking) <= 64, "shrinking");
        }
    }
}

/// Each claim here is disproved by the last of the walks begun inside it, and by no other.
#[test]
fn claims_that_are_disproved_late_are_read_a_bounded_number_of_times() {
    for distance in [32, 100, 600, 5000] {
        let mut log = Vec::new();
        for i in 0..MEGABYTE / distance {
            let end = MEGABYTE + 1000 + i / 8 * 100 - i % 8;
            let data_len = i32::try_from(end - log.len() - 32).expect("short");
            let claim = event_of(1, b"GOOD", b"");
            log.extend(relabelled(claim, |header| header.data_len = data_len));
            log.resize((i + 1) * distance, 0);
        }
        let disproved = log.len() as u64;
        log.resize(2 * MEGABYTE, 0);
        assert!(work(&log) <= 64, "{distance}");
        let found = walk(&log);
        assert!(found.damage[0].end + 8 * distance as u64 >= disproved, "{:?}", found.damage);
    }
}

/// Each claim here begins events that nearly continue the log, with long channels.
#[test]
fn claims_before_events_with_later_numbers_are_read_a_bounded_number_of_times() {
    for (len, step) in [(1000, 1), (1000, 2), (60, 1), (4, 1)] {
        let mut log = Vec::new();
        for n in 0.. {
            let event = event_of(n * step, &vec![b'c'; len], b"");
            let end = log.len() + event.len();
            let data_len = i32::try_from(MEGABYTE.saturating_sub(end) + 9).expect("short");
            log.extend(relabelled(event, |header| header.data_len = data_len * (n % 2) as i32));
            if log.len() > MEGABYTE {
                break;
            }
            log.extend(vec![0; (n % 3) as usize]);
        }
        log.resize(2 * MEGABYTE, 0);
        assert!(work(&log) <= 64, "{len} and {step}");
    }
}

#[test]
fn sync_words_only_are_read_a_bounded_number_of_times() {
    assert!(work(&SYNC.repeat(MEGABYTE / 4)) <= 64);
}
