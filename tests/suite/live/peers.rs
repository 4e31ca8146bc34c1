//! Live LCM, compared with LCM's Python client, logger and player.

use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sluice_lcm::fuzzing::{HEADER_LEN, LcmHeader};

use super::{
    Listener, Network, PATIENCE, URL, pattern, peer_program, receive, received_events, report,
    spec, until,
};
use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, is_ignored, log};
use crate::peers::python;

/// A network and the real client; `None`, with a message, if one is missing.
fn peers() -> Option<Peers> {
    let python = python()?;
    // Otherwise LCM's logger would never end.
    if is_ignored(Signal::INT) {
        return None;
    }
    Some(Peers { network: Network::new()?, python })
}

struct Peers {
    network: Network,
    python: std::path::PathBuf,
}

impl Peers {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg("-B").arg(peer_program()).args(arguments);
        self.network.enter(&command)
    }

    /// Lets the client publish `spec.json`; returns what it reports as sent.
    fn publish(&self, folder: &Folder) -> Value {
        self.publish_to(URL, folder)
    }

    fn publish_to(&self, url: &str, folder: &Folder) -> Value {
        let spec = folder.at("spec.json");
        let printed =
            done(self.command(&["publish", url, spec.to_str().unwrap()]).output().unwrap());
        serde_json::from_str(&printed).unwrap()
    }

    /// A program of the LCM package.
    fn tool(&self, name: &str) -> Command {
        Command::new(self.python.parent().unwrap().join(name))
    }
}

#[track_caller]
fn done(output: Output) -> String {
    ProgramOutput::from_output(output).expect(0).text()
}

/// Waits until a growing log has this many whole events, not counting the self-test messages of
/// starting programs: a program that is stopped earlier writes no more.
#[track_caller]
fn wait_for_events(folder: &Folder, name: &str, count: usize) {
    let whole = || whole_events(&folder.read(name));
    assert!(until(PATIENCE, || whole() >= count), "{name} has {} of {count} events", whole());
}

/// The number of events up to the end of a log, the last of which may be cut off.
fn whole_events(mut log: &[u8]) -> usize {
    let mut count = 0;
    while let Some((head, rest)) = log.split_first_chunk::<HEADER_LEN>() {
        let header = LcmHeader::parse(head).expect("a log without damage");
        let channel = rest.get(..header.channel_len as usize);
        let len = header.channel_len as usize + header.data_len as usize;
        let Some(rest) = rest.get(len..) else { break };
        count += usize::from(channel != Some(b"LCM_SELF_TEST"));
        log = rest;
    }
    count
}

#[test]
fn messages_of_the_real_client_are_received_and_sent_back() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let messages = [
        ("TINY", 0, 20),
        ("TINY", 1, 20),
        // With a channel of four letters, 65494 bytes are the most that fit one datagram.
        ("EDGE", 65_494, 20),
        ("EDGE", 65_495, 20),
        ("EDGE", 65_499, 20),
        ("EDGE", 65_500, 20),
        ("BÜROSTUHL", 300, 20),
        ("IMAGE", 280_000, 50),
        ("LARGE", 3_000_000, 200),
        ("LARGE", 3_000_000, 200),
    ];
    folder.write("spec.json", spec(&messages));
    let listener =
        receive(&peers.network, &folder, &format!("limit = {}\nduration = 30", messages.len()));
    let sent = peers.publish(&folder);
    listener.end().expect(0);
    let got: Vec<(String, Vec<u8>)> = received_events(&folder)
        .into_iter()
        .map(|event| (String::from_utf8(event.channel).unwrap(), event.payload))
        .collect();
    let expected: Vec<(String, Vec<u8>)> = (0..)
        .zip(&messages)
        .map(|(n, (name, size, _))| ((*name).to_owned(), pattern(n, *size)))
        .collect();
    assert!(got == expected, "{:?}", got.iter().map(|(c, p)| (c, p.len())).collect::<Vec<_>>());
    let losses = &report(&folder)["sources"]["live"];
    assert_eq!((&losses["lost"], &losses["events"]), (&0.into(), &messages.len().into()));

    let out = folder.at("heard.json");
    let count = messages.len().to_string();
    let url = format!("{URL}&recv_buf_size=4194304");
    let client = peers.command(&["record", &url, &count, out.to_str().unwrap()]);
    let client = Listener::start(client, "ready");
    let arguments = ["convert", "got.lcm", "--to", URL, "--sink-option", "max_bandwidth=50MB"];
    done(peers.network.sluice(&folder, &arguments).output().unwrap());
    client.end().expect(0);
    assert_eq!(serde_json::from_slice::<Value>(&folder.read("heard.json")).unwrap(), sent);
}

