//! Clusters whose processes die, hang, or are not what they should be: the output equals that of a
//! run on this machine, byte for byte, or it is missing and an error says why; and nothing is left
//! behind.

mod chance;
mod driver;
mod executors;
mod hosts;
mod local;
mod scheduler;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::processes::{Cluster, ClusterProcess, until};
use crate::cluster::{assert_same_files, read_tree};
use crate::kit::{Folder, drive, log, run_sluice, sluice};

/// A batch that pipes each log through a program, which may wait.
const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[stages.wait]
plugin = "exec"
from = "log"
command = ["sh", "wait.sh"]
timeout = 0
[sinks.packed]
plugin = "archive"
from = "wait"
path = "out/{stem}.lcm.zst"
[sinks.table]
plugin = "parquet"
from = "wait"
path = "out/tables/{stem}/"
"#;

/// Takes the next place, and waits until `free` is larger.
const WAIT: &str = r#"
place=0
until mkdir "places/$place" 2> /dev/null; do
    [ -d places ] || exit 1
    place=$((place + 1))
done
while [ "$place" -ge "$(cat free || echo 9999)" ]; do sleep 0.02; done
exec cat
"#;

/// More places than any test takes.
const ALL: usize = 9999;

/// A batch whose program is a gate: the first units pass, the others wait in the middle of their
/// work.
struct GatedBatch {
    folder: Folder,
    /// The working directory of cluster processes; those in `folder` are drivers and units.
    home: Folder,
    /// The output of a run on this machine.
    expected: BTreeMap<String, Vec<u8>>,
}

impl GatedBatch {
    /// A batch of `logs` logs, with an open gate.
    fn with_logs(logs: u64) -> Self {
        Self::with(BATCH, WAIT, (0..logs).map(|n| log(&drive(n + 1, 300 + 200 * (n as i64 % 3)))))
    }

    /// A batch of these logs, with this pipeline and program.
    fn with(batch: &str, program: &str, logs: impl Iterator<Item = Vec<u8>>) -> Self {
        let (folder, home) = (Folder::new(), Folder::new());
        for place in ["in", "places"] {
            fs::create_dir(folder.at(place)).unwrap();
        }
        for (n, log) in logs.enumerate() {
            folder.write(&format!("in/{n:03}.lcm"), log);
        }
        folder.write("batch.toml", batch);
        folder.write("wait.sh", program);
        let mut gated = Self { folder, home, expected: BTreeMap::new() };
        gated.open_gate(ALL);
        gated.expected = gated.run_locally();
        gated
    }

    /// Runs the whole batch on this machine; returns and removes the output.
    fn run_locally(&self) -> BTreeMap<String, Vec<u8>> {
        run_sluice(&self.folder, &["run", "batch.toml", "--allow-exec"]).expect(0);
        let made = read_tree(&self.folder.at("out"));
        fs::remove_dir_all(self.folder.at("out")).unwrap();
        self.clear_places();
        made
    }

    fn clear_places(&self) {
        fs::remove_dir_all(self.folder.at("places")).unwrap();
        fs::create_dir(self.folder.at("places")).unwrap();
    }

    /// Opens the gate for the units with the first places.
    fn open_gate(&self, places: usize) {
        let beside = self.folder.write("free.new", places.to_string());
        fs::rename(beside, self.folder.at("free")).unwrap();
    }

    /// A scheduler and `executors` executors with one slot each.
    fn cluster(&self, executors: usize) -> Cluster {
        let mut cluster = Cluster::with_process(self.scheduler("127.0.0.1:0"));
        cluster.executors.extend((0..executors).map(|_| self.executor(&cluster.address)));
        cluster.executors.iter().for_each(|executor| drop(executor.wait_for_line("joined ")));
        cluster
    }

    fn scheduler(&self, listen: &str) -> ClusterProcess {
        let arguments = ["cluster", "scheduler", "--listen", listen, "--executor-timeout", "4s"];
        ClusterProcess::start(sluice(&self.home).args(arguments))
    }

    fn executor(&self, scheduler: &str) -> ClusterProcess {
        self.executor_by(&[crate::PROGRAM], scheduler)
    }

    /// An executor started through another program.
    fn executor_by(&self, words: &[&str], scheduler: &str) -> ClusterProcess {
        let arguments = ["cluster", "executor", "--scheduler", scheduler, "--slots", "1"];
        let mut command = sluice(&self.home);
        if let [program, more @ ..] = words {
            command = std::process::Command::new(program);
            command.args(more).current_dir(self.home.path()).stdin(std::process::Stdio::null());
        }
        command.env("TMPDIR", self.home.path());
        ClusterProcess::start(command.args(arguments).arg("--allow-exec"))
    }

    /// Starts a run of the batch.
    fn start(&self, cluster: &Cluster, more: &[&str]) -> ClusterProcess {
        let run = ["run", "batch.toml", "--allow-exec"];
        ClusterProcess::start(sluice(&self.folder).args(run).args(cluster.engine()).args(more))
    }

