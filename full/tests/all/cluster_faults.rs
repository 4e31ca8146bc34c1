//! What becomes of runs on a cluster whose parts die, fall silent, or are not what they should be: outputs are those of
//! a run on this machine, byte for byte, or they are not there and it is said why; and nothing is left behind.

mod chance;
mod driver;
mod executors;
mod scheduler;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::processes::{Cluster, ClusterProcess, until};
use crate::cluster::{same, tree};
use crate::kit::{Folder, drive, log, run_sluice, sluice};

/// A batch whose logs go through a program, which may wait.
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

/// Takes the next place, and goes on once so many places may.
const WAIT: &str = r#"
place=0
until mkdir "places/$place" 2> /dev/null; do
    [ -d places ] || exit 1
    place=$((place + 1))
done
while [ "$place" -ge "$(cat free || echo 9999)" ]; do sleep 0.02; done
exec cat
"#;

/// More places than there ever are.
const ALL: usize = 9999;

/// A batch of which as many units go through as may; each of the others is held in its middle.
struct GatedBatch {
    folder: Folder,
    /// Where the parts of its cluster are at home: who works in `folder` is a driver, or does a unit.
    home: Folder,
    /// What a run on this machine makes of it.
    expected: BTreeMap<String, Vec<u8>>,
}

impl GatedBatch {
    /// A batch of so many logs, all of which may go through.
    fn with_logs(logs: u64) -> Self {
        Self::with(BATCH, WAIT, (0..logs).map(|n| log(&drive(n + 1, 300 + 200 * (n as i64 % 3)))))
    }

    /// A batch of these logs, by a pipeline with a program.
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
        let mut held = Self { folder, home, expected: BTreeMap::new() };
        held.let_through(ALL);
        held.expected = held.made_here();
        held
    }

    /// What a run on this machine makes now of the whole batch.
    fn made_here(&self) -> BTreeMap<String, Vec<u8>> {
        run_sluice(&self.folder, &["run", "batch.toml", "--allow-exec"]).expect(0);
        let made = tree(&self.folder.at("out"));
        fs::remove_dir_all(self.folder.at("out")).unwrap();
        self.forget_places();
        made
    }

    fn forget_places(&self) {
        fs::remove_dir_all(self.folder.at("places")).unwrap();
        fs::create_dir(self.folder.at("places")).unwrap();
    }

    /// Lets those go through that have one of the first places.
    fn let_through(&self, places: usize) {
        let beside = self.folder.write("free.new", places.to_string());
        fs::rename(beside, self.folder.at("free")).unwrap();
    }

    /// A scheduler and so many executors of one slot.
    fn cluster(&self, executors: usize) -> Cluster {
        let scheduler = self.scheduler("127.0.0.1:0");
        let address = scheduler.wait_for_line("listening on ");
        let mut cluster = Cluster { address, executors: Vec::new(), scheduler };
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

    /// An executor that is started by other programs.
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

    /// Waits until the outputs of so many units are there, and recorded.
    #[track_caller]
    fn until_published(&self, units: usize) {
        let is_there = || self.published() >= units && self.verdict().contains(&self.recorded());
        until(&format!("{units} published units"), || is_there().then_some(()));
    }

    /// What `verify` says of the outputs.
    fn verdict(&self) -> String {
        let verdict = run_sluice(&self.folder, &["verify", "out"]).expect(1);
        verdict.stderr.clone() + &verdict.text()
    }

    /// What that says where all that is published is recorded.
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

    /// Waits until so many places are taken: each attempt at a unit takes one.
    #[track_caller]
    fn until_begun(&self, places: usize) {
        let taken = || fs::read_dir(self.folder.at("places")).unwrap().count();
        until(&format!("{places} attempts"), || (taken() >= places).then_some(()));
    }

    /// Waits until nobody is at work for it any more.
    #[track_caller]
    fn until_quiet(&self) {
        until("the end of all units", || (at_work_in(&self.folder).is_empty()).then_some(()));
    }

    /// Fails the test unless the outputs are those of a run on this machine, and nothing else is there.
    #[track_caller]
    fn is_whole(&self) {
        same(&self.expected, &tree(&self.folder.at("out")));
        assert_eq!(hidden(self.folder.path()), Vec::<PathBuf>::new());
        assert_eq!(self.folder.names(), ["batch.toml", "free", "in", "out", "places", "wait.sh"]);
        run_sluice(&self.folder, &["verify", "out"]).expect(0);
    }

    /// Fails the test unless all that is published is as a run on this machine makes it, and is recorded.
    #[track_caller]
    fn is_sound(&self) {
        let mut files = tree(&self.folder.at("out"));
        // What was being written when a driver was killed is hidden until the next one sweeps it.
        let is_hidden = |name: &str| name.split('/').any(|part| part.starts_with('.'));
        files.retain(|name, _| !is_hidden(name) && !name.starts_with('_'));
        for (name, bytes) in &files {
            assert!(self.expected.get(name) == Some(bytes), "{name} differs");
        }
        let (said, recorded) = (self.verdict(), self.recorded());
        assert!(said.contains(&recorded), "no `{recorded}` in: {said}");
        // And nothing else.
        assert_eq!(said.matches("differs").count() + said.matches("missing").count(), 1, "{said}");
    }
}

/// Everything below a folder whose name begins with a dot.
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

/// The processes that work in this folder.
fn at_work_in(folder: &Folder) -> Vec<Pid> {
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

/// A process and all that it has started, and those have, in this order.
fn family(of: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, i32)> =
        processes().filter_map(|(pid, process)| Some((pid, parent(&process)?))).collect();
    let mut family = vec![of];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        let children =
            parents.iter().filter(|(_, parent)| *parent == member.as_raw_nonzero().get());
        family.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    family
}

fn parent(process: &Path) -> Option<i32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Behind the name, which may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Sends a signal to processes that may have ended.
fn signal_all(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ended = kill_process(*process, signal);
    }
}

/// What a scheduler says of its cluster.
fn status(held: &GatedBatch, cluster: &Cluster) -> Value {
    let status = ["cluster", "status", "--json", "--scheduler", &cluster.address];
    serde_json::from_slice(&run_sluice(&held.home, &status).expect(0).stdout).unwrap()
}

/// Waits until a scheduler knows so many executors.
#[track_caller]
fn until_executors(held: &GatedBatch, cluster: &Cluster, count: usize) {
    until(&format!("{count} executors"), || {
        let status = status(held, cluster);
        (status["executors"].as_array().unwrap().len() == count).then_some(())
    });
}

/// Waits until nobody works for any run.
#[track_caller]
fn until_idle(held: &GatedBatch, cluster: &Cluster) {
    until("the end of all jobs", || {
        status(held, cluster)["jobs"].as_array().unwrap().is_empty().then_some(())
    });
}
