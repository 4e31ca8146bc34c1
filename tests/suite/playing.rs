//! `play`: what a listener receives, what keys do, and that the terminal is restored.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, events, log, report_skip, root, sluice};
use crate::live::{Listener, Network, URL};
use crate::recorder::Recorder;

/// Starts a recording to `heard.lcm` with these source options, and waits until it listens.
pub(crate) fn listen(network: &Network, folder: &Folder, options: &[&str]) -> Listener {
    let mut arguments = vec!["convert", URL, "--to", "heard.lcm"];
    options.iter().for_each(|option| arguments.extend(["--source-option", option]));
    Listener::start(network.sluice(folder, &arguments), "listening")
}

/// Plays `drive.lcm` with these arguments.
pub(crate) fn play(network: &Network, folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let all = [&["play", "drive.lcm", "--to", URL], arguments].concat();
    ProgramOutput::from_output(network.sluice(folder, &all).output().unwrap())
}

/// A log of events on `A`, `B` and `C` in turn, a second apart, with their numbers as payloads.
pub(crate) fn seconds(folder: &Folder, count: i64) {
    let event = |n: i64| {
        let channel = ["A", "B", "C"][n as usize % 3];
        LcmEvent::new(n, BEGIN + n * 1_000_000, channel, n.to_string().as_bytes())
    };
    folder.write("drive.lcm", log(&(0..count).map(event).collect::<Vec<_>>()));
}

fn received_messages(folder: &Folder) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let events = events(&folder.read("heard.lcm"));
    events.into_iter().map(|event| (text(event.channel), text(event.payload))).collect()
}

/// The numbers of the received events.
fn numbers(folder: &Folder) -> Vec<i64> {
    received_messages(folder).into_iter().map(|(_, number)| number.parse().unwrap()).collect()
}

#[test]
fn a_listener_receives_the_selected_events_renamed_and_repeated() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 7);
    let listener = listen(&network, &folder, &["limit=12"]);
    let played = play(
        &network,
        &folder,
        &["--speed", "0", "-e", "A|C", "--rename", "C=D", "--end", "+6", "--loop", "3"],
    );
    played.expect(0).expect_stderr("played 12 events");
    listener.end().expect(0);
    let once = [("A", "0"), ("D", "2"), ("A", "3"), ("D", "5")];
    let expected: Vec<_> = std::iter::repeat_n(once, 3).flatten().collect();
    let heard = received_messages(&folder);
    assert_eq!(heard.iter().map(|(c, n)| (&**c, &**n)).collect::<Vec<_>>(), expected);
}

#[test]
fn long_silences_can_be_cut() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let hours = |n: i64| LcmEvent::new(n, BEGIN + n * 3_600_000_000, "A", b"");
    folder.write("drive.lcm", log(&[hours(0), hours(1), hours(2)]));
    let report = ["--max-gap", "20ms", "--report", "report.json"];
    play(&network, &folder, &report).expect(0).expect_stderr("played 3 events");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let took = report["seconds"].as_f64().unwrap();
    assert!(took > 0.04, "{took}");
}

#[test]
fn a_long_wait_between_logs_is_noted() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    for (name, time) in [("a.lcm", BEGIN), ("b.lcm", BEGIN + 86_400_000_000)] {
        folder.write(name, log(&[LcmEvent::new(0, time, "A", b"")]));
    }
    let play = ["play", "a.lcm", "b.lcm", "--to", URL];
    let mut player = Recorder::spawn(network.sluice(&folder, &play));
    player.wait_for("nothing is sent for 23 h 59 min");
    player.stop().expect(0).expect_stderr("max-gap").expect_stderr("played 1 event");
}

#[test]
fn invalid_times_cause_no_waiting() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let at = |n: i64, utime: i64| LcmEvent::new(n, utime, "A", b"");
    let late = BEGIN * 1_000;
    let times = [BEGIN, late, BEGIN + 1_000, -late, BEGIN + 2_000];
    let all: Vec<LcmEvent> = times.into_iter().zip(0..).map(|(utime, n)| at(n, utime)).collect();
    folder.write("drive.lcm", log(&all));
    play(&network, &folder, &[]).expect(0).expect_stderr("played 5 events");
}