    /// Waits until the outputs of `units` units are published and recorded.
    #[track_caller]
    fn until_published(&self, units: usize) {
        let is_there =
            || self.published() >= units && self.verify_output().contains(&self.recorded());
        until(&format!("{units} published units"), || is_there().then_some(()));
    }

    /// What `verify` prints for the outputs.
    fn verify_output(&self) -> String {
        let verdict = run_sluice(&self.folder, &["verify", "out"]).expect(1);
        verdict.stderr.clone() + &verdict.text()
    }

    /// What `verify` prints if all published outputs are recorded.
    fn recorded(&self) -> String {
        match self.published() {
            1 => "1 input recorded".to_owned(),
            units => format!("{units} inputs recorded"),
        }
    }

    fn published(&self) -> usize {
        let there = fs::read_dir(self.folder.at("out")).into_iter().flatten().flatten();
        there.filter(|entry| entry.path().extension().is_some_and(|end| end == "zst")).count()
    }

    /// Waits until `places` places are taken: each attempt at a unit takes one.
    #[track_caller]
    fn until_begun(&self, places: usize) {
        let taken = || fs::read_dir(self.folder.at("places")).unwrap().count();
        until(&format!("{places} attempts"), || (taken() >= places).then_some(()));
    }

    /// Waits until no process works on the batch.
    #[track_caller]
    fn until_quiet(&self) {
        until("the end of all units", || (processes_in(&self.folder).is_empty()).then_some(()));
    }

    /// Asserts that the output equals that of a run on this machine, and nothing else is left.
    #[track_caller]
    fn assert_complete(&self) {
        assert_same_files(&self.expected, &read_tree(&self.folder.at("out")));
        assert_eq!(hidden(self.folder.path()), Vec::<PathBuf>::new());
        assert_eq!(self.folder.names(), ["batch.toml", "free", "in", "out", "places", "wait.sh"]);
        run_sluice(&self.folder, &["verify", "out"]).expect(0);
    }

    /// Asserts that all published output is as on this machine, and is recorded.
    #[track_caller]
    fn assert_consistent(&self) {
        let mut files = read_tree(&self.folder.at("out"));
        // What a killed driver was writing stays hidden until the next driver sweeps it.
        let is_hidden = |name: &str| name.split('/').any(|part| part.starts_with('.'));
        files.retain(|name, _| !is_hidden(name) && !name.starts_with('_'));
        for (name, bytes) in &files {
            assert!(self.expected.get(name) == Some(bytes), "{name} differs");
        }
        let (stderr, recorded) = (self.verify_output(), self.recorded());
        assert!(stderr.contains(&recorded), "no `{recorded}` in: {stderr}");
        // And nothing else.
        assert_eq!(
            stderr.matches("differs").count() + stderr.matches("missing").count(),
            1,
            "{stderr}"
        );
    }
}

/// All hidden files below a folder.
fn hidden(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            found.push(path);
        } else if path.is_dir() {
            found.extend(hidden(&path));
        }
    }
    found
}

/// The processes with this working directory.
fn processes_in(folder: &Folder) -> Vec<Pid> {
    let folder = folder.path().canonicalize().unwrap();
    processes().filter(|(_, process)| at(process) == Some(folder.clone())).map(|of| of.0).collect()
}

fn at(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("cwd")).ok()
}

fn processes() -> impl Iterator<Item = (Pid, PathBuf)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((Pid::from_raw(number)?, entry.path()))
    })
}

/// A process and its descendants, in this order.
fn process_tree(of: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, i32)> =
        processes().filter_map(|(pid, process)| Some((pid, parent_pid(&process)?))).collect();
    let mut process_tree = vec![of];
    let mut next = 0;
    while let Some(&member) = process_tree.get(next) {
        let children =
            parents.iter().filter(|(_, parent)| *parent == member.as_raw_nonzero().get());
        process_tree.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    process_tree
}

fn parent_pid(process: &Path) -> Option<i32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // After the name, which may contain anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Sends a signal to processes that may have exited.
fn signal_all(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ended = kill_process(*process, signal);
    }
}

/// The status of the cluster, from its scheduler.
fn status(gated: &GatedBatch, cluster: &Cluster) -> Value {
    let status = ["cluster", "status", "--json", "--scheduler", &cluster.address];
    serde_json::from_slice(&run_sluice(&gated.home, &status).expect(0).stdout).unwrap()
}

/// Waits until the scheduler knows `count` executors.
#[track_caller]
fn until_executors(gated: &GatedBatch, cluster: &Cluster, count: usize) {
    until(&format!("{count} executors"), || {
        let status = status(gated, cluster);
        (status["executors"].as_array().unwrap().len() == count).then_some(())
    });
}

/// Waits until no process works for any run.
#[track_caller]
fn until_idle(gated: &GatedBatch, cluster: &Cluster) {
    until("the end of all jobs", || {
        status(gated, cluster)["jobs"].as_array().unwrap().is_empty().then_some(())
    });
}
