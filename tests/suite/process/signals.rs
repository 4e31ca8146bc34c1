//! Signals, and being killed.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{
    BEGIN, Folder, LcmEvent, ProgramOutput, drive, events, is_ignored, log, run_sluice, sluice,
};
use crate::live::PATIENCE;

/// A folder with a pipe `in.lcm` for a log that arrives slowly.
fn folder_with_pipe() -> Folder {
    let folder = Folder::new();
    mknodat(CWD, folder.at("in.lcm"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    folder
}

/// Opens the pipe for writing. Blocks until the program has opened it for reading.
fn producer(folder: &Folder) -> File {
    OpenOptions::new().write(true).open(folder.at("in.lcm")).unwrap()
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait_for(stderr: &mut BufReader<ChildStderr>, word: &str) {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it never printed `{word}`");
    }
}

/// Writes the log to a file, and lines to standard output, so that a test sees the progress.
const TEE: &str = "memory = \"16MiB\"\n\
    [sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
    [sinks.file]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n\
    [sinks.lines]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"-\"\n";

/// About 200 KiB: more than a block, whose events are passed on while waiting for the next.
fn slow_log() -> Vec<LcmEvent> {
    (0..500).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", &[n as u8; 400])).collect()
}

#[test]
fn the_first_signal_discards_outputs_of_inputs_that_can_be_read_again() {
    let signals = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    for (name, code) in signals.into_iter().filter(|(name, _)| !is_ignored(*name)) {
        let folder = Folder::new();
        folder.write("in.lcm", log(&drive(1, 5_000)));
        folder.write("tee.toml", TEE);
        folder.write("out.lcm", "what was there before");
        let run = ["run", "tee.toml", "--overwrite", "--report", "report.json"];
        let mut child = start(sluice(&folder).args(run));
        // Standard output is not read until the signal is sent.
        let mut lines = child.stdout.take().unwrap();
        lines.read_exact(&mut [0; 10]).unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        signal(&child, name);
        wait_for(&mut stderr, "stopping");
        lines.read_to_end(&mut Vec::new()).unwrap();
        let mut printed = String::new();
        stderr.read_to_string(&mut printed).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{printed}");
        assert!(
            printed.contains("nothing was published") && printed.contains("again"),
            "{printed}"
        );
        assert_eq!(folder.names(), ["in.lcm", "out.lcm", "report.json", "tee.toml"]);
        assert_eq!(folder.read("out.lcm"), b"what was there before");
        let report: serde_json::Value =
            serde_json::from_slice(&folder.read("report.json")).unwrap();
        assert_eq!((&report["interrupted"], &report["exit"]), (&true.into(), &code.into()));
    }
}

#[test]
fn an_interrupted_batch_says_that_nothing_of_the_inputs_left_was_published() {
    let folder = Folder::new();
    for name in ["a.lcm", "b.lcm"] {
        folder.write(name, log(&drive(1, 5_000)));
    }
    folder.write("tee.toml", TEE.replace("in.lcm", "*.lcm").replace("out.lcm", "{stem}.out"));
    let run = ["run", "tee.toml", "--report", "report.json", "--log-format", "json"];
    let mut child = start(sluice(&folder).args(run));
    let mut lines = child.stdout.take().unwrap();
    lines.read_exact(&mut [0; 10]).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    signal(&child, Signal::INT);
    wait_for(&mut stderr, "stopping");
    lines.read_to_end(&mut Vec::new()).unwrap();
    let mut printed = String::new();
    stderr.read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{printed}");
    assert!(printed.contains("2 inputs left, of which nothing was published"), "{printed}");
    assert!(!printed.contains("cannot be read again"), "{printed}");
    let report: serde_json::Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    assert_eq!((&report["interrupted"], &report["exit"]), (&true.into(), &130.into()));
    let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap());
    let summary: Vec<serde_json::Value> =
        lines.filter(|line: &serde_json::Value| line["kind"] == "summary").collect();
    let inputs = summary[0]["inputs"].as_object().unwrap();
    assert_eq!(inputs["interrupted"], 1);
    // Every input is in one field.
    assert_eq!(inputs.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 2);
}

#[test]
fn an_interrupt_publishes_the_events_of_a_pipe() {
    let folder = folder_with_pipe();
    folder.write("tee.toml", TEE);
    let mut child = start(sluice(&folder).args(["run", "tee.toml"]));
    let mut pipe = producer(&folder);
    pipe.write_all(&log(&slow_log())).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    lines.read_line(&mut text).unwrap();
    signal(&child, Signal::INT);
    lines.read_to_string(&mut text).unwrap();
    let ended = ProgramOutput::from_output(child.wait_with_output().unwrap()).expect(3);
    drop(pipe);
    ended.expect_stderr("stopp");
    let written = events(&folder.read("out.lcm"));
    assert!(!written.is_empty() && slow_log().starts_with(&written), "{}", written.len());
    assert_eq!(text.lines().count(), written.len());
    assert_eq!(folder.names(), ["in.lcm", "out.lcm", "tee.toml"]);
}

/// The least that a pipe can hold: less than any write of the program.
const SMALL_PIPE: usize = 4 << 10;

/// More than a pipe holds, so that writing it ends only when it is being read.
fn short_log() -> Vec<LcmEvent> {
    (0..200).map(|n| LcmEvent::new(n, BEGIN + n, "POSE", &[n as u8; 90])).collect()
}

/// Runs `convert in.lcm`, which is a pipe, to `out.jsonl`. Interrupts it once it has read, or can
/// read, these bytes, with the pipe still open.
fn interrupt_behind(folder: &Folder, plugin: &str, bytes: &[u8]) -> ProgramOutput {
    let convert = ["convert", "in.lcm", "--from", plugin, "--to", "out.jsonl", "--overwrite"];
    let child = start(sluice(folder).args(convert));
    let mut pipe = producer(folder);
    fcntl_setpipe_size(&pipe, SMALL_PIPE).unwrap();
    pipe.write_all(bytes).unwrap();
    signal(&child, Signal::INT);
    let ended = ProgramOutput::from_output(child.wait_with_output().unwrap());
    drop(pipe);
    ended
}

#[test]
fn an_interrupt_loses_nothing_that_a_silent_pipe_has_brought() {
    let folder = folder_with_pipe();
    let events = short_log();
    folder.write("log.lcm", log(&events));
    let lines = ["convert", "log.lcm", "--to", "log.jsonl", "--sink-option", "payload=true"];
    run_sluice(&folder, &lines).expect(0);
    let rows: String = (0..900).map(|n| format!("{n},{n}.25\n")).collect();
    let inputs = [
        ("lcm-log", folder.read("log.lcm"), log(&events[..199]).len()),
        ("jsonl", folder.read("log.jsonl"), 0),
        ("csv", format!("t,x\n{rows}").into_bytes(), 0),
    ];
    for (plugin, bytes, start_of_last) in inputs {
        let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n');
        let start_of_last = start_of_last.max(last_line.map_or(0, |at| at + 1));
        let converted = |whole: &[u8]| {
            folder.write("whole", whole);
            let convert = ["convert", "whole", "--from", plugin, "--to", "whole.jsonl"];
            run_sluice(&folder, &[&convert[..], &["--overwrite"]].concat()).expect(0);
            folder.read("whole.jsonl")
        };
        // All of the last event, and all but its last bytes.
        for (end, whole) in [(bytes.len(), bytes.len()), (bytes.len() - 3, start_of_last)] {
            let ended = interrupt_behind(&folder, plugin, &bytes[..end]).expect(3);
            assert!(!ended.stderr.contains("could not be read"), "{plugin}: {}", ended.stderr);
            let (found, wanted) = (folder.read("out.jsonl"), converted(&bytes[..whole]));
            assert!(found == wanted, "{plugin}, {end} bytes: {} bytes", found.len());
        }
    }
    // A compressed one, of which everything written was flushed.
    let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for event in &events {
        packed.write_all(&log(std::slice::from_ref(event))).unwrap();
        packed.flush().unwrap();
    }
    interrupt_behind(&folder, "lcm-log", packed.get_ref()).expect(3);
    let lines = folder.read("out.jsonl");
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), events.len());
}

