//! Logs with a compressed master of which frames are damaged.

use std::fs;

use sluice_kit::contract::{SourceContents, frames, gather_with};
use sluice_model::ReadContext;

use crate::kit::source;

const HEADER: &str = "power1.log Power ice 1\npower0.log Power ice 1\n#data\n";

/// A line for each of these objects, alternately of one subfile and the other.
fn lines(count: u8) -> String {
    (0..count).map(|n| format!("{} {} {} {}\n", 1_000 + u32::from(n), n, n % 2, n / 2)).collect()
}

/// What is read of a log with a master of these parts if those with these numbers are damaged.
fn read(parts: &[&str], damaged: &[usize]) -> SourceContents {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log.zst");
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    fs::write(&path, frames(&parts, damaged)).unwrap();
    for (name, first) in [("power1.log", 0), ("power0.log", 1)] {
        let object = |n: u8| [0, 4, 0, 0, 0, n, 1, 2, 0];
        let objects: Vec<u8> = (first..100).step_by(2).flat_map(object).collect();
        fs::write(folder.path().join(name), objects).unwrap();
    }
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&path), 1, &context).unwrap();
    let runs = damaged.iter().filter(|part| !damaged.contains(&(*part + 1))).count();
    assert_eq!(found.gaps(), runs, "{:?}", found.damage);
    found
}

#[test]
fn lines_behind_a_damaged_frame_are_read_with_their_own_objects() {
    let text = lines(100);
    let len = text.len() / 7 + 3;
    let mut parts = vec![HEADER];
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (part, after) = rest.split_at(len.min(rest.len()));
        parts.push(part);
        rest = after;
    }
    for damaged in [&[][..], &[2], &[2, 3], &[1, 3, 5], &[1, 2, 3, 4, 5, 6], &[7], &[6, 7]] {
        let found = read(&parts, damaged);
        for event in &found.events {
            let n = event.payload[0];
            let seconds = event.timestamp / 1_000_000_000;
            assert_eq!((seconds, event.sequence), (1_000 + i64::from(n), i64::from(n / 2)));
        }
        // Of each part, the first line may be the end of one, and the last one the start.
        let lost = damaged.len() * (len / 10 + 3);
        assert!(found.events.len() + lost >= 100, "{damaged:?}: {}", found.events.len());
        assert_eq!(found.events.len() == 100, damaged.is_empty());
        let is_last = found.events.last().is_some_and(|event| event.payload[0] == 99);
        assert_eq!(is_last, !damaged.contains(&7), "{damaged:?}");
    }
}

#[test]
fn the_end_of_a_line_behind_a_gap_is_no_line() {
    // Each looks like a line.
    let parts = ["1000 0 0 1\n1001 0 0 2", "3\n", "2002 0 0 4\n1003 0 0 5\n"];
    let found = read(&[HEADER, parts[0], parts[1], parts[2]], &[2]);
    let read: Vec<_> = found.events.iter().map(|event| event.sequence).collect();
    assert_eq!(read, [1, 5], "{:?}", found.damage);
    assert!(found.damage[0].2.contains("no line break"), "{:?}", found.damage);
}

#[test]
fn behind_a_header_that_is_cut_nothing_is_read() {
    let text = lines(100);
    let (first, rest) = HEADER.split_at(40);
    for (parts, damaged) in [
        (&[HEADER, &text][..], &[0][..]),
        (&[first, rest, &text], &[1]),
        (&[&HEADER[..HEADER.len() - 1], "\n", &text], &[1]),
    ] {
        let found = read(parts, damaged);
        assert_eq!(found.events, []);
        let is_told = found.damage.iter().any(|(.., why)| why.contains("no line behind it"));
        assert!(is_told, "{:?}", found.damage);
        assert!(found.damage.len() <= 3, "{:?}", found.damage);
    }
}
