//! Logs as they are written: what is restored, what is lost, which files are replaced.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_kit::contract::{PlainEvent, SourceContents, any_splitting_is_the_same, gather};
use sluice_model::{
    Channel, Encoding, Outputs, Overwrite, Query, ReadContext, Registry, SinkContext, SplitStart,
};

use crate::kit::{
    TestEvent, case, channels_of, config_of, in_order, lcm, source, write, write_with,
};

#[test]
fn payloads_of_every_encoding_are_restored() {
    use Encoding::{Cdr, Ice, Json, Lcm, Protobuf, Ros1, Text, Unknown, Vel};
    let all = [Lcm, Vel, Ice, Cdr, Ros1, Protobuf, Json, Text, Unknown];
    for (dialect, encoding) in ["A", "C"].into_iter().flat_map(|d| all.clone().map(|e| (d, e))) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive.orca");
        let channel = Channel { encoding: encoding.clone(), ..lcm(b"/imu", "robot") };
        let events: Vec<TestEvent> =
            (0..10).map(|n| (n * 1_000, channel.clone(), vec![n as u8; 9])).collect();
        write(json!({ "path": path, "dialect": dialect }), &events, 3);
        let (found, channels) = channels_of(&path);
        assert_eq!((found.damage, found.events.len()), (vec![], 10), "{dialect} {encoding:?}");
        assert!(found.events.iter().zip(&events).all(|(found, event)| found.payload == event.2));
        assert!(channels.iter().all(|channel| channel.encoding == encoding), "{dialect}");
        let head = fs::read(&path).unwrap();
        let registry = Registry::linked();
        let detected = registry.sniff_best(&head).map(|(_, plugin)| plugin.name);
        assert_eq!(detected, Some("orca"), "{dialect} {encoding:?}");
    }
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
fn no_subfile_has_the_name_of_the_master_whatever_its_case() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["drive.log", "Drive.log"] {
        let mut channel = lcm(b"A", "x");
        channel.metadata.insert("orca.file".into(), file.into());
        assert_eq!(replace(&folder.path().join("drive.log"), &[channel]), ["drive_a0.log"]);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
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
