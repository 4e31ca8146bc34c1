//! Streams of which the rest comes late.

use std::io::Write;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use sluice_model::{ReadContext, SplitStart};

use crate::kit::{channel, chunk, end, fields, header, message, schema, source, times};

/// A header, and a channel.
fn front() -> Vec<u8> {
    [header(), schema(1, "t"), channel(1, 1, "/a")].concat()
}

fn messages(times: std::ops::Range<u64>) -> Vec<u8> {
    times.flat_map(|n| message(1, n as u32, n, &[7; 100])).collect()
}

/// Reads a stream whose rest does not come before the first events are read, which are as many as
/// `expected`. Returns the times of all.
fn read_slowly(start: &[u8], rest: &[u8], expected: std::ops::RangeInclusive<usize>) -> Vec<i64> {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.mcap");
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: a named pipe: there is no mkfifo");
        return times(&[start, rest].concat());
    }
    let (has_read, may_write) = mpsc::channel();
    let writer = pipe.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut pipe = fs::OpenOptions::new().write(true).open(writer).unwrap();
            pipe.write_all(start).unwrap();
            // Long enough for any machine: it is waited for only if the reader waits, too.
            let is_in_time = may_write.recv_timeout(Duration::from_secs(30)).is_ok();
            pipe.write_all(rest).unwrap();
            assert!(is_in_time, "the messages waited for those behind them");
        });
        let (source, context) = (source(&pipe), ReadContext::standalone("test"));
        let splits = source.splits(u64::MAX, &context.query).unwrap();
        let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
        let mut times = reader.next_batch().unwrap().unwrap().timestamps().to_vec();
        assert!(expected.contains(&times.len()), "{times:?}");
        has_read.send(()).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            times.extend(batch.timestamps());
        }
        assert_eq!(context.damage.take(), []);
        times
    })
}

#[test]
fn messages_of_a_slow_stream_do_not_wait_for_those_that_have_not_come() {
    let first = [front(), messages(0..10)].concat();
    // The last record that has come is cut.
    let (second, third) = (messages(10..20), [chunk(20, 24, &messages(20..25)), end()].concat());
    let (cut, rest) = second.split_at(130);
    let (start, rest) = ([&first, cut].concat(), [rest, &third].concat());
    assert_eq!(read_slowly(&start, &rest, 9..=11), (0..25).collect::<Vec<i64>>());
    // A message is believed by what follows it.
    let private = fields().raw(&[7; 40]).record(0x90);
    for count in 0..7 {
        let mut records = [private.repeat(count), private.clone()].concat();
        let rest = records.split_off(private.len() * count + 30);
        let (start, rest) = ([&first[..], &records].concat(), [rest, end()].concat());
        assert_eq!(read_slowly(&start, &rest, 9..=10), (0..10).collect::<Vec<i64>>());
    }
}
