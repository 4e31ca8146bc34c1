//! Executors that are killed, and executors that only seem dead.

use rustix::process::Signal;

use super::{ALL, GatedBatch, family, signal_all, until_executors};
use crate::cluster::processes::until;

#[test]
fn what_an_executor_was_at_when_it_was_killed_is_done_by_another_one() {
    let held = GatedBatch::with_logs(9);
    let mut cluster = held.cluster(2);
    held.let_through(4);
    let mut run = held.start(&cluster, &[]);
    held.until_published(4);
    held.until_begun(6);
    cluster.executors[0].kill();
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.until_quiet();
    held.is_whole();
}

#[test]
fn executors_may_be_killed_one_after_the_other_while_new_ones_join() {
    let held = GatedBatch::with_logs(9);
    let mut cluster = held.cluster(2);
    held.let_through(3);
    let mut run = held.start(&cluster, &[]);
    held.until_published(3);
    held.until_begun(5);
    cluster.executors[0].kill();
    held.let_through(6);
    held.until_published(5);
    held.until_begun(7);
    cluster.executors[1].kill();
    let new = held.executor(&cluster.address);
    cluster.executors.push(new);
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.until_quiet();
    held.is_whole();
}

#[test]
fn a_run_whose_only_executor_was_killed_says_so_and_goes_on_with_the_next_one() {
    let held = GatedBatch::with_logs(4);
    let mut cluster = held.cluster(1);
    held.let_through(1);
    let mut run = held.start(&cluster, &[]);
    held.until_published(1);
    held.until_begun(2);
    cluster.executors[0].kill();
    // Its unit ends with it.
    until("the end of its unit", || (super::at_work_in(&held.folder) == [run.pid()]).then_some(()));
    until("a word on executors", || run.said().contains("waiting for executors").then_some(()));
    held.let_through(ALL);
    let new = held.executor(&cluster.address);
    cluster.executors.push(new);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
}

#[test]
fn an_executor_that_wakes_up_when_its_run_is_over_leaves_nothing_and_works_again() {
    let held = GatedBatch::with_logs(5);
    let cluster = held.cluster(2);
    held.let_through(2);
    let mut run = held.start(&cluster, &[]);
    held.until_published(2);
    held.until_begun(4);
    let asleep = family(cluster.executors[0].pid());
    signal_all(&asleep, Signal::STOP);
    until_executors(&held, &cluster, 1);
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
    signal_all(&asleep, Signal::CONT);
    held.until_quiet();
    held.is_whole();
    until_executors(&held, &cluster, 2);
    let mut run = held.start(&cluster, &["--overwrite"]);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
}

#[test]
fn what_two_executors_do_since_one_was_thought_to_be_dead_is_published_once() {
    let held = GatedBatch::with_logs(5);
    let cluster = held.cluster(2);
    held.let_through(2);
    let mut run = held.start(&cluster, &[]);
    held.until_published(2);
    held.until_begun(4);
    // Its children keep running.
    cluster.executors[0].signal(Signal::STOP);
    until_executors(&held, &cluster, 1);
    held.let_through(4);
    held.until_published(4);
    held.until_begun(5);
    cluster.executors[0].signal(Signal::CONT);
    until_executors(&held, &cluster, 2);
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.until_quiet();
    held.is_whole();
}
