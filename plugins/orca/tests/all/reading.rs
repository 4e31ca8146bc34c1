//! Logs as they are read: channels, files, windows, recognition.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_kit::contract::{PlainEvent, gather, gather_splits};
use sluice_model::{
    ChannelQuery, Encoding, Pattern, Patterns, PluginKind, Query, ReadContext, Registry,
    SniffResult,
};

use crate::kit::{case, channels_of, masters, source};

#[test]
fn every_case_has_the_expected_events_and_damage() {
    sluice_conformance::cases(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"));
}

#[test]
fn channels_have_the_metadata_of_the_log() {
    let (_, channels) = channels_of(&case("dialect_a"));
    let laser = channels.iter().find(|c| c.name.text() == "orca.Laser").unwrap();
    assert_eq!((&laser.encoding, laser.type_name.as_deref()), (&Encoding::Ice, Some("Laser")));
    let value = |key: &str| laser.metadata.get(key).map(String::as_str);
    assert_eq!(value("ice.interface"), Some("Laser"));
    assert_eq!((value("orca.dialect"), value("orca.encoding")), (Some("A"), Some("ice")));
    assert_eq!(value("orca.file"), Some("060804_153321_laser0.log"));
    assert_eq!(value("orca.proxy"), Some("laserscanner2d@alpha/laser2d"));
    assert_eq!((value("ice.config"), value("orca.id"), value("orca.enabled")), (None, None, None));
    let config = channels.iter().find(|c| c.name.text() == "orca.Laser.config").unwrap();
    assert_eq!(config.metadata.get("ice.config").map(String::as_str), Some("true"));
}

#[test]
fn objects_with_other_ids_are_channels_of_one_name() {
    let (_, channels) = channels_of(&case("dialect_b"));
    let gps = channels.iter().filter(|c| c.name.text() == "orca.Gps");
    let ids: Vec<Option<&str>> =
        gps.map(|c| c.metadata.get("orca.id").map(String::as_str)).collect();
    assert_eq!(ids, [None, Some("1"), Some("2")]);
}

#[test]
fn pictures_and_texts_have_their_encoding() {
    let kinds = |name: &str, channel: &str| {
        let (_, channels) = channels_of(&case(name));
        let found = channels.into_iter().find(|c| c.name.text() == channel).unwrap();
        (found.encoding.clone(), found.type_name.as_deref().map(str::to_owned))
    };
    assert_eq!(kinds("jpeg_c", "orca.Camera"), (Encoding::Unknown, Some("jpeg".into())));
    assert_eq!(kinds("ascii", "orca.Power"), (Encoding::Text, Some("Power".into())));
}

#[test]
fn files_are_the_master_and_its_existing_subfiles() {
    let names = |name: &str| -> Vec<String> {
        let files = source(&case(name)).files().unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        files.iter().map(|input| name(&input.path)).collect()
    };
    assert_eq!(
        names("dialect_a"),
        ["master.log", "060804_153321_laser0.log", "060804_153321_power0.log"]
    );
    assert_eq!(names("missing_subfile"), ["master.log", "060804_153321_power0.log"]);
    assert_eq!(names("path_traversal"), ["master.log", "a.log"]);
    assert_eq!(source(&case("dialect_a")).inputs().unwrap().len(), 1);
}

#[test]
fn a_truncated_subfile_is_read_up_to_its_end() {
    let plain = case("dialect_a");
    let folder = tempfile::tempdir().unwrap();
    for name in ["master.log", "060804_153321_laser0.log", "060804_153321_power0.log"] {
        fs::copy(plain.with_file_name(name), folder.path().join(name)).unwrap();
    }
    let log = source(&folder.path().join("master.log"));
    assert_eq!(gather(&*log, 100).unwrap().events.len(), 7);
    let laser = folder.path().join("060804_153321_laser0.log");
    let bytes = fs::read(&laser).unwrap();
    // In the middle of a record whose length is intact.
    fs::write(&laser, &bytes[..bytes.len() - 9]).unwrap();
    let all = gather(&*log, 100).unwrap();
    assert_eq!(all.events.len(), 6);
    assert!(all.damage.iter().any(|(_, _, why)| why.contains("changed while")), "{:?}", all.damage);
    fs::remove_file(&laser).unwrap();
    assert_eq!(gather(&*log, 100).unwrap().events.len(), 2);
}

fn with_query(path: &Path, query: Query) -> Vec<PlainEvent> {
    let log = source(path);
    let mut context = ReadContext::standalone("test");
    let splits = log.splits(100, &query).unwrap();
    context.query = query;
    gather_splits(&*log, splits, &context).unwrap().events
}

#[test]
fn lines_outside_of_a_window_or_of_other_channels_are_not_followed() {
    let path = case("dialect_a");
    let all = gather(&*source(&path), 100).unwrap().events;
    let (start, end) = (1_154_412_007_000_000_000, 1_154_412_009_000_000_000);
    let query = Query { start: Some(start), end: Some(end), ..Query::default() };
    let inside = |e: &&PlainEvent| (start..end).contains(&e.timestamp);
    assert_eq!(with_query(&path, query), all.iter().filter(inside).cloned().collect::<Vec<_>>());
    let power = Patterns(vec![Pattern::parse("*Power").unwrap()]);
    let none = Patterns::default();
    let query =
        Query { channels: ChannelQuery::from_patterns(&power, &none, &none), ..Query::default() };
    let power = |e: &&PlainEvent| e.channel == "orca.Power";
    assert_eq!(with_query(&path, query), all.iter().filter(power).cloned().collect::<Vec<_>>());
}

#[test]
fn sniffing_tells_masters_from_other_files() {
    let registry = Registry::linked();
    let sniff = registry.get(PluginKind::Source, "orca").unwrap().sniff;
    for path in masters() {
        let name = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let sure = sniff(&fs::read(&path).unwrap());
        let due = match &name[..] {
            "no_data_line" => SniffResult::Maybe,
            _ => SniffResult::Yes,
        };
        assert_eq!(sure, due, "{name}");
    }
    for other in
        [&b""[..], b"\xed\xa1\xda\x01", b"PAR1", b"a,b\n1,2\n", b"struct t { int8_t a; }\n"]
    {
        assert_eq!(sniff(other), SniffResult::No);
    }
}

#[test]
fn a_stream_is_refused_as_subfiles_lie_beside_a_file() {
    let registry = Registry::linked();
    for path in [json!("-"), json!(["a.log", "-"])] {
        let error =
            registry.source("orca", json!({ "path": path })).map(drop).unwrap_err().to_string();
        assert!(error.contains("standard input"), "{error}");
    }
    let error = source(Path::new("/dev/null")).splits(1, &Query::default()).unwrap_err();
    assert!(error.to_string().contains("has to be a file"), "{error}");
}
