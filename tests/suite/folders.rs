//! Logs that are folders as inputs: tables by channel, bags of ROS 2 and LeRobot datasets, by name
//! and by glob, in batches and resumed.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::batch::tree;
use crate::datasets::DATASET;
use crate::kit::{Folder, drive, log, numbers, run_sluice};

/// Two logs as folders of tables, `runs/log=a/` and `runs/log=b/`, written by one batch.
fn tables() -> Folder {
    let folder = Folder::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        folder.write(&format!("{name}.lcm"), log(&drive(seed, 60)));
    }
    let to = ["--to", "runs/log={stem}/"];
    run_sluice(&folder, &[&["convert", "a.lcm", "b.lcm"], &to[..]].concat()).expect(0);
    folder
}

#[test]
fn logs_in_a_folder_with_tables_are_never_left_out_silently() {
    let folder = tables();
    run_sluice(&folder, &["convert", "a.lcm", "--to", "p/old/export.parquet"]).expect(0);
    folder.write("p/drive.lcm", folder.read("b.lcm"));
    run_sluice(&folder, &["convert", "p", "--to", "all.jsonl"])
        .expect(1)
        .expect_stderr("pass its files, such as p/*");
    let text = run_sluice(&folder, &["info", "p/*"]).expect(0).text();
    assert!(text.contains("drive.lcm"), "{text}");
    run_sluice(&folder, &["info", "p/old"]).expect(0);
    // Tables that are found first tell what the folder is.
    fs::create_dir(folder.at("p/old/deep")).unwrap();
    folder.write("p/old/deep/drive.lcm", folder.read("b.lcm"));
    for input in ["p/old", "p/*/"] {
        run_sluice(&folder, &["info", input])
            .expect(1)
            .expect_stderr("other files beside them, such as p/old/deep/drive.lcm");
    }
    // One who names the format, or whose tables have a manifest, is told of them.
    folder.write("runs/log=a/drive.lcm", folder.read("b.lcm"));
    for arguments in [&["info", "runs/log=a"][..], &["cat", "p/old", "--from", "parquet"]] {
        let ran = run_sluice(&folder, arguments).expect(0);
        let text = ran.text() + &ran.stderr;
        assert!(text.contains("also has 1 other file, not read: "), "{text}");
    }
    // The source that is sure of a folder reads it, whatever other tables are in it.
    folder.write("set.toml", DATASET);
    run_sluice(&folder, &["run", "set.toml"]).expect(0);
    fs::copy(folder.at("p/old/export.parquet"), folder.at("set/export.parquet")).unwrap();
    let text = run_sluice(&folder, &["info", "set"]).expect(0).text();
    assert!(text.contains("lerobot"), "{text}");
    fs::create_dir(folder.at("above")).unwrap();
    fs::rename(folder.at("set"), folder.at("above/set")).unwrap();
    run_sluice(&folder, &["info", "above"]).expect(1).expect_stderr("such as above/*");
    let text = run_sluice(&folder, &["info", "above/*"]).expect(0).text();
    assert!(text.contains("lerobot"), "{text}");
}

/// The file of each bag.
const PART: &str = "part_0.mcap";

/// Two bags of ROS 2, `bags/one/` and `bags/two/`, of one file each.
fn bags() -> Folder {
    let folder = Folder::new();
    for (name, seed) in [("one", 1), ("two", 2)] {
        folder.write("x.lcm", log(&drive(seed, 40)));
        let part = format!("bags/{name}/{PART}");
        run_sluice(&folder, &["convert", "x.lcm", "--to", &part]).expect(0);
        let text = format!(
            "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: mcap\n  \
             relative_file_paths: [{PART}]\n"
        );
        folder.write(&format!("bags/{name}/metadata.yaml"), text);
    }
    folder
}

