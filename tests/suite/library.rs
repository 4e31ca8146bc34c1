//! The pipelines that every program carries.

use sluice_pipeline::library;

use crate::kit::{Folder, events, ran, root};

#[test]
fn every_file_of_the_library_is_carried() {
    let files = std::fs::read_dir(root().join("pipelines/library")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(library::names().collect::<Vec<_>>(), names);
    // Each of them has a test below.
    assert_eq!(names, ["quickstart"]);
}

#[test]
fn the_quick_start_writes_a_log_and_as_many_lines() {
    let folder = Folder::new();
    ran(&folder, &["run", "quickstart", "--set", "SECONDS=2"]).expect(0);
    assert_eq!(folder.names(), ["quickstart-out"]);
    let log = events(&folder.read("quickstart-out/drive.lcm"));
    assert!(log.len() > 100, "{}", log.len());
    let lines = String::from_utf8(folder.read("quickstart-out/events.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), log.len());
    for (line, event) in lines.lines().zip(&log) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["channel"].as_str().map(str::as_bytes), Some(&event.channel[..]));
        assert_eq!(line["timestamp_ns"].as_i64().map(|ns| ns / 1_000), Some(event.utime));
        assert_eq!(line["size"], event.payload.len());
    }
}

#[test]
fn the_quick_start_is_the_same_every_time() {
    let folder = Folder::new();
    for out in ["a", "b"] {
        let set = format!("OUT={out}");
        ran(&folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", &set]).expect(0);
    }
    assert_eq!(folder.read("a/drive.lcm"), folder.read("b/drive.lcm"));
    assert_eq!(folder.read("a/events.jsonl"), folder.read("b/events.jsonl"));
}

#[test]
fn a_file_that_stands_there_is_taken_instead() {
    let folder = Folder::new();
    let text = library::get("quickstart").unwrap().replace("drive.lcm", "other.lcm");
    folder.write("quickstart", text);
    ran(&folder, &["run", "quickstart", "--set", "SECONDS=0.1", "--set", "OUT=o"]).expect(0);
    assert!(folder.at("o/other.lcm").exists());
}
