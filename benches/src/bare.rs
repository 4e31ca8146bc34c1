//! Reads and writes LCM logs with a minimal loop: the baseline for a converter.
//!
//! One thread, one buffer, no damage handling, no batches, no reports. Stops at the first invalid
//! event.

use std::io::{self, Read, Write};

use hashbrown::HashMap;

use crate::counts::CountTable;

/// The four bytes that start every event.
pub const SYNC: [u8; 4] = [0xED, 0xA1, 0xDA, 0x01];
/// The bytes of an event before its channel.
pub const HEADER_LEN: usize = 28;
/// The read size.
const BLOCK: usize = 1 << 20;

/// Appends an encoded event.
pub fn append_event(out: &mut Vec<u8>, number: u64, utime: u64, channel: &[u8], payload: &[u8]) {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&SYNC);
    header[4..12].copy_from_slice(&number.to_be_bytes());
    header[12..20].copy_from_slice(&utime.to_be_bytes());
    header[20..24].copy_from_slice(&(channel.len() as u32).to_be_bytes());
    header[24..28].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(channel);
    out.extend_from_slice(payload);
}

/// Number and time in microseconds of an encoded event, as [`for_each_event`] passes it.
pub fn number_and_utime(event: &[u8]) -> (u64, u64) {
    let word = |from: usize| event[from..][..8].iter().fold(0, |w, byte| w << 8 | u64::from(*byte));
    (word(4), word(12))
}

/// Calls `each` with channel, payload and the encoded event, for every event of a log.
///
/// `Err` if reading fails or an event is invalid.
pub fn for_each_event(
    log: impl Read,
    mut each: impl FnMut(&[u8], &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for_each_block(log, |block, position| {
        let mut at = 0;
        while let Some((channel, payload, end)) = event_at(block, at, position)? {
            each(channel, payload, &block[at..end])?;
            at = end;
        }
        Ok(at)
    })
}

/// The channel and the payload of an event, and where it ends in its block.
type EventParts<'b> = (&'b [u8], &'b [u8], usize);

/// The event at `at`, if the block has all of it. `position` is the block's in the log.
#[inline]
fn event_at(block: &[u8], at: usize, position: u64) -> io::Result<Option<EventParts<'_>>> {
    let Some((header, rest)) = block[at..].split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let word = |from: usize| {
        u32::from_be_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
    };
    if header[..4] != SYNC {
        let here = position + at as u64;
        return Err(io::Error::other(format!("no event at byte {here}")));
    }
    let (channel_len, payload_len) = (word(20) as usize, word(24) as usize);
    let Some(body) = rest.get(..channel_len + payload_len) else { return Ok(None) };
    let (channel, payload) = body.split_at(channel_len);
    Ok(Some((channel, payload, at + HEADER_LEN + body.len())))
}

/// Calls `each` with blocks of a log and their positions. It returns how many bytes it is done
/// with: the next block starts there.
fn for_each_block(
    mut log: impl Read,
    mut each: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let (mut filled, mut position) = (0, 0u64);
    loop {
        let read = log.read(&mut buffer[filled..])?;
        filled += read;
        let at = each(&buffer[..filled], position)?;
        buffer.copy_within(at..filled, 0);
        position += at as u64;
        filled -= at;
        if read == 0 {
            let cut = || io::Error::other(format!("the event at byte {position} is cut off"));
            return if filled == 0 { Ok(()) } else { Err(cut()) };
        }
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
    }
}

/// Counts the events of a log.
pub fn count(log: impl Read) -> io::Result<CountTable> {
    let mut channels = HashMap::<Box<[u8]>, (u64, u64), foldhash::fast::RandomState>::default();
    for_each_event(log, |channel, payload, _| {
        match channels.get_mut(channel) {
            Some((events, bytes)) => {
                *events += 1;
                *bytes += payload.len() as u64;
            }
            None => drop(channels.insert(channel.into(), (1, payload.len() as u64))),
        }
        Ok(())
    })?;
    let mut counts = CountTable::default();
    let mut sorted: Vec<_> = channels.into_iter().collect();
    sorted.sort();
    for (channel, (events, bytes)) in sorted {
        counts.add(&String::from_utf8_lossy(&channel), events, bytes);
    }
    Ok(counts)
}

/// Copies the events whose channels `keep` accepts, unchanged.
pub fn filter(log: impl Read, mut to: impl Write, keep: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    let mut out = Vec::with_capacity(2 * BLOCK);
    for_each_event(log, |channel, _, event| {
        if keep(channel) {
            out.extend_from_slice(event);
        }
        if out.len() >= BLOCK {
            to.write_all(&out)?;
            out.clear();
        }
        Ok(())
    })?;
    to.write_all(&out)
}

/// Copies a log: looks at each event, and writes all of a block at once.
pub fn copy(log: impl Read, mut to: impl Write) -> io::Result<()> {
    for_each_block(log, |block, position| {
        let mut at = 0;
        while let Some((_, _, end)) = event_at(block, at, position)? {
            at = end;
        }
        to.write_all(&block[..at])?;
        Ok(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Vec<u8> {
        let mut log = Vec::new();
        append_event(&mut log, 0, 10, b"A", b"one");
        append_event(&mut log, 1, 20, b"B", &vec![7; 3 * BLOCK]);
        append_event(&mut log, 2, 30, b"A", b"");
        log
    }

    #[test]
    fn events_longer_than_a_block_are_counted_too() {
        let counts = count(&log()[..]).unwrap();
        assert_eq!(counts.to_string(), format!("A\t2\t3\nB\t1\t{}\n", 3 * BLOCK));
    }

    #[test]
    fn what_is_kept_is_kept_as_it_was() {
        let mut all = Vec::new();
        filter(&log()[..], &mut all, |_| true).unwrap();
        assert_eq!(all, log());
        all.clear();
        copy(&log()[..], &mut all).unwrap();
        assert_eq!(all, log());
        let mut some = Vec::new();
        filter(&log()[..], &mut some, |channel| channel == b"A").unwrap();
        assert_eq!(count(&some[..]).unwrap().to_string(), "A\t2\t3\n");
    }

    #[test]
    fn numbers_and_times_are_those_of_the_event() {
        let mut stamps = Vec::new();
        for_each_event(&log()[..], |_, _, event| {
            stamps.push(number_and_utime(event));
            Ok(())
        })
        .unwrap();
        assert_eq!(stamps, [(0, 10), (1, 20), (2, 30)]);
    }

    #[test]
    fn a_cut_log_is_an_error() {
        let log = log();
        assert!(count(&log[..log.len() - 1]).unwrap_err().to_string().contains("is cut off"));
        assert!(count(&log[1..]).unwrap_err().to_string().contains("no event at byte 0"));
    }
}
