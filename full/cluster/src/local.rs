//! A cluster of processes on this machine, for one run: a scheduler and some executors, each this program
//! again, on loopback. They end with whoever started them, also where that is killed: their standard
//! input closes then.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use sluice_core::Error;

use crate::address::Address;
use crate::executor::child::program;

/// How long a part may take to be there.
const START: Duration = Duration::from_secs(30);

/// How long a part may take to end.
const END: Duration = Duration::from_secs(10);

/// How many processes a cluster on one machine may have.
const MOST: usize = 64;

/// A cluster on this machine. Ends with this.
#[derive(Debug)]
pub struct LocalCluster {
    scheduler: Address,
    /// Executors, then the scheduler: nobody shall miss anybody.
    parts: Vec<Part>,
}

/// What it is to be.
#[derive(Clone, Debug)]
pub struct Size {
    /// How many executors.
    pub executors: usize,
    /// How many threads all of them have together.
    pub threads: usize,
    /// Whether pipelines may run programs.
    pub allow_exec: bool,
}

#[derive(Debug)]
struct Part(Child);

impl LocalCluster {
    /// Starts it, and returns when it is complete. What its parts say is passed on to `say` as long as
    /// they live.
    pub fn start(size: &Size, say: impl Fn(&str) + Clone + Send + 'static) -> Result<Self, Error> {
        if !(1..=MOST).contains(&size.executors) {
            let asked = size.executors;
            return Err(Error::refused(format!("expected 1 to {MOST} executors, not {asked}")));
        }
        let (child, said) = start(&["scheduler", "--listen", "127.0.0.1:0"], say.clone())?;
        let mut cluster = Self {
            scheduler: Address { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 },
            parts: vec![child],
        };
        let listening = wait_for(&said, "listening on ", "the scheduler")?;
        cluster.scheduler = listening.parse().map_err(|_| missing("the scheduler"))?;
        let slots = size.threads.checked_div(size.executors).unwrap_or(1).max(1);
        let jobs = (size.threads / (slots * size.executors)).max(1);
        let mut all = Vec::new();
        for number in 0..size.executors {
            let scheduler = cluster.scheduler.to_string();
            let (slots, jobs, name) =
                (slots.to_string(), jobs.to_string(), format!("local{number}"));
            let mut arguments = vec!["executor", "--scheduler", &scheduler, "--name", &name];
            arguments.extend(["--slots", &slots, "--jobs", &jobs]);
            arguments.extend(size.allow_exec.then_some("--allow-exec"));
            let (child, said) = start(&arguments, say.clone())?;
            cluster.parts.insert(0, child);
            all.push(said);
        }
        for said in &all {
            wait_for(said, "joined ", "an executor")?;
        }
        Ok(cluster)
    }

    /// Where its scheduler is.
    pub fn scheduler(&self) -> &Address {
        &self.scheduler
    }
}

fn start(
    arguments: &[&str],
    say: impl Fn(&str) + Send + 'static,
) -> Result<(Part, Receiver<String>), Error> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program());
    command.arg0("sluice").arg("cluster").args(arguments).arg("--with-parent");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A key that is pressed is for the run, which ends its cluster in good order.
    command.process_group(0);
    let cannot = |e| Error::refused(format!("cannot start a part of the cluster: {e}"));
    let mut part = Part(command.spawn().map_err(cannot)?);
    let (ready, said) = mpsc::channel();
    if let Some(errors) = part.0.stderr.take() {
        let thread = std::thread::Builder::new().name("sluice-part".into());
        thread.spawn(move || pass_on(errors, &ready, &say)).map_err(cannot)?;
    }
    Ok((part, said))
}

/// Passes on what a part says; what it says of itself only to who waits for it.
fn pass_on(errors: ChildStderr, ready: &Sender<String>, say: &impl Fn(&str)) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let is_of_itself = ["listening on ", "joined "].iter().any(|word| line.starts_with(word));
        let is_heard = ready.send(line.clone()).is_ok();
        if !(is_of_itself && is_heard) {
            say(&line);
        }
    }
}

/// What a part says behind these words, once it does.
fn wait_for(said: &Receiver<String>, words: &str, who: &str) -> Result<String, Error> {
    let end = Instant::now() + START;
    while let Ok(line) = said.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(rest) = line.strip_prefix(words) {
            return Ok(rest.to_owned());
        }
    }
    Err(missing(who))
}

fn missing(who: &str) -> Error {
    Error::refused(format!("{who} of the cluster on this machine did not come up"))
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for part in &mut self.parts {
            part.0.stdin = None;
        }
        self.parts.clear();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.0.stdin = None;
        let end = Instant::now() + END;
        while Instant::now() < end && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Where that fails, it has ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
