//! A cluster of real processes: each can be killed, paused and observed, and none outlives its
//! test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{Folder, sluice};

/// The timeout of every wait. It is reached only if something is wrong.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until `look` returns something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process of the program, killed when dropped.
pub(crate) struct ClusterProcess {
    child: Child,
    stderr: Arc<Mutex<String>>,
    listener: std::thread::JoinHandle<()>,
}

impl ClusterProcess {
    /// Starts a process and collects its stderr.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = Arc::<Mutex<String>>::default();
        let (errors, buffer) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        let listen = move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                *buffer.lock().unwrap() += &format!("{line}\n");
            }
        };
        let listener = std::thread::Builder::new().spawn(listen).unwrap();
        Self { child, stderr, listener }
    }

    /// Its stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits for a line with this prefix; returns the rest of the line.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, words: &str) -> String {
        until(&format!("`{words}` in {}", self.stderr()), || {
            self.stderr().lines().find_map(|line| line.strip_prefix(words).map(str::to_owned))
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills it like a power failure: at once, without telling its children.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its exit and the end of its stderr; returns the exit code.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        let ended = until("the end of a process", || self.child.try_wait().unwrap());
        until("its last word", || self.listener.is_finished().then_some(()));
        ended.code()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        // If that fails, it has exited.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- stderr of a cluster process:\n{}", self.stderr());
        }
    }
}

/// A scheduler and its executors.
pub(crate) struct Cluster {
    pub(crate) address: String,
    pub(crate) executors: Vec<ClusterProcess>,
    pub(crate) scheduler: ClusterProcess,
    /// The options of every process that prove that it belongs to the cluster.
    credentials: Vec<String>,
}

impl Cluster {
    /// Starts a scheduler and `executors` executors with one slot each, and waits until all have
    /// joined.
    pub(crate) fn start(folder: &Folder, executors: usize) -> Self {
        Self::with_credentials(folder, executors, &[])
    }

    /// The same with these options for every process.
    pub(crate) fn with_credentials(
        folder: &Folder,
        executors: usize,
        credentials: &[&str],
    ) -> Self {
        let scheduler = scheduler_with(folder, "127.0.0.1:0", credentials);
        let mut cluster = Self::with_process(scheduler);
        cluster.credentials = credentials.iter().map(|&option| option.to_owned()).collect();
        for _ in 0..executors {
            let options = [&["--slots", "1"], credentials].concat();
            cluster.executors.push(executor(folder, &cluster.address, &options));
        }
        for executor in &cluster.executors {
            executor.wait_for_line("joined ");
        }
        cluster
    }

    /// A cluster without executors, around a scheduler that was just started.
    pub(crate) fn with_process(scheduler: ClusterProcess) -> Self {
        let address = scheduler.wait_for_line("listening on ");
        Self { address, executors: Vec::new(), scheduler, credentials: Vec::new() }
    }

    /// The arguments of a run on this cluster.
    pub(crate) fn engine(&self) -> Vec<&str> {
        let credentials = self.credentials.iter().map(String::as_str);
        ["--engine", "ballista", "--scheduler", &self.address]
            .into_iter()
            .chain(credentials)
            .collect()
    }
}

/// Starts a scheduler, which considers an executor lost after four seconds.
pub(crate) fn scheduler(folder: &Folder, listen: &str) -> ClusterProcess {
    scheduler_with(folder, listen, &[])
}

/// Starts a scheduler with more options.
pub(crate) fn scheduler_with(folder: &Folder, listen: &str, more: &[&str]) -> ClusterProcess {
    let arguments = ["cluster", "scheduler", "--listen", listen, "--executor-timeout", "4s"];
    ClusterProcess::start(sluice(folder).args(arguments).args(more))
}

/// Starts an executor.
pub(crate) fn executor(folder: &Folder, scheduler: &str, more: &[&str]) -> ClusterProcess {
    let arguments = ["cluster", "executor", "--scheduler", scheduler];
    ClusterProcess::start(sluice(folder).args(arguments).args(more))
}

/// Sends this response to every HTTP request, until dropped.
pub(crate) struct FakeScheduler {
    pub(crate) address: String,
    stop: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeScheduler {
    pub(crate) fn with_response(answer: String) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::<std::sync::atomic::AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let serve = move || {
            for stream in listener.incoming() {
                if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.unwrap();
                let mut head = [0; 1024];
                // Requests are short: the first read gets all of one.
                let _asked = stream.read(&mut head);
                let _gone = std::io::Write::write_all(&mut stream, answer.as_bytes());
            }
        };
        let thread = Some(std::thread::Builder::new().spawn(serve).unwrap());
        Self { address, stop, thread }
    }

    /// Responds with JSON.
    pub(crate) fn with_json(json: &serde_json::Value) -> Self {
        let body = json.to_string();
        let length = body.len();
        Self::with_response(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ))
    }
}

impl Drop for FakeScheduler {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // Wakes the thread up.
        drop(std::net::TcpStream::connect(&self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