/// How many inputs a batch has done now, and before.
#[track_caller]
fn convert(folder: &Folder, arguments: &[&str]) -> (u64, u64) {
    let report = ["--report", "report.json", "--resume"];
    run_sluice(folder, &[&["convert"], arguments, &report].concat()).expect(0);
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let units = report["units"].as_array().unwrap();
    let count = |status: &str| units.iter().filter(|unit| unit["status"] == status).count() as u64;
    (count("done"), count("skipped"))
}

#[test]
fn a_folder_of_tables_is_one_input_of_a_batch() {
    let folder = tables();
    let original = ["a", "b"].map(|name| folder.read(&format!("{name}.lcm")));
    let named = ["runs/log=a", "runs/log=b/", "--to", "named/{stem}.lcm"];
    assert_eq!(convert(&folder, &named), (2, 0));
    assert_eq!(convert(&folder, &named), (0, 2));
    // The manifest of the batch beside the folders is no table.
    for (glob, to) in [("runs/log=*", "first/{stem}.lcm"), ("runs/*/", "second/{stem}.lcm")] {
        assert_eq!(convert(&folder, &[glob, "--to", to]), (2, 0), "{glob}");
        assert_eq!(convert(&folder, &[glob, "--to", to]), (0, 2), "{glob}");
    }
    for to in ["named", "first", "second"] {
        for (name, original) in ["a", "b"].iter().zip(&original) {
            assert!(folder.read(&format!("{to}/log={name}.lcm")) == *original, "{to} {name}");
        }
    }
    let pipeline = "[sources.log]\nplugin = \"parquet\"\npath = \"runs/*/\"\n\
                    [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\n\
                    path = \"file/{stem}.lcm\"\n";
    folder.write("back.toml", pipeline);
    run_sluice(&folder, &["run", "back.toml"]).expect(0);
    assert!(folder.read("file/log=b.lcm") == original[1]);
    // A part of one log has changed.
    let table = folder.at("runs/log=b/channel=A/part-00000.parquet");
    fs::remove_file(table).unwrap();
    assert_eq!(convert(&folder, &named), (1, 1));
    assert!(numbers(&folder.read("named/log=b.lcm")).len() < 60);
}

#[test]
fn a_file_that_has_the_name_of_a_glob_is_read_alone_and_that_is_told() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for name in ["in/1.lcm", "in/2.lcm", "in/*.lcm", "in/[1].lcm", "in/[x].lcm"] {
        folder.write(name, log(&drive(1, 20)));
    }
    let alone =
        |name: &str| format!("`{name}` is the exact name of a file or folder, so only that");
    for (name, others) in [
        ("in/*.lcm", "it would match 4 others"),
        ("./in/*.lcm", "it would match 4 others"),
        ("in/[1].lcm", "it would match 1 other:"),
    ] {
        let convert = ["convert", name, "--to", "out/{stem}.jsonl", "--overwrite"];
        let commands = [&convert[..], &["--from", "lcm-log"]].concat();
        for command in [&convert[..], &commands, &["info", name], &["cat", name], &["verify", name]]
        {
            let ran = run_sluice(&folder, command).expect(0);
            let ran = ran.expect_stderr(&alone(name)).expect_stderr(others);
            assert_eq!(ran.stderr.matches("exact name").count(), 1, "{}", ran.stderr);
        }
    }
    assert_eq!(fs::read_dir(folder.at("out")).unwrap().count(), 3);
    for name in ["in/[x].lcm", "in/?.lcm"] {
        let ran = run_sluice(&folder, &["info", name]).expect(0);
        assert!(!ran.stderr.contains("exact name"), "{}", ran.stderr);
    }
}

