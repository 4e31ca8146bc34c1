//! Batches whose inputs fail, are damaged, or are interrupted.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use super::{BATCH, assert_same_files, folder, json, statuses, tree};
use crate::kit::{Folder, ProgramOutput, drive, log, run_sluice, sluice};
use crate::report_shape::ReportShape;

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
    let error = report["error"].as_str().unwrap();
    assert!(error.starts_with("in/2.lcm failed: in/2.lcm: "), "{error}");
    let written: Vec<String> = tree(&folder.at("out")).into_keys().collect();
    assert_eq!(written, ["0.lcm", "1.lcm", "_manifest.json"]);
    folder.write("in/2.lcm", log(&drive(2, 20)));
    run_sluice(&folder, &["run", "strict.toml", "--resume"])
        .expect(0)
        .expect_stderr("2 done before");
    assert_eq!(tree(&folder.at("out")).len(), 6);
}

#[test]
fn the_report_of_a_batch_has_what_was_read_of_failed_inputs() {
    let folder = folder_with_broken_log();
    let run = ["run", "strict.toml", "--keep-going", "--report", "report.json"];
    let output = run_sluice(&folder, &run).expect(1);
    let report = json(&folder.read("report.json"));
    let damage = report["damage"].as_array().unwrap();
    let [input, length] = ["input", "length"].map(|key| damage[0][key].clone());
    assert_eq!((damage.len(), input, length), (1, "in/2.lcm".into(), 5.into()), "{report}");
    assert_eq!((&report["damaged_ranges"], &report["exit"]), (&1.into(), &1.into()));
    assert_eq!(report["sources"]["log"]["damaged_bytes"], 5);
    // The failure says it already.
    assert_eq!(output.stderr.matches("5 bytes at byte").count(), 1, "{}", output.stderr);
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
fn a_batch_goes_on_without_inputs_that_cannot_be_opened() {
    let folder = folder();
    // It exists, but no user can read it.
    symlink("/proc/self/mem", folder.at("in/1a.lcm")).unwrap();
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
    assert_eq!(report["error"], "interrupted with inputs left");
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

#[test]
fn inputs_that_are_missing_or_of_no_known_format_fail_alone_if_others_are_to_go_on() {
    let folder = Folder::new();
    folder.write("a.00", log(&drive(1, 20)));
    folder.write("b.00", "");
    folder.write("c.00", log(&drive(3, 30)));
    run_sluice(&folder, &["convert", "?.00", "--to", "o/{name}.lcm"])
        .expect(2)
        .expect_stderr("cannot detect the format of b.00");
    let convert = |files: &[&str], more: &[&str]| {
        let to = ["--to", "o/{index}.lcm", "--report", "report.json"];
        run_sluice(&folder, &[&["convert"], files, &to[..], more].concat())
    };
    convert(&["a.00", "lost.00", "c.00"], &[]).expect(1).expect_stderr("cannot open lost.00");
    assert!(!folder.at("o").exists());
    let files = ["./a.00", "lost.00", "[bc].00"];
    convert(&files, &["--keep-going", "--dry-run"]).expect(0);
    convert(&files, &["--keep-going"])
        .expect(1)
        .expect_stderr("b.00 failed: cannot detect the format of b.00")
        .expect_stderr("lost.00 failed: cannot open lost.00");
    assert_eq!(statuses(&json(&folder.read("report.json"))), ["done", "failed", "failed", "done"]);
    let written: Vec<String> = tree(&folder.at("o")).into_keys().collect();
    assert_eq!(written, ["00000.lcm", "00003.lcm", "_manifest.json"]);
    for name in ["b.00", "lost.00"] {
        folder.write(name, log(&drive(2, 20)));
    }
    convert(&files, &["--keep-going", "--resume"]).expect(0).expect_stderr("2 done before");
    assert_eq!(tree(&folder.at("o")).len(), 5);
    // Without any that can be read, or an output for each, there is nothing to go on with.
    folder.write("d.00", "");
    convert(&["d.00", "lost.01"], &["--keep-going", "--overwrite"]).expect(1);
    run_sluice(&folder, &["convert", "a.00", "d.00", "--to", "one.lcm", "--keep-going"]).expect(2);
    // What only its name tells is not read as the others are.
    folder.write("e.jsonl", "");
    convert(&["a.00", "e.jsonl"], &["--keep-going", "--overwrite"])
        .expect(2)
        .expect_stderr("different formats");
    // Also of a given format.
    convert(&["lost.01", "a.00"], &["--from", "lcm-log", "--keep-going", "--overwrite"])
        .expect(1)
        .expect_stderr("lost.01 failed: cannot open lost.01");
    assert_eq!(statuses(&json(&folder.read("report.json"))), ["failed", "done"]);
}

#[test]
fn a_link_to_nothing_that_a_glob_matches_is_one_failed_input() {
    let folder = folder();
    symlink("nowhere", folder.at("in/2a.lcm")).unwrap();
    let failed = "in/2a.lcm failed: cannot open in/2a.lcm: no such file or folder";
    let expected = ["done", "done", "done", "failed", "done", "done"];
    folder.write("batch.toml", BATCH);
    let from = ["--from", "lcm-log"];
    let convert = ["convert", "in/*.lcm", "--to", "converted/{stem}.lcm"];
    for verb in [
        &convert[..],
        &[&convert[..], &from, &["--overwrite"]].concat(),
        &["run", "batch.toml"],
        &["report", "in/*.lcm", "--to", "pages/{stem}.json"],
    ] {
        let going = [verb, &["--keep-going", "--report", "report.json"]].concat();
        let plan = run_sluice(&folder, &[&going[..], &["--dry-run"]].concat()).expect(0).text();
        assert!(plan.contains("fails: cannot open in/2a.lcm"), "{plan}");
        run_sluice(&folder, &going).expect(1).expect_stderr(failed);
        assert_eq!(statuses(&json(&folder.read("report.json"))), expected, "{verb:?}");
    }
    for (made, count) in [("converted", 6), ("pages", 6)] {
        assert_eq!(tree(&folder.at(made)).len(), count, "{made}");
    }
    // Without it, nothing begins.
    run_sluice(&folder, &["report", "in/*.lcm", "--to", "others/{stem}.json"])
        .expect(1)
        .expect_stderr("cannot open in/2a.lcm");
    assert!(!folder.at("others").exists());
}

#[test]
fn globs_that_match_nothing_have_no_outputs_and_hide_no_input() {
    let folder = folder();
    let inputs = ["convert", "a/*.lcm", "b/*.lcm", "in/1.lcm", "--keep-going"];
    let report = ["--report", "report.json"];
    let to = ["--to", "out/{stem}.lcm"];
    run_sluice(&folder, &[&inputs[..], &to, &report].concat()).expect(1);
    let expected = ["failed", "failed", "done"];
    assert_eq!(statuses(&json(&folder.read("report.json"))), expected);
    let before = folder.read("in/1.lcm");
    let onto = ["--to", "again/{stem}.lcm", "--report", "in/1.lcm"];
    run_sluice(&folder, &[&inputs[..], &onto].concat())
        .expect(2)
        .expect_stderr("the report would replace an input");
    assert!(folder.read("in/1.lcm") == before && !folder.at("again").exists());
}

#[test]
fn globs_of_objects_that_cannot_be_listed_have_no_outputs() {
    let folder = folder();
    // This program reads no such addresses.
    let inputs = ["convert", "s3://a/*.lcm", "s3://b/*.lcm", "in/1.lcm", "--keep-going"];
    let to = ["--to", "out/{stem}.lcm", "--report", "report.json"];
    run_sluice(&folder, &[&inputs[..], &to].concat()).expect(1);
    let expected = ["failed", "failed", "done"];
    assert_eq!(statuses(&json(&folder.read("report.json"))), expected);
}

#[test]
fn run_goes_on_without_inputs_of_its_list_that_are_missing() {
    let folder = folder();
    let paths = "path = [\"in/1.lcm\", \"in/lost.lcm\", \"none/*.lcm\", \"in/[34].lcm\"]";
    folder.write("batch.toml", BATCH.replace("path = \"in/*.lcm\"", paths));
    run_sluice(&folder, &["run", "batch.toml"]).expect(1).expect_stderr("cannot open in/lost.lcm");
    assert!(!folder.at("out").exists());
    let run = ["run", "batch.toml", "--keep-going", "--report", "report.json"];
    run_sluice(&folder, &run)
        .expect(1)
        .expect_stderr("in/lost.lcm failed: cannot open in/lost.lcm")
        .expect_stderr("none/*.lcm failed: no file matches `none/*.lcm`");
    let report = json(&folder.read("report.json"));
    assert_eq!(statuses(&report), ["done", "failed", "failed", "done", "done"]);
    fs::copy(folder.at("in/2.lcm"), folder.at("in/lost.lcm")).unwrap();
    run_sluice(&folder, &[&run[..], &["--resume"]].concat())
        .expect(1)
        .expect_stderr("1 input done, 3 done before, 1 failed");
}

#[test]
fn report_goes_on_without_logs_that_are_missing_or_of_no_known_format() {
    let folder = Folder::new();
    folder.write("a.00", log(&drive(1, 20)));
    folder.write("b.00", "");
    folder.write("c.00", log(&drive(3, 30)));
    let report = |more: &[&str]| {
        run_sluice(&folder, &[&["report", "[ab].00", "lost.00", "c.00"], more].concat())
    };
    report(&["--to", "o/{name}.html"]).expect(1).expect_stderr("cannot open lost.00");
    report(&["--json"]).expect(1).expect_stderr("cannot open lost.00");
    assert!(!folder.at("o").exists());
    report(&["--to", "o/{name}.html", "--keep-going"])
        .expect(1)
        .expect_stderr("b.00 failed: cannot detect the format of b.00")
        .expect_stderr("lost.00 failed: cannot open lost.00")
        .expect_stderr("2 inputs done, 2 failed");
    let made: Vec<String> = tree(&folder.at("o")).into_keys().collect();
    assert_eq!(made, ["_manifest.json", "a.00.html", "c.00.html"]);
    let lines = report(&["--json", "--keep-going"])
        .expect(1)
        .expect_stderr("cannot detect the format of b.00")
        .expect_stderr("cannot open lost.00");
    assert_eq!(lines.text().lines().count(), 2);
    // One page of all logs needs them all, and mistakes are those of the command.
    report(&["--to", "all.html", "--keep-going"]).expect(1).expect_stderr("cannot open lost.00");
    let wrong = report(&["--json", "--keep-going", "--where", "x >"]).expect(2);
    assert_eq!(wrong.stderr.matches("--where").count(), 1, "{}", wrong.stderr);
}

#[test]
fn what_is_no_failure_of_an_input_ends_a_batch_that_is_to_go_on() {
    let folder = folder();
    folder.write("in/odd", "");
    let convert = ["convert", "in/*", "--keep-going", "--to"];
    for wrong in [&["out/{stem}.unknown"][..], &["out/{stem}.lcm", "--as", "unheard-of"]] {
        let ended = run_sluice(&folder, &[&convert[..], wrong].concat()).expect(2);
        assert_eq!(ended.stderr.matches("error:").count(), 1, "{}", ended.stderr);
        assert!(!ended.stderr.contains("in/odd"), "{}", ended.stderr);
    }
    let printed = ["out/{stem}.lcm", "--print-pipeline"];
    run_sluice(&folder, &[&convert[..], &printed].concat())
        .expect(2)
        .expect_stderr("cannot detect the format of in/odd");
}
