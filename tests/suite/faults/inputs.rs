//! Inputs that are not logs, and unreadable inputs among readable ones.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use sluice_model::{PluginKind, Registry};

use crate::kit::{Folder, ProgramOutput, drive, log, report_skip, run_sluice, sluice};

/// Every source that reads files, and its required options.
const SOURCES: [(&str, &str); 12] = [
    ("lcm-log", ""),
    ("mcap", ""),
    ("ros1-bag", ""),
    ("ros2-db3", ""),
    ("vel", ""),
    ("camlog", ""),
    ("orca", ""),
    ("parquet", ""),
    ("archive", ""),
    ("jsonl", ""),
    ("csv", "columns = [\"t\", \"x\"]\ntypes = { x = \"text\" }"),
    (
        "records",
        "sync = \"A55A\"\nfields = \
         [{ name = \"t\", type = \"u64\", role = \"time\", unit = \"us\" }]",
    ),
];

/// Sources not tested, and why.
const EXCEPTIONS: [(&str, &str); 5] = [
    ("demo", "it makes its events up"),
    ("exec", "its program reads, not the source"),
    ("lcm-udp", "it reads from a network"),
    ("lerobot", "it reads folders; its own tests damage their files"),
    ("rosbag2", "it reads folders, whose files the sources `mcap` and `ros2-db3` read"),
];

#[test]
fn every_source_is_tried_or_there_is_a_reason_why_not() {
    let names = SOURCES.iter().map(|(name, _)| *name);
    let tried: BTreeSet<&str> = names.chain(EXCEPTIONS.map(|(name, _)| name)).collect();
    assert_eq!(tried, Registry::linked().names(PluginKind::Source).into_iter().collect());
}

/// Reads an input with a source, replacing the previous output.
fn read_by(folder: &Folder, (source, options): (&str, &str), input: &str) -> ProgramOutput {
    let text = format!(
        "[sources.log]\nplugin = \"{source}\"\npath = \"{input}\"\n{options}\n\
         [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"out.jsonl\"\n"
    );
    folder.write("run.toml", text);
    run_sluice(folder, &["run", "run.toml", "--overwrite"])
}

#[test]
fn inputs_that_cannot_be_opened_are_named_with_the_reason() {
    let folder = Folder::new();
    fs::create_dir(folder.at("folder")).unwrap();
    symlink("nowhere", folder.at("dangling")).unwrap();
    symlink("around", folder.at("round")).unwrap();
    symlink("round", folder.at("around")).unwrap();
    let _socket = UnixListener::bind(folder.at("socket")).unwrap();
    folder.write("run.toml", "");
    let before = folder.names();
    for source in SOURCES {
        for input in ["folder", "dangling", "round", "socket"] {
            read_by(&folder, source, input).expect(1).expect_stderr(input);
            assert_eq!(folder.names(), before, "{source:?} {input}");
        }
    }
}

#[test]
fn virtual_files_are_read_like_other_files() {
    let folder = Folder::new();
    for source in SOURCES {
        // The system reports their length as 0.
        for input in ["/proc/self/status", "/proc/self/limits", "/proc/self/mem"] {
            let output = read_by(&folder, source, input);
            assert!(matches!(output.code, Some(1 | 3)), "{source:?} {input}: {:?}", output.code);
        }
    }
}

