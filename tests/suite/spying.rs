//! `spy` and `hub`: what is counted and displayed of played messages, and who is served.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, log, run_sluice, sluice};
use crate::live::{Listener, Network, URL};
use crate::playing::{Session, play, seconds};
use crate::recorder::Recorder;

fn spy(network: &Network, folder: &Folder, arguments: &[&str]) -> Listener {
    Listener::start(network.sluice(folder, &[&["spy", URL], arguments].concat()), "listening")
}

/// The last line of `spy --json`.
fn last_line(ran: &ProgramOutput) -> Value {
    serde_json::from_str(ran.text().lines().last().unwrap()).unwrap()
}

/// Creates `drive.lcm`: one second of the demo drive, without messages of its recorder.
fn drive(folder: &Folder) -> BTreeMap<String, u64> {
    let text = "[sources.drive]\nplugin = \"demo\"\nseconds = 1\n\n[stages.own]\n\
        plugin = \"filter\"\n\
        from = \"drive\"\nchannels = [\"POSE\", \"BROOM_L\", \"LOGGER_STRING\"]\n\n\
        [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"own\"\npath = \"drive.lcm\"\n";
    folder.write("make.toml", text);
    run_sluice(folder, &["run", "make.toml"]).expect(0);
    let info = run_sluice(folder, &["info", "drive.lcm", "--json"]).expect(0).text();
    let info: Value = serde_json::from_str(&info).unwrap();
    channel_counts(&info)
}

fn channel_counts(value: &Value) -> BTreeMap<String, u64> {
    let channels = value["channels"].as_array().unwrap().iter();
    let count = |channel: &Value| {
        (channel["name"].as_str().unwrap().to_owned(), channel["events"].as_u64().unwrap())
    };
    channels.map(count).collect()
}

#[test]
fn a_spy_counts_played_events_and_decodes_the_last_messages() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let expected = drive(&folder);
    let all: u64 = expected.values().sum();
    let limit = all.to_string();
    let spy = spy(&network, &folder, &["--json", "--types", "mit-dgc", "--limit", &limit]);
    play(&network, &folder, &[]).expect(0);
    let spied = last_line(&spy.end().expect(0));
    assert_eq!((channel_counts(&spied), spied["events"].as_u64()), (expected, Some(all)));
    assert_eq!((&spied["lost"], &spied["losses"]), (&json!(0), &json!({})));
    let channel = |name: &str| {
        let channels = spied["channels"].as_array().unwrap().iter();
        channels.clone().find(|channel| channel["name"] == name).unwrap()
    };
    let pose = channel("POSE");
    assert_eq!(pose["type"], "lcmtypes.pose_t");
    assert!(pose["last"]["pos"].as_array().is_some_and(|pos| pos.len() == 3), "{pose}");
    assert!(pose["hz"].as_f64().is_some_and(|hz| hz > 0.0) && pose["jitter_ms"].is_f64(), "{pose}");
    let unknown = channel("LOGGER_STRING");
    assert_eq!((&unknown["type"], unknown.get("last")), (&Value::Null, None));
    assert_eq!(unknown["fingerprint"].as_str().map(str::len), Some(16));
}

#[test]
fn a_channel_not_received_is_reported_with_those_received() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let all: u64 = drive(&folder).values().sum();
    let limit = (all / 4).to_string();
    for (strict, code) in [(&["--strict"][..], 2), (&[], 0)] {
        let arguments = ["-c", "POES", "-c", "BROOM_L", "-n", &limit];
        let spy = spy(&network, &folder, &[&arguments[..], strict].concat());
        play(&network, &folder, &["--speed", "0"]).expect(0);
        spy.end()
            .expect(code)
            .expect_stderr("--channel: no channel matches `POES`; did you mean `POSE`?");
    }
}

#[test]
fn without_a_terminal_tables_are_printed_of_the_channels_that_were_asked_for() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 9);
    let spy = spy(&network, &folder, &["-c", "[AB]", "-x", "B", "-n", "3", "--interval", "60s"]);
    play(&network, &folder, &["--speed", "0"]).expect(0);
    let spied = spy.end().expect(0);
    let text = spied.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("udpm://239.255.76.67:7667"), "{text}");
    assert!(lines[0].contains("1 channel ") && lines[0].contains("3 events"), "{text}");
    assert_eq!(lines[1], "nothing lost");
    let row: Vec<&str> = lines[3].split_whitespace().take(3).collect();
    assert_eq!((row, lines.len()), (vec!["A", "-", "3"], 5), "{text}");
}

