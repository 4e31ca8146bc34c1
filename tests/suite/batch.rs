//! Batches: outputs named after inputs, one run per input, and resuming an interrupted batch.

mod failures;
mod killed;
mod links;
pub(crate) mod records;
mod resume;
mod unreached;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::kit::{Folder, decompressed, drive, log, run_sluice};
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
fn outputs_that_the_next_run_would_read_cannot_be_resumed() {
    let folder = folder();
    let convert = ["convert", "in/*.lcm", "--to", "in/{stem}-x.lcm"];
    run_sluice(&folder, &convert).expect(0);
    let before = tree(&folder.at("in"));
    for again in ["--resume", "--overwrite"] {
        run_sluice(&folder, &[&convert[..], &[again]].concat())
            .expect(1)
            .expect_stderr("leave outputs of an earlier run out of the inputs");
    }
    assert_same_files(&tree(&folder.at("in")), &before);
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
        .expect_stderr("`all.jsonl`");
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
fn the_advice_for_outputs_at_the_same_place_is_for_their_template() {
    let folder = folder();
    for to in ["out/{parent}.jsonl", "out/one{ext}.jsonl"] {
        let refused = run_sluice(&folder, &["convert", "in/0.lcm", "in/1.lcm", "--to", to])
            .expect(1)
            .expect_stderr("put `{name}` into its path");
        assert!(!refused.stderr.contains("{stem}"), "{}", refused.stderr);
    }
}
