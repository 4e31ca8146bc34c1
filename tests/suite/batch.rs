//! Batches: outputs named after inputs, one run per input, and resuming an interrupted batch.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, decompressed, drive, log, run_sluice, sluice};
use crate::report_shape::ReportShape;

/// A folder with logs `in/0.lcm` to `in/4.lcm`.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..5 {
        folder.write(&format!("in/{n}.lcm"), log(&drive(n + 1, 300 + 400 * (n as i64 % 3))));
    }
    folder
}

const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[sinks.packed]
plugin = "lcm-log"
from = "log"
path = "out/{stem}.lcm.zst"
[sinks.lines]
plugin = "jsonl"
from = "log"
path = "out/lines/{stem}.jsonl"
"#;

/// Every file below a folder, by its path.
pub(crate) fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inside =
                tree(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text));
            files.extend(inside);
        } else {
            files.insert(name, fs::read(path).unwrap());
        }
    }
    files
}

#[track_caller]
fn assert_same_files(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in a {
        assert!(&b[name] == bytes, "{name} differs");
    }
}

fn times(folder: &Folder, names: &[&str]) -> Vec<SystemTime> {
    names.iter().map(|name| fs::metadata(folder.at(name)).unwrap().modified().unwrap()).collect()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn statuses(report: &Value) -> Vec<&str> {
    report["units"].as_array().unwrap().iter().map(|u| u["status"].as_str().unwrap()).collect()
}

#[test]
fn every_input_has_outputs_of_its_own() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0).expect_stderr("5 inputs done");
    for n in 0..5 {
        let input = folder.read(&format!("in/{n}.lcm"));
        assert!(decompressed(&folder.read(&format!("out/{n}.lcm.zst"))) == input);
        let lines = String::from_utf8(folder.read(&format!("out/lines/{n}.jsonl"))).unwrap();
        assert_eq!(lines.lines().count(), crate::kit::events(&input).len());
    }
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn a_unit_equals_the_conversion_of_its_input_alone() {
    let folder = folder();
    let convert = ["convert", "in/0.lcm", "in/1.lcm", "--to", "out/{parent}-{stem}-{index}.jsonl"];
    run_sluice(&folder, &convert).expect(0);
    for n in 0..2 {
        let (input, alone) = (format!("in/{n}.lcm"), format!("{n}.jsonl"));
        run_sluice(&folder, &["convert", &input, "--to", &alone]).expect(0);
        assert!(folder.read(&alone) == folder.read(&format!("out/in-{n}-0000{n}.jsonl")));
    }
    let one = ["convert", "in/3.lcm", "--to", "one/{name}.zst", "--as", "lcm-log", "--report", "-"];
    let report = json(&run_sluice(&folder, &one).expect(0).stdout);
    assert_eq!(statuses(&report), ["done"]);
    assert!(folder.at("one/3.lcm.zst").exists());
}

#[test]
fn a_path_with_braces_of_its_own_is_one_path() {
    let folder = folder();
    run_sluice(&folder, &["convert", "in/0.lcm", "in/1.lcm", "--to", "{{stem}}.lcm"]).expect(0);
    assert!(folder.at("{stem}.lcm").exists());
}

#[test]
fn outputs_do_not_depend_on_which_units_run_at_the_same_time() {
    let mut first = None;
    for (jobs, memory) in [("1", "64MiB"), ("2", "64MiB"), ("8", "64MiB")] {
        let folder = folder();
        folder.write("batch.toml", BATCH);
        run_sluice(&folder, &["run", "batch.toml", "--jobs", jobs, "--memory", memory]).expect(0);
        let tree = tree(&folder.at("out"));
        assert_same_files(first.get_or_insert_with(|| tree.clone()), &tree);
    }
}

#[test]
fn the_order_of_inputs_matters_only_to_the_index() {
    let (forth, back) = (folder(), folder());
    let names = ["in/0.lcm", "in/1.lcm", "in/2.lcm", "in/3.lcm", "in/4.lcm"];
    let mut reversed = names;
    reversed.reverse();
    for (folder, names) in [(&forth, names), (&back, reversed)] {
        run_sluice(folder, &[&["convert"], &names[..], &["--to", "out/{stem}.jsonl.zst"]].concat())
            .expect(0);
    }
    assert_same_files(&tree(&forth.at("out")), &tree(&back.at("out")));
}

