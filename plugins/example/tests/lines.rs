//! What source `lines` promises. Every source can be held to the functions of `sluice_core::contract`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;

use serde_json::json;
use sluice_core::contract::{Gathered, any_splitting_is_the_same, gather, splits_cover_the_inputs};
use sluice_core::{Kind, Make, Registry, Source};
use sluice_example as _;

fn lines(text: &[u8]) -> (tempfile::TempDir, Box<dyn Source>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("notes.txt");
    std::fs::write(&path, text).unwrap();
    let plugin = *Registry::linked().get(Kind::Source, "lines").unwrap();
    let Make::Source(make) = plugin.make else { panic!("{plugin:?} is a source") };
    (folder, make(json!({ "path": path })).unwrap())
}

fn payloads(gathered: &Gathered) -> Vec<&[u8]> {
    gathered.events.iter().map(|event| &event.payload[..]).collect()
}

#[test]
fn each_line_is_an_event_a_millisecond_after_the_one_before() {
    let (_folder, source) = lines(b"one\n\nthree");
    let all = any_splitting_is_the_same(&*source, &[1, 4]);
    assert_eq!(payloads(&all), [&b"one"[..], b"", b"three"]);
    let times: Vec<(i64, i64)> = all.events.iter().map(|e| (e.sequence, e.timestamp)).collect();
    assert_eq!(times, [(0, 0), (1, 1_000_000), (2, 2_000_000)]);
    splits_cover_the_inputs(&*source, 4);
}

#[test]
fn a_text_of_many_blocks_loses_no_line() {
    let text: Vec<u8> = (0..400_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let (_folder, source) = lines(&text);
    let all = gather(&*source, u64::MAX).unwrap();
    assert_eq!(all.events.len(), 400_000);
    assert_eq!(all.events[399_999].payload, b"line 399999");
}

#[test]
fn an_empty_text_has_no_event() {
    let (_folder, source) = lines(b"");
    assert_eq!(gather(&*source, 1).unwrap(), Gathered::default());
}

#[test]
fn the_plugin_stays_short_enough_to_be_read() {
    let count = include_str!("../src/lib.rs").lines().count();
    assert!(count <= 60, "{count} lines");
}