#[test]
fn typed_messages_are_decoded_as_they_come_and_sent_back_as_they_were() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let (made, count) = (folder.at("made"), 40);
    std::fs::create_dir(&made).unwrap();
    let made = made.to_str().unwrap();
    let listener =
        receive(&peers.network, &folder, &format!("limit = {}\nduration = 30", 3 * count));
    let published = peers.command(&["typed", "publish", URL, made, &count.to_string()]);
    let published = done({ published }.output().unwrap());
    listener.end().expect(0);

    let arguments = ["cat", "got.lcm", "--types", "mit-dgc", "--json"];
    let decoded = done(peers.network.sluice(&folder, &arguments).output().unwrap());
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (ours, theirs) = (lines(&decoded), lines(&published));
    assert_eq!((ours.len(), theirs.len()), (3 * count, 3 * count));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let channel = theirs.as_array().map_or(&theirs["channel"], |line| &line[0]);
        let fields = theirs.as_array().map_or(&theirs["fields"], |line| &line[2]);
        assert_eq!((&ours["channel"], &ours["fields"]), (channel, fields));
    }

    let client = peers.command(&["typed", "receive", URL, made, &(3 * count).to_string()]);
    let client = Listener::start(client, "ready");
    let arguments = ["convert", "got.lcm", "--to", URL, "--sink-option", "max_rate=2000"];
    done(peers.network.sluice(&folder, &arguments).output().unwrap());
    let heard = client.end().expect(0).text();
    let heard: Vec<&str> = heard.lines().filter(|line| *line != "ready").collect();
    assert_eq!(heard, published.lines().collect::<Vec<_>>());
}

#[test]
fn bursts_that_the_real_logger_loses_are_received_whole() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let burst = |n: usize| {
        (0..2000).map(move |at| ("BURST", 100, if at == 1999 && n < 4 { 200 } else { 0 }))
    };
    let messages: Vec<(&str, usize, u64)> = (0..5).flat_map(burst).collect();
    folder.write("spec.json", spec(&messages));
    let options =
        format!("url = \"{URL}&recv_buf_size=4194304\"\nlimit = {}\nduration = 60", messages.len());
    let listener = receive(&peers.network, &folder, &options);
    peers.publish(&folder);
    listener.end().expect(0);
    let got = received_events(&folder);
    assert_eq!(got.len(), 10_000);
    assert!((0..).zip(&got).all(|(n, event)| event.payload == pattern(n, 100)));
}

#[test]
fn messages_dropped_by_the_system_are_counted() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let mut messages = vec![("FIRST", 8, 500)];
    messages.extend([("MANY", 1000, 0); 5000]);
    messages.push(("GAP", 8, 1500));
    messages.push(("LAST", 8, 0));
    folder.write("spec.json", spec(&messages));
    let options = format!("url = \"{URL}&recv_buf_size=65536\"");
    let listener = receive(&peers.network, &folder, &options);
    // It receives the first, loses those that follow, and continues before the last.
    let stopping = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| peers.publish(&folder));
        std::thread::sleep(Duration::from_millis(700));
        listener.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(300));
        listener.signal(Signal::CONT);
        publisher.join()
    });
    assert!(stopping.is_ok());
    listener.signal(Signal::INT);
    let ran = listener.end();
    let (events, live) = (received_events(&folder), report(&folder)["sources"]["live"].clone());
    let lost = live["lost"].as_u64().unwrap();
    let is_last = events.last().is_some_and(|event| event.channel == b"LAST");
    assert!(is_last && events.first().is_some_and(|event| event.channel == b"FIRST"));
    assert_eq!(events.len() as u64 + lost, messages.len() as u64, "{live}");
    assert_eq!(ran.code, Some(if lost > 0 { 3 } else { 0 }), "{}", ran.stderr);
}

