//! Networks that go and come back while messages are sent and received.

use std::process::Command;

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, log, report_skip};
use crate::recorder::Recorder;

use super::{Network, URL, received_events};

/// Runs a shell command in the network. Returns whether it succeeded.
fn shell(network: &Network, command: &str) -> bool {
    let mut shell = Command::new("sh");
    network.enter(shell.args(["-c", command])).output().unwrap().status.success()
}

/// Adds the interface `other`, with the route to the group.
const ADD: &str = "ip link add other type veth peer name peer && \
                   ip addr add 10.9.9.9/24 dev other && ip link set other up && \
                   ip link set peer up && ip route replace 224.0.0.0/4 dev other";

/// A network with the interface `other`; `None` if the system does not allow one.
fn network() -> Option<Network> {
    let network = Network::new()?;
    if shell(&network, ADD) {
        return Some(network);
    }
    report_skip("this system allows no second network interface (ip link add)");
    None
}

/// A log of events a twentieth of a second apart.
fn write_log(folder: &Folder, count: i64) {
    let event = |n: i64| LcmEvent::new(n, BEGIN + n * 50_000, "A", n.to_string().as_bytes());
    folder.write("in.lcm", log(&(0..count).map(event).collect::<Vec<_>>()));
}

/// Starts playing, and waits until something was received.
fn start_playing(network: &Network, folder: &Folder, arguments: &[&str]) -> Recorder {
    let first = ["record", URL, "--to", "first.lcm", "-n", "1", "--idle-timeout", "60", "--force"];
    let first = Recorder::start(network.sluice(folder, &[&first, arguments].concat()));
    let play = ["play", "in.lcm", "--to", URL, "-v", "--report", "played.json"];
    let player = Recorder::spawn(network.sluice(folder, &[&play, arguments].concat()));
    first.end().expect(0);
    player
}

#[test]
fn playing_goes_on_when_the_network_is_back() {
    let Some(network) = Network::new() else { return };
    for interface in [&[][..], &["--interface", "lo"]] {
        let folder = Folder::new();
        write_log(&folder, 100);
        let record = ["record", URL, "--to", "got.lcm", "-n", "100", "--idle-timeout", "60"];
        let recorder = Recorder::start(network.sluice(&folder, &[&record, interface].concat()));
        let mut player = start_playing(&network, &folder, interface);
        assert!(shell(&network, "ip link set lo down"));
        player.wait_for("messages wait until the network is back");
        assert!(shell(&network, "ip link set lo up && ip route add 224.0.0.0/4 dev lo"));
        player.end().expect(0).expect_stderr("played 100 events");
        recorder.end().expect(0);
        let numbers = received_events(&folder).into_iter().map(|event| event.payload);
        assert!(numbers.eq((0..100).map(|n: i64| n.to_string().into_bytes())));
        let report = String::from_utf8(folder.read("played.json")).unwrap();
        assert!(report.contains("messages wait until the network is back"), "{report}");
    }
}

#[test]
fn playing_goes_on_through_an_interface_that_was_replaced() {
    let Some(network) = network() else { return };
    for interface in [&[][..], &["--interface", "other"], &["--interface", "10.9.9.9"]] {
        let folder = Folder::new();
        write_log(&folder, 100);
        let mut player = start_playing(&network, &folder, interface);
        assert!(shell(&network, "ip link del other"));
        player.wait_for("messages wait until the network is back");
        assert!(shell(&network, ADD));
        player.end().expect(0).expect_stderr("played 100 events");
    }
}

#[test]
fn playing_ends_if_the_network_stays_away() {
    let Some(network) = network() else { return };
    let folder = Folder::new();
    write_log(&folder, 100);
    let mut player = start_playing(&network, &folder, &["--interface", "other"]);
    assert!(shell(&network, "ip link set other down"));
    player.wait_for("messages wait until the network is back");
    player.end().expect(1).expect_stderr("through the interface").expect_stderr("retrying failed");
    // From the start, it is an error at once.
    let play = ["play", "in.lcm", "--to", URL, "--interface", "other"];
    let played = network.sluice(&folder, &play).output().unwrap();
    let played = ProgramOutput::from_output(played).expect(1);
    assert!(!played.stderr.contains("retrying"), "{}", played.stderr);
}

#[test]
fn a_recording_goes_on_through_an_interface_that_was_replaced() {
    let Some(network) = network() else { return };
    // Those of interfaces that are gone must not count.
    shell(&network, "sysctl -q -w net.ipv4.igmp_max_memberships=1");
    for interface in [&[][..], &["--interface", "other"], &["--interface", "10.9.9.9"]] {
        let folder = Folder::new();
        write_log(&folder, 10);
        let play = || {
            let play = ["play", "in.lcm", "--to", URL, "--speed", "0"];
            let play = network.sluice(&folder, &[&play, interface].concat()).output().unwrap();
            ProgramOutput::from_output(play).expect(0);
        };
        let record = ["record", URL, "--to", "got.lcm", "-n", "20", "--idle-timeout", "60"];
        let mut recorder = Recorder::start(network.sluice(&folder, &[&record, interface].concat()));
        play();
        assert!(shell(&network, "ip link del other"));
        recorder.wait_for("the network interface is gone");
        assert!(shell(&network, ADD));
        recorder.wait_for("the group joined again");
        play();
        recorder.end().expect(0);
        assert_eq!(received_events(&folder).len(), 20);
    }
}
