//! A cluster of processes on this machine, for one run: a scheduler and some executors, each this
//! program again, on loopback. They end with the process that started them, even if that is killed:
//! their stdin closes. They have a secret of their own, which nobody else knows.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use sluice_model::Error;

use crate::address::Address;
use crate::credentials::{Credentials, Secret};
use crate::endpoint::SchedulerEndpoint;
use crate::executor::child::program;

/// How long a process may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a process may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The signal of a lack of memory, among others.
const SIGKILL: i32 = 9;

/// The most executors on one machine.
const MAX_EXECUTORS: usize = 64;

/// A cluster on this machine. Stopped when dropped.
#[derive(Debug)]
pub struct LocalCluster {
    scheduler: SchedulerEndpoint,
    /// Executors, then the scheduler: stopped in this order, no executor loses its scheduler.
    processes: Vec<ClusterProcess>,
}

/// Options of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalClusterOptions {
    /// The number of executors.
    pub executors: usize,
    /// The number of threads of all executors together.
    pub threads: usize,
    /// Whether pipelines may run programs.
    pub allow_exec: bool,
}

#[derive(Debug)]
struct ClusterProcess(Child);

impl LocalCluster {
    /// Starts the cluster, and returns when all executors have joined. Messages of its processes go
    /// to `say` as long as they run.
    pub fn start(
        options: &LocalClusterOptions,
        say: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Self, Error> {
        if !(1..=MAX_EXECUTORS).contains(&options.executors) {
            let executors = options.executors;
            return Err(Error::refused(format!(
                "expected 1 to {MAX_EXECUTORS} executors, not {executors}"
            )));
        }
        let secret = Secret::generate()?;
        let scheduler = ["scheduler", "--listen", "127.0.0.1:0"];
        let (child, lines) = start(&scheduler, &secret, say.clone())?;
        let address = Address { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 };
        let credentials = Credentials::with_secret(secret.clone());
        let mut cluster =
            Self { scheduler: SchedulerEndpoint { address, credentials }, processes: vec![child] };
        let listening = wait_for(&lines, "listening on ", "the scheduler")?;
        cluster.scheduler.address = listening.parse().map_err(|_| missing("the scheduler"))?;
        let slots = options.threads.checked_div(options.executors).unwrap_or(1).max(1);
        let jobs = (options.threads / (slots * options.executors)).max(1);
        let mut all = Vec::new();
        for number in 0..options.executors {
            let scheduler = cluster.scheduler.to_string();
            let (slots, jobs, name) =
                (slots.to_string(), jobs.to_string(), format!("local{number}"));
            let mut arguments = vec!["executor", "--scheduler", &scheduler, "--name", &name];
            arguments.extend(["--slots", &slots, "--jobs", &jobs]);
            arguments.extend(options.allow_exec.then_some("--allow-exec"));
            let (child, lines) = start(&arguments, &secret, say.clone())?;
            cluster.processes.insert(0, child);
            all.push(lines);
        }
        for lines in &all {
            wait_for(lines, "joined ", "an executor")?;
        }
        Ok(cluster)
    }

    /// Why it cannot work any more: its scheduler or all of its executors have ended, and nobody
    /// else can join it.
    pub(crate) fn ended(&mut self) -> Option<Error> {
        let ended = |who: &str, how: ExitStatus| {
            let advice = match how.signal() {
                Some(SIGKILL) => "; if memory ran out, use fewer threads (--jobs)",
                _ => "",
            };
            Error::refused(format!("{who} of the local cluster ended ({how}){advice}"))
        };
        let (scheduler, executors) = self.processes.split_last_mut()?;
        if let Ok(Some(how)) = scheduler.0.try_wait() {
            return Some(ended("the scheduler", how));
        }
        let mut last = None;
        for executor in executors {
            last = Some(executor.0.try_wait().ok()??);
        }
        last.map(|how| ended("all executors", how))
    }

    /// Its scheduler.
    pub fn scheduler(&self) -> &SchedulerEndpoint {
        &self.scheduler
    }
}

/// Starts a process of the cluster, and sends it the secret.
fn start(
    arguments: &[&str],
    secret: &Secret,
    say: impl Fn(&str) + Send + 'static,
) -> Result<(ClusterProcess, Receiver<String>), Error> {
    let mut command = Command::new(program());
    command.arg0("sluice").arg("cluster").args(arguments).arg("--with-parent");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Its own process group: Ctrl-C is for the run, which stops its cluster in order.
    command.process_group(0);
    let cannot = |e| Error::refused(format!("cannot start a cluster process: {e}"));
    let mut process = ClusterProcess(command.spawn().map_err(cannot)?);
    if let Some(input) = &mut process.0.stdin {
        // On a command line or in the environment, other users of this machine might see it.
        writeln!(input, "{}", secret.reveal()).map_err(cannot)?;
    }
    let (ready, lines) = mpsc::channel();
    if let Some(errors) = process.0.stderr.take() {
        let thread = std::thread::Builder::new().name("sluice-part".into());
        thread.spawn(move || forward_stderr(errors, &ready, &say)).map_err(cannot)?;
    }
    Ok((process, lines))
}

/// Relays the stderr of a process, except the lines that `wait_for` waits for.
fn forward_stderr(errors: ChildStderr, ready: &Sender<String>, say: &impl Fn(&str)) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let is_awaited = ["listening on ", "joined "].iter().any(|prefix| line.starts_with(prefix));
        let has_receiver = ready.send(line.clone()).is_ok();
        if !(is_awaited && has_receiver) {
            say(&line);
        }
    }
}

/// Waits for a line with this prefix; returns the rest of the line.
fn wait_for(lines: &Receiver<String>, prefix: &str, who: &str) -> Result<String, Error> {
    let end = Instant::now() + START_TIMEOUT;
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(rest) = line.strip_prefix(prefix) {
            return Ok(rest.to_owned());
        }
    }
    Err(missing(who))
}

fn missing(who: &str) -> Error {
    Error::refused(format!("{who} of the local cluster did not start"))
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.0.stdin = None;
        }
        self.processes.clear();
    }
}

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        self.0.stdin = None;
        let end = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < end && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // If that fails, it has exited.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
