//! The contract of the `orca` plugins, for valid and damaged logs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{
    PlainEvent, SourceContents, any_splitting_is_the_same, gather, gather_splits, gather_with,
};
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, ChannelQuery, Channels, DynSink, Encoding, Name,
    Outputs, Overwrite, Pattern, Patterns, PluginKind, PrepareContext, Query, ReadContext,
    Registry, SinkContext, SniffResult, Source, SplitStart,
};
use sluice_orca as _;

fn source_with(path: &Path, more: &Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    registry.source("orca", options).unwrap()
}

fn source(path: &Path) -> Box<dyn Source> {
    source_with(path, &json!({}))
}

fn sink(options: Value) -> Arc<dyn DynSink> {
    let registry = Registry::linked();
    registry.sink("orca", options).unwrap()
}

/// The masters of all cases, but for compressed ones and those in digits.
fn masters() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut masters: Vec<PathBuf> =
        cases.flat_map(|case| ["master.log", "master.orca"].map(|name| case.join(name))).collect();
    masters.retain(|path| path.exists());
    masters.sort();
    masters
}

#[test]
fn every_case_has_the_expected_events_and_damage() {
    sluice_conformance::cases(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"));
}

fn case(name: &str) -> PathBuf {
    masters().into_iter().find(|path| path.parent().unwrap().ends_with(name)).unwrap()
}

/// Reads everything with a context and returns the channels.
fn channels_of(path: &Path) -> (SourceContents, Vec<Arc<Channel>>) {
    let context = ReadContext::standalone("test");
    let all = gather_with(&*source(path), u64::MAX, &context).unwrap();
    (all, context.channels.since(0))
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

/// An event before it is written: time, channel, payload.
type TestEvent = (i64, Channel, Vec<u8>);

/// An event and its number.
type NumberedEvent = (i64, TestEvent);

fn in_order(events: &[TestEvent]) -> Vec<NumberedEvent> {
    (0..).zip(events.iter().cloned()).collect()
}

fn batch(events: &[NumberedEvent], channels: &Channels) -> Batch {
    let mut batch = BatchBuilder::default();
    for (number, (time, channel, payload)) in events {
        let id = channels.intern(channel.clone()).unwrap();
        batch.push_copy(*time, *number, id, payload);
    }
    batch.finish()
}

/// Notes, losses, and how many events were refused.
type SinkReport = (Vec<(String, u64)>, Vec<&'static str>, usize);

/// Writes events in batches of this many.
fn write(options: Value, events: &[TestEvent], cut: usize) -> SinkReport {
    write_numbered(options, &in_order(events), cut)
}

fn write_numbered(options: Value, events: &[NumberedEvent], cut: usize) -> SinkReport {
    write_with(&SinkContext::standalone(), options, events, cut)
}

fn write_with(
    context: &SinkContext,
    options: Value,
    events: &[NumberedEvent],
    cut: usize,
) -> SinkReport {
    let sink = sink(options);
    let mut output = Arc::clone(&sink).open(context, &TaskPool::default()).unwrap();
    let (mut losses, mut refused) = (Vec::new(), 0);
    let buffers = BlockPool::new(1 << 10, 2);
    for some in events.chunks(cut) {
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch(some, &context.channels), &mut encoding).unwrap();
        losses.extend(encoding.report.losses);
        refused += encoding.report.refused.len();
        output.push(block).unwrap();
    }
    let notes = output.finish().unwrap().notes;
    context.outputs.publish(|_, _| Ok(String::new())).unwrap();
    (notes, losses, refused)
}

fn lcm(name: &[u8], source: &str) -> Channel {
    Channel::new(Name::from_bytes(name), source, Encoding::Lcm)
}

#[test]
fn events_of_other_formats_are_restored() {
    for dialect in ["A", "C"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive.orca");
        let mut relative = lcm(b"", "");
        relative.clock = sluice_model::Clock::Relative;
        let typed = Channel { type_name: Some("a b".into()), ..lcm(b"POSE", "alpha") };
        let names = [
            lcm(b"POSE", "alpha"),
            lcm(b"pose", "alpha"),
            lcm(b"a b\xff%#", "r\u{f6}bot"),
            relative,
            typed,
        ];
        let events: Vec<TestEvent> = (0..200)
            .map(|n| {
                (n as i64 * 1_000 - 50_000, names[n % names.len()].clone(), vec![n as u8; n % 17])
            })
            .collect();
        let (_, losses, refused) = write(json!({ "path": path, "dialect": dialect }), &events, 7);
        assert_eq!((losses.len(), refused), (0, 0));
        let (all, channels) = channels_of(&path);
        assert_eq!((all.damage, all.events.len()), (vec![], 200));
        for (event, (time, channel, payload)) in all.events.iter().zip(&events) {
            assert_eq!(
                (event.timestamp, &event.payload, &event.source[..]),
                (*time, payload, &channel.source[..])
            );
            assert_eq!(event.channel, channel.name.text());
        }
        for channel in &names {
            let same = |c: &&Arc<Channel>| {
                (&c.name, &c.source, &c.encoding, &c.type_name, &c.clock)
                    == (
                        &channel.name,
                        &channel.source,
                        &channel.encoding,
                        &channel.type_name,
                        &channel.clock,
                    )
            };
            assert!(channels.iter().any(|c| same(&c)), "{channel:?}");
        }
        any_splitting_is_the_same(&*source(&path), &[1, 100, 1000]);
    }
}

/// Reads a log and writes it again.
fn copied(from: &Path, options: Value, cut: usize) -> Vec<(String, u64)> {
    let context = ReadContext::standalone("test");
    let log = source(from);
    let mut events: Vec<TestEvent> = Vec::new();
    for split in log.splits(u64::MAX, &Query::default()).unwrap() {
        let mut reader = log.read(&split, SplitStart::At(split.start), &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            for event in batch.iter() {
                let channel = Channel::clone(&context.channels.get(event.channel));
                events.push((event.timestamp, channel, event.payload.to_vec()));
            }
        }
    }
    write(options, &events, cut).0
}

/// The metadata of channels, without that about the log's layout or its dialect.
fn beside_files(channels: &[Arc<Channel>], dialect: &str) -> BTreeSet<Vec<String>> {
    let tell = |channel: &Arc<Channel>| {
        let head = format!("{:?} {:?} {:?}", channel.name, channel.source, channel.encoding);
        let is_kept = |key: &str| match key {
            "orca.dialect" | "orca.encoding" | "orca.file" => false,
            "orca.id" => dialect != "A",
            _ => true,
        };
        let metadata = channel.metadata.iter().filter(|(key, _)| is_kept(key));
        let entries = metadata.map(|(key, value)| format!("{key}={value}"));
        [head, format!("{:?}", channel.type_name)].into_iter().chain(entries).collect()
    };
    channels.iter().map(tell).collect()
}

#[test]
fn a_log_that_is_read_and_written_is_the_same_log() {
    for name in ["dialect_a", "dialect_b", "dialect_c", "ascii", "jpeg_c"] {
        for (dialect, cut) in [("A", 1), ("C", 100)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("copy.orca");
            copied(&case(name), json!({ "path": path, "dialect": dialect }), cut);
            let (before, old) = channels_of(&case(name));
            let (after, new) = channels_of(&path);
            assert_eq!(beside_files(&old, dialect), beside_files(&new, dialect), "{name}");
            let plain = |all: &SourceContents| -> Vec<(i64, String, String, Vec<u8>)> {
                let tell = |e: &PlainEvent| {
                    (e.timestamp, e.source.clone(), e.channel.clone(), e.payload.clone())
                };
                all.events.iter().map(tell).collect()
            };
            assert_eq!(plain(&before), plain(&after), "{name} as {dialect}");
            assert_eq!(after.damage, []);
        }
    }
}

#[test]
fn subfiles_keep_their_names_and_bytes_in_the_dialect_they_came_in() {
    let folder = tempfile::tempdir().unwrap();
    let from = case("dialect_a");
    copied(&from, json!({ "path": folder.path().join("copy.orca") }), 2);
    for name in ["060804_153321_laser0.log", "060804_153321_power0.log"] {
        assert_eq!(
            fs::read(folder.path().join(name)).unwrap(),
            fs::read(from.with_file_name(name)).unwrap()
        );
    }
}

#[test]
fn batch_sizes_do_not_affect_the_output() {
    let channel = |n: usize| {
        let data = lcm(&[b'A' + (n % 3) as u8], "x");
        if n % 5 == 4 { config_of(&data) } else { data }
    };
    let events: Vec<TestEvent> =
        (0..50).map(|n| (n as i64 * 999, channel(n), vec![n as u8; n])).collect();
    let mut written: Vec<Vec<Vec<u8>>> = Vec::new();
    for cut in [1, 7, 50] {
        let folder = tempfile::tempdir().unwrap();
        write(json!({ "path": folder.path().join("x.orca") }), &events, cut);
        let names = ["x.orca", "x_a0.log", "x_b0.log", "x_c0.log"];
        written.push(names.map(|name| fs::read(folder.path().join(name)).unwrap()).to_vec());
    }
    assert!(written.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn losses_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let mut channel = lcm(b"X", "x");
    channel.metadata.insert("mine".into(), "gone".into());
    let mut ice = lcm(b"orca.Power", "x");
    ice.encoding = Encoding::Ice;
    ice.metadata.insert("mine".into(), "gone".into());
    let config = config_of(&ice);
    let events = vec![
        (1_500, channel, vec![1]),
        (2_000, ice.clone(), vec![]),
        (3_000, ice, vec![0]),
        (4_000, config, vec![0]),
    ];
    let (notes, losses, refused) =
        write(json!({ "path": folder.path().join("x.orca") }), &events, 9);
    assert_eq!((losses.len(), refused), (2, 1));
    let is_noted = |what: &str| notes.iter().any(|(note, _)| note.contains(what));
    assert!(is_noted("event numbers are not kept") && is_noted("its own time"), "{notes:?}");
}

/// The channel of the configuration of a channel's objects.
fn config_of(channel: &Channel) -> Channel {
    let mut config = channel.clone();
    config.name = Name::from_bytes(&[channel.name.as_bytes(), b".config"].concat());
    config.metadata.insert("ice.config".into(), "true".into());
    config
}

/// Configuration and all other events as read: channel and payload.
fn apart(path: &Path) -> [Vec<(String, Vec<u8>)>; 2] {
    let all = any_splitting_is_the_same(&*source(path), &[100, 700]);
    assert_eq!(all.damage, []);
    let is_config = |e: &PlainEvent| e.channel.ends_with(".config");
    let (config, data): (Vec<_>, Vec<_>) = all.events.into_iter().partition(is_config);
    [config, data].map(|events| events.into_iter().map(|e| (e.channel, e.payload)).collect())
}

fn object(name: &str) -> Channel {
    let mut channel = lcm(name.as_bytes(), "x");
    channel.encoding = Encoding::Ice;
    channel
}

#[test]
fn configuration_that_comes_after_data_goes_to_the_front_by_its_numbers() {
    let (laser, power) = (object("Laser"), object("Power"));
    // Of the same name, but not the same channel.
    let mut other = config_of(&laser);
    other.metadata.insert("mine".into(), "said".into());
    let events = [
        (1, (0, config_of(&laser), vec![1; 9])),
        (1, (0, laser.clone(), vec![10])),
        (1, (0, power.clone(), vec![20; 3])),
        (2, (0, config_of(&laser), vec![2])),
        (0, (0, config_of(&power), vec![5])),
        (2, (0, laser, vec![11; 5])),
        (0, (0, other, vec![0; 4])),
        (2, (0, power, vec![21])),
    ];
    for dialect in ["A", "C"] {
        for cut in [1, 3, 8] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x.orca");
            let options = json!({ "path": path, "dialect": dialect });
            let (notes, _, _) = write_numbered(options, &events, cut);
            assert!(!notes.iter().any(|(note, _)| note.contains("written as data")), "{notes:?}");
            let [config, data] = apart(&path);
            let named = |name: &str, payload: &[u8]| (name.to_owned(), payload.to_vec());
            assert_eq!(
                config,
                [
                    named("Laser.config", &[0; 4]),
                    named("Laser.config", &[1; 9]),
                    named("Laser.config", &[2]),
                    named("Power.config", &[5])
                ]
            );
            let data: Vec<Vec<u8>> = data.into_iter().map(|(_, payload)| payload).collect();
            assert_eq!(data, [vec![10], vec![20; 3], vec![11; 5], vec![21]]);
            let master = fs::read_to_string(&path).unwrap();
            assert!(master.contains("config_records=3") && master.contains("config_records=1"));
        }
    }
}

#[test]
fn late_configuration_is_still_noted_to_lose_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let power = object("Power");
    let at = |time: i64| {
        let path = folder.path().join(format!("{time}.orca"));
        let events =
            [(1, (1_000, power.clone(), vec![1])), (0, (time, config_of(&power), vec![2]))];
        write_numbered(json!({ "path": path }), &events, 9).0
    };
    assert_eq!(at(1_000), []);
    let notes = at(2_000);
    assert!(matches!(&notes[..], [(note, 1)] if note.contains("its own time")), "{notes:?}");
}

#[test]
fn configuration_is_written_as_data_if_the_head_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let power = object("Power");
    let events = [
        (0, (0, config_of(&power), vec![1])),
        (1, (0, power.clone(), vec![2])),
        (1, (0, config_of(&power), vec![3])),
    ];
    std::os::unix::fs::symlink("/dev/null", folder.path().join("x_power0.log")).unwrap();
    let path = folder.path().join("x.orca");
    let (notes, _, _) = write_numbered(json!({ "path": path }), &events, 1);
    let written_as_data = notes.iter().find(|(note, _)| note.contains("written as data"));
    assert_eq!(written_as_data.map(|(_, count)| *count), Some(1), "{notes:?}");
    let master = fs::read_to_string(&path).unwrap();
    assert!(master.contains("config_records=1"), "{master}");
    assert_eq!(master.lines().skip_while(|line| *line != "#data").count(), 3, "{master}");
}