#[test]
fn losses_are_reported_with_reasons_and_by_the_exit_code() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    let large = |n| LcmEvent::new(n, BEGIN + n, "LARGE", &[5; 400_000]);
    folder.write("drive.lcm", log(&(0..60).map(large).collect::<Vec<_>>()));
    // The system's buffer is too small for any of these messages.
    let url = format!("{URL}&recv_buf_size=4096");
    let arguments = ["spy", &url, "--json"];
    let spy = Listener::start(network.sluice(&folder, &arguments), "listening");
    play(&network, &folder, &["--speed", "0"]).expect(0);
    spy.signal(Signal::INT);
    let spied = spy.end().expect(3).expect_stderr("lost");
    let line = last_line(&spied);
    let losses = line["losses"].as_object().unwrap();
    let sum: u64 = losses.values().filter_map(Value::as_u64).sum();
    assert!(sum > 0 && line["lost"] == sum, "{line}");
}

#[test]
fn invalid_urls_for_spy_are_usage_errors() {
    let folder = Folder::new();
    for (arguments, says) in [
        (&["drive.lcm"][..], "is not a URL"),
        (&["pigeon://x"], "has no source for pigeon://x"),
        (&["--types", "no-such-types"], "no-such-types"),
        (&["--interval", "0"], "above 0"),
    ] {
        let ran = sluice(&folder).arg("spy").args(arguments).output().unwrap();
        ProgramOutput::from_output(ran).expect(2).expect_stderr(says);
    }
}

#[test]
fn on_a_terminal_there_is_a_table_and_a_message_and_the_screen_comes_back() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 60);
    let arguments =
        ["play", "drive.lcm", "--to", URL, "--max-gap", "50ms", "--loop", "--progress", "json"];
    let player = Listener::start(network.sluice(&folder, &arguments), "\"events\":1");
    let steps = [
        json!({ "until": r"\x1b\[\?1049h" }),
        json!({ "until": "channel.*count" }),
        json!({ "until": "3 channels" }),
        // The first channel, then the second one.
        json!({ "send": "\x1b[B\x1b[B" }),
        json!({ "until": r"\x1b\[7mB" }),
        json!({ "send": "\n" }),
        json!({ "until": "000000  3" }),
        json!({ "send": "\x1b[D" }),
        json!({ "until": r"\x1b\[7mB" }),
        json!({ "send": "q" }),
        json!({ "until": r"\x1b\[\?1049l" }),
    ];
    let session = Session::run(&network.sluice(&folder, &["spy", URL]), &steps);
    player.signal(Signal::INT);
    player.end().expect(0);
    if let Some(session) = session {
        session.expect(0);
    }
}

#[test]
fn a_hub_says_where_it_listens_hands_on_and_ends_when_asked_to() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    seconds(&folder, 9);
    const AT: &str = "127.0.0.1:7700";
    let url = format!("tcpq://{AT}");
    let hub = network.sluice(&folder, &["hub", "--listen", AT]);
    let hub = Listener::start(hub, "listening on tcpq://127.0.0.1:7700");
    let spy = network.sluice(&folder, &["spy", &url, "--json", "-n", "9"]);
    let spy = Listener::start(spy, "listening");
    network.wait_for_hub(7700, 1);
    let arguments = ["play", "drive.lcm", "--to", &url, "--speed", "0"];
    ProgramOutput::from_output(network.sluice(&folder, &arguments).output().unwrap()).expect(0);
    let spied = last_line(&spy.end().expect(0));
    assert_eq!(channel_counts(&spied), ["A", "B", "C"].map(|name| (name.to_owned(), 3)).into());
    hub.signal(Signal::INT);
    hub.end().expect(0).expect_stderr("has connected").expect_stderr("stopping");
}

#[test]
fn a_hub_reports_dropped_messages_when_they_are_dropped_and_when_it_ends() {
    const HANDSHAKE: &[u8] = &[0x28, 0x76, 0x17, 0xfb, 0, 0, 1, 0];
    const SUBSCRIBE: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 2, b'.', b'*'];
    let folder = Folder::new();
    let mut hub = sluice(&folder);
    hub.args(["hub", "--listen", "127.0.0.1:0"]);
    let mut hub = Recorder::start(hub);
    let (_, address) = hub.said.trim().rsplit_once("tcpq://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    // It receives what it sends, but does not read.
    client.write_all(&[HANDSHAKE, SUBSCRIBE].concat()).unwrap();
    let publish = [&[0, 0, 0, 1, 0, 0, 0, 1, b'A', 0, 0x10, 0, 0][..], &[0; 1 << 20]].concat();
    // The queue of 64 MiB, and what the system buffers.
    (0..100).for_each(|_| client.write_all(&publish).unwrap());
    hub.wait_for("is too slow");
    hub.stop().expect(0).expect_stderr("has connected").expect_stderr("dropped in all");
}

#[test]
fn a_hub_that_cannot_listen_fails() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    run_sluice(&folder, &["hub", "--listen", &listen]).expect(1).expect_stderr("in use");
}