#[test]
fn events_of_a_slow_pipe_are_passed_on_as_they_come() {
    let folder = folder_with_pipe();
    let to_lines = ["convert", "in.lcm", "--from", "lcm-log", "--to", "-", "--as", "jsonl"];
    let mut child = start(sluice(&folder).args(to_lines));
    let mut pipe = producer(&folder);
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().unwrap());
    let read = move || output.lines().try_for_each(|line| sender.send(line.unwrap()));
    std::thread::Builder::new().spawn(read).unwrap();
    let next_number = || {
        let line = lines.recv_timeout(PATIENCE).expect("a line, before the pipe goes on");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        event["sequence"].as_u64()
    };
    let events = short_log();
    pipe.write_all(&log(&events[..1])).unwrap();
    for n in 1..5 {
        // That the last event is one shows only what follows it.
        pipe.write_all(&log(&events[n..=n])).unwrap();
        assert_eq!(next_number(), Some(n as u64 - 1));
    }
    drop(pipe);
    assert_eq!((next_number(), child.wait().unwrap().code()), (Some(4), Some(0)));
}

#[test]
fn a_request_to_end_is_heeded_like_an_interrupt() {
    let folder = folder_with_pipe();
    let mut child =
        start(sluice(&folder).args(["convert", "in.lcm", "--to", "out.lcm", "--from", "lcm-log"]));
    let pipe = producer(&folder);
    signal(&child, Signal::TERM);
    let code = child.wait().unwrap().code();
    drop(pipe);
    assert_eq!(code, Some(3));
    assert_eq!(folder.names(), ["in.lcm", "out.lcm"]);
}

