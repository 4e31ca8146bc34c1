//! The JSON log on standard error: every line of every command is a documented object. And `-v`,
//! which adds messages there and nothing to standard output.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::{COPY, Folder, ProgramOutput, drive, log, root, run_sluice, sluice};

/// Parses standard error; panics on a line that is not an object.
#[track_caller]
fn objects(stderr: &str) -> Vec<Value> {
    let object = |line: &str| -> Value {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in `{line}` of:\n{stderr}"));
        let levels = ["error", "warning", "info", "debug"];
        assert!(levels.iter().any(|level| value["level"] == *level), "{line}");
        assert!(value["kind"].is_string() && value["time"].is_string(), "{line}");
        value
    };
    stderr.lines().map(object).collect()
}

/// Runs a command with `--log-format json`, and returns its messages if it ended with this code.
#[track_caller]
fn log_records(folder: &Folder, arguments: &[&str], code: i32) -> Vec<Value> {
    let ran = run_sluice(folder, &[arguments, &["--log-format", "json"]].concat()).expect(code);
    objects(&ran.stderr)
}

#[track_caller]
fn only(records: &[Value], kind: &str) -> Value {
    let of_kind: Vec<&Value> = records.iter().filter(|line| line["kind"] == kind).collect();
    assert_eq!(of_kind.len(), 1, "{kind} in {records:#?}");
    of_kind[0].clone()
}

/// A folder with a log, a damaged log, and pipelines that are right and wrong.
fn folder() -> Folder {
    let (folder, whole) = (Folder::new(), log(&drive(3, 200)));
    folder.write("in.lcm", &whole);
    let mut torn = whole.clone();
    torn.drain(1000..1010);
    folder.write("torn.lcm", &torn);
    folder.write("copy.toml", COPY);
    folder.write("expect.toml", "[channels.NOWHERE]\n");
    folder.write(
        "wrong.toml",
        "[sources.a]\nplugin = \"lcm-lok\"\n[sinks.b]\nplugin = \"null\"\nfrom = \"c\"\nx = 1\n",
    );
    folder
}

#[test]
fn a_log_that_cannot_be_checked_is_a_field_and_named_once() {
    let folder = folder();
    let check = ["check-log", "nowhere.lcm", "--expect", "expect.toml"];
    let failure = only(&log_records(&folder, &check, 1), "failure");
    assert_eq!(failure["file"], "nowhere.lcm");
    let message = failure["message"].as_str().unwrap();
    assert_eq!(message.matches("nowhere.lcm").count(), 1, "{message}");
}

