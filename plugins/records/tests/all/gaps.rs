//! Compressed logs of which frames are damaged.

use std::io::Write;

use serde_json::Value;
use sluice_kit::contract::{SourceContents, frames, gather_with};
use sluice_model::ReadContext;

use crate::reading::{
    delimited, framed, framed_log, framed_records, places, plain, plain_log, source, time_gps,
    toml, ubx, ubx_message,
};

/// What is read of these parts if those with these numbers are damaged, and the notes.
fn read(format: &Value, parts: &[&[u8]], damaged: &[usize]) -> (SourceContents, Vec<String>) {
    let mut file = tempfile::NamedTempFile::with_suffix(".zst").unwrap();
    file.write_all(&frames(parts, damaged)).unwrap();
    let context = ReadContext::standalone("test");
    let found = gather_with(&source(format, file.path()), 1, &context).unwrap();
    // Panics unless damage rises.
    found.gaps();
    (found, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

#[test]
fn records_behind_damaged_frames_are_read_and_those_cut_by_them_are_not() {
    let records = framed_records();
    let (log, places) = (framed_log(&records), places(&records, 10));
    let len = log.len() / 5 + 1;
    let parts: Vec<&[u8]> = log.chunks(len).collect();
    for (damaged, runs) in [
        (&[][..], 0),
        (&[0], 1),
        (&[1], 1),
        (&[1, 2], 1),
        (&[1, 3], 2),
        (&[0, 1, 2, 3], 1),
        (&[4], 1),
        (&[0, 1, 2, 3, 4], 1),
    ] {
        let (found, _) = read(&framed(), &parts, damaged);
        let is_whole = |(at, record): &(&usize, &Vec<u8>)| {
            (*at / len..=(*at + record.len() - 1) / len).all(|part| !damaged.contains(&part))
        };
        let whole = places.iter().zip(&records).filter(is_whole).map(|(_, record)| record);
        let payloads: Vec<_> = found.events.iter().map(|event| &event.payload).collect();
        assert_eq!(payloads, whole.collect::<Vec<_>>(), "{damaged:?}");
        assert_eq!(found.gaps(), runs, "{damaged:?}: {:?}", found.damage);
    }
}

#[test]
fn a_record_that_the_next_one_ends_is_cut_by_a_gap() {
    let record = |n: u8| [&b"\r\n#"[..], &[n, 0, 0, 0], b"data"].concat();
    let log: Vec<u8> = (0..9).flat_map(record).collect();
    // In the data of the third record, and in the head of the sixth.
    let parts = [&log[..31], &log[31..60], &log[60..]];
    let (found, _) = read(&delimited(), &parts, &[1]);
    let payloads: Vec<_> = found.events.iter().map(|event| event.payload.clone()).collect();
    assert_eq!(payloads, [0, 1, 6, 7, 8].map(record), "{:?}", found.damage);
    assert_eq!(found.gaps(), 1);
}

#[test]
fn records_without_marks_cannot_be_found_behind_a_gap() {
    let log = plain_log(30);
    let (found, notes) = read(&plain(), &[&log[..500], &log[500..700], &log[700..]], &[1]);
    assert_eq!(found.events.len(), 15);
    let [(496, 4, cut), (500, 0, gap)] = &found.damage[..] else { panic!("{:?}", found.damage) };
    assert!(cut.contains("into a record") && gap.contains("damaged or cut off"), "{cut}, {gap}");
    assert!(notes.iter().any(|note| note.contains("nothing marks")), "{notes:?}");
}

#[test]
fn no_time_from_before_a_gap_is_that_of_a_record_behind_it() {
    let other = |n: u8| ubx_message(0x0121, &[n; 9]);
    let parts = [
        [time_gps(1_000, 2200), other(0)].concat(),
        other(1),
        [other(2), time_gps(9_000, 2200), other(3)].concat(),
    ];
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let (found, _) = read(&ubx(), &parts, &[1]);
    let times: Vec<_> = found.events.iter().map(|event| event.timestamp / 1_000_000_000).collect();
    assert_eq!((times.len(), times[3] - times[0]), (4, 8), "{times:?}");
    let untimed = found.damage.iter().filter(|(.., why)| why.contains("has no time"));
    assert_eq!((untimed.count(), found.gaps()), (1, 1), "{:?}", found.damage);
}

#[test]
fn a_counter_that_wraps_is_followed_across_a_gap_with_a_note() {
    let format = toml(
        r#"
        sync = "0xde ad be ef"
        fields = [
          { name = "ms", type = "u16", role = "time", unit = "ms", wraps = true },
          { name = "n", type = "u8" },
        ]
        "#,
    );
    let record = |n: u16| {
        let (ms, n) = ((n * 20_000).to_le_bytes(), [n as u8]);
        [&[0xde, 0xad, 0xbe, 0xef][..], &ms, &n].concat()
    };
    let log: Vec<u8> = (0..9).flat_map(|n| record(n % 3)).collect();
    let parts = [&log[..21], &log[21..42], &log[42..]];
    let (found, notes) = read(&format, &parts, &[1]);
    assert_eq!((found.events.len(), found.gaps()), (6, 1), "{:?}", found.damage);
    assert!(notes.iter().any(|note| note.contains("whole periods")), "{notes:?}");
    assert_eq!(read(&format, &parts, &[]).1, [""; 0]);
}