#[test]
fn a_report_of_a_failed_playback_has_what_is_known() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&[LcmEvent::new(0, BEGIN, "A", b"payload")]));
    let mut play = sluice(&folder);
    play.args(["play", "in.lcm", "--interface", "nowhere", "--report", "report.json"]);
    let failed = ProgramOutput::from_output(play.output().unwrap());
    failed.expect(1).expect_stderr("nowhere");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    assert!(report["error"].as_str().unwrap().contains("nowhere"), "{report}");
    assert_eq!((&report["exit"], &report["damaged_ranges"]), (&1.into(), &0.into()));
}

#[test]
fn damage_is_reported_by_the_exit_code_and_ctrl_c_by_a_message() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 3);
    let mut damaged = folder.read("drive.lcm");
    damaged.truncate(damaged.len() - 1);
    folder.write("drive.lcm", damaged);
    play(&network, &folder, &["--speed", "-1"]).expect(3).expect_stderr("played 2 events");

    seconds(&folder, 10_000);
    let arguments = ["play", "drive.lcm", "--to", URL, "--progress", "json"];
    let player = Listener::start(network.sluice(&folder, &arguments), "\"events\":1");
    player.signal(Signal::INT);
    player.end().expect(0).expect_stderr("stopped before the end");
}

#[test]
fn invalid_playback_requests_are_usage_errors() {
    let folder = Folder::new();
    seconds(&folder, 3);
    let wrong: [(&[&str], &str); 8] = [
        (&["--to", "copy.lcm"], "is not a URL"),
        (&["--to", "pigeon://x"], "has no sink for pigeon://x"),
        (&["--paused"], "no terminal"),
        (&["--speed", "fast"], "expected a number"),
        (&["--speed", "1e308"], "--speed: expected 0 or less"),
        (&["--speed", "1e-7"], "a number from 0.000001 to 1000000000, found 1e-7"),
        (&["--max-gap", "0"], "above 0"),
        (&["-", "--loop=2"], "needs inputs that can be read twice, and `-` cannot"),
    ];
    for (arguments, says) in wrong {
        let ran = sluice(&folder).args(["play", "drive.lcm"]).args(arguments).output().unwrap();
        ProgramOutput::from_output(ran).expect(2).expect_stderr(says);
    }
}

#[test]
fn the_pipeline_that_plays_can_be_printed_and_checked() {
    let folder = Folder::new();
    seconds(&folder, 3);
    let arguments = [
        "play",
        "drive.lcm",
        "-s",
        "2",
        "--loop",
        "--max-gap",
        "2s",
        "--max-rate",
        "9",
        "--rename",
        "re:CAM_([0-9])=C$1",
        "--print-pipeline",
    ];
    let printed = ProgramOutput::from_output(sluice(&folder).args(arguments).output().unwrap())
        .expect(0)
        .text();
    for line in ["speed = 2", "loop = 0", "max_gap = \"2s\"", "max_rate = 9", "to = \"C$1\""] {
        assert!(printed.contains(line), "no {line} in {printed}");
    }
    assert!(!printed.contains("url"), "{printed}");
    folder.write("play.toml", printed);
    ProgramOutput::from_output(sluice(&folder).args(["check", "play.toml"]).output().unwrap())
        .expect(0);
}

/// The result of a program run in a terminal.
pub(crate) struct Session(Value);