#[test]
fn units_with_the_same_output_are_refused_before_anything_runs() {
    let folder = folder();
    fs::create_dir(folder.at("other")).unwrap();
    folder.write("other/1.lcm", folder.read("in/0.lcm"));
    let inputs = ["convert", "in/1.lcm", "in/2.lcm", "other/1.lcm", "--to"];
    let tried = run_sluice(&folder, &[&inputs[..], &["out/{stem}.lcm"]].concat()).expect(1);
    let tried = tried.expect_stderr("in/1.lcm").expect_stderr("other/1.lcm");
    tried.expect_stderr("{parent}");
    run_sluice(&folder, &[&inputs[..], &["out/{ext}.lcm"]].concat())
        .expect(1)
        .expect_stderr("in/2.lcm");
    run_sluice(&folder, &[&inputs[..], &["in/{stem}.lcm", "--overwrite"]].concat())
        .expect(1)
        .expect_stderr("{parent}");
    let onto = ["convert", "in/0.lcm", "in/1.lcm", "--to", "in/{name}", "--as", "lcm-log"];
    run_sluice(&folder, &[&onto[..], &["--overwrite"]].concat())
        .expect(1)
        .expect_stderr("also an input");
    assert!(!folder.at("out").exists());
    run_sluice(&folder, &[&inputs[..], &["out/{parent}/{stem}.lcm"]].concat()).expect(0);
}

#[test]
fn existing_outputs_are_refused_before_anything_runs() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    fs::create_dir(folder.at("out")).unwrap();
    folder.write("out/4.lcm.zst", "mine");
    run_sluice(&folder, &["run", "batch.toml"])
        .expect(1)
        .expect_stderr("out/4.lcm.zst")
        .expect_stderr("--resume");
    assert_eq!(tree(&folder.at("out")).len(), 1);
    run_sluice(&folder, &["run", "batch.toml", "--overwrite"]).expect(0);
    assert_eq!(decompressed(&folder.read("out/4.lcm.zst")), folder.read("in/4.lcm"));
    run_sluice(&folder, &["run", "batch.toml", "--overwrite", "--resume"]).expect(2);
}

#[test]
fn batches_and_single_runs_do_not_share_a_folder() {
    let folder = folder();
    let single = ["convert", "in/0.lcm", "--to", "out/", "--as", "lcm-log"];
    run_sluice(&folder, &single).expect(0);
    let batch = ["convert", "in/0.lcm", "in/1.lcm", "--to", "out/{stem}.lcm"];
    run_sluice(&folder, &[&batch[..], &["--resume"]].concat())
        .expect(1)
        .expect_stderr("single run");
    fs::remove_dir_all(folder.at("out")).unwrap();
    run_sluice(&folder, &batch).expect(0);
    run_sluice(&folder, &[&single[..], &["--overwrite"]].concat())
        .expect(1)
        .expect_stderr("record of a batch");
}

#[test]
fn mistakes_in_templates_are_shown_with_the_others() {
    let folder = folder();
    let wrong = BATCH.replace("out/{stem}.lcm.zst", "out/{stme}.lcm.zst");
    folder.write("wrong.toml", wrong.replace("out/lines/{stem}.jsonl", "all.jsonl"));
    let shown = run_sluice(&folder, &["check", "wrong.toml"])
        .expect(2)
        .expect_stderr("did you mean `stem`?");
    shown.expect_stderr("wrong.toml:8:8");
    folder.write("wrong.toml", BATCH.replace("out/lines/{stem}.jsonl", "all.jsonl"));
    run_sluice(&folder, &["check", "wrong.toml"])
        .expect(2)
        .expect_stderr("wrong.toml:12:8")
        .expect_stderr("`lines`");
    folder.write("right.toml", BATCH.replace("out/lines/{stem}.jsonl", "-"));
    run_sluice(&folder, &["check", "right.toml"]).expect(0);
}

#[test]
fn the_plan_shows_units_and_their_outputs() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    let plan = json(&run_sluice(&folder, &["plan", "batch.toml", "--json"]).expect(0).stdout);
    assert_eq!(plan["units"][3]["input"]["path"], "in/3.lcm");
    assert_eq!(plan["units"][3]["outputs"][0]["path"], "out/3.lcm.zst");
    for arguments in [&["plan", "batch.toml"][..], &["run", "batch.toml", "--dry-run"]] {
        let text = run_sluice(&folder, arguments).expect(0).text();
        assert!(text.contains("in/4.lcm") && text.contains("out/lines/4.jsonl"), "{text}");
    }
    assert!(!folder.at("out").exists());
}

