//! `record` as run on robots: messages sent are in the file, whatever happens to the program, the
//! file or the disk. Uses sockets on `lo` with a private port.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{
    Folder, LcmEvent, ProgramOutput, SeededRng, decompressed, drive, events, is_ignored, log,
    report_skip, run_sluice,
};
use crate::live::Network;
use crate::recorder::{PATIENCE, Recorder, Sender};

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

/// The events as recorded, with the times in the log.
fn as_recorded(sent: &[LcmEvent], log: &[u8]) -> Vec<LcmEvent> {
    let times = events(log).into_iter().map(|event| event.utime);
    let renumbered = (0..).zip(sent).zip(times);
    renumbered.map(|((number, sent), utime)| LcmEvent { number, utime, ..sent.clone() }).collect()
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

#[test]
fn the_log_has_the_sent_messages_byte_for_byte() {
    let (folder, mut sender, mut sent) = (Folder::new(), Sender::new(), drive(1, 300));
    sent.push(LcmEvent::new(0, 0, "BÜROSTUHL", b""));
    sent.push(LcmEvent::new(0, 0, "", b"of no channel"));
    let limit = sent.len().to_string();
    let recorder = sender.start(&folder, &["--to", "new/a.lcm", "--limit", &limit]);
    let before = now();
    sender.send_all(&sent);
    recorder
        .end()
        .expect(0)
        .expect_stderr("writing new/a.lcm")
        .expect_stderr(&format!("{limit} events"));
    let written = folder.read("new/a.lcm");
    assert!(written == log(&as_recorded(&sent, &written)));
    let times: Vec<i64> = events(&written).iter().map(|event| event.utime).collect();
    assert!(times.is_sorted() && times[0] >= before && times[times.len() - 1] <= now());
}

#[test]
fn a_request_to_end_loses_nothing_and_is_no_failure() {
    for signal in [Signal::INT, Signal::TERM] {
        let (folder, mut sender, sent) = (Folder::new(), Sender::new(), drive(2, 100));
        let recorder = sender.start(&folder, &["--to", "a", "--flush-interval", "60000"]);
        sender.send_all(&sent);
        recorder.signal(signal);
        recorder.end().expect(0).expect_stderr("stopping");
        let written = folder.read("a");
        assert!(written == log(&as_recorded(&sent, &written)));
    }
}

#[test]
fn strict_throws_no_received_message_away() {
    for to in ["a.lcm", "a.mcap", "a.parquet", "pieces/"] {
        let (folder, mut sender, sent) = (Folder::new(), Sender::new(), drive(4, 100));
        let limit = sent.len().to_string();
        let flags = ["--exclude", "NO_SUCH", "--strict", "--report", "report.json"];
        let arguments = [&["--to", to, "--limit", &limit][..], &flags].concat();
        let recorder = sender.start(&folder, &arguments);
        sender.send_all(&sent);
        recorder
            .end()
            .expect(2)
            .expect_stderr("error: --exclude: no channel matches `NO_SUCH`")
            .expect_stderr("error: a name matched nothing, and --strict was given");
        let files = &report(&folder)["files"];
        let rows: u64 = files.as_array().unwrap().iter().filter_map(|f| f["rows"].as_u64()).sum();
        assert_eq!(rows, sent.len() as u64, "{to}: {files}");
    }
}

#[test]
fn channels_are_chosen_before_anything_is_counted() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    for (arguments, expected) in [
        (&["-c", "CAM_*", "-x", "CAM_B"][..], &["CAM_A"][..]),
        (&["--regex", "CAM_A|POSE"], &["CAM_A", "POSE"]),
        (&["--regex", "CAM_A|POSE", "-v"], &["CAM_B", "POSES"]),
    ] {
        let limit = expected.len().to_string();
        let arguments = [&["--to", "a", "-f", "-n", &limit], arguments].concat();
        let recorder = sender.start(&folder, &arguments);
        ["CAM_A", "CAM_B", "POSE", "POSES"].iter().for_each(|name| sender.send(name, b"x"));
        recorder.end().expect(0);
        let names: Vec<Vec<u8>> =
            events(&folder.read("a")).into_iter().map(|event| event.channel).collect();
        assert_eq!(names, expected.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn existing_files_are_refused_continued_replaced_or_numbered() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut record = |arguments: &[&str]| {
        let recorder = sender.start(&folder, &[&["--to", "a", "-n", "2"], arguments].concat());
        sender.send("A", b"1");
        sender.send("A", b"2");
        recorder.end().expect(0);
    };
    let numbers = |name: &str| crate::kit::numbers(&folder.read(name));
    record(&[]);
    record(&["--append"]);
    assert_eq!(numbers("a"), [0, 1, 2, 3]);
    record(&["--increment"]);
    assert_eq!((numbers("a.00"), numbers("a").len()), (vec![0, 1], 4));
    record(&["--force"]);
    assert_eq!(numbers("a"), [0, 1]);
    let refused =
        ProgramOutput::from_output(sender.record(&folder, &["--to", "a"]).output().unwrap());
    refused.expect(1).expect_stderr("exists; --force").expect_stderr("a\n");
    assert_eq!(folder.names(), ["a", "a.00"]);
}

#[test]
fn an_empty_log_is_continued() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    folder.write("touched.lcm", b"");
    for name in ["recorded.lcm", "touched.lcm"] {
        let append = ["--to", name, "--append"];
        sender.start(&folder, &append).stop().expect(0);
        let recorder = sender.start(&folder, &[&append[..], &["-n", "1"]].concat());
        sender.send("A", b"1");
        recorder.end().expect(0);
        assert_eq!(crate::kit::numbers(&folder.read(name)), [0], "{name}");
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
    let files = report(&folder)["files"].clone();
    assert_eq!(files.as_array().unwrap().len(), 1, "{files:#}");
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
fn recorded_lines_have_the_payloads_and_a_table_of_them_warns() {
    let (folder, sent) = (Folder::new(), drive(8, 10));
    folder.write("in.lcm", log(&sent));
    let record = |to: &str| run_sluice(&folder, &["record", "file://in.lcm", "--to", to]).expect(0);
    let recorded = record("a.jsonl");
    assert!(!recorded.stderr.contains("warning"), "{}", recorded.stderr);
    run_sluice(&folder, &["convert", "a.jsonl", "--to", "back.lcm"]).expect(0);
    assert_eq!(folder.read("back.lcm"), folder.read("in.lcm"));
    for name in ["a.csv", "a.txt"] {
        record(name).expect_stderr("cannot be read back as messages");
    }
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

#[test]
fn being_killed_half_a_second_after_the_last_message_loses_none() {
    for (name, more) in [
        ("a.lcm", &[][..]),
        ("a.jsonl", &[]),
        ("a.lcm.zst", &["--flush-interval", "100"]),
        ("b.lcm.zst", &["--flush-interval", "100", "--as", "lcm-log"]),
    ] {
        let (folder, mut sender, sent) = (Folder::new(), Sender::new(), drive(4, 5));
        let recorder = sender.start(&folder, &[&["--to", name], more].concat());
        sender.send_all(&sent);
        std::thread::sleep(Duration::from_millis(500));
        recorder.signal(Signal::KILL);
        assert_eq!(recorder.end().code, None);
        let left = folder.read(name);
        let count = match name {
            "a.lcm" => events(&left).len(),
            "a.jsonl" => String::from_utf8(left).unwrap().lines().count(),
            _ => events(&decompressed(&left)).len(),
        };
        assert_eq!(count, sent.len(), "{name}");
        if name.ends_with(".zst") {
            run_sluice(&folder, &["convert", name, "--to", "back.lcm"]).expect(0);
            assert_eq!(events(&folder.read("back.lcm")).len(), sent.len(), "{name}");
        }
    }
}

/// The sums over channels in a report: events in, written, and not written.
fn channel_totals(report: &Value) -> [u64; 3] {
    let rows = report["channels"].as_array().unwrap().iter();
    rows.fold([0; 3], |sum, row| {
        let add = |place: usize, key: &str| sum[place] + row[key].as_u64().unwrap();
        [add(0, "in"), add(1, "out"), add(2, "damaged")]
    })
}

/// Sends until the recorder has ended.
fn send_until_the_end(sender: &mut Sender, mut recorder: Recorder) -> ProgramOutput {
    let mut rng = SeededRng(5);
    let deadline = Instant::now() + PATIENCE;
    while recorder.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on: {}", recorder.said);
        let payload: Vec<u8> = (0..5_000).map(|_| rng.below(256) as u8).collect();
        sender.send("A", &payload);
        std::thread::sleep(Duration::from_micros(200));
    }
    recorder.end()
}

#[test]
fn drops_that_no_number_tells_of_are_counted_also_after_other_losses() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut silenced = sender.another();
    let options = ["--source-option", "socket_buffer=65536", "--report", "report.json"];
    let options = [&["--to", "a"], &options[..]].concat();
    let recorder = sender.start(&folder, &options);
    let has = |channel: &[u8]| events(&folder.read("a")).iter().any(|e| e.channel == channel);
    let send_until_recorded = |sender: &mut Sender, channel: &str| {
        let deadline = Instant::now() + PATIENCE;
        while !has(channel.as_bytes()) {
            assert!(Instant::now() < deadline, "{channel} is never recorded");
            sender.send(channel, b"");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    send_until_recorded(&mut sender, "BEFORE");
    // As if a message was lost in the network.
    sender.sent += 1;
    send_until_recorded(&mut sender, "GAP");
    recorder.signal(Signal::STOP);
    (0..1000).for_each(|_| silenced.send("BURST", &[0; 1000]));
    recorder.signal(Signal::CONT);
    send_until_recorded(&mut sender, "AFTER");
    recorder.stop().expect(3);
    let lost = report(&folder)["sources"]["log"]["lost"].as_u64().unwrap();
    let recorded = events(&folder.read("a")).len() as u64;
    assert_eq!(recorded + lost, u64::from(sender.sent) + 1000);
    assert!(lost > 100, "{lost}");
}

#[test]
fn a_file_size_limit_ends_a_recording_with_correct_counts() {
    for name in FULL {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let record = sender.record(&folder, &[&["--to", name], &REPORTED[..]].concat());
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 600 && exec \"$0\" \"$@\""]);
        limited.arg(record.get_program()).args(record.get_args()).current_dir(folder.path());
        let ended = send_until_the_end(&mut sender, Recorder::start(limited));
        ended.expect(3).expect_stderr("everything recorded before is kept");
        check_full(&folder, &report(&folder), name);
    }
}

/// Recordings of all formats that are readable while they grow and may end within an event.
const FULL: [&str; 6] = ["a.lcm", "a.lcm.zst", "a.mcap", "a.mcap.zst", "a.arrow.zst", "a.vel"];

/// A report, and frames that are written before a small disk is full.
const REPORTED: [&str; 4] = ["--report", "report.json", "--flush-interval", "20"];

/// Checks that the report of a recording on a full disk is correct.
fn check_full(folder: &Folder, report: &Value, name: &str) {
    let [came, written, missing] = channel_totals(report);
    assert_eq!(came, written + missing, "{report:#}");
    assert!(missing > 0, "{report:#}");
    run_sluice(folder, &["convert", name, "--to", "back.lcm", "--overwrite"]).expect(0);
    let back = events(&folder.read("back.lcm")).len() as u64;
    if name.ends_with(".lcm") {
        assert!(written > 0);
        assert_eq!(back, written);
    } else {
        // Events since the last flush may be partly written: they count as lost.
        assert!(back >= written, "{back} of {written}");
    }
    assert_eq!(report["files"][0]["rows"], back, "{report:#}");
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
        let ended = send_until_the_end(&mut sender, Recorder::start(record));
        ended.expect(3).expect_stderr("no space left");
        check_full(&folder, &report(&folder), &format!("kept/{name}"));
    }
}

#[test]
fn a_disk_quota_ends_a_recording_well() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let arguments = ["--to", "small/a.lcm", "--disk-quota", "63000KiB", "--report", "report.json"];
    let record = sender.record(&folder, &arguments);
    let Some(record) = on_small_disk(&folder, &record, 64_000) else { return };
    let ended = send_until_the_end(&mut sender, Recorder::start(record));
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

#[test]
fn json_progress_is_printed_and_quiet_prints_nothing() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let quiet = sender.record(&folder, &["-q", "--to", "quiet", "-n", "1", "--idle-timeout", "30"]);
    let mut quiet = { quiet }.stderr(Stdio::piped()).spawn().unwrap();
    let json = sender.record(&folder, &["--progress", "json", "--to", "json", "-n", "1"]);
    let mut json = { json }.stderr(Stdio::piped()).spawn().unwrap();
    // Neither reports when it listens.
    while json.try_wait().unwrap().is_none() || quiet.try_wait().unwrap().is_none() {
        sender.send("A", b"x");
        std::thread::sleep(Duration::from_millis(1));
    }
    let quiet = ProgramOutput::from_output(quiet.wait_with_output().unwrap()).expect(0);
    assert_eq!(quiet.stderr, "");
    let json = ProgramOutput::from_output(json.wait_with_output().unwrap()).expect(0);
    let last: Value = serde_json::from_str(json.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["lost"], &last["done"], &last["events"]),
        (&0.into(), &true.into(), &1.into())
    );
}