#[test]
fn names_that_are_no_text_are_inputs_like_others() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    let logs = [1, 2, 3].map(|n| log(&drive(n, 30)));
    for (name, bytes) in [&b"a.lcm"[..], b"b\xfe.lcm", b"b\xff.lcm"].into_iter().zip(&logs) {
        fs::write(folder.at("in").join(OsStr::from_bytes(name)), bytes).unwrap();
    }
    run_sluice(&folder, &["convert", "in/*.lcm", "--to", "all.lcm"]).expect(0);
    assert!(folder.read("all.lcm") == logs.concat());
    run_sluice(&folder, &["convert", "in/b?.lcm", "--to", "some.lcm"]).expect(0);
    assert!(folder.read("some.lcm") == logs[1..].concat());
    // Formats that contain input names escape them.
    for to in ["table.parquet", "tables/"] {
        let convert = ["convert", "in/*.lcm", "--to", to, "--report", "report.json"];
        run_sluice(&folder, &[&convert[..], &["--overwrite"]].concat()).expect(0);
    }
    let manifest = String::from_utf8(folder.read("tables/_manifest.json")).unwrap();
    assert!(manifest.contains(r"in/b\\xff.lcm"), "{manifest}");
    run_sluice(&folder, &["convert", "in/*.lcm", "--to", "tables/", "--resume"])
        .expect(0)
        .expect_stderr("already done");
    // Outputs or options named after them are not possible; none of them is skipped silently, and
    // the others are converted.
    run_sluice(&folder, &["convert", "in/*.lcm", "--to", "out/{stem}.lcm", "--keep-going"])
        .expect(1)
        .expect_stderr("1 input done, 2 failed")
        .expect_stderr(r"in/b\xff.lcm failed")
        .expect_stderr("not UTF-8");
    assert!(folder.read("out/a.lcm") == logs[0]);
    // Also as a shell expands the glob.
    for (verb, to) in [("convert", "arguments/{stem}.lcm"), ("report", "arguments/{stem}.html")] {
        let run = |more: &[&str]| {
            let mut command = sluice(&folder);
            command.args([verb, "in/a.lcm"]).arg(OsStr::from_bytes(b"in/b\xff.lcm"));
            let output = command.args(["--to", to]).args(more).output().unwrap();
            ProgramOutput::from_output(output)
        };
        run(&[]).expect(2).expect_stderr("not UTF-8");
        assert!(!folder.at("arguments").exists() || verb == "report");
        run(&["--keep-going"])
            .expect(1)
            .expect_stderr("1 input done, 1 failed")
            .expect_stderr(r"in/b\xff.lcm failed");
    }
    assert!(folder.read("arguments/a.lcm") == logs[0]);
    // Another batch does not take those that are left for gone.
    folder.write("other.lcm", &logs[0]);
    run_sluice(&folder, &["convert", "other.lcm", "--to", "out/{stem}.lcm"]).expect(0);
    let verified = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(verified.contains("2 inputs are not done (2 failed)"), "{verified}");
    assert!(verified.contains(r"in/b\xff.lcm: failed"), "{verified}");
    // Also if such a name comes first, and in the parts of a batch.
    fs::rename(folder.at("in/a.lcm"), folder.at("in/c.lcm")).unwrap();
    let batch = ["convert", "in/*.lcm", "--to", "more/{stem}.lcm", "--keep-going"];
    run_sluice(&folder, &[&batch[..], &["--report", "units.json"]].concat())
        .expect(1)
        .expect_stderr("1 input done, 2 failed");
    let report: serde_json::Value = serde_json::from_slice(&folder.read("units.json")).unwrap();
    let units = report["units"].as_array().unwrap();
    let statuses: Vec<_> = units.iter().map(|unit| unit["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed", "failed", "done"], "{report}");
    let parts = ["convert", "in/*.lcm", "--to", "parts/{stem}.lcm", "--keep-going"];
    for (shard, code) in [("1/2", 1), ("2/2", 1)] {
        run_sluice(&folder, &[&parts[..], &["--shard", shard]].concat()).expect(code);
    }
    for name in [&b"b\xfe.lcm"[..], b"b\xff.lcm"] {
        fs::remove_file(folder.at("in").join(OsStr::from_bytes(name))).unwrap();
    }
    run_sluice(&folder, &["convert", "in/*.lcm", "--to", "parts/{stem}.lcm", "--resume"]).expect(0);
    assert!(folder.read("parts/c.lcm") == logs[0]);
    fs::write(folder.at("in").join(OsStr::from_bytes(b"b\xff.lcm")), &logs[2]).unwrap();
    run_sluice(&folder, &["info", "in/*.lcm"]).expect(2).expect_stderr("not UTF-8");
}

