//! Drivers that are killed or stopped, and several drivers.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use super::{ALL, GatedBatch, hidden, until_idle};
use crate::cluster::processes::{Cluster, ClusterProcess, until};
use crate::kit::{run_sluice, sluice};

/// A run of eight units whose driver is killed after three are published, while two are running.
fn killed_driver() -> (GatedBatch, Cluster) {
    let gated = GatedBatch::with_logs(8);
    let cluster = gated.cluster(2);
    gated.open_gate(3);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(3);
    gated.until_begun(5);
    run.kill();
    gated.assert_consistent();
    (gated, cluster)
}

#[test]
fn after_its_driver_was_killed_a_run_is_resumed_on_the_cluster() {
    let (gated, cluster) = killed_driver();
    gated.open_gate(ALL);
    until_idle(&gated, &cluster);
    gated.until_quiet();
    // Nothing was published after the driver was killed.
    gated.assert_consistent();
    assert_eq!(gated.published(), 3);
    let mut run = gated.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert!(run.stderr().contains("5 inputs done, 3 done before"), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn after_its_driver_was_killed_a_run_is_resumed_while_its_units_are_still_running() {
    let (gated, cluster) = killed_driver();
    let mut run = gated.start(&cluster, &["--resume"]);
    until("a second job", || {
        let jobs = super::status(&gated, &cluster)["jobs"].as_array().unwrap().len();
        (jobs == 2).then_some(())
    });
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    until_idle(&gated, &cluster);
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn units_without_a_driver_end_and_are_resumed_on_one_machine() {
    let (gated, cluster) = killed_driver();
    // It has been silent for long.
    let staging = staging_dir(&gated);
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    let driver = File::options().append(true).open(staging.join("driver")).unwrap();
    driver.set_modified(long_ago).unwrap();
    gated.open_gate(ALL);
    until_idle(&gated, &cluster);
    gated.until_quiet();
    let left = |part: &ClusterProcess| part.stderr().matches(": abandoned: ").count();
    assert_eq!(cluster.executors.iter().map(left).sum::<usize>(), 3);
    gated.assert_consistent();
    let resume = ["run", "batch.toml", "--allow-exec", "--resume"];
    run_sluice(&gated.folder, &resume).expect(0).expect_stderr("5 inputs done, 3 done before");
    gated.assert_complete();
}

fn staging_dir(gated: &GatedBatch) -> PathBuf {
    let hidden_dirs = hidden(&gated.folder.at("out"));
    let is_staging_dir = |path: &&PathBuf| path.join("driver").is_file();
    hidden_dirs
        .iter()
        .find(is_staging_dir)
        .unwrap_or_else(|| panic!("no staging directory in {hidden_dirs:?}"))
        .clone()
}

#[test]
fn a_second_driver_in_a_folder_is_refused_and_disturbs_nothing() {
    let gated = GatedBatch::with_logs(4);
    let cluster = gated.cluster(1);
    gated.open_gate(1);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(1);
    gated.until_begun(2);
    for more in [&["--resume"], &["--overwrite"]] {
        let mut second = gated.start(&cluster, more);
        assert_eq!(second.code(), Some(1), "{}", second.stderr());
        let stderr = second.stderr();
        assert!(stderr.contains("another batch is being written to this folder"), "{stderr}");
    }
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn drivers_with_folders_of_their_own_share_a_cluster() {
    let (one, other) = (GatedBatch::with_logs(6), GatedBatch::with_logs(5));
    let cluster = one.cluster(2);
    let mut runs = [one.start(&cluster, &[]), other.start(&cluster, &[])];
    for run in &mut runs {
        assert_eq!(run.code(), Some(0), "{}", run.stderr());
    }
    one.assert_complete();
    other.assert_complete();
}

#[test]
fn a_stopped_driver_keeps_published_units_and_cancels_running_ones() {
    let gated = GatedBatch::with_logs(8);
    let cluster = gated.cluster(2);
    gated.open_gate(3);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(3);
    gated.until_begun(5);
    run.signal(Signal::INT);
    assert_eq!(run.code(), Some(130), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains("3 inputs done, 5 not started"), "{stderr}");
    assert!(stderr.contains("with --resume continues"), "{stderr}");
    // Although the running units would wait forever.
    gated.until_quiet();
    until_idle(&gated, &cluster);
    assert_eq!(gated.published(), 3);
    assert_eq!(hidden(gated.folder.path()), Vec::<PathBuf>::new());
    let output = run_sluice(&gated.folder, &["verify", "out"]).expect(1).text();
    assert!(output.contains("5 inputs are not done"), "{output}");
    gated.open_gate(ALL);
    let mut run = gated.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn a_stopped_local_run_reports_the_same() {
    let gated = GatedBatch::with_logs(3);
    gated.open_gate(1);
    let run = ["run", "batch.toml", "--allow-exec", "--jobs", "1"];
    let mut run = ClusterProcess::start(sluice(&gated.folder).args(run));
    gated.until_published(1);
    gated.until_begun(2);
    run.signal(Signal::INT);
    until("a word on stopping", || run.stderr().contains("stopping").then_some(()));
    assert_eq!(run.code(), Some(130), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains("1 input done, 1 interrupted, 1 not started"), "{stderr}");
    assert!(stderr.contains("with --resume continues"), "{stderr}");
}
