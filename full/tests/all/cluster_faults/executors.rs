//! Executors that are killed, and executors that only seem dead.

use rustix::process::Signal;

use super::{ALL, GatedBatch, process_tree, signal_all, until_executors};
use crate::cluster::processes::until;

#[test]
fn units_of_a_killed_executor_are_reassigned() {
    let gated = GatedBatch::with_logs(9);
    let mut cluster = gated.cluster(2);
    gated.open_gate(4);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(4);
    gated.until_begun(6);
    cluster.executors[0].kill();
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn executors_may_be_killed_one_after_the_other_while_new_ones_join() {
    let gated = GatedBatch::with_logs(9);
    let mut cluster = gated.cluster(2);
    gated.open_gate(3);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(3);
    gated.until_begun(5);
    cluster.executors[0].kill();
    gated.open_gate(6);
    gated.until_published(5);
    gated.until_begun(7);
    cluster.executors[1].kill();
    let new = gated.executor(&cluster.address);
    cluster.executors.push(new);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn a_run_whose_only_executor_was_killed_says_so_and_continues_with_the_next() {
    let gated = GatedBatch::with_logs(4);
    let mut cluster = gated.cluster(1);
    gated.open_gate(1);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(1);
    gated.until_begun(2);
    cluster.executors[0].kill();
    // Its unit ends with it.
    until("the end of its unit", || {
        (super::processes_in(&gated.folder) == [run.pid()]).then_some(())
    });
    until("a word on executors", || run.stderr().contains("waiting for executors").then_some(()));
    gated.open_gate(ALL);
    let new = gated.executor(&cluster.address);
    cluster.executors.push(new);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn an_executor_resumed_after_its_run_leaves_nothing_and_works_again() {
    let gated = GatedBatch::with_logs(5);
    let cluster = gated.cluster(2);
    gated.open_gate(2);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(2);
    gated.until_begun(4);
    let asleep = process_tree(cluster.executors[0].pid());
    signal_all(&asleep, Signal::STOP);
    until_executors(&gated, &cluster, 1);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
    signal_all(&asleep, Signal::CONT);
    gated.until_quiet();
    gated.assert_complete();
    until_executors(&gated, &cluster, 2);
    let mut run = gated.start(&cluster, &["--overwrite"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn a_unit_run_by_two_executors_is_published_once() {
    let gated = GatedBatch::with_logs(5);
    let cluster = gated.cluster(2);
    gated.open_gate(2);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(2);
    gated.until_begun(4);
    // Its children keep running.
    cluster.executors[0].signal(Signal::STOP);
    until_executors(&gated, &cluster, 1);
    gated.open_gate(4);
    gated.until_published(4);
    gated.until_begun(5);
    cluster.executors[0].signal(Signal::CONT);
    until_executors(&gated, &cluster, 2);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}
