//! Batches run in parts, whose records are merged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::batch::records::kill_at;
use crate::kit::{Folder, ProgramOutput, drive, log, run_sluice, sluice};

const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
on_damage = "stop"
[sinks.packed]
plugin = "lcm-log"
from = "log"
path = "out/{stem}.lcm.zst"
[sinks.tables]
plugin = "parquet"
from = "log"
path = "out/tables/{index}/"
"#;

/// A folder with five logs and a pipeline over them.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..5 {
        folder.write(&format!("in/{n}.lcm"), log(&drive(n + 1, 30 + 20 * (n as i64 % 3))));
    }
    folder.write("batch.toml", BATCH);
    folder
}

type ShardTree = BTreeMap<String, Vec<u8>>;

/// Every file below a folder, by its path there.
fn tree(folder: &Path) -> ShardTree {
    let mut files = ShardTree::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inside = tree(&path).into_iter();
            files.extend(inside.map(|(below, text)| (format!("{name}/{below}"), text)));
        } else {
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

#[track_caller]
fn assert_same_files(expected: &ShardTree, found: &ShardTree) {
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
}

/// The outputs of a run of the whole batch; they are removed again.
fn expected(folder: &Folder) -> ShardTree {
    run_sluice(folder, &["run", "batch.toml"]).expect(0);
    let expected = tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    expected
}

fn shard(folder: &Folder, part: &str, more: &[&str]) -> ProgramOutput {
    run_sluice(folder, &[&["run", "batch.toml", "--shard", part], more].concat())
}

fn merge(folder: &Folder) -> ProgramOutput {
    run_sluice(folder, &["merge-manifests", "out"])
}

#[test]
fn parts_that_run_at_the_same_time_give_the_outputs_of_one_run() {
    let folder = folder();
    let expected = expected(&folder);
    for of in [1, 2, 3, 7] {
        let start = |number: usize| {
            let part = format!("{number}/{of}");
            let mut command = sluice(&folder);
            command.args(["run", "batch.toml", "--shard", &part]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let running: Vec<_> = (1..=of).rev().map(start).collect();
        for child in running {
            ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        }
        assert!(!folder.at("out/_manifest.json").exists());
        let verified = run_sluice(&folder, &["verify", "out"]).expect(1);
        assert!(verified.text().contains("sluice merge-manifests"), "{}", verified.text());
        run_sluice(&folder, &["verify", "out/0.lcm.zst"]).expect(0);
        merge(&folder).expect(0).expect_stderr("5 inputs");
        assert_same_files(&expected, &tree(&folder.at("out")));
        run_sluice(&folder, &["verify", "out"]).expect(0);
        merge(&folder).expect(0).expect_stderr("already merged");
        assert_same_files(&expected, &tree(&folder.at("out")));
        fs::remove_dir_all(folder.at("out")).unwrap();
    }
}

#[test]
fn a_part_has_every_nth_input_and_reports_it_alone() {
    let folder = folder();
    shard(&folder, "2/3", &["--report", "report.json"]).expect(0).expect_stderr("2 inputs done");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let inputs: Vec<&str> =
        report["units"].as_array().unwrap().iter().map(|u| u["input"].as_str().unwrap()).collect();
    assert_eq!(inputs, ["in/1.lcm", "in/4.lcm"]);
    // Placeholders have the same values as in the whole batch.
    assert!(folder.at("out/tables/00004/_manifest.json").exists());
}

#[test]
fn missing_parts_are_named_and_nothing_is_changed() {
    let folder = folder();
    merge(&folder).expect(1).expect_stderr("no shard records");
    for part in ["1/4", "3/4"] {
        shard(&folder, part, &[]).expect(0);
    }
    let before = tree(&folder.at("out"));
    merge(&folder).expect(1).expect_stderr("shards are missing: 2/4, 4/4");
    assert_same_files(&before, &tree(&folder.at("out")));
    shard(&folder, "1/3", &["--resume"]).expect(0);
    merge(&folder).expect(1).expect_stderr("records of 3 and of 4 shards");
}

#[test]
fn a_part_with_an_input_that_failed_is_completed_by_resuming() {
    let folder = folder();
    let expected = expected(&folder);
    let whole = folder.read("in/3.lcm");
    folder.write("in/3.lcm", [b"stray", &whole[..]].concat());
    shard(&folder, "1/2", &[]).expect(0);
    shard(&folder, "2/2", &["--keep-going"]).expect(1).expect_stderr("in/3.lcm failed");
    merge(&folder).expect(1).expect_stderr("shard 2/2 is not complete: in/3.lcm is not done");
    folder.write("in/3.lcm", &whole);
    shard(&folder, "2/2", &["--resume"]).expect(0).expect_stderr("1 input done, 1 done before");
    merge(&folder).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

/// The record of a part, as earlier versions wrote it.
const EARLIER_RECORD: &str = r#"{
  "sluice": "0.1.0",
  "shard": 2,
  "of": 2,
  "batch": "8f0c3f2ad1f6a8f09c6e6b2b6f3d9a1f4a9c1f0f0b7b6d1f5e2c3d4e5f6a7b8c",
  "inputs": 5,
  "left": ["in/1.lcm", "in/3.lcm"],
  "units": [],
  "earlier": []
}"#;

#[test]
fn the_record_of_a_part_is_read_by_later_and_earlier_versions() {
    let folder = folder();
    let expected = expected(&folder);
    let name = "out/_shard-2-of-2.json";
    fs::create_dir(folder.at("out")).unwrap();
    folder.write(name, EARLIER_RECORD);
    let left = "shard 2/2 is not complete: 2 inputs are not done, such as in/1.lcm";
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains(left), "{text}");
    merge(&folder).expect(1).expect_stderr(left);
    // What earlier versions read of the record of a part that is not complete.
    let whole = folder.read("in/3.lcm");
    folder.write("in/3.lcm", [b"stray", &whole[..]].concat());
    shard(&folder, "2/2", &["--overwrite", "--keep-going"]).expect(1);
    let record: Value = serde_json::from_slice(&folder.read(name)).unwrap();
    assert_eq!(record["left"], serde_json::json!(["in/3.lcm"]));
    folder.write("in/3.lcm", &whole);
    folder.write(name, EARLIER_RECORD);
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &["--resume"]).expect(0);
    }
    merge(&folder).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

#[test]
fn a_part_that_was_interrupted_is_completed_by_resuming() {
    let folder = folder();
    let expected = expected(&folder);
    shard(&folder, "1/2", &[]).expect(0);
    shard(&folder, "2/2", &[]).expect(0);
    // As if killed after the first unit.
    let record: Value = serde_json::from_slice(&folder.read("out/_shard-2-of-2.json")).unwrap();
    folder.write("out/_shard-2-of-2.units.jsonl", format!("{}\n", record["units"][0]));
    fs::remove_file(folder.at("out/_shard-2-of-2.json")).unwrap();
    fs::remove_file(folder.at("out/3.lcm.zst")).unwrap();
    merge(&folder).expect(1).expect_stderr("shard 2/2 was interrupted");
    run_sluice(&folder, &["verify", "out"]).expect(1);
    shard(&folder, "2/2", &["--resume"]).expect(0).expect_stderr("1 done before");
    merge(&folder).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

#[test]
fn parts_of_different_batches_are_not_merged() {
    let folder = folder();
    shard(&folder, "1/2", &[]).expect(0);
    shard(&folder, "2/2", &["--memory", "64MiB"]).expect(0);
    merge(&folder).expect(1).expect_stderr("different batches");
    folder.write("in/9.lcm", log(&drive(9, 5)));
    shard(&folder, "2/2", &["--resume"]).expect(0);
    merge(&folder).expect(1).expect_stderr("different batches, of 5 and 6 inputs");
    shard(&folder, "1/2", &["--resume"]).expect(0).expect_stderr("3 done before");
    merge(&folder).expect(0).expect_stderr("6 inputs");
}

#[test]
fn changed_files_are_found() {
    let folder = folder();
    let expected = expected(&folder);
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    let mut bytes = folder.read("out/1.lcm.zst");
    *bytes.last_mut().unwrap() ^= 1;
    folder.write("out/1.lcm.zst", &bytes);
    let verify = ["merge-manifests", "out", "--verify"];
    run_sluice(&folder, &verify)
        .expect(1)
        .expect_stderr("1.lcm.zst has changed since shard 2/2 wrote it");
    bytes.pop();
    folder.write("out/1.lcm.zst", &bytes);
    merge(&folder).expect(1).expect_stderr("1.lcm.zst has changed since shard 2/2 wrote it");
    shard(&folder, "2/2", &["--resume"]).expect(0);
    run_sluice(&folder, &verify).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

#[test]
fn the_whole_batch_and_its_parts_resume_each_other() {
    let folder = folder();
    let expected = expected(&folder);
    shard(&folder, "1/2", &[]).expect(0);
    run_sluice(&folder, &["run", "batch.toml"]).expect(1).expect_stderr("the output exists");
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("3 done before");
    assert_same_files(&expected, &tree(&folder.at("out")));
    shard(&folder, "2/2", &["--resume"]).expect(0).expect_stderr("2 done before");
    shard(&folder, "1/2", &["--resume"]).expect(0).expect_stderr("3 done before");
    merge(&folder).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

#[test]
fn a_part_that_runs_again_after_the_merge_is_part_of_the_merged_batch() {
    let folder = folder();
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    merge(&folder).expect(0);
    let (merged, verify) = (tree(&folder.at("out")), ["verify", "out"]);
    shard(&folder, "1/2", &["--resume"]).expect(0).expect_stderr("3 done before");
    folder.write("out/1.lcm.zst", "changed");
    shard(&folder, "2/2", &["--resume"]).expect(0).expect_stderr("1 input done, 1 done before");
    assert_same_files(&merged, &tree(&folder.at("out")));
    run_sluice(&folder, &verify).expect(0);
    merge(&folder).expect(0).expect_stderr("already merged");
    // An output that is other than before is merged without the other parts.
    folder.write("in/1.lcm", log(&drive(9, 20)));
    shard(&folder, "2/2", &["--resume"]).expect(0).expect_stderr("1 input done, 1 done before");
    let text = run_sluice(&folder, &verify).expect(1).text();
    assert!(text.contains("sluice merge-manifests") && !text.contains("missing"), "{text}");
    merge(&folder).expect(0).expect_stderr("merged 1 shard, 2 inputs");
    run_sluice(&folder, &verify).expect(0);
    let changed = tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    assert_same_files(&expected(&folder), &changed);
}

#[test]
fn parts_without_inputs_run_again_after_the_merge_too() {
    let folder = folder();
    let parts: Vec<String> = (1..=7).map(|part| format!("{part}/7")).collect();
    parts.iter().for_each(|part| drop(shard(&folder, part, &[]).expect(0)));
    merge(&folder).expect(0);
    let merged = tree(&folder.at("out"));
    parts.iter().for_each(|part| drop(shard(&folder, part, &["--resume"]).expect(0)));
    merge(&folder).expect(0);
    assert_same_files(&merged, &tree(&folder.at("out")));
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn a_part_of_another_batch_is_not_part_of_a_merged_one() {
    let folder = folder();
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    shard(&folder, "1/2", &["--overwrite", "--memory", "64MiB"]).expect(0);
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains("shards are missing: 2/2"), "{text}");
    merge(&folder).expect(1).expect_stderr("shards are missing: 2/2");
    run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(0);
    folder.write("in/5.lcm", log(&drive(6, 30)));
    shard(&folder, "1/6", &["--resume"]).expect(0);
    merge(&folder).expect(1).expect_stderr("shards are missing: 2/6");
}

#[test]
fn an_input_that_a_part_does_is_no_longer_left_over_by_the_whole_batch() {
    let folder = folder();
    let whole = folder.read("in/3.lcm");
    folder.write("in/3.lcm", "damaged");
    run_sluice(&folder, &["run", "batch.toml", "--keep-going"]).expect(1);
    folder.write("in/3.lcm", whole);
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &["--resume"]).expect(0);
    }
    merge(&folder).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn what_is_left_of_parts_is_known_after_another_batch() {
    let folder = folder();
    let whole = folder.read("in/3.lcm");
    folder.write("in/3.lcm", [&whole[..200], &whole[210..]].concat());
    shard(&folder, "1/2", &["--jobs", "1"]).expect(0);
    shard(&folder, "2/2", &["--jobs", "1"]).expect(1);
    kill_at(&folder, "in/4.lcm", &["run", "batch.toml", "--shard", "1/2", "--overwrite"]);
    folder.write("other.lcm", &whole);
    run_sluice(&folder, &["convert", "other.lcm", "--to", "out/{stem}.lcm.zst"]).expect(0);
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    for says in
        ["2 inputs are not done (1 failed, 1 interrupted)", "in/3.lcm: failed: ", "in/4.lcm"]
    {
        assert!(text.contains(says), "{text}");
    }
    folder.write("in/3.lcm", whole);
    run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn a_batch_that_takes_over_the_record_of_another_one_says_which_of_its_parts_never_ran() {
    let folder = folder();
    let never = "note: shards: another batch ran here, of which these shards did not: 2/3; \
                 its record is now part of this one: to complete it, run it without --shard";
    shard(&folder, "1/3", &[]).expect(0);
    shard(&folder, "3/3", &[]).expect(0);
    let whole = run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(0);
    assert!(!whole.stderr.contains("note: shards"), "{}", whole.stderr);
    fs::remove_dir_all(folder.at("out")).unwrap();
    shard(&folder, "1/3", &[]).expect(0);
    shard(&folder, "3/3", &[]).expect(0);
    folder.write("other.lcm", folder.read("in/3.lcm"));
    let other = ["convert", "other.lcm", "--to", "out/{stem}.lcm.zst"];
    run_sluice(&folder, &other).expect(0).expect_stderr(never);
    let again = run_sluice(&folder, &[&other[..], &["--resume"]].concat()).expect(0);
    assert!(!again.stderr.contains("note: shards"), "{}", again.stderr);
}

#[test]
fn records_of_several_folders_are_merged_at_once() {
    let folder = folder();
    folder.write("other.toml", BATCH.replace("out/", "other/"));
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    run_sluice(&folder, &["run", "other.toml", "--shard", "1/2"]).expect(0);
    let both = ["merge-manifests", "out", "other"];
    run_sluice(&folder, &both)
        .expect(1)
        .expect_stderr("out: merged 2 shards")
        .expect_stderr("other: shards are missing: 2/2");
    run_sluice(&folder, &["run", "other.toml", "--shard", "2/2"]).expect(0);
    run_sluice(&folder, &both)
        .expect(0)
        .expect_stderr("out: already merged")
        .expect_stderr("other: merged 2 shards");
}

#[test]
fn other_entries_in_the_record_of_a_batch_stay() {
    let folder = folder();
    let others = ["convert", "in/0.lcm", "--to", "out/{stem}.jsonl"];
    run_sluice(&folder, &others).expect(0);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let expected = tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    run_sluice(&folder, &others).expect(0);
    for part in ["2/2", "1/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    merge(&folder).expect(0);
    assert_same_files(&expected, &tree(&folder.at("out")));
}

#[test]
fn a_part_excludes_the_same_part_and_the_whole_batch() {
    let folder = folder();
    shard(&folder, "1/2", &[]).expect(0);
    let lock = File::create(folder.at("out/.shard-1-of-2.sluice-tmp")).unwrap();
    lock.lock().unwrap();
    shard(&folder, "1/2", &["--resume"])
        .expect(1)
        .expect_stderr("shard 1/2 of this batch is running");
    shard(&folder, "2/2", &[]).expect(0);
    drop(lock);
    shard(&folder, "1/2", &["--resume"]).expect(0);
    let beside = File::open(folder.at("out")).unwrap();
    beside.lock_shared().unwrap();
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(1)
        .expect_stderr("another batch");
    merge(&folder).expect(1).expect_stderr("another batch");
    shard(&folder, "1/2", &["--resume"]).expect(0);
    drop(beside);
    merge(&folder).expect(0);
}

#[test]
fn invalid_parts_are_usage_errors() {
    let folder = folder();
    for wrong in ["0/3", "4/3", "x", "1"] {
        shard(&folder, wrong, &[]).expect(2);
    }
    let whole = ["convert", "in/0.lcm", "--to", "out.jsonl", "--shard", "1/2"];
    run_sluice(&folder, &whole).expect(2).expect_stderr("{stem}");
    shard(&folder, "1/2", &["--engine", "ballista"]).expect(2);
    folder.write("hostile.json", "x");
    fs::create_dir(folder.at("out")).unwrap();
    folder.write("out/_shard-1-of-2.json", "{\"units\": 3}");
    merge(&folder).expect(1).expect_stderr("this shard record is not valid");
}

#[test]
fn outputs_of_a_merged_batch_are_verified_again() {
    let folder = folder();
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    merge(&folder).expect(0);
    let verify = ["merge-manifests", "out", "--verify"];
    run_sluice(&folder, &verify).expect(0).expect_stderr("out: already merged");
    fs::remove_file(folder.at("out/1.lcm.zst")).unwrap();
    run_sluice(&folder, &verify).expect(1).expect_stderr("error: out: 1.lcm.zst is missing");
}

#[test]
fn what_no_part_has_is_reported_when_they_are_merged() {
    let folder = folder();
    let mut events = drive(2, 30);
    events.retain(|event| event.channel != b"A");
    assert!(events.len() < 30);
    folder.write("in/1.lcm", log(&events));
    for part in ["1/5", "2/5", "3/5", "4/5", "5/5"] {
        let more = ["--channel", "A", "--channel", "NONE", "--strict", "--shard", part];
        let convert = ["convert", "in/*.lcm", "--to", "out/{stem}.jsonl"];
        let ran = run_sluice(&folder, &[&convert[..], &more].concat()).expect(0);
        let ran = ran.expect_stderr("`NONE`");
        assert_eq!(ran.stderr.contains("`A`"), part == "2/5", "{}", ran.stderr);
    }
    Command::new("cp").args(["-r", "out", "copy"]).current_dir(folder.path()).status().unwrap();
    let merged = merge(&folder).expect(0).expect_stderr("warning: keep: `channels`: no channel");
    assert!(!merged.stderr.contains("`A`"), "{}", merged.stderr);
    let (strict, error) = (["merge-manifests", "copy", "--strict"], "error: keep: `channels`: no");
    run_sluice(&folder, &strict).expect(2).expect_stderr(error);
    run_sluice(&folder, &strict).expect(2).expect_stderr(error).expect_stderr("already merged");
    let again = merge(&folder).expect(0).expect_stderr("warning: keep: `channels`: no channel");
    again.expect_stderr("already merged");
    // A folder without records is worse.
    fs::create_dir(folder.at("none")).unwrap();
    run_sluice(&folder, &["merge-manifests", "none", "copy", "--strict"]).expect(1);
    run_sluice(&folder, &["merge-manifests", "copy", "none", "--strict"]).expect(1);
}

#[test]
fn a_batch_without_parts_that_is_not_complete_is_not_merged() {
    let folder = folder();
    let whole = folder.read("in/3.lcm");
    folder.write("in/3.lcm", [b"stray", &whole[..]].concat());
    run_sluice(&folder, &["run", "batch.toml", "--keep-going"]).expect(1);
    merge(&folder).expect(1).expect_stderr("the batch is not complete; run it again with --resume");
    folder.write("in/3.lcm", &whole);
    run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(0);
    merge(&folder).expect(0).expect_stderr("already merged");
}

#[test]
fn what_a_killed_part_of_a_merged_batch_left_is_removed_by_the_next_merge() {
    let folder = folder();
    for part in ["1/2", "2/2"] {
        shard(&folder, part, &[]).expect(0);
    }
    merge(&folder).expect(0);
    let merged = tree(&folder.at("out"));
    kill_at(&folder, "in/4.lcm", &["run", "batch.toml", "--shard", "1/2", "--overwrite"]);
    // The process of this file ended long ago.
    folder.write("out/.0.lcm.zst.1-999999999-0.sluice-tmp", "x");
    shard(&folder, "1/2", &["--resume"]).expect(0);
    merge(&folder).expect(0);
    assert_same_files(&merged, &tree(&folder.at("out")));
}