#[test]
fn file_urls_set_the_start_time_and_the_mode() {
    let (folder, events) = (Folder::new(), drive(6, 10));
    folder.write("in.lcm", log(&events));
    let from = events[6].utime;
    let url = format!("file://in.lcm?start_timestamp={from}");
    run_sluice(&folder, &["convert", &url, "--to", "file://out?speed=0"]).expect(0);
    assert_eq!(folder.read("out"), log(&events[6..]));
    run_sluice(&folder, &["record", &url, "--to", "recorded", "--limit", "2"]).expect(0);
    assert_eq!(crate::kit::numbers(&folder.read("recorded")), [0, 1]);
    let cat = run_sluice(&folder, &["cat", &url, "--json"]).expect(0).text();
    assert_eq!(cat.lines().count(), 4);
    run_sluice(&folder, &["info", "file://in.lcm?colour=red"])
        .expect(0)
        .expect_stderr("unknown key `colour`");

    run_sluice(&folder, &["convert", "in.lcm", "--to", "file://out"])
        .expect(1)
        .expect_stderr("exists");
    run_sluice(&folder, &["convert", "in.lcm", "--to", "file://out?mode=a"]).expect(0);
    assert_eq!(folder.read("out"), [log(&events[6..]), log(&events)].concat());
    run_sluice(&folder, &["convert", "in.lcm", "--to", "file://out?mode=w"]).expect(0);
    assert_eq!(folder.read("out"), log(&events));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "file://out?mode=r"])
        .expect(2)
        .expect_stderr("mode=r");
    run_sluice(&folder, &["convert", "file://in.lcm?mode=w", "--to", "x.lcm"]).expect(2);
    run_sluice(&folder, &["convert", &url, "--start", "+1", "--to", "x.lcm"]).expect(2);
}

