//! Hosts for tests: groups of processes with a name, a network, mounts, process numbers and an
//! uptime of their own, in Linux namespaces. Each ends with the value that stands for it, or with
//! the test program, however that ends. They share the files of this machine, and need root.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::report_skip;

/// The first process of a host: waits for the end of its input, which comes with that of the test.
const INIT: &str = "echo \"$0\" >/proc/sys/kernel/hostname; ip link set lo up; echo ready; cat";

/// A host. Its processes are killed, as by a power failure, when this is dropped.
pub(crate) struct Host {
    name: String,
    namespaces: Child,
    /// The first process, as this machine numbers it.
    init: Pid,
}

impl Host {
    /// Starts a host that has been up for `uptime` seconds longer than this machine; `None` if that
    /// is not permitted.
    fn start(name: &str, uptime: u32) -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--uts", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "--time"]);
        command.args(["--monotonic", "--boottime"].map(|clock| format!("{clock}={uptime}")));
        command.args(["sh", "-eu", "-c", INIT, name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut namespaces = command.spawn().ok()?;
        let mut said = String::new();
        let output = namespaces.stdout.take().unwrap();
        if BufReader::new(output).read_line(&mut said).is_err() || said != "ready\n" {
            namespaces.wait().unwrap();
            return None;
        }
        let id = namespaces.id();
        let init = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let init = Pid::from_raw(init.trim().parse().unwrap()).unwrap();
        Some(Self { name: name.to_owned(), namespaces, init })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs a program on this host, in this folder. Its process is the parent of
    /// the program, and ends with it.
    pub(crate) fn command(&self, folder: &Path, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.as_raw_pid().to_string()]);
        command.args(["--uts", "--net", "--mount", "--pid", "--time"]);
        command.arg(format!("--wdns={}", folder.display())).arg(program.as_ref());
        command.stdin(Stdio::null());
        command
    }

    /// Runs a shell command on this host.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) {
        let mut command = self.command(Path::new("/"), "sh");
        let error = error_of(command.args(["-euc", script]));
        assert_eq!(error, None, "{}: {script}", self.name);
    }

    /// Its processes, as this machine numbers them.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
        let here = namespace(&Path::new("/proc").join(self.init.as_raw_pid().to_string()));
        let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
        let ours = all.filter(|entry| namespace(&entry.path()) == here);
        ours.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    /// Ends all its processes at once, and waits until they have ended.
    pub(crate) fn cut_power(&mut self) {
        // The others end with the first one. If that fails, it has ended.
        let _ended = kill_process(self.init, Signal::KILL);
        drop(self.namespaces.wait());
    }

    /// Runs a program that configures the network of this host, among the processes of this
    /// machine; returns why it failed.
    fn configure(&self, program: &str, arguments: &str) -> Option<String> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.as_raw_pid().to_string(), "--net", program]);
        error_of(command.args(arguments.split(' ')))
    }

    #[track_caller]
    fn ip(&self, arguments: &str) {
        assert_eq!(self.configure("ip", arguments), None, "{}: ip {arguments}", self.name);
    }

    /// Slows what this network interface sends.
    #[track_caller]
    fn slow(&self, interface: &str) {
        let netem = format!("qdisc add dev {interface} root netem delay 50ms 30ms loss 2%");
        if self.configure("tc", &netem).is_some() {
            // Not every kernel has that. A full queue delays and loses packets, too.
            let tbf = "root tbf rate 1mbit burst 8kb limit 16kb";
            let tbf = format!("qdisc add dev {interface} {tbf}");
            assert_eq!(self.configure("tc", &tbf), None, "{}: {tbf}", self.name);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cut_power();
    }
}

/// Why a command failed; `None` if it succeeded.
fn error_of(command: &mut Command) -> Option<String> {
    let done = command.output().unwrap();
    let is_success = done.status.success();
    (!is_success).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

/// A network of hosts, with a switch between them.
pub(crate) struct Network {
    switch: Host,
}

impl Network {
    /// Starts a network without hosts; `None`, with a message, if this user may not.
    pub(crate) fn start() -> Option<Self> {
        let Some(switch) = Host::start("switch", 0) else {
            report_skip("hosts in namespaces of their own: this user may not make them");
            return None;
        };
        switch.ip("link add ports type bridge forward_delay 0");
        switch.ip("link set ports up");
        Some(Self { switch })
    }

    /// The address of a host.
    pub(crate) fn address(number: u8) -> String {
        format!("10.77.0.{number}")
    }

    /// Starts the host with this name and number, of which there may have been one before.
    pub(crate) fn host(&self, name: &str, number: u8) -> Host {
        let host = Host::start(name, 100_000 * u32::from(number)).expect("the switch is one, too");
        // The link of the one before goes when the kernel comes to it, or here.
        drop(self.switch.configure("ip", &format!("link del {name}")));
        let init = host.init.as_raw_pid();
        self.switch.ip(&format!("link add {name} type veth peer name eth0 netns {init}"));
        self.switch.ip(&format!("link set {name} master ports up"));
        host.ip(&format!("addr add {}/24 dev eth0", Self::address(number)));
        host.ip("link set eth0 up");
        host
    }

    /// Unplugs a host: packets are lost, and no connection is told.
    pub(crate) fn cut(&self, host: &Host) {
        self.switch.ip(&format!("link set {} down", host.name));
    }

    /// Plugs a host in again.
    pub(crate) fn join(&self, host: &Host) {
        self.switch.ip(&format!("link set {} up", host.name));
    }

    /// Slows the link of a host in both directions.
    pub(crate) fn slow(&self, host: &Host) {
        self.switch.slow(&host.name);
        host.slow("eth0");
    }
}