#[test]
fn standard_output_has_one_input_after_another() {
    let folder = folder();
    folder.write("batch.toml", BATCH.replace("out/lines/{stem}.jsonl", "-"));
    let out = run_sluice(&folder, &["run", "batch.toml", "--jobs", "8"]).expect(0).stdout;
    let inputs = ["convert", "in/*.lcm", "--to", "-", "--as", "jsonl"];
    assert!(out == run_sluice(&folder, &inputs).expect(0).stdout);
}

/// `in/2.lcm` fails the run that reads it.
const STRICT: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
on_damage = "stop"
[sinks.out]
plugin = "lcm-log"
from = "log"
path = "out/{stem}.lcm"
"#;

fn folder_with_broken_log() -> Folder {
    let folder = folder();
    let broken = [&folder.read("in/2.lcm")[..], b"stray", &folder.read("in/2.lcm")].concat();
    folder.write("in/2.lcm", broken);
    folder.write("strict.toml", STRICT);
    folder
}

#[test]
fn a_failed_input_ends_the_batch_and_finished_outputs_stay() {
    let folder = folder_with_broken_log();
    let run = ["run", "strict.toml", "--jobs", "1", "--report", "report.json"];
    run_sluice(&folder, &run)
        .expect(1)
        .expect_stderr("in/2.lcm failed: ")
        .expect_stderr("2 inputs not started");
    let report = json(&folder.read("report.json"));
    assert_eq!(statuses(&report), ["done", "done", "failed", "not started", "not started"]);
    assert_eq!(report["exit"], 1);
    let written: Vec<String> = tree(&folder.at("out")).into_keys().collect();
    assert_eq!(written, ["0.lcm", "1.lcm", "_manifest.json"]);
    folder.write("in/2.lcm", log(&drive(2, 20)));
    run_sluice(&folder, &["run", "strict.toml", "--resume"])
        .expect(0)
        .expect_stderr("2 done before");
    assert_eq!(tree(&folder.at("out")).len(), 6);
}

#[test]
fn verify_reports_every_unfinished_input_of_a_batch() {
    let folder = folder_with_broken_log();
    let broken = folder.read("in/2.lcm");
    let run = ["run", "strict.toml", "--jobs", "1", "--report", "report.json"];
    run_sluice(&folder, &run).expect(1);
    for path in ["out", "out/_manifest.json", "report.json"] {
        let text = run_sluice(&folder, &["verify", path]).expect(1).text();
        let all = "3 inputs are not done (1 failed, 2 not started), of 5 in all";
        let each = ["in/2.lcm: failed: ", "in/3.lcm: not started", "in/4.lcm: not started"];
        for sentence in [all, "--resume"].into_iter().chain(each) {
            assert_eq!(text.matches(sentence).count(), 1, "{path}: `{sentence}` in:\n{text}");
        }
    }
    // The existing outputs are valid.
    run_sluice(&folder, &["verify", "out/0.lcm", "out/1.lcm"]).expect(0);
    let resume = ["run", "strict.toml", "--keep-going", "--resume"];
    run_sluice(&folder, &resume).expect(1);
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains("1 input is not done (1 failed), of 5 in all"), "{text}");
    // Another batch in the same folder does not change that.
    fs::create_dir(folder.at("more")).unwrap();
    folder.write("more/9.lcm", log(&drive(9, 20)));
    let other = STRICT.replace("in/*.lcm", "more/*.lcm");
    folder.write("other.toml", other);
    run_sluice(&folder, &["run", "other.toml"]).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(1).text();
    folder.write("in/2.lcm", log(&drive(2, 20)));
    run_sluice(&folder, &resume).expect(0).expect_stderr("4 done before");
    run_sluice(&folder, &["verify", "out"]).expect(0);
    let resumed = tree(&folder.at("out"));
    // The manifest is the same as without failures.
    fs::remove_dir_all(folder.at("out")).unwrap();
    run_sluice(&folder, &["run", "strict.toml"]).expect(0);
    run_sluice(&folder, &["run", "other.toml"]).expect(0);
    assert_same_files(&tree(&folder.at("out")), &resumed);
    // An input that no longer exists is not required.
    folder.write("in/2.lcm", broken);
    run_sluice(&folder, &["run", "strict.toml", "--overwrite", "--keep-going"]).expect(1);
    run_sluice(&folder, &["verify", "out"]).expect(1);
    fs::remove_file(folder.at("in/2.lcm")).unwrap();
    run_sluice(&folder, &["run", "strict.toml", "--resume"]).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn a_unit_recorded_twice_is_reported_once() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    // The same units again, in the record of a part of another batch.
    let part = ["--shard", "1/2", "--resume", "--memory", "64MiB"];
    run_sluice(&folder, &[&["run", "batch.toml"], &part[..]].concat()).expect(0);
    folder.write("out/0.lcm.zst", "not what it was");
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert_eq!(text.matches("0.lcm.zst has").count(), 1, "{text}");
    assert!(text.contains("shards are missing: 2/2"), "{text}");
}

