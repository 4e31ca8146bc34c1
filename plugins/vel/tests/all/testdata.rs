//! Reads the logs in `testdata`, one folder each: `log.hex` has its bytes, `expected.json` the
//! expected result.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use sluice_core::contract::any_splitting_is_the_same;
use sluice_core::{PluginFactory, PluginKind, Registry, Source};
use sluice_vel::fuzzing::{Rules, inspect};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedLog {
    events: Vec<ExpectedEvent>,
    damage: Vec<ExpectedDamage>,
    /// The expected report on the index, if the case is about it.
    index: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedEvent {
    at: i64,
    time: i64,
    channel: String,
    source: String,
    /// Bytes of it.
    payload: usize,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedDamage {
    at: u64,
    length: u64,
    reason: String,
}

/// Parses hexadecimal bytes; skips what follows `#`.
fn bytes(hex: &str) -> Vec<u8> {
    let lines = hex.lines().filter(|line| !line.starts_with('#'));
    let digits = lines.flat_map(str::split_whitespace);
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

fn source(path: &Path) -> Box<dyn Source> {
    let registry = Registry::linked();
    let PluginFactory::Source(make) = registry.get(PluginKind::Source, "vel").unwrap().make else {
        panic!("a source")
    };
    make(json!({ "path": path })).unwrap()
}

fn found(log: &Path, has_index: bool) -> ExpectedLog {
    let all = any_splitting_is_the_same(&*source(log), &[1, 10, 100]);
    let event = |event: sluice_core::contract::PlainEvent| ExpectedEvent {
        at: event.sequence,
        time: event.timestamp,
        channel: event.channel,
        source: event.source,
        payload: event.payload.len(),
    };
    let damage = |(at, length, reason)| ExpectedDamage { at, length, reason };
    let index = inspect(log, &Rules::default()).unwrap().map(|verdict| verdict.to_string());
    ExpectedLog {
        events: all.events.into_iter().map(event).collect(),
        damage: all.damage.into_iter().map(damage).collect(),
        index: index.filter(|_| has_index),
    }
}

#[test]
fn every_log_gives_the_events_and_the_damage_it_should() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let folder = tempfile::tempdir().unwrap();
    let mut cases = 0;
    for case in std::fs::read_dir(testdata).unwrap() {
        let case = case.unwrap().path();
        let expected = std::fs::read_to_string(case.join("expected.json")).unwrap();
        let expected: ExpectedLog = serde_json::from_str(&expected).unwrap();
        let log = folder.path().join("log.vel");
        let hex = std::fs::read_to_string(case.join("log.hex")).unwrap();
        std::fs::write(&log, bytes(&hex)).unwrap();
        assert_eq!(found(&log, expected.index.is_some()), expected, "{}", case.display());
        cases += 1;
    }
    assert!(cases > 10, "the cases are there");
}