#[test]
fn configuration_over_budget_is_written_as_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    let power = object("Power");
    let long = vec![7; 17 << 20];
    let events = [
        (1, (0, power.clone(), vec![1])),
        (0, (0, config_of(&power), long.clone())),
        (1, (0, config_of(&power), vec![2])),
        (2, (0, power, vec![3])),
    ];
    let (notes, _, _) = write_numbered(json!({ "path": path }), &events, 9);
    let written_as_data = notes.iter().find(|(note, _)| note.contains("written as data"));
    assert_eq!(written_as_data.map(|(_, count)| *count), Some(1), "{notes:?}");
    let [config, data] = apart(&path);
    assert_eq!(config, [("Power.config".to_owned(), vec![2])]);
    let data: Vec<Vec<u8>> = data.into_iter().map(|(_, payload)| payload).collect();
    assert!(data == [vec![1], long, vec![3]]);
}

#[test]
fn paths_that_cannot_be_a_master_are_refused_with_the_options() {
    let registry = Registry::linked();
    for path in ["-", "folder/"] {
        let error =
            registry.sink("orca", json!({ "path": path })).map(drop).unwrap_err().to_string();
        assert!(error.contains("expected the path of a master file"), "{error}");
    }
}

/// Replaces the log by one with one event per channel; returns the subfiles' names.
fn replace(path: &Path, channels: &[Channel]) -> Vec<String> {
    let context = SinkContext {
        outputs: Arc::new(Outputs::new(Overwrite::Replace, false, &[])),
        ..SinkContext::standalone()
    };
    let events: Vec<TestEvent> = channels.iter().map(|c| (0, c.clone(), vec![1])).collect();
    write_with(&context, json!({ "path": path, "dialect": "C" }), &in_order(&events), 1);
    let master = fs::read_to_string(path).unwrap();
    let lines = master.lines().take_while(|line| *line != "#data");
    let names =
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn files_that_are_not_of_the_log_are_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    let mut named = lcm(b"A", "x");
    named.metadata.insert("orca.file".into(), "mine.log".into());
    let plain = lcm(b"A", "y");
    for name in ["mine.log", "x_a0.log"] {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    std::os::unix::fs::symlink("nowhere", folder.path().join("x_a1.log")).unwrap();
    for _ in 0..2 {
        let names = replace(&path, &[named.clone(), plain.clone()]);
        assert_eq!(names, ["x_a2.log", "x_a3.log"]);
    }
    for name in ["mine.log", "x_a0.log"] {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "mine");
    }
}