#[test]
fn keep_going_converts_all_others_and_lists_the_failed_inputs() {
    for jobs in ["1", "4"] {
        let folder = folder_with_broken_log();
        let run = ["run", "strict.toml", "--keep-going", "--jobs", jobs, "--report", "report.json"];
        let ended = run_sluice(&folder, &run).expect(1).expect_stderr("in/2.lcm failed: ");
        ended.expect_stderr("could not be read");
        let report = json(&folder.read("report.json"));
        assert_eq!(statuses(&report), ["done", "done", "failed", "done", "done"]);
        assert!(report["units"][2]["error"].as_str().unwrap().contains("could not be read"));
        assert_eq!(tree(&folder.at("out")).len(), 5);
        ReportShape(report).check();
    }
}

#[test]
fn a_batch_that_fails_before_its_first_unit_reports_that_nothing_was_read() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    let run = ["run", "batch.toml", "--report", "report.json"];
    run_sluice(&folder, &run).expect(0);
    run_sluice(&folder, &run).expect(1).expect_stderr("the output exists");
    let report = json(&folder.read("report.json"));
    assert!(report["error"].as_str().unwrap().contains("the output exists"), "{report}");
    assert_eq!((&report["exit"], &report["bytes_read"]), (&1.into(), &0.into()));
    assert!(report["files"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn the_report_of_a_batch_is_the_sum_of_its_units() {
    let folder = folder();
    let stray = [&folder.read("in/1.lcm")[..], b"stray"].concat();
    folder.write("in/1.lcm", stray);
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml", "--report", "report.json"]).expect(3);
    let report = json(&folder.read("report.json"));
    let events: usize = [0, 2, 3, 4]
        .iter()
        .map(|n| crate::kit::events(&folder.read(&format!("in/{n}.lcm"))).len())
        .sum();
    assert_eq!(report["sources"]["log"]["events"], events + 700);
    assert_eq!(report["exit"], 3);
    assert_eq!(report["damage"].as_array().unwrap().len(), 1);
    let exits: Vec<u64> =
        report["units"].as_array().unwrap().iter().map(|u| u["exit"].as_u64().unwrap()).collect();
    assert_eq!(exits, [0, 3, 0, 0, 0]);
    let files: Vec<&str> =
        report["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(files.len(), 10);
    assert_eq!((files[0], files[9]), ("out/0.lcm.zst", "out/lines/4.jsonl"));
    ReportShape(report).check();
    // Losses are reported again if there is nothing left to do.
    run_sluice(&folder, &["run", "batch.toml", "--resume"]).expect(3).expect_stderr("losses");
}

#[test]
fn resuming_a_batch_that_is_done_does_nothing() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let names = ["out", "out/_manifest.json", "out/0.lcm.zst", "out/lines/0.jsonl", "out/lines"];
    let before = times(&folder, &names);
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("5 done before");
    assert_eq!(times(&folder, &names), before);
}

#[test]
fn resuming_replaces_outputs_that_are_missing_or_differ() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let whole = tree(&folder.at("out"));
    let untouched = times(&folder, &["out/4.lcm.zst"]);
    fs::remove_file(folder.at("out/0.lcm.zst")).unwrap();
    let mut bytes = folder.read("out/lines/1.jsonl");
    bytes[100] ^= 1;
    folder.write("out/lines/1.jsonl", bytes);
    folder.write("out/2.lcm.zst", "cut");
    let differs = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    for what in ["0.lcm.zst is missing", "lines/1.jsonl has the hash", "2.lcm.zst has 3 bytes"] {
        assert!(differs.contains(what), "{differs}");
    }
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("3 inputs done, 2 done before");
    assert_same_files(&tree(&folder.at("out")), &whole);
    assert_eq!(times(&folder, &["out/4.lcm.zst"]), untouched);
}

#[test]
fn resuming_notices_another_input_pipeline_or_memory() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let mut bytes = folder.read("in/3.lcm");
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    folder.write("in/3.lcm", bytes);
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("1 input done, 4 done before");
    folder.write("batch.toml", BATCH.replace("\"jsonl\"", "\"jsonl\"\npayload = true"));
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("5 inputs done");
    assert!(folder.read("out/lines/0.jsonl").windows(9).any(|w| w == b"\"payload\""));
    run_sluice(&folder, &["run", "batch.toml", "--resume", "--memory", "64MiB"])
        .expect(0)
        .expect_stderr("5 inputs done");
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn a_comment_in_the_pipeline_file_changes_nothing() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    folder.write("batch.toml", format!("# The same.\n{BATCH}"));
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("5 done before");
}

