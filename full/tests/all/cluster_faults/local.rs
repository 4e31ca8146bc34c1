//! Local clusters whose processes are killed.

use std::fs;

use rustix::process::{Pid, Signal};

use super::{ALL, GatedBatch, process_tree, signal_all};
use crate::cluster::processes::ClusterProcess;
use crate::kit::sluice;

/// The processes of one kind in the local cluster of a run.
fn processes_of(run: &ClusterProcess, kind: &str) -> Vec<Pid> {
    let is_kind = |pid: &Pid| {
        let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(2) == Some(kind.as_bytes())
    };
    process_tree(run.pid()).into_iter().filter(is_kind).collect()
}

fn start(gated: &GatedBatch, more: &[&str]) -> ClusterProcess {
    let run = ["run", "batch.toml", "--allow-exec", "--engine", "ballista", "--local-cluster", "2"];
    ClusterProcess::start(sluice(&gated.folder).args(run).args(["--jobs", "2"]).args(more))
}

#[test]
fn a_run_goes_on_as_long_as_one_executor_of_its_local_cluster_does() {
    let gated = GatedBatch::with_logs(5);
    gated.open_gate(2);
    let mut run = start(&gated, &[]);
    gated.until_published(2);
    gated.until_begun(4);
    signal_all(&processes_of(&run, "executor")[..1], Signal::KILL);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn a_run_ends_at_once_when_its_local_cluster_cannot_work_any_more() {
    for (kind, says) in [
        ("executor", "all executors of the local cluster ended (signal: 9"),
        ("scheduler", "the scheduler of the local cluster ended (signal: 9"),
    ] {
        let gated = GatedBatch::with_logs(5);
        gated.open_gate(2);
        let mut run = start(&gated, &[]);
        gated.until_published(2);
        gated.until_begun(4);
        let killed = processes_of(&run, kind);
        assert_eq!(killed.len(), if kind == "executor" { 2 } else { 1 });
        signal_all(&killed, Signal::KILL);
        assert_eq!(run.code(), Some(1), "{}", run.stderr());
        assert!(run.stderr().contains(says), "{}", run.stderr());
        assert!(!run.stderr().contains("sluice cluster"), "{}", run.stderr());
        assert_eq!(gated.published(), 2);
        gated.open_gate(ALL);
        gated.until_quiet();
        let mut rest = start(&gated, &["--resume"]);
        assert_eq!(rest.code(), Some(0), "{}", rest.stderr());
        gated.assert_complete();
    }
}
