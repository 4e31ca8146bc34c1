//! Clusters on hosts that are really apart: each process on a host with an address, mounts,
//! processes and a clock of its own, in Linux namespaces. They share one folder. Their links are
//! cut and slowed, they freeze, lose power and run out of disk space.

use std::path::Path;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{ALL, GatedBatch, signal_all};
use crate::cluster::processes::{ClusterProcess, until};
use crate::kit::{report_skip, root};
use crate::namespaces::{Host, Network};

/// Where the scheduler listens.
const SCHEDULER: &str = "10.77.0.1:50050";

/// How schedulers are started, and how everybody else reaches them.
const LISTEN: &[&str] = &["--listen", SCHEDULER, "--secret-file", SECRET_FILE];
const REACH: &[&str] = &["--scheduler", SCHEDULER, "--secret-file", SECRET_FILE];

/// Where each host has the secret of the cluster.
const SECRET_FILE: &str = "/mnt/secret";

/// A batch, a network with a host for the scheduler, two for executors and one for drivers.
struct Site {
    // Ended in this order: the folder last.
    running: Vec<ClusterProcess>,
    alpha: Host,
    beta: Host,
    gamma: Host,
    delta: Host,
    network: Network,
    gated: GatedBatch,
}

impl Site {
    /// Hosts for a batch of `logs` logs; `None`, with a message, if this user may not make them.
    fn with_logs(logs: u64) -> Option<Self> {
        let network = Network::start()?;
        let gated = GatedBatch::with_logs(logs);
        let host = |name, number| with_own_disk(network.host(name, number));
        let [alpha, beta] = [host("alpha", 1), host("beta", 2)];
        let [gamma, delta] = [host("gamma", 3), host("delta", 4)];
        Some(Self { running: Vec::new(), alpha, beta, gamma, delta, network, gated })
    }

    /// Starts a scheduler on alpha and an executor on beta and on gamma.
    fn start_cluster(&mut self) {
        self.start_scheduler(&[]);
        let executors = [executor(&self.beta, &[]), executor(&self.gamma, &[])];
        executors.iter().for_each(|executor| drop(executor.wait_for_line("joined ")));
        self.running.extend(executors);
    }

    fn start_scheduler(&mut self, environment: &[(&str, String)]) {
        let command = ["cluster", "scheduler", "--executor-timeout", "4s"];
        let arguments = [&command, LISTEN].concat();
        let scheduler = start_on(&self.alpha, Path::new(OWN_DISK), &arguments, environment);
        scheduler.wait_for_line("listening on ");
        self.running.push(scheduler);
    }

    /// Starts a run of the batch on delta.
    fn start_run(&self, more: &[&str]) -> ClusterProcess {
        let run = ["run", "batch.toml", "--allow-exec", "--engine", "ballista"];
        let arguments = [&run[..], REACH, more].concat();
        start_on(&self.delta, self.gated.folder.path(), &arguments, &[])
    }

    /// Starts the batch, and waits until two units are published and two are running.
    fn start_run_and_hold_it(&self, more: &[&str]) -> ClusterProcess {
        self.gated.open_gate(2);
        let run = self.start_run(more);
        self.gated.until_published(2);
        self.gated.until_begun(4);
        run
    }

    /// The status of the cluster, asked on alpha.
    fn status(&self) -> Option<Value> {
        let arguments = [&["cluster", "status", "--json"], REACH].concat();
        let mut command = self.alpha.command(Path::new(OWN_DISK), crate::PROGRAM);
        serde_json::from_slice(&command.args(&arguments).output().unwrap().stdout).ok()
    }

    /// Waits until the scheduler knows `count` executors.
    #[track_caller]
    fn until_executors(&self, count: usize) {
        until(&format!("{count} executors"), || {
            (self.status()?["executors"].as_array()?.len() == count).then_some(())
        });
    }

    /// Opens the gate, and asserts that the run completes, with the output of a run on one machine.
    #[track_caller]
    fn complete(&self, mut run: ClusterProcess) {
        self.gated.open_gate(ALL);
        assert_eq!(run.code(), Some(0), "{}", run.stderr());
        self.gated.until_quiet();
        self.gated.assert_complete();
    }
}

/// Where hosts have a disk of their own: the working directory of schedulers and executors.
const OWN_DISK: &str = "/mnt";

/// Gives a host a small disk of its own, with the secret of the cluster.
fn with_own_disk(host: Host) -> Host {
    host.run(&format!("mount -t tmpfs -o size=64m none {OWN_DISK}"));
    host.run(&format!("umask 077; echo known-to-all-hosts-of-this-cluster > {SECRET_FILE}"));
    host
}

/// Starts the program on a host. All schedulers, executors and drivers are started here.
fn start_on(
    host: &Host,
    folder: &Path,
    arguments: &[&str],
    environment: &[(&str, String)],
) -> ClusterProcess {
    let mut command = host.command(folder, crate::PROGRAM);
    command.args(arguments).env("TMPDIR", OWN_DISK).envs(environment.iter().cloned());
    ClusterProcess::start(&mut command)
}