#[test]
fn files_that_a_unit_no_longer_writes_are_removed_when_it_runs_again() {
    let folder = folder();
    let convert = |split: &str| {
        let split = format!("split_mb={split}");
        let convert = ["convert", "in/*.lcm", "--to", "out/{stem}.lcm", "--resume"];
        run_sluice(&folder, &[&convert[..], &["--sink-option", &split]].concat()).expect(0);
        tree(&folder.at("out")).len()
    };
    let (small, large) = (convert("0.03125"), convert("1"));
    assert!(small > large && large == 6, "{small} and {large} files");
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

/// Leaves a complete batch in `out` as if it had been killed before this file was published.
fn kill_before(folder: &Folder, last: &str) {
    let manifest = json(&folder.read("out/_manifest.json"));
    let units = manifest["units"].as_array().unwrap();
    let lines: String = units.iter().map(|unit| format!("{unit}\n")).collect();
    folder.write("out/_units.jsonl", lines);
    for file in ["_manifest.json", last] {
        fs::remove_file(folder.at("out").join(file)).unwrap();
    }
}

#[test]
fn a_log_that_was_published_in_part_is_written_again_under_the_same_names() {
    let folder = folder();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}_master.log", "--as", "orca"];
    run_sluice(&folder, &convert).expect(0);
    let whole = tree(&folder.at("out"));
    kill_before(&folder, "2_master.log");
    run_sluice(&folder, &[&convert[..], &["--resume"]].concat())
        .expect(0)
        .expect_stderr("4 done before");
    assert_same_files(&tree(&folder.at("out")), &whole);
}

#[test]
fn a_folder_that_was_published_in_part_stays_until_it_is_written_again() {
    let folder = folder();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}/", "--overwrite"];
    run_sluice(&folder, &convert).expect(0);
    let whole = tree(&folder.at("out"));
    kill_before(&folder, "0/_manifest.json");
    let input = folder.read("in/0.lcm");
    let tables = || tree(&folder.at("out")).keys().filter(|name| name.contains("part-")).count();
    let all = tables();
    folder.write("in/0.lcm", [b"damaged", &input[..]].concat());
    for mode in ["--overwrite", "--resume"] {
        let stop = ["--source-option", "on_damage=stop"];
        run_sluice(&folder, &[&convert[..4], &[mode], &stop].concat()).expect(1);
        assert_eq!(tables(), all, "{mode}");
    }
    folder.write("in/0.lcm", input);
    run_sluice(&folder, &convert).expect(0);
    assert_same_files(&tree(&folder.at("out")), &whole);
}

