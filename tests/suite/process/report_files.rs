//! The file of `--report`: it replaces nothing but an earlier report, and that only when complete.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::kit::{Folder, ProgramOutput, drive, log, report_skip, run_sluice, sluice};

fn folder_with_log() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 300)));
    folder
}

#[test]
fn a_report_that_an_output_replaces_is_missed() {
    let folder = folder_with_log();
    let convert = ["convert", "in.lcm", "--to", "out.lcm", "--overwrite"];
    let convert = [&convert[..], &["--sink-option", "split_mb=1"]].concat();
    run_sluice(&folder, &convert).expect(0);
    let output = folder.read("out-00000.lcm");
    run_sluice(&folder, &[&convert[..], &["--report", "out-00000.lcm"]].concat())
        .expect(1)
        .expect_stderr("there is no report");
    assert!(folder.read("out-00000.lcm") == output);
}

#[test]
fn a_report_is_no_record_and_no_part_of_an_output() {
    let folder = folder_with_log();
    let tables = ["convert", "in.lcm", "--to", "tables/"];
    let batch = ["convert", "in.lcm", "--to", "batch/{stem}.jsonl"];
    let units = ["convert", "in.lcm", "--to", "units/{stem}/"];
    let elsewhere = ["convert", "in.lcm", "--to", "tables/../out.jsonl"];
    let cases = [
        (&tables, "tables/_manifest.json", "the name of the record of a run or batch"),
        (&batch, "batch/_manifest.json", "the name of the record of a run or batch"),
        (&batch, "batch/_units.jsonl", "the name of the record of a run or batch"),
        (&batch, "_shard-1-of-2.json", "the name of the record of a run or batch"),
        (&tables, "tables/r.json", "in the output folder tables/ that its manifest does not list"),
        (&tables, "batch/../tables/a/r.json", "in the output folder tables/ that"),
        (&units, "units/in/r.json", "in the output folder units/in/ that"),
        (&elsewhere, "out.jsonl", "would replace an output"),
        (&batch, "new/", "the name of a file, not of a folder"),
        (&batch, ".", "the name of a file, not of a folder"),
    ];
    let refuses = |(convert, report, why): &(&[&str; 4], &str, &str)| {
        for more in ["--overwrite", "--resume"] {
            run_sluice(&folder, &[&convert[..], &["--report", report, more]].concat())
                .expect(2)
                .expect_stderr(why);
        }
    };
    // `..` leads somewhere only where the folder before it exists.
    let is_plain =
        |case: &&(&[&str; 4], &str, &str)| !(case.0[3].contains("..") || case.1.contains(".."));
    cases.iter().filter(is_plain).for_each(refuses);
    assert_eq!(folder.names(), ["in.lcm"]);
    for convert in [tables, batch, units, elsewhere] {
        run_sluice(&folder, &convert).expect(0);
    }
    let before = crate::batch::tree(&folder.at("."));
    cases.iter().for_each(refuses);
    assert!(crate::batch::tree(&folder.at(".")) == before);
    // Beside the outputs of a batch there is room.
    for more in ["--overwrite", "--resume"] {
        run_sluice(&folder, &[&batch[..], &["--report", "batch/r.json", more]].concat()).expect(0);
    }
    run_sluice(&folder, &["verify", "batch", "batch/r.json", "tables", "units"]).expect(0);
}