#[test]
fn folders_that_match_a_glob_are_read_where_no_file_matches() {
    let folder = tables();
    for glob in ["runs/log=*", "runs/*/", "runs/log=[ab]"] {
        let text = run_sluice(&folder, &["info", glob, "--json"]).expect(0).text();
        assert_eq!(text.lines().count(), 2, "{glob}: {text}");
        let events = run_sluice(&folder, &["cat", glob, "--json"]).expect(0).text();
        assert_eq!(events.lines().count(), 120, "{glob}");
    }
    // Another folder beside them is told.
    fs::create_dir(folder.at("runs/log=c")).unwrap();
    run_sluice(&folder, &["info", "runs/log=*"])
        .expect(0)
        .expect_stderr("matches a folder that no source reads: runs/log=c");
    // Folders of other things match nothing, and files are what a glob means.
    fs::create_dir(folder.at("empty")).unwrap();
    run_sluice(&folder, &["info", "emp*"]).expect(1).expect_stderr("no file matches `emp*`");
    run_sluice(&folder, &["info", "*.lcm/"]).expect(1).expect_stderr("no file matches");
    for (glob, advice) in [
        ("empty/**", "`empty/**`; `**` means folders: write `**/*` for the files in them"),
        ("[empty]/*", "`[empty]/*`; `[ab]` means one of these characters: write `[[]` for `[`"),
    ] {
        run_sluice(&folder, &["info", glob]).expect(1).expect_stderr(advice);
    }
    fs::create_dir(folder.at("x.lcm")).unwrap();
    let text = run_sluice(&folder, &["info", "*.lcm", "--json"]).expect(0).text();
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn the_source_name_of_a_folder_is_its_name() {
    let folder = tables();
    let arguments = ["runs/log=a", "runs/log=b", "--to", "all.jsonl", "--source-name", "{name}"];
    let ran = run_sluice(&folder, &[&["convert"], &arguments[..]].concat()).expect(0);
    assert!(!ran.stderr.contains("are called"), "{}", ran.stderr);
    let lines = String::from_utf8(folder.read("all.jsonl")).unwrap();
    for name in ["log=a", "log=b"] {
        let source = format!("\"source\":\"{name}\"");
        assert_eq!(lines.lines().filter(|line| line.contains(&source)).count(), 60, "{name}");
    }
}

#[test]
fn a_bag_of_ros_2_is_one_input_of_a_batch() {
    let folder = bags();
    for (n, bags) in ["bags/*", "bags/*/"].iter().enumerate() {
        let to = format!("out{n}/{{stem}}.mcap");
        assert_eq!(convert(&folder, &[bags, "--to", &to]), (2, 0), "{bags}");
        assert_eq!(convert(&folder, &[bags, "--to", &to]), (0, 2), "{bags}");
        let names: Vec<String> = tree(&folder.at(&format!("out{n}"))).into_keys().collect();
        assert_eq!(names, ["_manifest.json", "one.mcap", "two.mcap"], "{bags}");
    }
    // The description belongs to the bag.
    let metadata = folder.read("bags/one/metadata.yaml");
    folder.write("bags/one/metadata.yaml", [&metadata[..], b"  compression_mode: ''\n"].concat());
    assert_eq!(convert(&folder, &["bags/*", "--to", "out0/{stem}.mcap"]), (1, 1));
}

#[test]
fn a_dataset_is_one_input_of_a_batch() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        folder.write("set.toml", DATASET.replace("set/", &format!("sets/{name}/")));
        run_sluice(&folder, &["run", "set.toml"]).expect(0);
    }
    for sets in [&["sets/*"][..], &["sets/a", "sets/b/"]] {
        let arguments = [sets, &["--to", "rows/{stem}.jsonl", "--overwrite"]].concat();
        run_sluice(&folder, &[&["convert"], &arguments[..]].concat()).expect(0);
        assert_eq!(convert(&folder, &[sets, &["--to", "rows/{stem}.jsonl"]].concat()), (0, 2));
        let rows = tree(&folder.at("rows"));
        let names: Vec<&str> = rows.keys().map(String::as_str).collect();
        assert_eq!(names, ["_manifest.json", "a.jsonl", "b.jsonl"], "{sets:?}");
        assert!(rows["a.jsonl"] == rows["b.jsonl"] && !rows["a.jsonl"].is_empty());
    }
}