#[test]
fn a_batch_goes_on_without_inputs_that_cannot_be_opened() {
    let folder = folder();
    // It exists, but no user can read it.
    std::os::unix::fs::symlink("/proc/self/mem", folder.at("in/1a.lcm")).unwrap();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}.jsonl", "--keep-going"];
    let ran = run_sluice(&folder, &convert).expect(1).expect_stderr("in/1a.lcm");
    assert!(ran.stderr.contains("5 inputs done, 1 failed"), "{}", ran.stderr);
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in/*.lcm\"\n\
        [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"run/{stem}.jsonl\"\n";
    folder.write("p.toml", pipeline);
    let ran = run_sluice(&folder, &["run", "p.toml", "--keep-going"]).expect(1);
    assert!(ran.stderr.contains("5 inputs done, 1 failed"), "{}", ran.stderr);
    // Where nothing can be read, the reason is told.
    let alone = ["convert", "in/1a.lcm", "--to", "alone.jsonl"];
    run_sluice(&folder, &alone).expect(1).expect_stderr("cannot read in/1a.lcm");
}

#[test]
fn several_batches_share_a_folder() {
    let folder = folder();
    folder.write("out.lcm", "");
    run_sluice(&folder, &["convert", "in/0.lcm", "in/1.lcm", "--to", "out/{stem}.lcm"]).expect(0);
    let first = folder.read("out/0.lcm");
    run_sluice(&folder, &["convert", "in/2.lcm", "in/3.lcm", "--to", "out/{stem}.lcm"]).expect(0);
    folder.write("out/notes.txt", "mine");
    run_sluice(&folder, &["verify", "out"]).expect(0);
    let manifest = json(&folder.read("out/_manifest.json"));
    assert_eq!(manifest["units"].as_array().unwrap().len(), 4);
    assert_eq!(folder.read("out/0.lcm"), first);
    assert_eq!(manifest["units"][0]["files"][0]["path"], "0.lcm");
    assert!(manifest["units"][0]["inputs"][0]["blake3"].is_string());
}

#[test]
fn the_folder_of_each_input_is_checked_by_its_own_manifest() {
    let folder = folder();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}/", "--as", "lcm-log"];
    run_sluice(&folder, &convert).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
    let whole = tree(&folder.at("out"));
    folder.write("out/1/extra", "x");
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains("1: extra is not in"), "{text}");
    fs::remove_file(folder.at("out/1/extra")).unwrap();
    fs::remove_file(folder.at("out/2/_manifest.json")).unwrap();
    fs::remove_file(folder.at("out/3/part-00000.lcm")).unwrap();
    run_sluice(&folder, &[&convert[..], &["--resume"]].concat())
        .expect(0)
        .expect_stderr("2 inputs done, 3 done before");
    assert_same_files(&tree(&folder.at("out")), &whole);
}

#[test]
fn a_single_run_is_resumed_by_its_output_folder() {
    let folder = folder();
    let convert = ["convert", "in/0.lcm", "--to", "out/", "--as", "lcm-log", "--resume"];
    run_sluice(&folder, &convert).expect(0);
    let (whole, before) = (tree(&folder.at("out")), times(&folder, &["out", "out/_manifest.json"]));
    run_sluice(&folder, &convert).expect(0).expect_stderr("already done");
    assert_eq!(times(&folder, &["out", "out/_manifest.json"]), before);
    folder.write("out/part-00000.lcm", "cut");
    folder.write("out/.part-00000.lcm.4294967295-0.sluice-tmp", "left");
    run_sluice(&folder, &convert).expect(0);
    assert_same_files(&tree(&folder.at("out")), &whole);
    folder.write("in/0.lcm", folder.read("in/1.lcm"));
    run_sluice(&folder, &convert).expect(0);
    assert!(folder.read("out/part-00000.lcm") == folder.read("in/1.lcm"));
}

#[test]
fn a_single_output_file_is_written_again() {
    let folder = folder();
    folder.write("out.lcm", "old");
    run_sluice(&folder, &["convert", "in/0.lcm", "--to", "out.lcm", "--resume"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in/0.lcm"));
    let append = ["--resume", "--sink-option", "append=true"];
    run_sluice(&folder, &[&["convert", "in/1.lcm", "--to", "out.lcm"][..], &append].concat())
        .expect(1)
        .expect_stderr("without --resume");
}

#[test]
fn verify_reports_an_interrupted_batch() {
    let folder = folder();
    folder.write("batch.toml", BATCH);
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let whole = tree(&folder.at("out"));
    // As if killed after two units, while writing the record of the third.
    let manifest = json(&folder.read("out/_manifest.json"));
    let units = manifest["units"].as_array().unwrap();
    let lines: Vec<String> = units.iter().map(Value::to_string).collect();
    folder.write("out/_units.jsonl", format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..50]));
    for name in ["_manifest.json", "3.lcm.zst", "lines/3.jsonl", "4.lcm.zst", "lines/4.jsonl"] {
        fs::remove_file(folder.at(&format!("out/{name}"))).unwrap();
    }
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains("2 inputs recorded") && text.contains("--resume"), "{text}");
    run_sluice(&folder, &["verify", "out/lines/1.jsonl", "out/0.lcm.zst"]).expect(0);
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("3 inputs done, 2 done before");
    assert_same_files(&tree(&folder.at("out")), &whole);
}

#[test]
fn damaged_bytes_of_each_input_have_a_file_of_their_own() {
    let folder = folder_with_broken_log();
    let quarantine = STRICT.replace("\"stop\"", "\"quarantine\"");
    folder.write("bad.toml", &quarantine);
    run_sluice(&folder, &["check", "bad.toml"]).expect(2).expect_stderr("{stem}.quarantine");
    let own =
        quarantine.replace("\"quarantine\"", "\"quarantine\"\nquarantine = \"out/{stem}.bad\"");
    folder.write("bad.toml", own);
    run_sluice(&folder, &["run", "bad.toml"]).expect(3);
    assert_eq!(folder.read("out/2.bad"), b"stray");
    assert_eq!(tree(&folder.at("out")).len(), 7);
    run_sluice(&folder, &["run", "bad.toml", "--resume"]).expect(3).expect_stderr("5 done before");
}

#[test]
fn an_interrupt_keeps_the_events_of_a_pipe_and_resuming_does_the_rest() {
    let folder = folder();
    let parts =
        "[sinks.parts]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out/parts/{stem}/\"\n";
    folder.write("batch.toml", [BATCH, parts].concat());
    run_sluice(&folder, &["run", "batch.toml"]).expect(0);
    let (whole, slow) = (tree(&folder.at("out")), folder.read("in/2.lcm"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    fs::remove_file(folder.at("in/2.lcm")).unwrap();
    mknodat(CWD, folder.at("in/2.lcm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let run = ["run", "batch.toml", "--jobs", "1", "--report", "report.json"];
    let child = sluice(&folder).args(run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    // Opening blocks until the program reads this input.
    let mut pipe = OpenOptions::new().write(true).open(folder.at("in/2.lcm")).unwrap();
    pipe.write_all(&slow[..50_000]).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(130);
    ended.expect_stderr("3 inputs done, 2 not started").expect_stderr("with --resume continues");
    drop(pipe);
    let report = json(&folder.read("report.json"));
    assert_eq!(statuses(&report), ["done", "done", "done", "not started", "not started"]);
    assert_eq!((&report["interrupted"], &report["units"][2]["exit"]), (&true.into(), &3.into()));
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert_eq!(text.matches("stopped before the end").count(), 1, "{text}");
    assert!(text.contains("2 inputs are not done (2 not started), of 5 in all"), "{text}");
    for part in ["out/2.lcm.zst", "out/parts/2"] {
        let text = run_sluice(&folder, &["verify", part]).expect(1).text();
        assert_eq!(text.matches("stopped before the end").count(), 1, "{part}: {text}");
    }
    fs::remove_file(folder.at("in/2.lcm")).unwrap();
    folder.write("in/2.lcm", slow);
    run_sluice(&folder, &["run", "batch.toml", "--resume"])
        .expect(0)
        .expect_stderr("3 inputs done, 2 done before");
    assert_same_files(&tree(&folder.at("out")), &whole);
}

#[test]
fn failed_inputs_do_not_remove_the_folders_of_others() {
    let folder = folder();
    for n in 5..40 {
        let bytes = log(&drive(n, 5));
        let stray = if n % 2 == 0 { &b"stray"[..] } else { b"" };
        folder.write(&format!("in/{n}.lcm"), [&bytes[..], stray, &bytes].concat());
    }
    let deep = STRICT.replace("out/{stem}.lcm", "out/{ext}/deep/{stem}.lcm");
    folder.write("strict.toml", deep);
    let run = ["run", "strict.toml", "--keep-going", "--jobs", "8", "--report", "report.json"];
    run_sluice(&folder, &run).expect(1);
    let report = json(&folder.read("report.json"));
    for (n, unit) in report["units"].as_array().unwrap().iter().enumerate() {
        let stray = unit["error"].as_str().is_none_or(|error| error.contains("could not be read"));
        assert!(stray, "{n}: {unit}");
    }
}
