//! Recordings that find no room: full disks, limits of file sizes, quotas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::report;
use crate::kit::{Folder, ProgramOutput, SeededRng, events, report_skip, run_sluice};
use crate::recorder::{PATIENCE, Recorder, Sender};

/// The sums over channels in a report: events in, written, and not written.
fn channel_totals(report: &Value) -> [u64; 3] {
    let rows = report["channels"].as_array().unwrap().iter();
    rows.fold([0; 3], |sum, row| {
        let add = |place: usize, key: &str| sum[place] + row[key].as_u64().unwrap();
        [add(0, "in"), add(1, "out"), add(2, "damaged")]
    })
}

/// Sends until the recorder has ended: one message, and the others once that is in its file.
/// Otherwise one flush on a busy machine may hold all that the disk has room for, and nothing
/// is recorded.
fn send_until_the_end(sender: &mut Sender, mut recorder: Recorder, file: &Path) -> ProgramOutput {
    // As the recorder sees it, which may have a disk of its own.
    let root = PathBuf::from(format!("/proc/{}/root", recorder.child.id()));
    let file = root.join(file.strip_prefix("/").unwrap());
    let mut rng = SeededRng(5);
    let deadline = Instant::now() + PATIENCE;
    let mut first_is_written = false;
    while recorder.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on: {}", recorder.said);
        if sender.sent == 0 || first_is_written {
            // Random bytes, which no format makes shorter.
            let payload: Vec<u8> = (0..PAYLOAD).map(|_| rng.below(256) as u8).collect();
            sender.send("A", &payload);
        } else {
            first_is_written = fs::metadata(&file).is_ok_and(|found| found.len() >= PAYLOAD);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(first_is_written, "{}", recorder.said);
    recorder.end()
}

/// The bytes of each message.
const PAYLOAD: u64 = 5_000;

/// Wraps a command so that its files cannot become longer than 307,200 bytes.
fn limited(folder: &Folder, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 600 && exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args()).current_dir(folder.path());
    limited
}

#[test]
fn a_file_size_limit_ends_a_recording_with_correct_counts() {
    for name in FULL {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let record = sender.record(&folder, &[&["--to", name], &REPORTED[..]].concat());
        let recorder = Recorder::start(limited(&folder, &record));
        let ended = send_until_the_end(&mut sender, recorder, &folder.at(name));
        ended.expect(3).expect_stderr("everything recorded before is kept");
        assert!(check_full(&folder, &report(&folder), name) > 0, "{name}: the disk was not full");
    }
}

/// Recordings of all formats that are readable while they grow and may end within an event.
const FULL: [&str; 6] = ["a.lcm", "a.lcm.zst", "a.mcap", "a.mcap.zst", "a.arrow.zst", "a.vel"];

/// A report, and frames that are written before a small disk is full.
const REPORTED: [&str; 4] = ["--report", "report.json", "--flush-interval", "20"];

/// Checks that the report of a recording on a full disk is correct. Returns how many events were
/// not written.
fn check_full(folder: &Folder, report: &Value, name: &str) -> u64 {
    let [came, written, missing] = channel_totals(report);
    assert_eq!(came, written + missing, "{report:#}");
    let copied = run_sluice(folder, &["convert", name, "--to", "back.lcm", "--overwrite"]);
    if copied.code == Some(3) && name.ends_with(".zst") {
        // The frames left too little room for the end of the archive, which readers say.
        let reason = "could not be read: the archive is cut off: its seek table is missing";
        copied.expect_stderr(": 0 bytes at byte ").expect_stderr(reason);
    } else {
        copied.expect(0);
    }
    let back = events(&folder.read("back.lcm")).len() as u64;
    assert!(written > 0, "{report:#}");
    assert_eq!(back, written, "{name}: {report:#}");
    assert_eq!(report["sinks"]["out"]["events"], back, "{report:#}");
    assert_eq!(report["files"][0]["rows"], back, "{report:#}");
    missing
}

/// Wraps a command so that `small/` is a disk of this many kilobytes, whose files are copied to
/// `kept/` afterwards. `None`, with a message, if the system does not allow it.
fn on_small_disk(folder: &Folder, command: &Command, kilobytes: u32) -> Option<Command> {
    for name in ["small", "kept"] {
        fs::create_dir_all(folder.at(name)).unwrap();
    }
    let mount = format!("mount -t tmpfs -o size={kilobytes}k tmpfs small");
    let usual = ["-rm", "sh", "-c"];
    let works = Command::new("unshare").args(usual).arg(&mount).current_dir(folder.path()).output();
    if !works.is_ok_and(|output| output.status.success()) {
        report_skip("this system allows no private disk (unshare -rm, mount -t tmpfs)");
        return None;
    }
    let mut inside = Command::new("unshare");
    // The shell waits for the program, to copy the files before the disk is gone.
    let script = format!("{mount} && {{ \"$0\" \"$@\"; code=$?; cp small/* kept/; exit $code; }}");
    inside.args(usual).arg(script).current_dir(folder.path());
    inside.arg(command.get_program()).args(command.get_args());
    Some(inside)
}