impl Session {
    /// Runs a command in a terminal with these steps; `None`, with a message, without Python.
    pub(crate) fn run(command: &Command, steps: &[Value]) -> Option<Self> {
        let python = Command::new("python3").args(["-c", "import pty, termios"]).output();
        if !python.is_ok_and(|output| output.status.success()) {
            report_skip("there is no python3 with pty, to press keys with");
            return None;
        }
        let program = root().join("tests/suite/terminal.py");
        let folder = command.get_current_dir().unwrap_or(Path::new("."));
        let ran = Command::new("python3")
            .args(["-B".as_ref(), program.as_os_str()])
            .arg(Value::from(steps.to_vec()).to_string())
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(folder)
            .env("TERM", "xterm")
            .output();
        let ran = ProgramOutput::from_output(ran.unwrap()).expect(0);
        let session = Self(serde_json::from_slice(&ran.stdout).unwrap());
        assert_eq!(session.0["failed"], Value::Null, "{}", session.output());
        Some(session)
    }

    pub(crate) fn output(&self) -> &str {
        self.0["output"].as_str().unwrap()
    }

    /// Asserts the exit code, and that the terminal was restored.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32) -> &Self {
        assert_eq!(self.0["code"], code, "{}", self.output());
        assert_eq!(self.0["restored"], true, "{}", self.output());
        self
    }
}

fn until(text: &str) -> Value {
    json!({ "until": text })
}

fn send(text: &str) -> Value {
    json!({ "send": text })
}

fn player(network: &Network, folder: &Folder, arguments: &[&str]) -> Command {
    network.sluice(folder, &[&["play", "drive.lcm", "--to", URL], arguments].concat())
}

#[test]
fn keys_step_seek_change_the_speed_and_end() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 1000);
    let listener = listen(&network, &folder, &[]);
    let steps = [
        until("paused"),
        send("."),
        until(r"\+0\.000 s of 999\.0 s \(0 %\)"),
        send("n"),
        until(r"\+1\.000 s"),
        send("\x1b[C"),
        until(r"\+11\.000 s"),
        send("."),
        send("."),
        until(r"\+12\.000 s"),
        send("]"),
        until(r"\+72\.000 s"),
        send("["),
        until(r"\+12\.000 s"),
        send("\x1b[H"),
        until(r"\+0\.000 s"),
        send("++-"),
        until("paused.*2x"),
        send("?"),
        until("back to the start"),
        send(" "),
        until(r"playing  \+1\.000 s"),
        send("q"),
        until("played"),
    ];
    let Some(session) = Session::run(&player(&network, &folder, &["--paused"]), &steps) else {
        return;
    };
    session.expect(0);
    listener.signal(Signal::INT);
    listener.end().expect(0);
    let numbers = numbers(&folder);
    assert!(numbers.starts_with(&[0, 1, 11, 12, 0, 1]), "{numbers:?}");
}

#[test]
fn keys_seek_before_the_first_event() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 1000);
    let listener = listen(&network, &folder, &[]);
    let steps = [
        until("paused"),
        send("]"),
        until(r"\+60\.000 s of 997\.0 s"),
        send("["),
        until(r"\+0\.000 s"),
        send("\x1b[C"),
        until(r"\+10\.000 s"),
        send("."),
        until(r" [1-9][0-9]* events/s"),
        send("q"),
        until("played 1 event"),
    ];
    let arguments = ["--paused", "--start", "+2"];
    let Some(session) = Session::run(&player(&network, &folder, &arguments), &steps) else {
        return;
    };
    session.expect(0);
    listener.signal(Signal::INT);
    listener.end().expect(0);
    assert_eq!(numbers(&folder), [12]);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 1000);
    for end in [send("\x03"), json!({ "signal": 15 })] {
        let steps = [until("playing"), end];
        let Some(session) = Session::run(&player(&network, &folder, &[]), &steps) else { return };
        assert!(session.expect(0).output().contains("stopping"));
    }
}

#[test]
fn a_player_that_is_stopped_gives_the_terminal_back_and_takes_it_again() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 1000);
    let steps = [
        until("playing"),
        send("\x1a"),
        json!({ "stopped": true }),
        json!({ "signal": 18 }),
        until("playing"),
        send(" "),
        until("paused"),
        send("q"),
    ];
    let Some(session) = Session::run(&player(&network, &folder, &[]), &steps) else { return };
    session.expect(0);
    assert_eq!(session.0["restored_while_stopped"], true);
}
