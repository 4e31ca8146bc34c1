//! Drivers that are killed or stopped, and several drivers.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use super::{ALL, GatedBatch, hidden, until_idle};
use crate::cluster::processes::{Cluster, ClusterProcess, until};
use crate::kit::{run_sluice, sluice};

/// A run of eight units whose driver is killed after three are published, while two are running.
fn killed() -> (GatedBatch, Cluster) {
    let held = GatedBatch::with_logs(8);
    let cluster = held.cluster(2);
    held.let_through(3);
    let mut run = held.start(&cluster, &[]);
    held.until_published(3);
    held.until_begun(5);
    run.kill();
    held.is_sound();
    (held, cluster)
}

#[test]
fn after_its_driver_was_killed_a_run_is_resumed_on_the_cluster() {
    let (held, cluster) = killed();
    held.let_through(ALL);
    until_idle(&held, &cluster);
    held.until_quiet();
    // Nothing was published after the driver was killed.
    held.is_sound();
    assert_eq!(held.published(), 3);
    let mut run = held.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    assert!(run.said().contains("5 inputs done, 3 done before"), "{}", run.said());
    held.is_whole();
}

#[test]
fn after_its_driver_was_killed_a_run_is_resumed_while_its_units_are_still_under_way() {
    let (held, cluster) = killed();
    let mut run = held.start(&cluster, &["--resume"]);
    until("a second job", || {
        let jobs = super::status(&held, &cluster)["jobs"].as_array().unwrap().len();
        (jobs == 2).then_some(())
    });
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    until_idle(&held, &cluster);
    held.until_quiet();
    held.is_whole();
}

#[test]
fn work_whose_driver_is_gone_ends_by_itself_and_is_resumed_on_one_machine() {
    let (held, cluster) = killed();
    // It has been silent for long.
    let room = room(&held);
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    let driver = File::options().append(true).open(room.join("driver")).unwrap();
    driver.set_modified(long_ago).unwrap();
    held.let_through(ALL);
    until_idle(&held, &cluster);
    held.until_quiet();
    let left = |part: &ClusterProcess| part.said().matches(": abandoned: ").count();
    assert_eq!(cluster.executors.iter().map(left).sum::<usize>(), 3);
    held.is_sound();
    let resume = ["run", "batch.toml", "--allow-exec", "--resume"];
    run_sluice(&held.folder, &resume).expect(0).expect_stderr("5 inputs done, 3 done before");
    held.is_whole();
}

fn room(held: &GatedBatch) -> PathBuf {
    let rooms = hidden(&held.folder.at("out"));
    let is_room = |path: &&PathBuf| path.join("driver").is_file();
    rooms.iter().find(is_room).unwrap_or_else(|| panic!("no room in {rooms:?}")).clone()
}

#[test]
fn a_second_driver_in_a_folder_is_refused_and_disturbs_nothing() {
    let held = GatedBatch::with_logs(4);
    let cluster = held.cluster(1);
    held.let_through(1);
    let mut run = held.start(&cluster, &[]);
    held.until_published(1);
    held.until_begun(2);
    for more in [&["--resume"], &["--overwrite"]] {
        let mut second = held.start(&cluster, more);
        assert_eq!(second.code(), Some(1), "{}", second.said());
        let said = second.said();
        assert!(said.contains("another batch is being written to this folder"), "{said}");
    }
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
}

#[test]
fn drivers_with_folders_of_their_own_share_a_cluster() {
    let (one, other) = (GatedBatch::with_logs(6), GatedBatch::with_logs(5));
    let cluster = one.cluster(2);
    let mut runs = [one.start(&cluster, &[]), other.start(&cluster, &[])];
    for run in &mut runs {
        assert_eq!(run.code(), Some(0), "{}", run.said());
    }
    one.is_whole();
    other.is_whole();
}

#[test]
fn a_driver_that_is_stopped_keeps_what_is_published_and_ends_what_is_under_way() {
    let held = GatedBatch::with_logs(8);
    let cluster = held.cluster(2);
    held.let_through(3);
    let mut run = held.start(&cluster, &[]);
    held.until_published(3);
    held.until_begun(5);
    run.signal(Signal::INT);
    assert_eq!(run.code(), Some(130), "{}", run.said());
    let said = run.said();
    assert!(said.contains("3 inputs done, 5 not started"), "{said}");
    assert!(said.contains("with --resume continues"), "{said}");
    // Although the running units would wait forever.
    held.until_quiet();
    until_idle(&held, &cluster);
    assert_eq!(held.published(), 3);
    assert_eq!(hidden(held.folder.path()), Vec::<PathBuf>::new());
    let told = run_sluice(&held.folder, &["verify", "out"]).expect(1).text();
    assert!(told.contains("5 inputs are not done"), "{told}");
    held.let_through(ALL);
    let mut run = held.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
}

#[test]
fn a_run_on_this_machine_says_the_same_when_it_is_stopped() {
    let held = GatedBatch::with_logs(3);
    held.let_through(1);
    let run = ["run", "batch.toml", "--allow-exec", "--jobs", "1"];
    let mut run = ClusterProcess::start(sluice(&held.folder).args(run));
    held.until_published(1);
    held.until_begun(2);
    run.signal(Signal::INT);
    until("a word on stopping", || run.said().contains("stopping").then_some(()));
    assert_eq!(run.code(), Some(130), "{}", run.said());
    let said = run.said();
    assert!(said.contains("1 input done, 1 interrupted, 1 not started"), "{said}");
    assert!(said.contains("with --resume continues"), "{said}");
}
