//! `record` as run on robots: messages sent are in the file, whatever happens to the program, the
//! file or the disk. Uses sockets on `lo` with a private port.

mod full_disks;
mod notes;
mod numbers;
mod pieces;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::kit::{Folder, LcmEvent, ProgramOutput, decompressed, drive, events, log, run_sluice};
use crate::live::{Network, until};
use crate::recorder::{PATIENCE, Sender};

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
fn a_limit_counts_the_messages_that_meet_the_condition() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    // Expectations are of what is recorded, and do not wait for more.
    folder.write("expect.toml", "[channels.A]\ncount = 5\n");
    let condition = ["-n", "5", "--where", r#"$channel == "A""#];
    for more in [&["--to", "a"][..], &["--to", "b", "--expect", "expect.toml"]] {
        let recorder = sender.start(&folder, &[&condition[..], more].concat());
        for number in 0..20_u8 {
            sender.send(if number % 3 == 0 { "A" } else { "B" }, &[number]);
        }
        recorder.end().expect(0);
        let payloads: Vec<Vec<u8>> =
            events(&folder.read(more[1])).into_iter().map(|event| event.payload).collect();
        assert_eq!(payloads, [[0], [3], [6], [9], [12]]);
    }
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
fn being_killed_after_the_next_flush_loses_no_message() {
    for (name, more) in [
        ("a.lcm", &[][..]),
        ("a.jsonl", &[]),
        ("a.lcm.zst", &["--flush-interval", "100"]),
        ("b.lcm.zst", &["--flush-interval", "100", "--as", "lcm-log"]),
    ] {
        let (folder, mut sender, sent) = (Folder::new(), Sender::new(), drive(4, 5));
        let recorder = sender.start(&folder, &[&["--to", name], more].concat());
        sender.send_all(&sent);
        let is_flushed = || {
            let (mut plain, file) = (Vec::new(), folder.read(name));
            match name {
                "a.jsonl" => file.iter().filter(|byte| **byte == b'\n').count() == sent.len(),
                "a.lcm" => file.len() == log(&sent).len(),
                // Its last frame may not be complete yet.
                _ => {
                    drop(zstd::stream::copy_decode(&*file, &mut plain));
                    plain.len() == log(&sent).len()
                }
            }
        };
        assert!(until(PATIENCE, is_flushed), "{name}");
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

#[test]
fn drops_that_no_number_tells_of_are_counted_also_after_other_losses() {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let mut silenced = sender.another();
    let options = ["--source-option", "socket_buffer=65536", "--report", "report.json"];
    let options = [&["--to", "a"], &options[..]].concat();
    let recorder = sender.start(&folder, &options);
    // The last event may be half written.
    let has = |channel: &[u8]| folder.read("a").windows(channel.len()).any(|part| part == channel);
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
    recorder.pause();
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
    // Nobody listens on it.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let hub = format!("tcpq://{}", silent.local_addr().unwrap().as_socket().unwrap());
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