#[test]
fn a_recording_that_could_not_begin_leaves_nothing() {
    let folder = Folder::new();
    let refused = run_sluice(&folder, &["record", "--to", "x.lcm", "--interface", "no-such-card"]);
    refused.expect(1).expect_stderr("no-such-card");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn an_interface_that_is_down_is_told() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let mut down = Command::new("ip");
    down.args(["link", "set", "lo", "down"]);
    assert!(network.enter(&down).status().unwrap().success());
    for interface in ["lo", "127.0.0.1"] {
        let more = ["--to", "x.lcm", "--force", "--duration", "0.1", "--interface", interface];
        let ran = network.sluice(&folder, &[&["record"][..], &more].concat()).output().unwrap();
        let told = "the network interface is down: nothing arrives until";
        ProgramOutput::from_output(ran).expect(0).expect_stderr(told);
    }
}

#[test]
fn a_recording_that_could_not_begin_leaves_older_ones_in_place() {
    let (folder, events) = (Folder::new(), drive(3, 10));
    let names = ["x.lcm", "r.lcm.0", "r.lcm.1", "r.lcm.2"];
    let log_of = |number: usize| log(&events[number..]);
    for (number, name) in names.iter().enumerate() {
        folder.write(name, log_of(number));
    }
    // Nobody listens on a port that was just free.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hub = format!("tcpq://127.0.0.1:{port}");
    for arguments in [
        &["record", &hub, "--to", "x.lcm", "--force"][..],
        &["record", "--interface", "no-such-card", "--to", "x.lcm", "--force"],
        &["record", &hub, "--to", "r.lcm", "--rotate", "3"],
    ] {
        run_sluice(&folder, arguments).expect(1);
        for (number, name) in names.iter().enumerate() {
            assert!(folder.read(name) == log_of(number), "{name} after {arguments:?}");
        }
    }
}
