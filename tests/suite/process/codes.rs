//! Exit codes: 0 success, 1 failed, 2 invalid command line, 3 success with losses.

use crate::kit::{Folder, drive, log, run_sluice};

const PIPELINE: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "${INPUT}"
[sinks.out]
plugin = "lcm-log"
from = "log"
path = "out.lcm"
"#;

/// A folder with a clean log, a damaged one, and a pipeline.
fn folder() -> Folder {
    let folder = Folder::new();
    let clean = log(&drive(1, 50));
    folder.write("bad.lcm", [&clean[..], b"stray", &clean].concat());
    folder.write("clean.lcm", clean);
    folder.write("copy.toml", PIPELINE);
    folder
}

fn assert_codes(cases: &[(&[&str], i32)]) {
    for (arguments, code) in cases {
        eprintln!("sluice {arguments:?}");
        run_sluice(&folder(), arguments).expect(*code);
    }
}

#[test]
fn nothing_lost_is_0() {
    assert_codes(&[
        (&["run", "copy.toml", "--set", "INPUT=clean.lcm"], 0),
        (&["convert", "clean.lcm", "--to", "out.lcm"], 0),
        (&["check", "copy.toml", "--set", "INPUT=nowhere.lcm"], 0),
        (&["plan", "copy.toml", "--set", "INPUT=clean.lcm"], 0),
        (&["graph", "copy.toml", "--set", "INPUT=nowhere.lcm"], 0),
        (&["graph", "copy.toml", "--set", "INPUT=nowhere.lcm", "--format", "dot"], 0),
        (&["info", "clean.lcm"], 0),
        (&["cat", "clean.lcm"], 0),
        (&["verify", "clean.lcm"], 0),
        (&["plugins"], 0),
        (&["plugins", "lcm-log"], 0),
        (&["schema"], 0),
        (&["completions", "bash"], 0),
        (&["man"], 0),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["convert", "--help"], 0),
    ]);
}

#[test]
fn failures_exit_with_1() {
    assert_codes(&[
        (&["run", "copy.toml", "--set", "INPUT=nowhere.lcm"], 1),
        (&["convert", "nowhere.lcm", "--to", "out.lcm"], 1),
        (&["convert", "clean.lcm", "--to", "bad.lcm"], 1),
        (&["info", "nowhere.lcm"], 1),
        (&["cat", "nowhere.lcm"], 1),
        (&["verify", "nowhere.lcm"], 1),
        (&["plan", "copy.toml", "--set", "INPUT=nowhere.lcm"], 1),
    ]);
}

#[test]
fn wrong_use_is_2() {
    assert_codes(&[
        (&[], 2),
        (&["dance"], 2),
        (&["run"], 2),
        (&["run", "nowhere.toml"], 2),
        (&["run", "copy.toml"], 2),
        (&["check", "copy.toml"], 2),
        (&["check", "nowhere.toml"], 2),
        (&["run", "clean.lcm"], 2),
        (&["convert", "clean.lcm"], 2),
        (&["convert", "clean.lcm", "--to", "out.unheard-of"], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--from", "unheard-of"], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--as", "unheard-of"], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--start", "noon"], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--channel", "re:("], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--memory", "lots"], 2),
        (&["convert", "clean.lcm", "--to", "out.lcm", "--jobs", "many"], 2),
        (&["convert", "copy.toml", "--to", "out.lcm"], 2),
        (&["cat"], 2),
        (&["cat", "clean.lcm", "--limit", "few"], 2),
        (&["plugins", "unheard-of"], 2),
        (&["graph", "copy.toml", "--set", "INPUT=x", "--format", "oil"], 2),
        (&["hub", "--listen", "7792"], 2),
        (&["record", "tcpq://127.0.0.1:9", "--interface", "lo", "--to", "out.lcm"], 2),
        (&["play", "clean.lcm", "--to", "tcpq://127.0.0.1:9", "--interface", "lo"], 2),
        (&["spy", "tcpq://127.0.0.1:9", "--interface", "lo"], 2),
        (&["play", "clean.lcm", "--max-bandwidth", "0"], 2),
        (&["cat", "clean.lcm", "--describe", "nowhere.toml"], 2),
        (&["verify", "clean.lcm", "--source-option", "bogus=1"], 2),
        (&["verify", "nowhere.lcm", "clean.lcm", "--source-option", "bogus=1"], 2),
        (&["verify", "clean.lcm", "--from", "unheard-of"], 2),
        (&["verify", ".", "--from", "unheard-of"], 2),
        (&["verify", ".", "--from", "lcm-log"], 2),
        (&["verify", ".", "--source-option", "bogus=1"], 2),
        (&["check-log", "clean.lcm", "--expect", "any.toml", "--to", "x.toml"], 2),
        (&["check-log", "clean.lcm", "--expect", "rules.toml", "--source-option", "bogus=1"], 2),
        (&["report", "clean.lcm", "clean.lcm", "--json", "--keep-going", "--shard", "1/2"], 2),
    ]);
}

#[test]
fn losses_that_were_reported_are_3() {
    assert_codes(&[
        (&["run", "copy.toml", "--set", "INPUT=bad.lcm"], 3),
        (&["convert", "bad.lcm", "--to", "out.lcm"], 3),
        (&["info", "bad.lcm"], 3),
        (&["info", "clean.lcm", "bad.lcm"], 3),
        (&["cat", "bad.lcm"], 3),
        (&["verify", "bad.lcm"], 3),
    ]);
}

#[test]
fn messages_go_to_standard_error_and_data_to_standard_output() {
    let folder = folder();
    let quiet = run_sluice(&folder, &["-q", "convert", "clean.lcm", "--to", "out.lcm"]).expect(0);
    assert_eq!((quiet.text(), quiet.stderr), (String::new(), String::new()));
    let output = run_sluice(&folder, &["convert", "clean.lcm", "--to", "out2.lcm"]).expect(0);
    assert_eq!(output.text(), "");
    assert!(output.stderr.contains("out2.lcm"), "{}", output.stderr);
    let cat = run_sluice(&folder, &["cat", "clean.lcm"]).expect(0);
    assert_eq!((cat.text().lines().count(), cat.stderr), (50, String::new()));
}

#[test]
fn an_address_that_is_none_is_named() {
    for address in ["7792", "127.0.0.1:70000", "127.0.0.1:", ":7700"] {
        let refused = run_sluice(&folder(), &["hub", "--listen", address]).expect(2);
        refused.expect_stderr(address).expect_stderr("--listen");
    }
}
