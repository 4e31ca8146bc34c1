//! Logs of ROS through the whole program: bags, folders, and MCAP files.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, python_with, root, run_sluice};

/// The events of a log, decoded by its own types.
fn decoded(folder: &Folder, log: &str) -> Vec<Value> {
    let lines = format!("{log}.jsonl");
    run_sluice(folder, &["convert", log, "--to", &lines, "--overwrite"]).expect(0);
    let text = String::from_utf8(folder.read(&lines)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The fields of events, without what formats say of them.
fn fields(events: &[Value]) -> Vec<&Value> {
    events.iter().map(|event| &event["fields"]).collect()
}

fn recording(folder: &Folder, name: &str) {
    folder.write(name, std::fs::read(root().join("tests/suite/ros").join(name)).unwrap());
}

#[test]
fn a_bag_and_its_mcap_file_have_equal_events() {
    let folder = Folder::new();
    let bag = root().join("plugins/ros/testdata/bag-lz4/log.bag");
    folder.write("drive.bag", std::fs::read(bag).unwrap());
    run_sluice(&folder, &["convert", "drive.bag", "--to", "drive.mcap"]).expect(0);
    let (bag, mcap) = (decoded(&folder, "drive.bag"), decoded(&folder, "drive.mcap"));
    assert_eq!(bag.len(), 11);
    assert_eq!(bag[1]["fields"]["header"]["frame_id"], "laser");
    assert_eq!(bag, mcap);
}

#[test]
fn messages_whose_declaration_is_empty_come_back_from_tables() {
    let folder = Folder::new();
    let bag = root().join("plugins/ros/testdata/bag-empty-declaration/log.bag");
    folder.write("drive.bag", std::fs::read(bag).unwrap());
    run_sluice(&folder, &["convert", "drive.bag", "--to", "direct.mcap"]).expect(0);
    for tables in ["tables/", "table.parquet", "table.arrow.zst"] {
        run_sluice(&folder, &["convert", "drive.bag", "--to", tables]).expect(0);
        let args = ["convert", tables, "--to", "back.mcap", "--overwrite"];
        run_sluice(&folder, &args).expect(0).expect_stderr("6 events");
        assert_eq!(decoded(&folder, "back.mcap"), decoded(&folder, "direct.mcap"), "{tables}");
    }
}

#[test]
fn a_folder_of_ros2_has_the_events_of_its_parts() {
    let folder = Folder::new();
    recording(&folder, "wbag_0.mcap");
    recording(&folder, "array_msgs_0.mcap");
    std::fs::create_dir(folder.at("bag")).unwrap();
    for part in ["wbag_0.mcap", "array_msgs_0.mcap"] {
        std::fs::copy(folder.at(part), folder.at("bag").join(part)).unwrap();
    }
    let text = "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: mcap\n  \
        relative_file_paths:\n    - wbag_0.mcap\n    - array_msgs_0.mcap\n";
    folder.write("bag/metadata.yaml", text);
    let found = decoded(&folder, "bag");
    let parts = [decoded(&folder, "wbag_0.mcap"), decoded(&folder, "array_msgs_0.mcap")].concat();
    assert_eq!(fields(&found), fields(&parts));
    assert!(found.len() > 1246);
    folder.write("bag/metadata.yaml", text.replace("identifier: mcap", "identifier: sqlite3"));
    run_sluice(&folder, &["info", "bag"]).expect(1).expect_stderr("no SQLite file");
}

#[test]
fn a_bag_in_sqlite_is_read_and_becomes_mcap() {
    let folder = Folder::new();
    std::fs::create_dir(folder.at("bag")).unwrap();
    let file = root().join("plugins/ros/testdata/db3-plain/log.db3");
    std::fs::copy(file, folder.at("bag/bag_0.db3")).unwrap();
    let text = "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n  \
        relative_file_paths:\n    - bag_0.db3\n";
    folder.write("bag/metadata.yaml", text);
    let found = decoded(&folder, "bag");
    assert_eq!(found.len(), 60);
    assert_eq!(fields(&decoded(&folder, "bag/bag_0.db3")), fields(&found));
    run_sluice(&folder, &["convert", "bag", "--to", "bag.mcap"]).expect(0);
    assert_eq!(fields(&decoded(&folder, "bag.mcap")), fields(&found));
}

#[test]
fn what_is_not_read_of_a_bag_is_said_with_what_to_do() {
    let folder = Folder::new();
    let older = root().join("plugins/ros/testdata/bag-older-version/log.bag");
    folder.write("older.bag", std::fs::read(older).unwrap());
    for command in ["info", "cat"] {
        run_sluice(&folder, &[command, "older.bag"]).expect(1).expect_stderr("`rosbag migrate`");
    }
    std::fs::create_dir(folder.at("bag")).unwrap();
    let file = root().join("plugins/ros/testdata/db3-plain/log.db3");
    for part in ["bag/bag_0.db3", "bag/bag_1.db3"] {
        std::fs::copy(&file, folder.at(part)).unwrap();
    }
    let text = "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n  \
        relative_file_paths:\n    - bag_0.db3\n";
    folder.write("bag/metadata.yaml", text);
    let note = "does not list 1 of the files, such as bag_1.db3";
    let converted = run_sluice(&folder, &["convert", "bag", "--to", "bag.mcap"]).expect(0);
    converted.expect_stderr(note).expect_stderr("60 events");
    run_sluice(&folder, &["cat", "bag", "--limit", "1"]).expect(0).expect_stderr(note);
    let info = run_sluice(&folder, &["info", "bag"]).expect(0);
    assert_eq!(info.text().matches(note).count(), 1, "{}", info.text());
    run_sluice(&folder, &["verify", "bag"]).expect(3);
    let all = ["info", "bag/bag_0.db3", "bag/metadata.yaml"];
    run_sluice(&folder, &all).expect(2).expect_stderr("pass the folder that it is in");
}

/// Copies a file of the family's cases, and what is beside it, as a part of `bag/`.
fn interrupted(folder: &Folder, case: &str, part: &str) {
    std::fs::create_dir_all(folder.at("bag")).unwrap();
    for end in ["", "-wal"] {
        let from = root().join(format!("plugins/ros/testdata/{case}/log.db3{end}"));
        if from.exists() {
            std::fs::copy(from, folder.at(&format!("bag/{part}{end}"))).unwrap();
        }
    }
}

#[test]
fn a_bag_whose_recording_was_interrupted_is_read_with_what_is_beside_its_files() {
    let folder = Folder::new();
    interrupted(&folder, "db3-plain", "bag_0.db3");
    interrupted(&folder, "db3-interrupted", "bag_1.db3");
    let found = decoded(&folder, "bag");
    assert_eq!(found.len(), 120);
    let info = run_sluice(&folder, &["info", "bag"]).expect(0);
    assert!(info.text().contains("has no metadata.yaml"), "{}", info.text());
    let into = ["convert", "bag/bag_1.db3", "--to", "tables/", "--resume"];
    run_sluice(&folder, &into).expect(0).expect_stderr("not completed are not read");
    let manifest: Value = serde_json::from_slice(&folder.read("tables/_manifest.json")).unwrap();
    let text = manifest.to_string();
    assert!(text.contains("bag_1.db3\"") && text.contains("bag_1.db3-wal\""), "{text}");
    let wal = folder.read("bag/bag_1.db3-wal");
    run_sluice(&folder, &into).expect(0).expect_stderr("already done");
    // With a part of the log, the bag is another input.
    std::fs::write(folder.at("bag/bag_1.db3-wal"), &wal[..wal.len() / 2]).unwrap();
    run_sluice(&folder, &into).expect(0).expect_stderr("not completed are not read");
    // Without a checkpoint, the file has only its first page, or nothing after a crash.
    interrupted(&folder, "db3-only-in-the-log", "bag_2.db3");
    for len in [0, 512] {
        let first = folder.read("bag/bag_1.db3")[..len].to_vec();
        std::fs::write(folder.at("bag/bag_2.db3"), first).unwrap();
        assert_eq!(decoded(&folder, "bag/bag_2.db3").len(), 60, "{len}");
    }
    let wrong = run_sluice(&folder, &["info", "bag/bag_1.db3-wal"]);
    wrong.expect(2).expect_stderr("SQLite left it beside a database");
    // The index of the log is twice the same, in the byte order of the computer.
    let head = [&3_007_000_u32.to_ne_bytes()[..], &[7; 44]].concat();
    std::fs::write(folder.at("bag/bag_1.db3-shm"), head.repeat(2)).unwrap();
    let wrong = run_sluice(&folder, &["info", "bag/bag_1.db3-shm"]);
    wrong.expect(2).expect_stderr("SQLite left it beside a database");
}

/// A bag in SQLite without declarations, and the file of its type in `share/`.
fn undeclared(folder: &Folder) {
    let bag = root().join("plugins/ros/testdata/db3-without-declarations/log.db3");
    folder.write("drive.db3", std::fs::read(bag).unwrap());
    std::fs::create_dir_all(folder.at("share/std_msgs/msg")).unwrap();
    folder.write("share/std_msgs/msg/String.msg", "string data\n");
}

#[test]
fn messages_of_given_types_stay_as_they_are_in_mcap_with_their_declaration() {
    let folder = Folder::new();
    undeclared(&folder);
    let share = ["--types", "share"];
    run_sluice(&folder, &[&["convert", "drive.db3", "--to", "tables/"], &share[..]].concat())
        .expect(0);
    for log in ["drive.db3", "tables/"] {
        let convert = ["convert", log, "--to", "drive.mcap", "--overwrite"];
        run_sluice(&folder, &[&convert, &share[..]].concat()).expect(0);
        let info = run_sluice(&folder, &["info", "drive.mcap", "--json"]).expect(0).text();
        assert!(info.contains("cdr") && !info.contains("protobuf"), "{log}: {info}");
        let found = decoded(&folder, "drive.mcap");
        assert_eq!((found.len(), &found[0]["fields"]["data"]), (30, &"message 0 ".into()), "{log}");
        if let Some(python) = python_with("mcap_ros2") {
            let read = decoded_by_peer(&python, &folder, "drive.mcap");
            assert_eq!((read.len(), &read[0][2]["data"]), (30, &found[0]["fields"]["data"]));
        }
    }
}

/// An MCAP file with a message of each of these types, whose declarations are empty.
fn empty_declarations(types: &[(&str, &[u8])]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let record = |kind: u8, content: &[&[u8]]| {
        let content = content.concat();
        [&[kind][..], &(content.len() as u64).to_le_bytes(), &content].concat()
    };
    let mut file = [b"\x89MCAP0\r\n", &record(1, &[&text("ros2"), &text("")])[..]].concat();
    for (number, (name, payload)) in (1_u16..).zip(types) {
        let id = number.to_le_bytes();
        file.extend(record(3, &[&id, &text(name), &text("ros2msg"), &text("")]));
        file.extend(record(4, &[&id, &id, &text(name), &text("cdr"), &text("")]));
        file.extend(record(5, &[&id, &[0; 20], payload]));
    }
    [&file[..], &record(15, &[&[0; 4]]), &record(2, &[&[0; 20]]), b"\x89MCAP0\r\n"].concat()
}

#[test]
fn an_empty_declaration_is_filled_by_a_given_type_unless_that_is_empty() {
    let folder = Folder::new();
    let text = b"\0\x01\0\0\x06\0\0\0hello\0";
    let types = [("std_msgs/msg/String", &text[..]), ("std_msgs/msg/Empty", b"\0\x01\0\0\0")];
    folder.write("drive.mcap", empty_declarations(&types));
    std::fs::create_dir_all(folder.at("share/std_msgs/msg")).unwrap();
    folder.write("share/std_msgs/msg/String.msg", "string data\n");
    folder.write("share/std_msgs/msg/Empty.msg", "");
    let convert = ["convert", "drive.mcap", "--to", "filled.mcap", "--types", "share"];
    run_sluice(&folder, &convert).expect(0);
    let info = run_sluice(&folder, &["info", "filled.mcap", "--json"]).expect(0).text();
    assert!(info.contains("cdr") && !info.contains("protobuf"), "{info}");
    let found = decoded(&folder, "filled.mcap");
    assert_eq!((found.len(), &found[0]["fields"]["data"]), (2, &"hello".into()));
    assert_eq!(found[1]["channel"], "std_msgs/msg/Empty");
}

#[test]
fn types_beside_those_of_a_log_do_not_take_their_place() {
    let folder = Folder::new();
    undeclared(&folder);
    let bag = root().join("plugins/ros/testdata/db3-plain/log.db3");
    folder.write("plain.db3", std::fs::read(bag).unwrap());
    let written = |types: &[&str]| {
        let convert = ["convert", "plain.db3", "--to", "some.mcap", "--overwrite"];
        let found = [&convert[..], &["--where", "data = 'message 7 '"], types].concat();
        let said = run_sluice(&folder, &found).expect(0).stderr;
        assert!(!said.contains("of no declared type"), "{said}");
        decoded(&folder, "some.mcap")
    };
    folder.write("share/std_msgs/msg/Bool.msg", "bool data\n");
    assert!(!written(&[]).is_empty());
    assert_eq!(written(&["--types", "share"]), written(&[]));
    assert_eq!(written(&["--types", "mit-dgc"]), written(&[]));
}

/// Prints the messages of an MCAP file as `mcap-ros2-support` decodes them.
const DECODE: &str = r#"
import base64, json, sys
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

def plain(value):
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "__slots__"):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    return value

reader = make_reader(open(sys.argv[1], "rb"), decoder_factories=[DecoderFactory()])
for _, channel, message, decoded in reader.iter_decoded_messages(log_time_order=False):
    print(json.dumps([channel.topic, message.log_time, plain(decoded)]))
"#;

/// The messages of an MCAP file: topic, time and fields.
fn decoded_by_peer(python: &Path, folder: &Folder, log: &str) -> Vec<Value> {
    let ran = Command::new(python).args(["-c", DECODE]).arg(folder.at(log)).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = String::from_utf8(ran.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn messages_have_the_values_that_mcap_ros2_support_gives_them() {
    let Some(python) = python_with("mcap_ros2") else { return };
    let folder = Folder::new();
    for name in ["wbag_0.mcap", "array_msgs_0.mcap"] {
        recording(&folder, name);
        let expected = decoded_by_peer(&python, &folder, name);
        let found = decoded(&folder, name);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found["channel"], expected[0]);
            assert_eq!(found["timestamp_ns"], expected[1]);
            assert_eq!(numbers(&found["fields"]), numbers(&expected[2]));
        }
    }
}

/// The value with all numbers as floats.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(all) => all.iter().map(numbers).collect(),
        Value::Object(all) => {
            Value::Object(all.iter().map(|(key, value)| (key.clone(), numbers(value))).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn info_names_the_types_that_a_log_declares() {
    let folder = Folder::new();
    let bag = root().join("plugins/ros/testdata/bag-plain/log.bag");
    folder.write("drive.bag", std::fs::read(bag).unwrap());
    recording(&folder, "array_msgs_0.mcap");
    let expected = [
        ("drive.bag", ["sensor_msgs/LaserScan", "std_msgs/String"]),
        ("array_msgs_0.mcap", ["sensor_msgs/msg/Imu", "sensor_msgs/msg/JointState"]),
    ];
    for (log, types) in expected {
        let info = |flags: &[&str]| {
            let run = run_sluice(&folder, &[&["info", log], flags].concat());
            String::from_utf8(run.expect(0).stdout.clone()).unwrap()
        };
        let text = info(&[]);
        assert!(types.iter().all(|name| text.contains(name)) && !text.contains('?'), "{text}");
        let json: Value = serde_json::from_str(&info(&["--json"])).unwrap();
        for channel in json["channels"].as_array().unwrap() {
            assert_eq!(channel["types"][0]["name"], channel["type"], "{channel}");
            assert_eq!(channel["types"][0]["events"], channel["events"], "{channel}");
        }
    }
}