/// A program after its first signal. Its standard output is not read, so it cannot end by itself.
fn start_blocked(folder: &Folder) -> (Child, PipeReader, BufReader<ChildStderr>) {
    folder.write("in.lcm", log(&drive(1, 5_000)));
    folder.write("tee.toml", TEE);
    let (mut lines, writer) = std::io::pipe().unwrap();
    // The program could otherwise obey the first signal between two writes and be gone before the
    // second.
    fcntl_setpipe_size(&writer, SMALL_PIPE).unwrap();
    let mut command = sluice(folder);
    let command = command.args(["run", "tee.toml"]).stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Its write end of the pipe here, which would keep the pipe open.
    command.stdout(Stdio::null());
    lines.read_exact(&mut [0; 10]).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    signal(&child, Signal::INT);
    wait_for(&mut stderr, "another signal");
    (child, lines, stderr)
}

/// The same after a second signal.
fn start_aborting(folder: &Folder) -> (Child, PipeReader, BufReader<ChildStderr>) {
    let (child, lines, mut stderr) = start_blocked(folder);
    signal(&child, Signal::INT);
    wait_for(&mut stderr, "abort");
    (child, lines, stderr)
}

#[test]
fn one_interrupt_ends_a_program_that_is_stuck_and_has_nothing_to_save() {
    let folder = Folder::new();
    let (mut child, _lines, _stderr) = start_blocked(&folder);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!folder.at("out.lcm").exists());
}

#[test]
fn a_second_interrupt_aborts_and_publishes_nothing() {
    let folder = Folder::new();
    let (mut child, mut lines, _stderr) = start_aborting(&folder);
    lines.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder.names(), ["in.lcm", "tee.toml"]);
}

#[test]
fn a_second_interrupt_ends_a_program_that_is_stuck() {
    let folder = Folder::new();
    let (mut child, _lines, _stderr) = start_aborting(&folder);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!folder.at("out.lcm").exists());
}

#[test]
fn a_third_interrupt_ends_a_program_that_is_stuck_at_once() {
    let folder = Folder::new();
    let (mut child, _lines, _stderr) = start_aborting(&folder);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!folder.at("out.lcm").exists());
}

#[test]
fn being_killed_leaves_only_temporary_files_which_the_next_run_removes() {
    let bytes = log(&drive(1, 2_000));
    for moment in [0, 100, 70_000, 300_000, bytes.len()] {
        let folder = folder_with_pipe();
        let convert =
            ["convert", "in.lcm", "--to", "out.lcm", "--from", "lcm-log", "--memory", "16MiB"];
        let mut child = start(sluice(&folder).args(convert));
        let mut pipe = producer(&folder);
        pipe.write_all(&bytes[..moment]).unwrap();
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        drop(pipe);
        let left = folder.names();
        let (temporary, others): (Vec<_>, Vec<_>) = left
            .iter()
            .partition(|name| name.starts_with(".out.lcm.") && name.ends_with(".sluice-tmp"));
        assert_eq!((temporary.len(), &others[..]), (1, &[&"in.lcm".to_owned()][..]), "{left:?}");
        folder.write("whole.lcm", &bytes);
        run_sluice(&folder, &["convert", "whole.lcm", "--to", "out.lcm"]).expect(0);
        assert_eq!(
            folder.names(),
            ["in.lcm", "out.lcm", "whole.lcm"],
            "killed after {moment} bytes"
        );
        assert!(folder.read("out.lcm") == bytes);
    }
}

#[test]
fn a_run_beside_another_leaves_its_temporary_file_alone() {
    let folder = folder_with_pipe();
    let mut slow =
        start(sluice(&folder).args(["convert", "in.lcm", "--to", "out.lcm", "--from", "lcm-log"]));
    let mut pipe = producer(&folder);
    folder.write("other.lcm", log(&drive(2, 10)));
    run_sluice(&folder, &["convert", "other.lcm", "--to", "out.lcm"]).expect(0);
    pipe.write_all(&log(&drive(1, 10))).unwrap();
    drop(pipe);
    // The target did not exist at the start; a file created since must not be replaced.
    assert_eq!(slow.wait().unwrap().code(), Some(1));
    assert_eq!(folder.read("out.lcm"), log(&drive(2, 10)));
    assert_eq!(folder.names(), ["in.lcm", "other.lcm", "out.lcm"]);
}