#[test]
fn subfiles_of_the_log_that_is_replaced_are_replaced_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.orca");
    fs::write(&path, "laser0.log Laser ice 1\n../x.log Laser ice 1\n#data\n").unwrap();
    fs::write(folder.path().join("laser0.log"), "old").unwrap();
    let mut laser = lcm(b"A", "x");
    laser.metadata.insert("orca.file".into(), "laser0.log".into());
    for _ in 0..2 {
        assert_eq!(replace(&path, std::slice::from_ref(&laser)), ["laser0.log"]);
    }
    assert_eq!(gather(&*source(&path), 1).unwrap().events.len(), 1);
}

#[test]
fn unusual_subfile_names_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for (file, due) in [("a.py", "x_a0.log"), ("-a.log", "x_a0.log"), ("a.log", "a.log")] {
        let mut channel = lcm(b"A", "x");
        channel.metadata.insert("orca.file".into(), file.into());
        assert_eq!(replace(&folder.path().join("x.orca"), &[channel]), [due]);
    }
}

#[test]
fn an_id_that_no_record_has_is_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    for (id, due) in [("300", 1), ("-1", 1), ("255", 0), ("0", 0)] {
        let mut channel = lcm(b"A", "x");
        channel.metadata.insert("orca.id".into(), id.into());
        let path = folder.path().join(format!("{id}.orca"));
        let (_, losses, _) =
            write(json!({ "path": path, "dialect": "C" }), &[(0, channel, vec![])], 1);
        assert_eq!(losses.iter().filter(|loss| loss.contains("orca.id")).count(), due, "{id}");
    }
}

