//! Live LCM, compared with the real client: what it sends and what we make of it, and vice versa.
//! Runs in a private network namespace with only `lo`; reports if the system does not allow one.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Folder, LcmEvent, ProgramOutput, drive, events, log, report_skip, root, sluice};

mod engine;
mod failures;
mod outages;
mod peers;

/// The multicast group and port of LCM, free in a private network.
pub(crate) const URL: &str = "udpm://239.255.76.67:7667?ttl=0";

/// A private network: only `lo`, with a multicast route.
pub(crate) struct Network {
    holder: Child,
    /// Closing it ends the holder.
    _stdin: ChildStdin,
}

impl Network {
    /// Creates a network; `None`, with a message, if the system does not allow it.
    pub(crate) fn new() -> Option<Self> {
        let script =
            "ip link set lo up && ip route add 224.0.0.0/4 dev lo && echo ready && read line";
        let holder = Command::new("unshare")
            .args(["-rn", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let has_nsenter = Command::new("nsenter").arg("--version").output().is_ok();
        let mut holder = holder.ok().filter(|_| has_nsenter)?;
        let mut printed = String::new();
        let read = BufReader::new(holder.stdout.take()?).read_line(&mut printed);
        let stdin = holder.stdin.take()?;
        if read.is_err() || printed.trim() != "ready" {
            report_skip("this system allows no private network (unshare -rn, ip, nsenter)");
            drop(stdin);
            holder.wait().unwrap();
            return None;
        }
        Some(Self { holder, _stdin: stdin })
    }

    /// Wraps a command to run in this network.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["-t", &self.holder.id().to_string(), "-U", "-n", "--preserve-credentials"]);
        inside.arg(command.get_program()).args(command.get_args());
        inside.current_dir(command.get_current_dir().unwrap_or(&root())).stdin(Stdio::null());
        inside
    }

    /// Waits until this many programs receive from [`URL`], for programs that do not say so.
    pub(crate) fn wait_for_receivers(&self, count: usize) {
        // The group as the system prints it: the address in native byte order.
        let group = format!("{:08X}", u32::from_ne_bytes([239, 255, 76, 67]));
        let members = || {
            let groups = std::fs::read_to_string(format!("/proc/{}/net/igmp", self.holder.id()));
            let groups = groups.unwrap();
            let words = groups.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let users = words.filter(|words| words.first() == Some(&&*group));
            users.filter_map(|words| words.get(1)?.parse::<usize>().ok()).sum::<usize>()
        };
        assert!(until(PATIENCE, || members() >= count), "{count} programs never receive");
    }

    /// Waits until a hub at this port has read all that these clients have sent so far, such as
    /// subscriptions, which it does not confirm.
    pub(crate) fn wait_for_hub(&self, port: u16, clients: usize) {
        // The address, the state "established", and no bytes to read, as the system prints them.
        let address = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let is_served = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1) == Some(&&*address)
                && words.get(3) == Some(&"01")
                && words.get(4).is_some_and(|queues| queues.ends_with(":00000000"))
        };
        let sockets = || std::fs::read_to_string(format!("/proc/{}/net/tcp", self.holder.id()));
        let served = || sockets().unwrap().lines().filter(|line| is_served(line)).count();
        assert!(until(PATIENCE, || served() == clients), "{clients} clients are not served");
    }

    /// The program, to run in this network and this folder.
    pub(crate) fn sluice(&self, folder: &Folder, arguments: &[&str]) -> Command {
        self.enter(sluice(folder).args(arguments))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// The timeout for programs, generous for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds, up to `longest`. Returns whether it does.
pub(crate) fn until(longest: Duration, holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < longest {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    holds()
}

/// A listening program.
pub(crate) struct Listener {
    pub(crate) child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<String>,
}

impl Listener {
    /// Starts a program, and waits until it prints `ready` on either output.
    pub(crate) fn start(mut command: Command, ready: &'static str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, is_ready) = mpsc::channel();
        let stdout = listen(child.stdout.take().unwrap(), ready, sender.clone());
        let stderr = listen_text(child.stderr.take().unwrap(), ready, sender);
        if is_ready.recv_timeout(PATIENCE).is_err() {
            drop(child.kill());
            panic!("it never printed `{ready}`: {}", stderr.join().unwrap());
        }
        Self { child, stdout, stderr }
    }

    /// Waits for its end and returns the output.
    pub(crate) fn end(mut self) -> ProgramOutput {
        let code = self.child.wait().unwrap().code();
        ProgramOutput {
            code,
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().spawn(work).unwrap()
}

fn listen(
    mut from: ChildStdout,
    ready: &'static str,
    sender: mpsc::Sender<()>,
) -> JoinHandle<Vec<u8>> {
    on_a_thread(move || {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        let mut announced = false;
        while let Ok(len @ 1..) = from.read(&mut part) {
            all.extend_from_slice(&part[..len]);
            if !announced && String::from_utf8_lossy(&all).contains(ready) {
                announced = true;
                let _sent = sender.send(());
            }
        }
        all
    })
}

fn listen_text(
    from: ChildStderr,
    ready: &'static str,
    sender: mpsc::Sender<()>,
) -> JoinHandle<String> {
    on_a_thread(move || {
        let mut all = String::new();
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if line.contains(ready) {
                let _sent = sender.send(());
            }
            all += &(line + "\n");
        }
        all
    })
}

/// A pipeline that receives into `got.lcm` and leaves `report.json`.
fn receive_pipeline(folder: &Folder, options: &str) -> Vec<String> {
    let text = format!(
        "[sources.live]\nplugin = \"lcm-udp\"\n{options}\n\n[sinks.out]\nplugin = \"lcm-log\"\n\
         from = \"live\"\n\
         path = \"got.lcm\"\n"
    );
    folder.write("receive.toml", text);
    ["run", "receive.toml", "--report", "report.json"].map(String::from).to_vec()
}

/// Starts receiving with these options, and waits until the program listens.
fn receive(network: &Network, folder: &Folder, options: &str) -> Listener {
    let arguments = receive_pipeline(folder, options);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Listener::start(network.sluice(folder, &arguments), "listening")
}

fn received_events(folder: &Folder) -> Vec<LcmEvent> {
    events(&folder.read("got.lcm"))
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

/// The payload that the peer generates for message `number` of this size.
fn pattern(number: u64, size: usize) -> Vec<u8> {
    let rest = (8..size.max(8)).map(|at| (at * 131 + at / 251) as u8);
    number.to_be_bytes().into_iter().chain(rest).take(size).collect()
}

/// What to publish: channel, bytes, and a pause in milliseconds after it.
fn spec(messages: &[(&str, usize, u64)]) -> String {
    let each = messages.iter().map(|(name, size, pause)| json!([name, size, pause]));
    Value::from_iter(each).to_string()
}

fn peer_program() -> PathBuf {
    root().join("tests/suite/live/peer.py")
}

#[test]
fn a_run_that_sends_to_where_it_receives_from_says_so() {
    let Some(network) = Network::new() else { return };
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 10)));
    let circulating = |to: &str| {
        let convert = ["convert", URL, "--to", to, "--source-option", "limit=5"];
        let listener = Listener::start(network.sluice(&folder, &convert), "listening");
        let play = ["play", "in.lcm", "--to", URL, "--speed", "0"];
        let played = network.sluice(&folder, &play).output().unwrap();
        ProgramOutput::from_output(played).expect(0);
        listener.end().expect(0).stderr.contains("a message circulates without end")
    };
    assert!(circulating("udpm://?ttl=1"));
    assert!(!circulating("udpm://239.255.76.67:7668"));
    // Without an end of its own, while it goes on.
    let listener = std::thread::scope(|scope| {
        scope.spawn(|| {
            network.wait_for_receivers(1);
            let play = ["play", "in.lcm", "--to", URL, "--speed", "0"];
            network.sluice(&folder, &play).output().unwrap();
        });
        let convert = network.sluice(&folder, &["convert", URL, "--to", "udpm://?ttl=1"]);
        Listener::start(convert, "a message circulates without end")
    });
    listener.signal(rustix::process::Signal::INT);
    let stderr = listener.end().stderr;
    assert_eq!(stderr.matches("a message circulates").count(), 1, "{stderr}");
    let ran = sluice(&folder).args(["report", URL]).output().unwrap();
    let says = "has no name to call a page by; name the page: --to PAGE.html";
    ProgramOutput::from_output(ran).expect(2).expect_stderr(says);
}

#[test]
fn messages_take_the_route_to_the_group_beside_other_interfaces() {
    let Some(network) = Network::new() else { return };
    // Its address, not that of `lo`, is what the system writes into datagrams for other computers.
    let other = "ip link add other type veth peer name peer && \
                 ip addr add 10.9.9.9/24 dev other && ip link set other up";
    let mut shell = Command::new("sh");
    if !network.enter(shell.args(["-c", other])).output().unwrap().status.success() {
        return report_skip("this system allows no second network interface (ip link add)");
    }
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(3, 10)));
    let listener = receive(&network, &folder, "limit = 10\nidle_timeout = \"20 s\"");
    let play = ["play", "in.lcm", "--to", URL, "--speed", "0"];
    let played = network.sluice(&folder, &play).output().unwrap();
    ProgramOutput::from_output(played).expect(0);
    listener.end().expect(0);
    assert_eq!(received_events(&folder).len(), 10);
}