#[test]
fn every_line_of_every_command_is_an_object() {
    let folder = folder();
    let set = format!("DIR={}", folder.path().display());
    let commands: &[(&[&str], i32)] = &[
        (&["convert", "in.lcm", "--to", "a.lcm"], 0),
        (&["-v", "convert", "in.lcm", "--to", "b.parquet"], 0),
        (&["convert", "in.lcm", "--to", "a.lcm"], 1),
        (&["convert", "torn.lcm", "--to", "c.jsonl", "--progress", "json"], 3),
        (&["convert", "in.lcm", "torn.lcm", "--to", "out/{stem}.lcm", "-v"], 3),
        (&["convert", "in.lcm", "torn.lcm", "--to", "out/{stem}.lcm", "--resume", "-v"], 3),
        (&["convert", "missing.lcm", "--to", "d.lcm"], 1),
        (&["convert", "in.lcm"], 2),
        (&["convert", "in.lcm", "--to", "x.lcm", "--chanel", "A"], 2),
        (&["frobnicate"], 2),
        (&[], 2),
        (&["run", "copy.toml", "--set", &set, "--set", "NONE=1", "--overwrite"], 0),
        (&["run", "wrong.toml"], 2),
        (&["run", "no-such-pipeline"], 2),
        (&["check", "wrong.toml", "copy.toml"], 2),
        (&["info", "torn.lcm", "in.lcm"], 3),
        (&["cat", "torn.lcm", "-v"], 3),
        (&["cat", "missing.lcm"], 1),
        (&["verify", "a.lcm", "missing.lcm"], 1),
        (&["types", "wrong.toml"], 2),
        (&["plugins", "parqet"], 2),
        (&["merge-manifests", "."], 1),
        (&["check-log", "in.lcm", "missing.lcm", "--expect", "expect.toml"], 1),
        (&["record", "file://in.lcm", "--to", "unmet.lcm", "--expect", "expect.toml"], 4),
        (&["record", "file://in.lcm", "--to", "rec.lcm", "--verbose"], 0),
        (&["new", "source", "my-log", "--to", "crate"], 0),
    ];
    let mut kinds = BTreeSet::new();
    for (arguments, code) in commands {
        let arguments = [arguments, &["--log-format", "json"][..]].concat();
        let ran = run_sluice(&folder, &arguments);
        assert_eq!(ran.code, Some(*code), "{arguments:?}: {}", ran.stderr);
        let lines = objects(&ran.stderr);
        // Their findings are data.
        let finds = ["info", "verify", "check-log"].contains(&arguments[0]);
        assert!(*code == 0 || finds || !lines.is_empty(), "{arguments:?} printed nothing");
        kinds.extend(lines.iter().map(|line| line["kind"].as_str().unwrap().to_owned()));
    }
    let documented = fs::read_to_string(root().join("docs/log.md")).unwrap();
    for kind in &kinds {
        assert!(documented.contains(&format!("| `{kind}` |")), "{kind} is not documented");
    }
    for kind in ["damage", "mistake", "usage", "failure", "progress", "summary", "plan", "exit"] {
        assert!(kinds.contains(kind), "no {kind} among {kinds:?}");
    }
}

#[test]
fn mistakes_damage_and_failures_say_where() {
    let folder = folder();
    let mistakes = log_records(&folder, &["check", "wrong.toml"], 2);
    let plugin = mistakes.iter().find(|line| line["line"] == 2).unwrap();
    assert_eq!((&plugin["kind"], &plugin["column"]), (&"mistake".into(), &10.into()));
    assert_eq!(plugin["file"], "wrong.toml");
    assert!(plugin["hint"].as_str().unwrap().contains("lcm-log"), "{plugin}");
    let damage =
        only(&log_records(&folder, &["convert", "torn.lcm", "--to", "a.lcm"], 3), "damage");
    assert_eq!((&damage["input"], &damage["node"]), (&"torn.lcm".into(), &"log".into()));
    assert!(damage["offset"].as_u64().unwrap() <= 1000 && damage["length"].is_u64(), "{damage}");
    let failure = only(&log_records(&folder, &["cat", "missing\u{202e}.lcm"], 1), "failure");
    assert_eq!(failure["file"], "missing\u{202e}.lcm");
    let usage = only(
        &log_records(&folder, &["convert", "in.lcm", "--to", "x.lcm", "--chanel", "A"], 2),
        "usage",
    );
    assert!(usage["message"].as_str().unwrap().contains("--chanel"), "{usage}");
    assert!(usage["hint"].as_str().unwrap().contains("--channel"), "{usage}");
}

#[test]
fn programs_speak_in_objects_too() {
    let folder = folder();
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.out]\nplugin = \"exec\"\nfrom = \"log\"\ncommand = [\"sh\", \"-c\", \"echo \
        'a \\\"word\\\"' >&2; cat > /dev/null\"]\n";
    folder.write("exec.toml", pipeline);
    let records = log_records(&folder, &["run", "exec.toml", "--allow-exec"], 0);
    let program = only(&records, "program");
    assert_eq!((&program["node"], &program["line"]), (&"out".into(), &"a \"word\"".into()));
}