/// A log of a killed logger: a description of 3 bytes if `described`, `records` objects of 9 bytes
/// with their index, and a master of `lines` lines. Returns the first bytes of the objects by the
/// position of their lines, and the notes.
fn killed(
    interface: &str,
    described: bool,
    records: u8,
    lines: u8,
) -> (Vec<(i64, u8)>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log");
    let line = |n: u8| format!("{n} 0 0 {n}\n");
    let lines: String = (0..lines).map(line).collect();
    fs::write(&path, format!("s.log {interface} ice 1\n#data\n{lines}")).unwrap();
    let mut subfile = if described { vec![0, 3, 0, 0, 0, 99, 99, 0] } else { Vec::new() };
    for n in 0..records {
        subfile.extend([0, 9, 0, 0, 0, n, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
    fs::write(folder.path().join("s.log"), subfile).unwrap();
    let context = ReadContext::standalone("test");
    let all = gather_with(&*source(&path), 1, &context).unwrap();
    let data = all.events.iter().filter(|event| !event.channel.ends_with(".config"));
    let data = data.map(|event| (event.sequence, event.payload[0])).collect();
    (data, context.losses.take_notes().into_iter().map(|(what, _)| what).collect())
}

#[test]
fn a_logger_that_was_killed_does_not_move_objects_to_the_times_of_others() {
    for interface in ["Localise2d", "Imu", "Sonar"] {
        for described in [false, true] {
            for (records, lines) in [(10, 10), (9, 10), (10, 9), (8, 10), (10, 8)] {
                let (data, notes) = killed(interface, described, records, lines);
                let shown = format!("{interface} {described} {records} {lines}: {notes:?}");
                assert!(data.iter().all(|(index, first)| *index == i64::from(*first)), "{shown}");
                assert_eq!(data.len(), usize::from(records.min(lines)), "{shown}");
                let is_said = notes.iter().any(|note| note.contains("config_records"));
                assert_eq!(is_said, records != lines, "{shown}");
            }
        }
    }
}

#[test]
fn lines_of_subfiles_beyond_the_header_limit_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.log");
    let header: String = (0..10_001).map(|n| format!("{n}.log Power ice 1\n")).collect();
    fs::write(&path, format!("{header}#data\n1 0 10000 0\n")).unwrap();
    let all = gather(&*source(&path), 1).unwrap();
    let is_said = |(_, _, why): &(_, _, String)| why.contains("only the first 10000 lines");
    assert_eq!(all.damage.iter().filter(|damage| is_said(damage)).count(), 2, "{:?}", all.damage);
}

/// A log of this many lines, and its subfiles.
fn made(lines: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut master = b"# sensors@alpha/x\nlaser0.log LaserScanner2d ice 1\npower0.log Power ice \
        1\ntext0.log Power ascii 1\n#data\n"
        .to_vec();
    let (mut laser, mut power, mut text) = (vec![0, 2, 0, 0, 0, 9, 0], Vec::new(), Vec::new());
    for n in 0..lines {
        let object = vec![7; n * 13 % 90].into_iter().chain([0]).collect::<Vec<u8>>();
        let to = if n % 2 == 0 { &mut laser } else { &mut power };
        to.push(0);
        to.extend((object.len() as u32).to_le_bytes());
        to.extend(object);
        master.extend(format!("{} {} {} {}\n", 100 + n, n, n % 2, n / 2).bytes());
        if n % 5 == 0 {
            text.extend(format!("line {n}\n").bytes());
            master.extend(format!("{} {} 2 {}\n", 100 + n, n, n / 5).bytes());
        }
    }
    vec![("m.log", master), ("laser0.log", laser), ("power0.log", power), ("text0.log", text)]
}

fn damaged(mut bytes: Vec<u8>, kind: u8, at: usize, len: usize) -> Vec<u8> {
    let at = at % bytes.len().max(1);
    let end = (at + len).min(bytes.len());
    match kind {
        0 if at < bytes.len() => bytes[at] ^= 1 << (len % 8),
        1 => drop(bytes.drain(at..end)),
        2 => drop(bytes.splice(at..at, std::iter::repeat_n(b'0', len))),
        3 => bytes[at..end].fill(0),
        4 => bytes[at..end].fill(b'\n'),
        _ => bytes.truncate(at),
    }
    bytes
}

#[test]
fn a_long_log_is_the_same_however_it_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in made(3000) {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let log = source(&folder.path().join("m.log"));
    let all = any_splitting_is_the_same(&*log, &[500, 5_000, 50_000]);
    assert_eq!((all.events.len(), all.damage.len()), (3601, 0));
    assert!(log.splits(5_000, &Query::default()).unwrap().len() > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn damaged_logs_are_the_same_however_they_are_cut_and_blocked(
        mutations in proptest::collection::vec(
            (0usize..4, 0u8..6, any::<usize>(), 1usize..60),
            1..5,
        ),
        target in 1u64..3000, block in 1usize..2000)
    {
        let folder = tempfile::tempdir().unwrap();
        let mut files = made(60);
        for (file, kind, at, len) in mutations {
            let bytes = std::mem::take(&mut files[file].1);
            files[file].1 = damaged(bytes, kind, at, len);
        }
        for (name, bytes) in &files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().join("m.log");
        let all = any_splitting_is_the_same(&*source(&path), &[target, 64]);
        let mut context = ReadContext::standalone("test");
        context.blocks = BlockPool::new(block, 2);
        prop_assert_eq!(&gather_with(&*source(&path), target, &context).unwrap(), &all);
    }

    #[test]
    fn configuration_is_written_first_whenever_it_arrives(
        events in proptest::collection::vec(
            (0usize..3, any::<bool>(), proptest::collection::vec(any::<u8>(), 1..20)), 0..50),
        order in Just((0i64..50).collect::<Vec<_>>()).prop_shuffle(),
        dialect in prop_oneof![Just("A"), Just("C")], cut in 1usize..30)
    {
        let folder = tempfile::tempdir().unwrap();
        let names = ["P", "Q", "R"].map(object);
        let events: Vec<NumberedEvent> = events
            .into_iter()
            .zip(order)
            .map(|((at, is_config, payload), number)| {
                let channel = if is_config { config_of(&names[at]) } else { names[at].clone() };
                (number, (0, channel, payload))
            })
            .collect();
        let written = |cut: usize| {
            let path = folder.path().join(format!("{cut}")).join("x.orca");
            fs::create_dir(path.parent().unwrap()).unwrap();
            write_numbered(json!({ "path": path, "dialect": dialect }), &events, cut);
            apart(&path)
        };
        let [config, data] = written(cut);
        let of = |(_, (_, channel, payload)): &NumberedEvent| {
            (channel.name.text().to_owned(), payload.clone())
        };
        let is_config = |event: &&NumberedEvent| event.1.1.name.text().ends_with(".config");
        let due: Vec<_> = events.iter().filter(|e| !is_config(e)).map(of).collect();
        prop_assert_eq!(&data, &due);
        for name in ["P.config", "Q.config", "R.config"] {
            let on_channel = events.iter().filter(|e| e.1.1.name.text() == name);
            let mut due: Vec<&NumberedEvent> = on_channel.collect();
            due.sort_by_key(|event| event.0);
            let due: Vec<_> = due.into_iter().map(of).collect();
            let read = config.iter().filter(|(channel, _)| channel == name);
            let read: Vec<_> = read.cloned().collect();
            prop_assert_eq!(read, due);
        }
        prop_assert_eq!(written(100), [config, data]);
    }

    #[test]
    fn any_events_are_restored(
        events in proptest::collection::vec(
            (-4_000_000i64..4_000_000, 0usize..4, proptest::collection::vec(any::<u8>(), 0..40)),
            0..60,
        ),
        names in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..8), ".{0,6}"),
            4,
        ),
        dialect in prop_oneof![Just("A"), Just("C")], cut in 1usize..30)
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.orca");
        let events: Vec<TestEvent> = events
            .into_iter()
            .map(|(micros, at, payload)| (micros * 1_000, lcm(&names[at].0, &names[at].1), payload))
            .collect();
        write(json!({ "path": path, "dialect": dialect }), &events, cut);
        let all = any_splitting_is_the_same(&*source(&path), &[100, 700]);
        prop_assert_eq!(all.damage, vec![]);
        prop_assert_eq!(all.events.len(), events.len());
        for (event, (time, channel, payload)) in all.events.iter().zip(&events) {
            prop_assert_eq!((event.timestamp, &event.payload), (*time, payload));
            let expected = (channel.name.text(), &channel.source[..]);
            prop_assert_eq!((&event.channel[..], &event.source[..]), expected);
        }
    }
}
