//! Recordings in several files, and files that others move or truncate.

use std::path::PathBuf;
use std::time::Instant;
use std::{fs, io};

use rustix::process::Signal;
use serde_json::Value;

use super::report;
use crate::kit::{Folder, LcmEvent, decompressed, drive, events, is_ignored, log, run_sluice};
use crate::recorder::{PATIENCE, Sender};

/// Waits until a file has this length.
#[track_caller]
fn wait_for_length(folder: &Folder, name: &str, expected: usize) {
    let deadline = Instant::now() + PATIENCE;
    let len = || fs::metadata(folder.at(name)).map_or(0, |meta| meta.len());
    while len() < expected as u64 {
        assert!(Instant::now() < deadline, "{name} has {} bytes, not {expected}", len());
        std::thread::yield_now();
    }
}

#[test]
fn a_file_that_is_long_enough_is_followed_by_the_next_number() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut recorder = sender.start(&folder, &["--to", "a.lcm", "--split-mb", "0.001"]);
    for number in 1..4 {
        sender.send("A", &[number; 1024]);
        recorder.wait_for(&format!("writing a.lcm.0{number}"));
    }
    recorder.stop().expect(0);
    assert_eq!(folder.names(), ["a.lcm.00", "a.lcm.01", "a.lcm.02", "a.lcm.03"]);
    for number in 0..3 {
        let events = events(&folder.read(&format!("a.lcm.0{number}")));
        assert_eq!((events.len(), events[0].number), (1, 0));
        assert_eq!(events[0].payload, [number + 1; 1024]);
    }
}

#[test]
fn a_ring_of_files_keeps_the_newest() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    folder.write("a.0", log(&drive(1, 3)));
    let ring = ["--to", "a", "--rotate", "3", "--split-mb", "0.001", "--report", "report.json"];
    let mut recorder = sender.start(&folder, &ring);
    for number in 1..5 {
        sender.send("A", &[number; 1024]);
        recorder.wait_for("writing a.0");
    }
    recorder.stop().expect(0);
    assert_eq!(folder.names(), ["a.0", "a.1", "a.2", "report.json"]);
    let payload = |name: &str| events(&folder.read(name))[0].payload[0];
    assert_eq!((payload("a.1"), payload("a.2")), (4, 3));
    run_sluice(&folder, &["verify", "report.json"]).expect(0);
}

#[test]
fn a_failed_ring_does_not_list_files_under_names_that_others_have_now() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let ring = ["--to", "a", "--rotate", "3", "--split-mb", "0.001", "--report", "report.json"];
    let recorder = sender.start(&folder, &ring);
    sender.send("A", &[1; 1024]);
    wait_for_length(&folder, "a.1", 1024);
    sender.send("A", &[2; 1024]);
    wait_for_length(&folder, "a.2", 1024);
    // The next file begins soon after the others have their new names.
    let deadline = Instant::now() + PATIENCE;
    while fs::remove_file(folder.at("a.0")).is_err() {
        assert!(Instant::now() < deadline, "no next file");
        std::thread::yield_now();
    }
    recorder.stop().expect(1);
    assert_eq!(report(&folder)["files"], Value::Null);
}

#[test]
fn old_files_are_followed_by_new_ones_also_when_nothing_comes() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut recorder =
        sender.start(&folder, &["--to", "%Y/a.lcm.zst", "-s", "--split-seconds", "0.05"]);
    sender.send("A", b"1");
    recorder.wait_for("a.01.lcm.zst");
    sender.send("A", b"2");
    recorder.wait_for("a.02.lcm.zst");
    recorder.stop().expect(0);
    let year = folder.names().remove(0);
    assert!(year.parse::<i32>().is_ok_and(|year| year > 2000), "{year}");
    for number in 0..2 {
        let packed = folder.read(&format!("{year}/a.0{number}.lcm.zst"));
        assert_eq!(events(&decompressed(&packed)).len(), 1);
    }
}

