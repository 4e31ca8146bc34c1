//! Schedulers that are missing, that are something else, or that end in the middle of a run.

use std::io::Write;
use std::net::TcpListener;

use super::{ALL, GatedBatch};
use crate::cluster::processes::{Cluster, FakeScheduler, until};
use crate::kit::{ProgramOutput, run_sluice};

/// What a driver, an executor and `status` report about a scheduler.
fn reports_on(gated: &GatedBatch, scheduler: &str) -> [ProgramOutput; 3] {
    let to = ["--scheduler", scheduler];
    let run = [&["run", "batch.toml", "--allow-exec", "--engine", "ballista"][..], &to].concat();
    let executor = [&["cluster", "executor"][..], &to].concat();
    let status = [&["cluster", "status"][..], &to].concat();
    [
        run_sluice(&gated.folder, &run),
        run_sluice(&gated.home, &executor),
        run_sluice(&gated.home, &status),
    ]
}

#[track_caller]
fn nothing_was_done(gated: &GatedBatch) {
    assert_eq!(gated.folder.names(), ["batch.toml", "free", "in", "places", "wait.sh"]);
    assert!(gated.home.names().is_empty(), "{:?}", gated.home.names());
}

#[test]
fn an_unresponsive_scheduler_is_reported_within_seconds() {
    let gated = GatedBatch::with_logs(1);
    // Connections are accepted by the kernel only.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    for report in reports_on(&gated, &address) {
        let report =
            report.expect(1).expect_stderr(&format!("cannot reach the scheduler at {address}: "));
        report.expect_stderr("is `sluice cluster scheduler` running there?");
    }
    nothing_was_done(&gated);
}

