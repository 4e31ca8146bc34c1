//! Conformance of source `lines`, and the meaning of its lines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::json;
use sluice_conformance::Integrity;
use sluice_example as _;
use sluice_kit::contract::{SourceContents, any_splitting_is_the_same};
use sluice_model::Registry;

const NOTES: &str = "1194098400.25 DRIVER takes over\n\
    2007-11-03T14:00:01Z GPS no fix\n1194098402 DRIVER \n";

#[test]
fn lines_conforms() {
    let log = "1194098400.25 POSE one\n1194098401.5 GPS two words\n1194098402 POSE three\n\
        2007-11-03T14:00:03Z GPS four\n";
    sluice_conformance::source("lines")
        .sample("notes.txt", log)
        .events(4)
        .integrity(Integrity::Nothing)
        .check();
}

fn lines(text: &str) -> SourceContents {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, text).unwrap();
    any_splitting_is_the_same(
        &*Registry::linked().source("lines", json!({ "path": path })).unwrap(),
        &[1, 20, 50],
    )
}

#[test]
fn each_line_is_an_event_with_its_own_time_and_channel() {
    let read = lines(NOTES);
    let plain: Vec<(i64, &str, &[u8])> =
        read.events.iter().map(|e| (e.timestamp, &e.channel[..], &e.payload[..])).collect();
    let wanted = [
        (1_194_098_400_250_000_000, "DRIVER", &b"takes over"[..]),
        (1_194_098_401_000_000_000, "GPS", b"no fix"),
        (1_194_098_402_000_000_000, "DRIVER", b""),
    ];
    assert_eq!((plain, read.damage), (wanted.to_vec(), Vec::new()));
}

#[test]
fn a_line_without_a_time_is_damage_and_the_others_are_read() {
    let read = lines("1 A one\nyesterday A two\n3 A three");
    let payloads: Vec<&[u8]> = read.events.iter().map(|e| &e.payload[..]).collect();
    assert_eq!(payloads, [&b"one"[..], b"three"]);
    let reason = "expected a time, a channel and a text".to_owned();
    assert_eq!(read.damage, [(8, 16, reason)]);
}

#[test]
fn the_plugin_stays_short_enough_to_be_read() {
    let count = include_str!("../../src/lib.rs").lines().count();
    assert!(count <= 60, "{count} lines");
}
