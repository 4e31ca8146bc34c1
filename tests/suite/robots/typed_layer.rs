//! Logs carried as protobuf in MCAP files: every message is one that the protobuf runtime decodes,
//! and the way back gives the same log.

use std::process::Command;

use crate::kit::{Folder, python_with, root, run_sluice};

use super::events;
use super::lossless::create_logs;

fn converted(folder: &Folder, arguments: &[&str]) {
    run_sluice(folder, &[&["convert"], arguments].concat()).expect(0);
}

#[test]
fn logs_come_back_from_mcap_files() {
    let folder = Folder::new();
    create_logs(&folder);
    for (log, back) in [("drive.lcm", "back.lcm"), ("drive.vel", "back.vel")] {
        converted(&folder, &[log, "--to", "shown.mcap", "--overwrite"]);
        converted(&folder, &["shown.mcap", "--to", back]);
        assert!(folder.read(log) == folder.read(back), "{log}");
    }
    converted(&folder, &["orca/master.log", "--to", "shown.mcap", "--overwrite"]);
    assert!(events(&folder, "orca/master.log") == events(&folder, "shown.mcap"), "orca");
}

#[test]
fn messages_come_back_within_one_pipeline() {
    let folder = Folder::new();
    create_logs(&folder);
    // Also if what was carried is decoded once more.
    let again =
        ["", "[stages.again]\nplugin = \"decode\"\nfrom = \"carried\"\ntypes = \"embedded\"\n"];
    for (before, stage) in [("carried", again[0]), ("again", again[1])] {
        let pipeline = format!(
            r#"
            sources.log = {{ plugin = "lcm-log", path = "drive.lcm" }}
            sinks.out = {{ plugin = "lcm-log", path = "back.lcm", from = "payloads" }}

            [stages]
            typed = {{ plugin = "decode", from = "log", types = "mit-dgc" }}
            carried = {{ plugin = "to-protobuf", from = "typed" }}
            original = {{ plugin = "from-protobuf", from = "{before}" }}
            payloads = {{ plugin = "encode", from = "original" }}

            {stage}"#
        );
        folder.write("p.toml", pipeline.as_bytes());
        run_sluice(&folder, &["run", "p.toml", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == folder.read("drive.lcm"), "{before}");
    }
}

#[test]
fn booleans_of_any_byte_come_back_from_mcap_files() {
    let folder = Folder::new();
    let log = super::booleans::lcm_log(&folder, &[3, 4, 9]);
    let mcap = ["flags.lcm", "--types", "set.lcm", "--to", "flags.mcap"];
    converted(&folder, &mcap);
    converted(&folder, &["flags.mcap", "--to", "back.lcm"]);
    assert_eq!(folder.read("back.lcm"), log);
}

#[test]
fn tables_of_mcap_files_are_those_of_the_log() {
    let folder = Folder::new();
    create_logs(&folder);
    converted(&folder, &["drive.lcm", "--to", "drive.mcap", "--sink-option", "view=none"]);
    converted(
        &folder,
        &["drive.lcm", "--types", "mit-dgc", "--channel", "POSE", "--to", "a.parquet"],
    );
    converted(&folder, &["drive.mcap", "--channel", "POSE", "--to", "b.parquet"]);
    converted(&folder, &["a.parquet", "--to", "a.jsonl"]);
    converted(&folder, &["b.parquet", "--to", "b.jsonl"]);
    assert!(folder.read("a.jsonl") == folder.read("b.jsonl"));
    // Tables become the same file as the log they were made of.
    converted(&folder, &["drive.lcm", "--types", "mit-dgc", "--to", "tables/"]);
    converted(&folder, &["tables/", "--to", "tables.mcap", "--sink-option", "view=none"]);
    converted(&folder, &["tables.mcap", "--to", "back.lcm"]);
    assert!(folder.read("back.lcm") == folder.read("drive.lcm"));
}

#[test]
fn the_protobuf_runtime_decodes_every_message() {
    let folder = Folder::new();
    create_logs(&folder);
    let Some(python) = python_with("mcap_protobuf") else { return };
    let script = root().join("tests/suite/peers_py/mcap_protobuf_messages.py");
    for log in ["drive.lcm", "drive.vel", "orca/master.log"] {
        converted(&folder, &[log, "--to", "shown.mcap", "--overwrite"]);
        let output = Command::new(&python).arg(&script).arg(folder.at("shown.mcap")).output();
        let output = output.unwrap();
        let counts = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (same, other) = counts.trim().split_once(' ').unwrap();
        assert!(same != "0" && other == "0", "{log}: {counts}");
    }
}

#[test]
fn pipelines_for_viewers_show_their_stages() {
    let folder = Folder::new();
    let printed = |arguments: &[&str]| {
        let all = [&["convert"], arguments, &["--print-pipeline"]].concat();
        run_sluice(&folder, &all).expect(0).text()
    };
    folder.write("a.lcm", b"");
    let both = printed(&["a.lcm", "--from", "lcm-log", "--to", "a.mcap"]);
    assert!(both.contains("plugin = \"to-protobuf\"") && both.contains("plugin = \"foxglove\""));
    let typed =
        printed(&["a.lcm", "--from", "lcm-log", "--to", "a.mcap", "--sink-option", "view=none"]);
    assert!(typed.contains("plugin = \"to-protobuf\"") && !typed.contains("foxglove"), "{typed}");
    assert!(!typed.contains("view ="), "{typed}");
    let back = printed(&["a.mcap", "--from", "mcap", "--to", "a.lcm"]);
    assert!(back.contains("plugin = \"from-protobuf\"") && back.contains("plugin = \"encode\""));
    let same = printed(&["a.mcap", "--from", "mcap", "--to", "b.mcap"]);
    assert!(!same.contains("[stages."), "{same}");
}