#[test]
fn tables_are_pieces_of_one_dataset() {
    let (folder, mut sender, sent) = (Folder::new(), Sender::new(), drive(3, 20));
    let mut recorder = sender.start(&folder, &["--to", "tables/", "--split-seconds", "0.05"]);
    for (number, sent) in sent.chunks(10).enumerate() {
        sender.send_all(sent);
        recorder.wait_for(&format!("writing tables/piece=0000{}", number + 1));
    }
    recorder.stop().expect(0);
    run_sluice(&folder, &["verify", "tables/"]).expect(0);
    run_sluice(&folder, &["convert", "tables/", "--to", "back.lcm"]).expect(0);
    let payloads = |events: Vec<LcmEvent>| -> Vec<(Vec<u8>, Vec<u8>)> {
        events.into_iter().map(|event| (event.channel, event.payload)).collect()
    };
    let (mut back, mut sent) = (payloads(events(&folder.read("back.lcm"))), payloads(sent));
    back.sort();
    sent.sort();
    assert!(back == sent);
}

#[test]
fn formats_unreadable_before_the_end_cause_a_warning_unless_split() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 10)));
    let record = ["record", "file://in.lcm", "--to"];
    let whole = run_sluice(&folder, &[&record[..], &["t.parquet"]].concat()).expect(0);
    whole.expect_stderr("only when it is complete");
    let cut = [&record[..], &["cut.parquet", "--split-seconds", "60"]].concat();
    let cut = run_sluice(&folder, &cut).expect(0);
    assert!(!cut.stderr.contains("complete"), "{}", cut.stderr);
    assert_eq!(folder.names(), ["cut.00.parquet", "in.lcm", "t.parquet"]);
}

/// Sends a message, and waits until the file has this many.
fn one_more(sender: &mut Sender, folder: &Folder, name: &str, count: usize) {
    sender.send("A", b"x");
    wait_for_length(folder, name, count * (28 + 2));
}

#[test]
fn a_hangup_begins_a_new_file_and_never_hurts_the_old_one() {
    if is_ignored(Signal::HUP) {
        return;
    }
    for more in [&[][..], &["--force"]] {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let mut recorder = sender.start(&folder, &[&["--to", "a"], more].concat());
        one_more(&mut sender, &folder, "a", 1);
        recorder.signal(Signal::HUP);
        recorder.wait_for("writing a.00");
        one_more(&mut sender, &folder, "a.00", 1);
        // As logrotate with `create`.
        fs::rename(folder.at("a"), folder.at("moved")).unwrap();
        folder.write("a", "");
        recorder.signal(Signal::HUP);
        recorder.wait_for("writing a");
        one_more(&mut sender, &folder, "a", 1);
        recorder.stop().expect(0);
        assert_eq!(folder.names(), ["a", "a.00", "moved"]);
        let each = folder.names().into_iter().map(|name| events(&folder.read(&name)).len());
        assert_eq!(each.collect::<Vec<_>>(), [1, 1, 1], "{more:?}");
    }
}

#[test]
fn a_file_that_was_moved_away_is_not_listed_under_the_name_of_the_next() {
    if is_ignored(Signal::HUP) {
        return;
    }
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut recorder = sender.start(&folder, &["--to", "a", "--report", "report.json"]);
    one_more(&mut sender, &folder, "a", 1);
    fs::rename(folder.at("a"), folder.at("moved")).unwrap();
    recorder.signal(Signal::HUP);
    recorder.wait_for("writing a");
    one_more(&mut sender, &folder, "a", 1);
    recorder.stop().expect(0);
    let report = report(&folder);
    assert_eq!(report["files"].as_array().unwrap().len(), 1, "{report:#}");
    let says = |note: &Value| note["what"].as_str().unwrap().contains("were moved away");
    let noted = report["notes"].as_array().unwrap().iter().find(|note| says(note));
    assert_eq!(noted.map(|note| &note["count"]), Some(&1.into()), "{report:#}");
    run_sluice(&folder, &["verify", "report.json"]).expect(0);
}

#[test]
fn a_recording_that_was_moved_deleted_or_truncated_fails() {
    type Displace = fn(&Folder);
    let ways: [Displace; 4] = [
        |folder| fs::rename(folder.at("a"), folder.at("moved")).unwrap(),
        |folder| fs::remove_file(folder.at("a")).unwrap(),
        |folder| {
            folder.write("a", b"");
        },
        |folder| {
            let other = fs::read(folder.at("a")).unwrap();
            fs::remove_file(folder.at("a")).unwrap();
            folder.write("a", other);
        },
    ];
    for displace in ways {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let recorder = sender.start(&folder, &["--to", "a", "--report", "report.json"]);
        one_more(&mut sender, &folder, "a", 1);
        displace(&folder);
        recorder
            .stop()
            .expect(1)
            .expect_stderr("moved, deleted or truncated")
            .expect_stderr("if it was moved, it is whole where it is now")
            .expect_stderr("a\n");
        assert_eq!(report(&folder)["exit"], 1);
    }
}

