//! Sends LCM messages to a recording on `lo`, with a private port.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use socket2::SockRef;

use crate::kit::{Folder, LcmEvent, ProgramOutput, sluice};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 67);

/// The timeout, generous for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sends messages as LCM programs do.
pub(crate) struct Sender {
    socket: UdpSocket,
    port: u16,
    /// The number of the next message.
    pub(crate) sent: u32,
}

impl Sender {
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        socket.set_multicast_ttl_v4(0).unwrap();
        // The open socket reserves the port.
        let port = socket.local_addr().unwrap().port();
        Self { socket, port, sent: 0 }
    }

    /// Another sender to the same group and port.
    pub(crate) fn another(&self) -> Self {
        Self { port: self.port, ..Self::new() }
    }

    pub(crate) fn url(&self) -> String {
        format!("udpm://{GROUP}:{}?ttl=0", self.port)
    }

    pub(crate) fn send(&mut self, channel: &str, payload: &[u8]) {
        let mut datagram = b"LC02".to_vec();
        datagram.extend(self.sent.to_be_bytes());
        datagram.extend(channel.as_bytes());
        datagram.push(0);
        datagram.extend(payload);
        self.sent += 1;
        self.socket.send_to(&datagram, SocketAddrV4::new(GROUP, self.port)).unwrap();
    }

    pub(crate) fn send_all(&mut self, events: &[LcmEvent]) {
        for event in events {
            self.send(str::from_utf8(&event.channel).unwrap(), &event.payload);
        }
    }

    /// A `record` command for this sender.
    pub(crate) fn record(&self, folder: &Folder, arguments: &[&str]) -> Command {
        let mut command = sluice(folder);
        command.args(["record", &self.url(), "--interface", "lo"]).args(arguments);
        command
    }

    /// Starts recording, and waits until it receives.
    pub(crate) fn start(&self, folder: &Folder, arguments: &[&str]) -> Recorder {
        Recorder::start(self.record(folder, arguments))
    }
}

/// A running recording and its output.
pub(crate) struct Recorder {
    pub(crate) child: Child,
    lines: Receiver<String>,
    pub(crate) said: String,
}

impl Recorder {
    /// Starts it, and waits until it receives.
    pub(crate) fn start(command: Command) -> Self {
        let mut recorder = Self::spawn(command);
        recorder.wait_for("listening");
        recorder
    }

    /// Starts a program, also one that is no recording.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = channel();
        let listen = move || stderr.lines().map_while(Result::ok).try_for_each(|l| tell.send(l));
        std::thread::Builder::new().spawn(listen).unwrap();
        Self { child, lines, said: String::new() }
    }

    /// Waits for this output; ignores earlier output.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, word: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("it never said `{word}`:\n{}", self.said);
            };
            self.said += &format!("{line}\n");
            if line.contains(word) {
                return;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and waits until each of its threads has stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let process = Pid::from_child(&self.child);
        let stopped = waitpid(Some(process), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(stopped.1.stopped(), "{:?}", stopped.1);
    }

    /// Waits for its end and returns the output.
    pub(crate) fn end(mut self) -> ProgramOutput {
        let code = self.child.wait().unwrap().code();
        self.lines.into_iter().for_each(|line| self.said += &format!("{line}\n"));
        ProgramOutput { code, stdout: Vec::new(), stderr: self.said }
    }

    pub(crate) fn stop(self) -> ProgramOutput {
        self.signal(Signal::INT);
        self.end()
    }
}