#[test]
fn no_output_replaces_the_description_of_a_bag() {
    let folder = bags();
    let before = tree(&folder.at("bags"));
    let convert = ["convert", "bags/one", "--as", "jsonl", "--overwrite", "--to"];
    let description = "bags/one/metadata.yaml";
    run_sluice(&folder, &[&convert[..], &[description]].concat())
        .expect(1)
        .expect_stderr("is also an input");
    let to = ["convert", "bags/one", "--to", "x.jsonl", "--report", description];
    run_sluice(&folder, &to).expect(2).expect_stderr("would replace an input");
    assert!(tree(&folder.at("bags")) == before);
}

#[test]
fn a_folder_that_a_source_reads_is_verified_by_reading_it() {
    let folder = bags();
    run_sluice(&folder, &["verify", "bags/one"]).expect(0);
    let part = format!("bags/one/{PART}");
    let mut bytes = folder.read(&part);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write(&part, bytes);
    run_sluice(&folder, &["verify", "bags/one"]).expect(3);
    // Every folder of a glob has its result, also behind one that cannot be read.
    fs::write(folder.at("bags/one/metadata.yaml"), "no").unwrap();
    let verified = run_sluice(&folder, &["verify", "bags/*"]).expect(1);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.starts_with("bags/one: differs"), "{text}");
    assert!(text.contains("\nbags/two: ok "), "{text}");
    // An output is compared with its manifest, also if a source reads it.
    let folder = tables();
    run_sluice(&folder, &["verify", "runs/log=a", "runs"]).expect(0);
    fs::rename(folder.at("runs/log=b/_manifest.json"), folder.at("b.json")).unwrap();
    run_sluice(&folder, &["verify", "runs/log=b"]).expect(1);
    fs::rename(folder.at("b.json"), folder.at("runs/log=b/_manifest.json")).unwrap();
    fs::remove_file(folder.at("runs/log=a/channel=A/part-00000.parquet")).unwrap();
    run_sluice(&folder, &["verify", "runs/log=a"]).expect(1);
    fs::create_dir(folder.at("nothing")).unwrap();
    run_sluice(&folder, &["verify", "nothing"]).expect(1);
    // A glob means folders beside files, too.
    run_sluice(&folder, &["convert", "a.lcm", "--to", "mixed/a.lcm"]).expect(0);
    run_sluice(&folder, &["convert", "a.lcm", "--to", "mixed/tables/"]).expect(0);
    run_sluice(&folder, &["verify", "mixed/*"]).expect(0);
    // A link that leads nowhere is one failure, and hides nothing else.
    symlink("nowhere", folder.at("mixed/b.lcm")).unwrap();
    let said = run_sluice(&folder, &["verify", "mixed/*"]).expect(1).text();
    assert!(said.contains("mixed/a.lcm: ok") && said.contains("mixed/b.lcm: differs"), "{said}");
    assert!(said.contains("mixed/tables: ok"), "{said}");
    fs::remove_file(folder.at("mixed/b.lcm")).unwrap();
    fs::remove_file(folder.at("mixed/tables/channel=A/part-00000.parquet")).unwrap();
    let said = run_sluice(&folder, &["verify", "mixed/*"]).expect(1).text();
    assert!(said.contains("mixed/a.lcm: ok") && said.contains("tables: differs"), "{said}");
}

#[test]
fn what_is_wrong_with_a_part_of_a_bag_is_told_with_its_name() {
    let folder = bags();
    let part = format!("bags/two/{PART}");
    let mut bytes = folder.read(&part);
    // The record DataEnd, whose content is the checksum of the data section.
    let end = [&[0x0f][..], &4_u64.to_le_bytes()].concat();
    let at = bytes.windows(end.len()).rposition(|window| window == end).unwrap();
    bytes[at + end.len()] ^= 1;
    folder.write(&part, bytes);
    let said = run_sluice(&folder, &["verify", "bags/two"]).expect(3).text();
    assert!(said.contains(&format!("{PART}: ")), "{said}");
    let said = run_sluice(&folder, &["info", "bags/two"]).expect(0).text();
    assert!(said.contains(&format!("{PART}: ")), "{said}");
}