#[test]
fn a_run_that_is_stopped_speaks_in_objects() {
    let folder = folder();
    let mut child = sluice(&folder)
        .args(["convert", "-", "--from", "lcm-log", "--to", "a.lcm", "--log-format", "json", "-v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let pid = Pid::from_child(&child);
    // When the plan is printed, signal handlers are installed.
    let mut text = Vec::new();
    while !text.contains(&b'\n') {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    kill_process(pid, Signal::INT).unwrap();
    // Wait for the end of the input before sending the second signal.
    let mut rest = Vec::new();
    while !String::from_utf8_lossy(&rest).contains("stopping") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        rest.push(byte[0]);
    }
    drop(input);
    stderr.read_to_end(&mut rest).unwrap();
    child.wait().unwrap();
    text.extend(rest);
    let lines = objects(&String::from_utf8(text).unwrap());
    assert_eq!(lines.first().unwrap()["kind"], "plan");
    assert_eq!(lines.last().unwrap()["kind"], "exit");
}

#[test]
fn saying_more_changes_nothing_on_standard_output() {
    let folder = folder();
    let commands: &[&[&str]] = &[
        &["cat", "in.lcm", "--limit", "20"],
        &["cat", "torn.lcm", "--json"],
        &["info", "in.lcm", "torn.lcm"],
        &["info", "in.lcm", "--json"],
        &["convert", "in.lcm", "--to", "-", "--as", "jsonl"],
        &["plan", "quickstart"],
        &["plugins"],
    ];
    for command in commands {
        let plain = run_sluice(&folder, command);
        let verbose = run_sluice(&folder, &[command, &["-v"][..]].concat());
        assert_eq!((plain.code, plain.text()), (verbose.code, verbose.text()), "{command:?}");
        let json = run_sluice(&folder, &[command, &["--log-format", "json"][..]].concat());
        assert_eq!(plain.text(), json.text(), "{command:?}");
        assert!(verbose.stderr.contains("exit code"), "{command:?}: {}", verbose.stderr);
    }
}

#[test]
fn verbose_prints_plan_inputs_outputs_and_times() {
    let folder = folder();
    folder.write("more.lcm", log(&drive(4, 50)));
    let ran =
        run_sluice(&folder, &["convert", "in.lcm", "more.lcm", "--to", "both.lcm", "-v"]).expect(0);
    let order = [
        "log: 2 inputs in 2 pieces",
        "log: reading in.lcm",
        "log: read in.lcm: 200 events in ",
        "log: reading more.lcm",
        "log: read more.lcm: 50 events in ",
        "publishing the outputs",
        "wrote both.lcm: 250 rows",
        "250 events; ",
        "exit code 0 after ",
    ];
    let mut rest = ran.stderr.as_str();
    for words in order {
        let at = rest
            .find(words)
            .unwrap_or_else(|| panic!("no `{words}` in its place:\n{}", ran.stderr));
        rest = &rest[at..];
    }
    let quiet = ProgramOutput::from_output(
        sluice(&folder).args(["info", "in.lcm", "-q", "-v"]).output().unwrap(),
    );
    assert_eq!(quiet.code, Some(2));
}

#[test]
fn a_name_that_matched_nothing_is_an_object_of_its_kind() {
    let folder = folder();
    let convert = ["convert", "in.lcm", "--to", "a.lcm", "-c", "AA", "-c", "A"];
    let unmatched = only(&log_records(&folder, &convert, 0), "unmatched");
    assert_eq!((&unmatched["name"], &unmatched["name_kind"]), (&"AA".into(), &"channel".into()));
    assert_eq!(unmatched["level"], "warning");
    let documented = fs::read_to_string(root().join("docs/log.md")).unwrap();
    let line = documented.lines().find(|line| line.starts_with("| `unmatched` |")).unwrap();
    let common = ["time", "level", "kind"];
    let keys = unmatched.as_object().unwrap().keys();
    for key in keys.filter(|key| !common.contains(&key.as_str())) {
        assert!(line.contains(&format!("`{key}`")), "{key} is not documented");
    }
}