#[test]
fn an_earlier_report_stays_until_the_next_one_is_complete() {
    let folder = folder_with_log();
    let convert = ["convert", "in.lcm", "--to", "new/out.jsonl", "--report", "new/r.json"];
    run_sluice(&folder, &convert).expect(0);
    let earlier = folder.read("new/r.json");
    // One that cannot be written fails before the run.
    fs::create_dir(folder.at("new/taken")).unwrap();
    let taken = ["convert", "in.lcm", "--to", "other.jsonl", "--report", "new/taken"];
    run_sluice(&folder, &taken).expect(2).expect_stderr("a file, not of a folder: new/taken");
    assert!(!folder.at("other.jsonl").exists());
    // While a run waits for its input, and after it is killed.
    mknodat(CWD, folder.at("pipe.lcm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let slow = ["convert", "pipe.lcm", "--to", "slow.jsonl", "--from", "lcm-log"];
    let mut command = sluice(&folder);
    command.args([&slow[..], &["--report", "new/r.json"]].concat());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let _writer = OpenOptions::new().write(true).open(folder.at("pipe.lcm")).unwrap();
    assert!(folder.read("new/r.json") == earlier);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.read("new/r.json") == earlier);
    // The report of a run that failed has the reason.
    run_sluice(&folder, &convert).expect(1);
    assert!(String::from_utf8(folder.read("new/r.json")).unwrap().contains("the output exists"));
    let mut left = crate::batch::tree(&folder.at("new")).into_keys();
    assert!(!left.any(|name| name.contains("sluice-tmp")));
}

#[test]
fn a_failure_before_the_run_replaces_an_earlier_report_and_nothing_else() {
    let folder = folder_with_log();
    folder.write("no.bin", "of no known format");
    folder.write("not.toml", "[sources");
    let convert = |input: &str, to: &str, report: &str| {
        run_sluice(&folder, &["convert", input, "--to", to, "--report", report])
    };
    convert("in.lcm", "out.jsonl", "earlier.json").expect(0);
    let earlier = folder.read("earlier.json");
    let record = ["record", "nowhere://", "--to", "r.lcm", "--report", "r.json"];
    let cases = [
        (&["convert", "missing.lcm", "--to", "o.jsonl", "--report", "r.json"][..], 1),
        (&["convert", "no.bin", "--to", "o.jsonl", "--report", "r.json"], 2),
        (&["convert", "missing.lcm", "--to", "o/{stem}.jsonl", "--report", "r.json"], 1),
        (&["report", "missing.lcm", "--report", "r.json"], 1),
        (&["play", "missing.lcm", "--report", "r.json"], 1),
        (&["run", "not.toml", "--report", "r.json"], 2),
        (&record, 2),
    ];
    for (arguments, exit) in cases {
        run_sluice(&folder, arguments).expect(exit);
        assert!(!folder.at("r.json").exists(), "{arguments:?}");
        folder.write("r.json", &earlier);
        run_sluice(&folder, arguments).expect(exit);
        let report: serde_json::Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
        assert_eq!(report["exit"], exit, "{arguments:?}");
        assert!(report["error"].is_string() && report["files"] == serde_json::json!([]));
        let verified = run_sluice(&folder, &["verify", "r.json"]).expect(1).text();
        assert!(verified.contains("the run failed: "), "{verified}");
        fs::remove_file(folder.at("r.json")).unwrap();
    }
    // What is no report, and what a run that only prints would not write.
    convert("missing.lcm", "o.jsonl", "in.lcm").expect(1);
    assert!(folder.read("in.lcm") == log(&drive(1, 300)));
    for only_prints in ["--dry-run", "--print-pipeline"] {
        let report = ["--report", "earlier.json", only_prints];
        let missing = ["convert", "missing.lcm", "--to", "o.jsonl"];
        run_sluice(&folder, &[&missing[..], &report].concat()).expect(1);
        assert!(folder.read("earlier.json") == earlier, "{only_prints}");
    }
}

#[test]
fn a_report_can_be_written_to_what_is_open() {
    let folder = folder_with_log();
    let convert = ["convert", "in.lcm", "--to", "out.jsonl", "--overwrite", "-q", "--report"];
    for (place, redirected) in [("/dev/stderr", "2>>"), ("/dev/fd/3", "3>>"), ("/dev/stdout", ">>")]
    {
        folder.write("shared.txt", "before\n");
        let mut shell = Command::new("sh");
        let program = sluice(&folder);
        let line = format!("\"$0\" \"$@\" {redirected} shared.txt");
        shell.current_dir(folder.path()).arg("-c").arg(line).arg(program.get_program());
        assert!(shell.args(convert).arg(place).status().unwrap().success(), "{place}");
        let text = String::from_utf8(folder.read("shared.txt")).unwrap();
        let report = text.strip_prefix("before\n").unwrap_or_else(|| panic!("{place}: {text}"));
        let report: serde_json::Value = serde_json::from_str(report).unwrap();
        assert_eq!(report["exit"], 0, "{place}");
    }
    mknodat(CWD, folder.at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut child = sluice(&folder).args(convert).arg("pipe").spawn().unwrap();
    let text = fs::read_to_string(folder.at("pipe")).unwrap();
    assert!(child.wait().unwrap().success() && text.ends_with("}\n"), "{text}");
}

#[test]
fn standard_output_takes_a_report_or_an_output_by_whatever_names() {
    let folder = folder_with_log();
    let names = ["-", "/dev/stdout", "/dev/fd/1"];
    for (report, to) in names.iter().flat_map(|report| names.map(|to| (report, to))) {
        let both = ["convert", "in.lcm", "--to", to, "--as", "jsonl", "--report", report];
        let refused = run_sluice(&folder, &both).expect(2);
        refused.expect_stderr("--report: an output is written to standard output");
        let sink = |name: &str, path: &str| {
            format!("[sinks.{name}]\nplugin = \"text\"\nfrom = \"log\"\npath = \"{path}\"\n")
        };
        let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";
        folder.write("two.toml", source.to_owned() + &sink("a", report) + &sink("b", to));
        let refused = run_sluice(&folder, &["run", "two.toml"]).expect(2);
        refused.expect_stderr("`a` and `b` write to standard output");
    }
}

#[test]
fn a_report_is_no_file_of_damaged_bytes() {
    let folder = folder_with_log();
    for (to, quarantine) in [("out.jsonl", "in.bytes"), ("{stem}.jsonl", "{stem}.bytes")] {
        let quarantine = format!("quarantine={quarantine}");
        let keep = ["--source-option", "on_damage=quarantine", "--source-option", &quarantine];
        let convert = ["convert", "in.lcm", "--to", to, "--report", "in.bytes"];
        run_sluice(&folder, &[&convert[..], &keep].concat())
            .expect(2)
            .expect_stderr("would replace an output");
        assert_eq!(folder.names(), ["in.lcm"]);
    }
}

/// Runs `$0` twice: with a report that is a mount point, and with one in a folder that is not
/// writable, even for its owner.
const REPORTS_IN_PLACE: &str = "mount --bind mounted.json mounted.json && chmod 555 closed && \
    \"$0\" \"$@\" --to a.jsonl --report mounted.json && \
    setpriv --bounding-set=-dac_override,-dac_read_search \
    \"$0\" \"$@\" --to b.jsonl --report closed/r.json";

#[test]
fn a_report_that_cannot_be_replaced_is_written_in_place() {
    let folder = folder_with_log();
    fs::create_dir(folder.at("closed")).unwrap();
    for name in ["mounted.json", "closed/r.json"] {
        folder.write(name, "earlier ".repeat(10_000));
    }
    let works = Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount --bind in.lcm in.lcm && setpriv --version"])
        .current_dir(folder.path())
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        report_skip("this system allows no private mounts (unshare -rm, mount, setpriv)");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", REPORTS_IN_PLACE]).current_dir(folder.path());
    command.arg(sluice(&folder).get_program()).args(["convert", "in.lcm"]);
    ProgramOutput::from_output(command.output().unwrap()).expect(0);
    for name in ["mounted.json", "closed/r.json"] {
        let report: serde_json::Value = serde_json::from_slice(&folder.read(name)).unwrap();
        assert_eq!(report["exit"], 0, "{name}");
    }
    let mut names = crate::batch::tree(&folder.at(".")).into_keys();
    assert!(!names.any(|name| name.contains("sluice-tmp")));
    // So that the folder can be removed.
    fs::set_permissions(folder.at("closed"), Permissions::from_mode(0o755)).unwrap();
}