#[test]
fn other_servers_are_not_mistaken_for_a_scheduler() {
    let gated = GatedBatch::with_logs(1);
    let answers = [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\n{\"sluice\": \"1".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"[".repeat(1 << 20),
        "\0\u{1}\u{2}rubbish".repeat(1000),
    ];
    for answer in answers {
        let impostor = FakeScheduler::with_response(answer);
        for report in reports_on(&gated, &impostor.address) {
            let what = format!("{} is not a Sluice scheduler", impostor.address);
            report
                .expect(2)
                .expect_stderr(&what)
                .expect_stderr("start one with `sluice cluster scheduler`");
        }
    }
    nothing_was_done(&gated);
}

#[test]
fn an_endless_response_is_cut() {
    let gated = GatedBatch::with_logs(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        // Until the client hangs up. Three clients connect, one of them twice.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while stream.write_all(&[b'a'; 4096]).is_ok() {}
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    for report in reports_on(&gated, &address) {
        let mentions_address = report.stderr.contains(&address);
        assert!(
            mentions_address && matches!(report.code, Some(1 | 2)),
            "{:?} {}",
            report.code,
            report.stderr
        );
    }
    nothing_was_done(&gated);
}

/// A program of the same version with one more plugin.
const OTHER: &str = env!("CARGO_BIN_EXE_sluice-with-example");

#[test]
fn an_executor_with_other_plugins_is_refused() {
    let gated = GatedBatch::with_logs(1);
    let cluster = gated.cluster(0);
    let mut other = gated.executor_by(&[OTHER], &cluster.address);
    assert_eq!(other.code(), Some(2), "{}", other.stderr());
    let report = other.stderr();
    assert!(report.contains("is not the same program"), "{report}");
    assert!(report.contains("plugins are missing there: source lines"), "{report}");
    let none = super::status(&gated, &cluster)["executors"].as_array().unwrap().is_empty();
    assert!(none && gated.home.names().is_empty());
}

#[test]
fn a_driver_with_other_plugins_than_the_cluster_sends_nothing() {
    let gated = GatedBatch::with_logs(1);
    let cluster = gated.cluster(1);
    let run = ["run", "batch.toml", "--allow-exec"];
    let mut command = std::process::Command::new(OTHER);
    command.current_dir(gated.folder.path()).args(run).args(cluster.engine());
    let report = ProgramOutput::from_output(command.output().unwrap()).expect(2);
    report
        .expect_stderr("plugins are missing there: source lines")
        .expect_stderr("nothing was done");
    assert_eq!(gated.folder.names(), ["batch.toml", "free", "in", "places", "wait.sh"]);
}

#[test]
fn a_driver_with_fewer_plugins_than_the_cluster_sends_nothing() {
    let gated = GatedBatch::with_logs(1);
    let arguments = ["cluster", "scheduler", "--listen", "127.0.0.1:0"];
    let mut command = std::process::Command::new(OTHER);
    let scheduler = crate::cluster::processes::ClusterProcess::start(
        command.current_dir(gated.home.path()).args(arguments),
    );
    let address = scheduler.wait_for_line("listening on ");
    let [driver, executor, status] = reports_on(&gated, &address);
    for report in [driver, executor] {
        report.expect(2).expect_stderr("plugins are missing here: source lines");
    }
    // `status` works nonetheless, for diagnosis.
    assert!(status.expect(0).text().contains("executors: 0"));
    nothing_was_done(&gated);
}

/// Restarts the scheduler of a cluster at its address.
fn restart_scheduler(gated: &GatedBatch, cluster: &mut Cluster) {
    cluster.scheduler.kill();
    cluster.scheduler = gated.scheduler(&cluster.address);
    cluster.scheduler.wait_for_line("listening on ");
}

#[track_caller]
fn until_joined_again(cluster: &Cluster) {
    for executor in &cluster.executors {
        until("an executor to join again", || {
            (executor.stderr().matches("joined ").count() > 1).then_some(())
        });
    }
}

#[test]
fn a_run_survives_a_scheduler_restart() {
    let gated = GatedBatch::with_logs(8);
    let mut cluster = gated.cluster(2);
    gated.open_gate(3);
    let mut run = gated.start(&cluster, &[]);
    gated.until_published(3);
    gated.until_begun(5);
    restart_scheduler(&gated, &mut cluster);
    until_joined_again(&cluster);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn a_run_survives_a_scheduler_restart_before_any_unit_is_done() {
    let gated = GatedBatch::with_logs(4);
    let mut cluster = gated.cluster(1);
    gated.open_gate(0);
    let mut run = gated.start(&cluster, &[]);
    gated.until_begun(1);
    restart_scheduler(&gated, &mut cluster);
    until_joined_again(&cluster);
    gated.open_gate(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.until_quiet();
    gated.assert_complete();
}

#[test]
fn a_run_that_loses_its_scheduler_fails_and_can_be_resumed() {
    let gated = GatedBatch::with_logs(6);
    let mut cluster = gated.cluster(1);
    gated.open_gate(2);
    let mut run = gated.start(&cluster, &["--cluster-patience", "3s"]);
    gated.until_published(2);
    gated.until_begun(3);
    cluster.scheduler.kill();
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let report = run.stderr();
    assert!(report.contains(&format!("the scheduler at {}", cluster.address)), "{report}");
    assert!(report.contains("--resume"), "{report}");
    gated.open_gate(ALL);
    gated.until_quiet();
    assert_eq!(super::hidden(gated.folder.path()), Vec::<std::path::PathBuf>::new());
    restart_scheduler(&gated, &mut cluster);
    until_joined_again(&cluster);
    let mut run = gated.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn a_run_whose_scheduler_is_frozen_fails_and_can_be_resumed() {
    let gated = GatedBatch::with_logs(6);
    let cluster = gated.cluster(1);
    gated.open_gate(2);
    let mut run = gated.start(&cluster, &["--cluster-patience", "3s"]);
    gated.until_published(2);
    gated.until_begun(3);
    // Connections stay open, and nothing answers.
    cluster.scheduler.signal(rustix::process::Signal::STOP);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let report = run.stderr();
    assert!(report.contains(&format!("the scheduler at {}", cluster.address)), "{report}");
    assert!(report.contains("--resume"), "{report}");
    cluster.scheduler.signal(rustix::process::Signal::CONT);
    gated.open_gate(ALL);
    gated.until_quiet();
    let mut run = gated.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    gated.assert_complete();
}
