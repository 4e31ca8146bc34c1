//! Standard input and output as pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;

use crate::kit::{Folder, ProgramOutput, drive, log, run_sluice, sluice};

/// Runs the program with these bytes on standard input.
fn run_with_stdin(folder: &Folder, arguments: &[&str], input: &[u8]) -> ProgramOutput {
    let mut command = sluice(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The program may stop reading early; only its output matters.
        scope.spawn(move || drop(stdin.write_all(input)));
        ProgramOutput::from_output(child.wait_with_output().unwrap())
    })
}

#[test]
fn a_log_goes_in_by_standard_input_and_out_by_standard_output() {
    let (folder, bytes) = (Folder::new(), log(&drive(1, 1_000)));
    let through = ["convert", "-", "--from", "lcm-log", "--to", "-", "--as", "lcm-log"];
    assert!(run_with_stdin(&folder, &through, &bytes).expect(0).stdout == bytes);
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    assert!(run_with_stdin(&folder, &through, &packed).expect(0).stdout == bytes);
    let damaged = [b"stray", &bytes[..]].concat();
    assert!(run_with_stdin(&folder, &through, &damaged).expect(3).stdout == bytes);
    assert!(run_with_stdin(&folder, &through, b"").expect(0).stdout.is_empty());
}

#[test]
fn events_of_standard_input_are_shown() {
    let folder = Folder::new();
    let shown = ["cat", "-", "--from", "lcm-log", "--json", "--limit", "3"];
    let ran = run_with_stdin(&folder, &shown, &log(&drive(1, 2_000))).expect(0);
    assert_eq!(ran.text().lines().count(), 3);
    let output = run_with_stdin(
        &folder,
        &["info", "-", "--from", "lcm-log", "--json"],
        &log(&drive(1, 100)),
    );
    let output: serde_json::Value = serde_json::from_str(&output.expect(0).text()).unwrap();
    assert_eq!(output["events"], 100);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    for arguments in [&["cat", "in.lcm"][..], &["cat", "in.lcm", "--json", "--payload"]] {
        let mut command = sluice(&folder);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let ended = ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(0);
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn a_file_is_not_published_if_the_output_beside_it_was_cut_short() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5_000)));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.file]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n\
        [sinks.show]\nplugin = \"text\"\nfrom = \"log\"\n";
    folder.write("both.toml", text);
    let mut command = sluice(&folder);
    command.args(["run", "both.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut some = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(1);
    assert_eq!(folder.names(), ["both.toml", "in.lcm"]);
}

#[test]
fn two_sinks_may_not_mix_on_standard_output_unnoticed() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 5)));
    let sink =
        |name: &str| format!("[sinks.{name}]\nplugin = \"text\"\nfrom = \"log\"\npath = \"-\"\n");
    let source = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";
    folder.write("two.toml", source.to_owned() + &sink("a") + &sink("b"));
    let tried = run_sluice(&folder, &["run", "two.toml"]);
    // Either it is refused, or every line is complete.
    if tried.code == Some(0) {
        assert_eq!(tried.text().lines().count(), 10);
    }
}