#[test]
fn we_receive_the_real_player_and_the_real_logger_receives_us() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let events: Vec<LcmEvent> = (0..50)
        .map(|n| {
            LcmEvent::new(n, BEGIN + n * 10_000, if n % 3 == 0 { "A" } else { "B" }, &[n as u8; 40])
        })
        .collect();
    folder.write("in.lcm", log(&events));
    let plain = |events: &[LcmEvent]| -> Vec<(Vec<u8>, Vec<u8>)> {
        events.iter().map(|event| (event.channel.clone(), event.payload.clone())).collect()
    };

    let listener = receive(&peers.network, &folder, "limit = 50\nduration = 300");
    let mut player = peers.tool("lcm-logplayer");
    done(
        peers
            .network
            .enter(player.arg(format!("--lcm-url={URL}")).arg(folder.at("in.lcm")))
            .output()
            .unwrap(),
    );
    listener.end().expect(0);
    let heard = received_events(&folder);
    assert_eq!(plain(&heard), plain(&events));
    // The player kept the gaps, as far as a busy machine allows: only the first may be late.
    assert!(heard[49].utime - heard[0].utime >= 490_000 / 2);

    let mut logger = peers.tool("lcm-logger");
    let theirs = folder.at("theirs.lcm");
    logger.args(["--flush-interval=1", &format!("--lcm-url={URL}")]).arg(&theirs);
    let logger = Listener::start(peers.network.enter(&logger), "theirs.lcm");
    peers.network.wait_for_receivers(1);
    let arguments = ["convert", "in.lcm", "--to", URL];
    done(peers.network.sluice(&folder, &arguments).output().unwrap());
    wait_for_events(&folder, "theirs.lcm", events.len());
    logger.signal(Signal::INT);
    drop(logger.end());
    let theirs = crate::kit::events(&folder.read("theirs.lcm"));
    let ours = |event: &LcmEvent| event.channel != b"LCM_SELF_TEST";
    let theirs: Vec<LcmEvent> = theirs.into_iter().filter(ours).collect();
    assert_eq!(plain(&theirs), plain(&events));
}

#[test]
fn a_recording_equals_that_of_the_real_logger() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let messages: Vec<(&str, usize, u64)> = (0..300)
        .map(|n| (if n % 7 == 0 { "CAM" } else { "POSE" }, 10 + n * 37 % 70_000, 2))
        .collect();
    folder.write("spec.json", spec(&messages));
    let mut logger = peers.tool("lcm-logger");
    let theirs = folder.at("theirs.lcm");
    logger
        .args(["--flush-interval=1", &format!("--lcm-url={URL}&recv_buf_size=4194304")])
        .arg(&theirs);
    let logger = Listener::start(peers.network.enter(&logger), "theirs.lcm");
    let ours = ["record", URL, "--to", "ours.lcm", "--source-option", "self_test=true"];
    let ours = Listener::start(peers.network.sluice(&folder, &ours), "listening");
    peers.network.wait_for_receivers(2);
    peers.publish(&folder);
    wait_for_events(&folder, "theirs.lcm", messages.len());
    wait_for_events(&folder, "ours.lcm", messages.len());
    logger.signal(Signal::INT);
    ours.signal(Signal::INT);
    drop(logger.end());
    ours.end().expect(0);
    let events = |name: &str| -> Vec<LcmEvent> {
        let events = crate::kit::events(&folder.read(name));
        // Each program receives the self-tests of programs started later.
        let first = events.iter().position(|event| event.channel != b"LCM_SELF_TEST").unwrap();
        events[first..].to_vec()
    };
    let (theirs, ours) = (events("theirs.lcm"), events("ours.lcm"));
    assert_eq!((theirs.len(), ours.len()), (300, 300));
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!((&theirs.channel, &theirs.payload), (&ours.channel, &ours.payload));
        // The logger uses the time of reading, which a busy machine delays; we use the time at
        // which the system received the message.
        let apart = Duration::from_micros(theirs.utime.abs_diff(ours.utime));
        assert!(apart < PATIENCE, "{} {}", theirs.utime, ours.utime);
    }
}

#[test]
fn the_real_client_talks_through_our_hub() {
    let Some(peers) = peers() else { return };
    let folder = Folder::new();
    let messages = [("A", 0, 20), ("B", 500, 20), ("LARGE", 3_000_000, 100), ("A", 70_000, 20)];
    folder.write("spec.json", spec(&messages));
    let hub = ["hub", "--listen", "127.0.0.1:7700", "-v"];
    let hub = Listener::start(peers.network.sluice(&folder, &hub), "listening");
    let url = "tcpq://127.0.0.1:7700";
    let (out, count) = (folder.at("heard.json"), messages.len().to_string());
    let client = peers.command(&["record", url, &count, out.to_str().unwrap()]);
    let client = Listener::start(client, "ready");
    let ours = ["record", url, "--to", "ours.lcm", "--limit", &count];
    let ours = Listener::start(peers.network.sluice(&folder, &ours), "listening");
    peers.network.wait_for_hub(7700, 2);
    let sent = peers.publish_to(url, &folder);
    client.end().expect(0);
    ours.end().expect(0);
    assert_eq!(serde_json::from_slice::<Value>(&folder.read("heard.json")).unwrap(), sent);
    let recorded = crate::kit::events(&folder.read("ours.lcm"));
    let payloads: Vec<Vec<u8>> = recorded.into_iter().map(|event| event.payload).collect();
    let expected: Vec<Vec<u8>> =
        (0..).zip(&messages).map(|(n, (_, size, _))| pattern(n, *size)).collect();
    assert!(payloads == expected);
    hub.signal(Signal::INT);
    hub.end().expect(0);
}