#[test]
fn a_full_disk_ends_a_recording_with_correct_counts() {
    for name in FULL {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let to = format!("small/{name}");
        let record = sender.record(&folder, &[&["--to", &to], &REPORTED[..]].concat());
        let Some(record) = on_small_disk(&folder, &record, 400) else { return };
        let ended = send_until_the_end(&mut sender, Recorder::start(record), &folder.at(&to));
        let ended = ended.expect(3).expect_stderr("no space left");
        ended.expect_stderr(&format!("error: no room was left, which ended the recording: {to}"));
        let missing = check_full(&folder, &report(&folder), &format!("kept/{name}"));
        assert!(missing > 0, "{name}: the disk was not full");
    }
}

/// Sends messages of random bytes with pauses until the recorder has ended.
fn send_until_it_ends(sender: &mut Sender, mut recorder: Recorder, pause: u64) -> ProgramOutput {
    let (mut rng, deadline) = (SeededRng(5), Instant::now() + PATIENCE);
    while recorder.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on: {}", recorder.said);
        let payload: Vec<u8> = (0..PAYLOAD).map(|_| rng.below(256) as u8).collect();
        sender.send("A", &payload);
        std::thread::sleep(Duration::from_micros(pause));
    }
    recorder.end()
}

#[test]
fn a_table_is_completed_before_the_disk_is_full() {
    // As many rows as fit, in row groups in the file and in memory.
    for rows in ["row_group_rows=50", "row_group_rows=1000000"] {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let to = ["--to", "small/a.parquet", "--sink-option", rows];
        let record = sender.record(&folder, &[&to, &REPORTED[..]].concat());
        let Some(record) = on_small_disk(&folder, &record, 16_000) else { return };
        let ended = send_until_it_ends(&mut sender, Recorder::start(record), 2_000).expect(3);
        ended
            .expect_stderr("cannot write small/a.parquet: the disk has less free than the ")
            .expect_stderr("everything recorded before is kept")
            .expect_stderr("error: no room was left, which ended the recording: small/a.parquet");
        check_full(&folder, &report(&folder), "kept/a.parquet");
    }
}

#[test]
fn a_table_that_finds_no_room_is_lost_and_the_error_says_so() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let to = ["--to", "a.parquet", "--sink-option", "row_group_rows=10"];
    let record = sender.record(&folder, &[&to, &REPORTED[..2]].concat());
    let ended = send_until_it_ends(&mut sender, Recorder::start(limited(&folder, &record)), 200);
    ended.expect(3).expect_stderr(
        "error: no room was left, which ended the recording and cost it its last file, which could \
         not be completed: a.parquet",
    );
    let report = report(&folder);
    let [came, written, missing] = channel_totals(&report);
    assert!(came > 0 && written == 0 && missing == came, "{report:#}");
    assert_eq!(report["files"], Value::Array(Vec::new()));
}

#[test]
fn a_disk_quota_ends_a_recording_well() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let arguments = ["--to", "small/a.lcm", "--disk-quota", "63000KiB", "--report", "report.json"];
    let record = sender.record(&folder, &arguments);
    let Some(record) = on_small_disk(&folder, &record, 64_000) else { return };
    let file = folder.at("small/a.lcm");
    let ended = send_until_the_end(&mut sender, Recorder::start(record), &file);
    ended.expect(0).expect_stderr("less than the quota of 64.5 MB: stopping");
    let [came, written, missing] = channel_totals(&report(&folder));
    assert_eq!((came, missing), (written, 0));
    assert_eq!(events(&folder.read("kept/a.lcm")).len() as u64, written);
}

#[test]
fn a_disk_quota_that_is_exceeded_already_refuses() {
    let (folder, sender) = (Folder::new(), Sender::new());
    let refused = ProgramOutput::from_output(
        sender.record(&folder, &["--disk-quota", "7PB"]).output().unwrap(),
    );
    refused.expect(1).expect_stderr("less than the quota").expect_stderr("nothing was recorded");
    assert!(folder.names().is_empty());
}