#[test]
fn that_a_file_is_taken_away_is_told_at_once() {
    for (rotate, told) in [
        (fs::rename as fn(PathBuf, PathBuf) -> io::Result<()>, "moved the file"),
        (|from, _| fs::remove_file(from), "deleted the file, and what is received is lost"),
    ] {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let mut recorder = sender.start(&folder, &["--to", "a"]);
        one_more(&mut sender, &folder, "a", 1);
        rotate(folder.at("a"), folder.at("moved")).unwrap();
        recorder.wait_for(told);
        recorder.stop().expect(1);
    }
}

#[test]
fn a_numbered_file_that_was_deleted_is_a_failure_after_the_next_ones() {
    if is_ignored(Signal::HUP) {
        return;
    }
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut recorder = sender.start(&folder, &["--to", "a", "-i"]);
    one_more(&mut sender, &folder, "a.00", 1);
    fs::remove_file(folder.at("a.00")).unwrap();
    recorder.signal(Signal::HUP);
    recorder.wait_for("writing a.01");
    one_more(&mut sender, &folder, "a.01", 1);
    recorder.stop().expect(1).expect_stderr("moved, deleted or truncated");
}

#[test]
fn what_follows_a_truncation_can_be_read_and_the_recording_fails() {
    for (name, more) in [("a.lcm", &[][..]), ("a.lcm", &["-i"]), ("a.lcm.zst", &[])] {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let file = if more.is_empty() { name } else { "a.lcm.00" };
        let to = ["--to", name, "--report", "report.json"];
        let mut recorder = sender.start(&folder, &[&to, more].concat());
        one_more(&mut sender, &folder, file, 1);
        folder.write(file, b"");
        one_more(&mut sender, &folder, file, 1);
        if !more.is_empty() {
            recorder.signal(Signal::HUP);
            recorder.wait_for("writing a.lcm.01");
            one_more(&mut sender, &folder, "a.lcm.01", 1);
        }
        let stopped = recorder.stop().expect(1).expect_stderr("moved, deleted or truncated");
        assert!(stopped.stderr.contains(file), "{}", stopped.stderr);
        let cat = run_sluice(&folder, &["cat", file, "--json"]);
        // The seek table of an archive has the frames that are gone, too.
        let is_archive = name.ends_with(".zst");
        assert_eq!(cat.stderr.contains("the seek table of the archive is damaged"), is_archive);
        let kept = cat.expect(if is_archive { 3 } else { 0 }).stdout;
        assert_eq!(kept.split(|byte| *byte == b'\n').count(), 2, "{name}");
    }
}

#[test]
fn two_recordings_do_not_write_one_file() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let recorder = sender.start(&folder, &["--to", "a.lcm"]);
    one_more(&mut sender, &folder, "a.lcm", 1);
    let before = folder.read("a.lcm");
    for flag in ["--overwrite", "--append"] {
        let second = ["record", &sender.url(), "--to", "a.lcm", flag, "--duration", "0.1"];
        run_sluice(&folder, &second).expect(1).expect_stderr("another program is writing");
        assert!(folder.read("a.lcm") == before, "{flag}");
    }
    recorder.stop().expect(0);
    let third = ["record", &sender.url(), "--to", "a.lcm", "--append", "--duration", "0.1"];
    run_sluice(&folder, &third).expect(0);
}

#[test]
fn a_hangup_begins_the_next_number() {
    if is_ignored(Signal::HUP) {
        return;
    }
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut recorder = sender.start(&folder, &["--to", "a.lcm", "-i"]);
    one_more(&mut sender, &folder, "a.lcm.00", 1);
    recorder.signal(Signal::HUP);
    recorder.wait_for("writing a.lcm.01");
    recorder.stop().expect(0);
    assert_eq!(folder.names(), ["a.lcm.00", "a.lcm.01"]);
}
