//! Configuration of objects, which a log has before all data.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{PlainEvent, any_splitting_is_the_same};

use crate::kit::{NumberedEvent, config_of, object, source, write_numbered};

/// Configuration and all other events as read: channel and payload.
fn apart(path: &Path) -> [Vec<(String, Vec<u8>)>; 2] {
    let all = any_splitting_is_the_same(&*source(path), &[100, 700]);
    assert_eq!(all.damage, []);
    let is_config = |e: &PlainEvent| e.channel.ends_with(".config");
    let (config, data): (Vec<_>, Vec<_>) = all.events.into_iter().partition(is_config);
    [config, data].map(|events| events.into_iter().map(|e| (e.channel, e.payload)).collect())
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
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
}
