//! Resuming batches and single runs.

use std::fs;
use std::time::SystemTime;

use serde_json::Value;

use super::{BATCH, assert_same_files, folder, json, tree};
use crate::kit::{Folder, run_sluice};

fn times(folder: &Folder, names: &[&str]) -> Vec<SystemTime> {
    names.iter().map(|name| fs::metadata(folder.at(name)).unwrap().modified().unwrap()).collect()
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
fn a_run_is_resumed_however_its_files_are_named_from_their_folder() {
    const NOTE: &str = "resume: another pipeline made the outputs";
    let folder = folder();
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in/*.lcm\"\n\
        [sinks.one]\nplugin = \"parquet\"\nfrom = \"log\"\npath = \"out/{stem}.parquet\"\n";
    folder.write("rel.toml", pipeline);
    run_sluice(&folder, &["run", "rel.toml"]).expect(0);
    let whole = tree(&folder.at("out"));
    let resume = |name: &str| run_sluice(&folder, &["run", name, "--resume"]).expect(0);
    for name in ["./rel.toml", "rel.toml", ".//rel.toml"] {
        resume(name).expect_stderr("5 done before");
    }
    assert_same_files(&tree(&folder.at("out")), &whole);
    let convert = |from: &str, to: &str| {
        run_sluice(&folder, &["convert", from, "--to", to, "--resume"]).expect(0)
    };
    convert("in/*.lcm", "zz/{stem}.lcm.zst");
    convert("./in/*.lcm", "./zz//{stem}.lcm.zst").expect_stderr("5 done before");
    convert("in/1.lcm", "zz1/");
    convert("./in/1.lcm", "./zz1/").expect_stderr("already done");
    // An absolute path is another pipeline, and a note says so.
    let absolute = folder.at("rel.toml").display().to_string();
    resume(&absolute).expect_stderr(NOTE).expect_stderr("its types");
    assert!(!resume(&absolute).stderr.contains(NOTE));
    convert(&folder.at("in/1.lcm").display().to_string(), "zz1/").expect_stderr(NOTE);
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
