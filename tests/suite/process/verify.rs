//! `verify`: what no record names, runs that ended early, and readers that have seen enough.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{Folder, drive, log, run_sluice, sluice};

/// Logs `in/l1.lcm` and `in/l2.lcm`.
fn logs() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in [1, 2] {
        folder.write(&format!("in/l{n}.lcm"), log(&drive(n, 100)));
    }
    folder
}

#[test]
fn tables_beside_those_of_a_batch_that_nobody_recorded_differ() {
    let folder = logs();
    let verify = |code| run_sluice(&folder, &["verify", "out"]).expect(code).text();
    run_sluice(&folder, &["convert", "in/*.lcm", "--to", "out/log={stem}/"]).expect(0);
    verify(0);
    // Other files in the folder of a batch are nobody's business, nor other folders.
    folder.write("out/notes.txt", "");
    for other in ["out/log=l3", "out/old", "out/year=1"] {
        fs::create_dir_all(folder.at(other)).unwrap();
    }
    folder.write("out/log=l3/notes.txt", "");
    folder.write("out/year=1/part.parquet", "");
    verify(0);
    folder.write("out/log=l3/part.parquet", folder.read("out/log=l1/channel=A/part-00000.parquet"));
    let text = verify(1);
    assert!(text.contains("log=l3/part.parquet is in no record of the batch"), "{text}");
    // A file that a unit's own manifest does not name is told once.
    fs::remove_dir_all(folder.at("out/log=l3")).unwrap();
    folder.write("out/log=l1/channel=A/more.parquet", "");
    let text = verify(1);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("log=l1: channel=A/more.parquet is not in _manifest.json"), "{text}");
}

#[test]
fn inputs_in_the_folders_of_a_batch_are_no_tables_of_it() {
    let folder = logs();
    fs::create_dir_all(folder.at("all/log=a")).unwrap();
    for name in ["in/l1.lcm", "in/l2.lcm"] {
        fs::copy(folder.at(name), folder.at("all/log=a").join(&name[3..])).unwrap();
    }
    let to = ["--to", "all/log={ext}/{stem}.lcm"];
    run_sluice(&folder, &[&["convert", "all/log=a/*.lcm"], &to[..]].concat()).expect(0);
    run_sluice(&folder, &["verify", "all"]).expect(0);
    folder.write("all/log=lcm/l3.lcm", folder.read("in/l1.lcm"));
    let text = run_sluice(&folder, &["verify", "all"]).expect(1).text();
    assert!(text.contains("log=lcm/l3.lcm is in no record"), "{text}");
    assert!(!text.contains("log=a"), "{text}");
}

#[test]
fn a_file_that_the_manifest_around_it_does_not_name_differs() {
    let folder = logs();
    run_sluice(&folder, &["convert", "in/l1.lcm", "--to", "out/"]).expect(0);
    let part = "out/channel=A/part-00000.parquet";
    folder.write("out/channel=A/part-00001.parquet", folder.read(part));
    run_sluice(&folder, &["verify", part]).expect(0);
    let text =
        run_sluice(&folder, &["verify", "out/channel=A/part-00001.parquet"]).expect(1).text();
    assert!(text.contains("it is not in ") && text.contains("out/_manifest.json"), "{text}");
}

#[test]
fn nothing_but_outputs_is_written_into_an_output_folder() {
    let folder = logs();
    run_sluice(&folder, &["convert", "in/l1.lcm", "--to", "out/"]).expect(0);
    folder.write("e.toml", "[log]\ndamage = 0\n");
    for arguments in [
        &["convert", "in/l1.lcm", "--to", "x.lcm", "--report", "out/r.json"][..],
        &["convert", "in/l1.lcm", "--to", "x.lcm", "--report", "out/channel=A/r.json"],
        &["check-log", "in/l1.lcm", "--expect", "e.toml", "--junit", "out/j.xml"],
        &["man", "--dir", "out"],
        &["man", "--dir", "out/manual"],
    ] {
        run_sluice(&folder, arguments).expect(2).expect_stderr("that its manifest does not list");
    }
    run_sluice(&folder, &["verify", "out"]).expect(0);
    assert!(!folder.at("x.lcm").exists());
}

#[test]
fn a_run_that_left_its_pipe_is_repeated_with_overwrite() {
    let folder = logs();
    let mut command = sluice(&folder);
    command.args(["convert", "-", "--to", "out/", "-v"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than pipe and program hold, so that the program has begun to read.
    stdin.write_all(&log(&drive(1, 60_000))).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(stdin);
    let text = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(text.contains("--overwrite"), "{text}");
}

#[test]
fn a_result_does_not_depend_on_who_reads_it() {
    let folder = logs();
    let mut torn = folder.read("in/l1.lcm");
    torn[300..328].fill(0xff);
    folder.write("torn.lcm", torn);
    folder.write("e.toml", "[log]\ndamage = 0\n");
    for (arguments, code) in [
        (&["verify", "in/l1.lcm", "torn.lcm"][..], 3),
        (&["verify", "in/l1.lcm", "torn.lcm", "--json"], 3),
        (&["verify", "torn.lcm", "nowhere.lcm", "in/l1.lcm"], 1),
        (&["verify", "in/l1.lcm"], 0),
        (&["check-log", "in/l1.lcm", "torn.lcm", "--expect", "e.toml"], 4),
        (&["check-log", "in/l1.lcm", "torn.lcm", "--expect", "e.toml", "--json"], 4),
        (&["check-log", "in/l1.lcm", "torn.lcm", "--expect", "e.toml", "--junit", "-"], 4),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = sluice(&folder).args(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("standard output"), "{stderr}");
    }
}

#[test]
fn commands_that_only_read_logs_write_no_file_of_damaged_bytes() {
    let folder = logs();
    folder.write("torn.lcm", [log(&drive(1, 20)), b"stray".to_vec()].concat());
    folder.write("e.toml", "[log]\ndamage = \"1KiB\"\n");
    let before = folder.names();
    for verb in [
        &["info", "torn.lcm"][..],
        &["verify", "torn.lcm"],
        &["cat", "torn.lcm"],
        &["check-log", "torn.lcm", "--expect", "e.toml"],
        &["check-log", "--expect-from", "torn.lcm"],
    ] {
        let arguments = [verb, &["--source-option", "on_damage=quarantine"]].concat();
        let ended = run_sluice(&folder, &arguments).expect(3);
        let ended = ended.expect_stderr("writes no file of damaged bytes");
        assert_eq!(ended.stderr.matches("writes no file").count(), 1, "{}", ended.stderr);
    }
    assert_eq!(folder.names(), before);
}