#[test]
fn damage_of_inputs_whose_names_are_no_text_is_told_apart() {
    let folder = Folder::new();
    let clean = log(&drive(1, 30));
    for (name, damage) in [(&b"b\xfe.lcm"[..], &b"stray"[..]), (b"b\xff.lcm", b"more strays")] {
        let bytes = [&clean[..], damage].concat();
        fs::write(folder.path().join(OsStr::from_bytes(name)), bytes).unwrap();
    }
    folder.write(
        "run.toml",
        r#"
        [sources.logs]
        plugin = "lcm-log"
        path = "*.lcm"
        on_damage = "quarantine"
        quarantine = "bad.bin"
        [sinks.figures]
        plugin = "report"
        from = "logs"
        path = "figures.json"
        "#,
    );
    let run = run_sluice(&folder, &["run", "run.toml", "--report", "r.json"]).expect(3);
    assert_eq!(folder.read("bad.bin"), b"straymore strays");
    let json = |name| serde_json::from_slice::<serde_json::Value>(&folder.read(name)).unwrap();
    let damage = json("r.json")["damage"].clone();
    let ranges =
        [&damage[0], &damage[1]].map(|range| (range["input"].clone(), range["length"].clone()));
    assert_eq!(ranges, [(r"b\xfe.lcm".into(), 5.into()), (r"b\xff.lcm".into(), 11.into())]);
    let inputs = json("figures.json")["inputs"].clone();
    let figures =
        [&inputs[0], &inputs[1]].map(|of| (of["name"].clone(), of["damaged_bytes"].clone()));
    assert_eq!(figures, ranges);
    run.expect_stderr(r"b\xfe.lcm: 5 bytes").expect_stderr(r"b\xff.lcm: 11 bytes");
    run_sluice(&folder, &["run", "run.toml", "--overwrite", "--log-format", "json"])
        .expect(3)
        .expect_stderr(r#""input":"b\\xfe.lcm""#);
}

#[test]
fn a_pipe_that_ends_in_an_event_is_damage() {
    let folder = Folder::new();
    let whole = log(&drive(1, 300));
    let made = Command::new("mkfifo").arg(folder.at("pipe.lcm")).status();
    if !made.is_ok_and(|made| made.success()) {
        return report_skip("a named pipe: there is no mkfifo");
    }
    let convert = ["convert", "pipe.lcm", "--from", "lcm-log", "--to", "out.lcm"];
    let running = sluice(&folder).args(convert).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = fs::OpenOptions::new().write(true).open(folder.at("pipe.lcm")).unwrap();
    pipe.write_all(&whole[..whole.len() - 7]).unwrap();
    drop(pipe);
    ProgramOutput::from_output(running.wait_with_output().unwrap()).expect(3);
    assert!(whole.starts_with(&folder.read("out.lcm")));
    assert_eq!(crate::kit::numbers(&folder.read("out.lcm")).len(), 299);
}

#[test]
fn inputs_that_cannot_be_read_cost_only_themselves_where_the_others_are_wanted() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..300 {
        folder.write(&format!("in/{n:03}.lcm"), log(&drive(n, 2)));
    }
    // Files that exist but no user can read.
    for n in [7, 77, 177] {
        let path = folder.at(&format!("in/{n:03}.lcm"));
        fs::remove_file(&path).unwrap();
        symlink("/proc/self/mem", path).unwrap();
    }
    folder.write("in/250.lcm", "this is no log, and nothing of one\0");
    let convert = ["convert", "in/*.lcm", "--from", "lcm-log", "--to", "out/{stem}.lcm"];
    let output = run_sluice(&folder, &[&convert[..], &["--keep-going"]].concat());
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    for n in ["007", "077", "177"] {
        assert!(output.stderr.contains(&format!("in/{n}.lcm")), "{n} in:\n{}", output.stderr);
    }
    let made = super::tree(&folder.at("out"));
    let logs = made.keys().filter(|name| name.extension().is_some_and(|e| e == "lcm")).count();
    assert_eq!(logs, 297, "{}", output.stderr);
}

#[test]
fn a_missing_input_is_reported_before_anything_is_done() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    folder.write("in/1.lcm", log(&drive(1, 2)));
    symlink("nowhere", folder.at("in/2.lcm")).unwrap();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}.lcm"];
    run_sluice(&folder, &convert).expect(1).expect_stderr("in/2.lcm").expect_stderr("no such file");
    assert_eq!(folder.names(), ["in"]);
}