/// Starts an executor with one slot.
fn executor(host: &Host, environment: &[(&str, String)]) -> ClusterProcess {
    let command = ["cluster", "executor", "--slots", "1", "--allow-exec"];
    let arguments = [&command, REACH].concat();
    start_on(host, Path::new(OWN_DISK), &arguments, environment)
}

#[test]
fn hosts_with_slow_links_write_the_bytes_of_one_machine() {
    let Some(mut site) = Site::with_logs(6) else { return };
    site.network.slow(&site.gamma);
    site.network.slow(&site.delta);
    site.start_cluster();
    let run = site.start_run(&[]);
    site.complete(run);
    let verify = ["verify", "out"];
    let mut verified = start_on(&site.beta, site.gated.folder.path(), &verify, &[]);
    assert_eq!(verified.code(), Some(0), "{}", verified.stderr());
}

/// The variables by which a program sees another time of day.
fn clock(offset: &str) -> Option<Vec<(&'static str, String)>> {
    let library = root().join(".cache/faketime/libfaketime.so");
    if !library.exists() {
        report_skip("hosts whose clocks differ: there is no libfaketime; .ci/peers unpacks it");
        return None;
    }
    // Times of files are those of the file server, and those since the start go on.
    Some(vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", offset.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
    ])
}

#[test]
fn hosts_whose_clocks_differ_write_the_bytes_of_one_machine() {
    let Some(ahead) = clock("+3d") else { return };
    let Some(mut site) = Site::with_logs(6) else { return };
    let behind = clock("-2h").unwrap();
    site.start_scheduler(&ahead);
    let executors = [executor(&site.beta, &behind), executor(&site.gamma, &ahead)];
    executors.iter().for_each(|executor| drop(executor.wait_for_line("joined ")));
    site.running.extend(executors);
    let run = site.start_run_and_hold_it(&[]);
    // Nobody is considered lost for the time that its clock shows.
    site.until_executors(2);
    site.complete(run);
}

#[test]
fn units_of_a_host_that_is_cut_off_are_reassigned_and_published_once() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    site.network.cut(&site.beta);
    site.until_executors(1);
    // Its unit ends there, too, in the shared folder.
    site.gated.open_gate(4);
    site.gated.until_published(4);
    site.network.join(&site.beta);
    site.until_executors(2);
    site.complete(run);
}

#[test]
fn a_link_that_is_down_for_a_moment_costs_nothing() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    for host in [&site.alpha, &site.beta, &site.delta] {
        site.network.cut(host);
        site.network.join(host);
    }
    site.complete(run);
}

#[test]
fn a_driver_that_is_cut_off_ends_after_its_patience_and_is_resumed() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let mut run = site.start_run_and_hold_it(&["--cluster-patience", "3s"]);
    site.network.cut(&site.delta);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains(&format!("the scheduler at {SCHEDULER}")), "{stderr}");
    assert!(stderr.contains("--resume"), "{stderr}");
    site.network.join(&site.delta);
    let run = site.start_run(&["--resume"]);
    site.complete(run);
}

#[test]
fn a_frozen_host_that_awakes_after_its_run_leaves_nothing() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    let frozen: Vec<Pid> = site.beta.processes();
    signal_all(&frozen, Signal::STOP);
    site.until_executors(1);
    site.gated.open_gate(ALL);
    let mut run = run;
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    site.gated.assert_complete();
    signal_all(&frozen, Signal::CONT);
    site.until_executors(2);
    site.gated.until_quiet();
    site.gated.assert_complete();
}

#[test]
fn a_host_that_loses_power_is_replaced_by_one_with_its_name_and_address() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    site.beta.cut_power();
    site.beta = with_own_disk(site.network.host("beta", 2));
    site.until_executors(1);
    let again = executor(&site.beta, &[]);
    again.wait_for_line("joined ");
    site.running.push(again);
    site.complete(run);
}

#[test]
fn a_run_survives_that_the_host_of_its_scheduler_loses_power() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    site.alpha.cut_power();
    site.alpha = with_own_disk(site.network.host("alpha", 1));
    site.start_scheduler(&[]);
    site.until_executors(2);
    site.complete(run);
}

/// Fills the disk of a host, with no more than it can hold, and no other disk.
fn fill_own_disk(host: &Host) {
    host.run(&format!(
        "test \"$(stat -f -c %T {OWN_DISK})\" = tmpfs; ! head -c 65M /dev/zero >{OWN_DISK}/filler"
    ));
}

#[test]
fn a_host_whose_own_disk_is_full_costs_only_time() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    fill_own_disk(&site.beta);
    site.complete(run);
}

#[test]
fn hosts_whose_own_disks_are_full_write_the_bytes_of_one_machine() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    [&site.alpha, &site.beta, &site.gamma].into_iter().for_each(fill_own_disk);
    let run = site.start_run(&[]);
    site.complete(run);
}

#[test]
fn a_driver_that_is_cut_off_until_its_job_is_cancelled_submits_the_rest_again() {
    let Some(mut site) = Site::with_logs(5) else { return };
    site.start_cluster();
    let run = site.start_run_and_hold_it(&[]);
    site.network.cut(&site.delta);
    until("the end of the job", || (site.status()?["jobs"].as_array()?.is_empty()).then_some(()));
    site.network.join(&site.delta);
    site.complete(run);
}
