//! Schedulers that are missing, that are something else, or that end in the middle of a run.

use std::io::Write;
use std::net::TcpListener;

use super::{ALL, GatedBatch};
use crate::cluster::processes::{Cluster, FakeScheduler, until};
use crate::kit::{ProgramOutput, run_sluice};

/// What a driver, an executor and `status` report about a scheduler.
fn said_of(held: &GatedBatch, scheduler: &str) -> [ProgramOutput; 3] {
    let to = ["--scheduler", scheduler];
    let run = [&["run", "batch.toml", "--allow-exec", "--engine", "ballista"][..], &to].concat();
    let executor = [&["cluster", "executor"][..], &to].concat();
    let status = [&["cluster", "status"][..], &to].concat();
    [
        run_sluice(&held.folder, &run),
        run_sluice(&held.home, &executor),
        run_sluice(&held.home, &status),
    ]
}

#[track_caller]
fn nothing_was_done(held: &GatedBatch) {
    assert_eq!(held.folder.names(), ["batch.toml", "free", "in", "places", "wait.sh"]);
    assert!(held.home.names().is_empty(), "{:?}", held.home.names());
}

#[test]
fn a_scheduler_that_never_answers_is_told_within_seconds() {
    let held = GatedBatch::with_logs(1);
    // Connections are accepted by the kernel only.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    for said in said_of(&held, &address) {
        let said =
            said.expect(1).expect_stderr(&format!("cannot reach the scheduler at {address}: "));
        said.expect_stderr("is `sluice cluster scheduler` running there?");
    }
    nothing_was_done(&held);
}

#[test]
fn what_answers_as_no_scheduler_does_is_told_from_one() {
    let held = GatedBatch::with_logs(1);
    let answers = [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\n{\"sluice\": \"1".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"[".repeat(1 << 20),
        "\0\u{1}\u{2}rubbish".repeat(1000),
    ];
    for answer in answers {
        let impostor = FakeScheduler::with_response(answer);
        for said in said_of(&held, &impostor.address) {
            let what = format!("{} is not a Sluice scheduler", impostor.address);
            said.expect(2)
                .expect_stderr(&what)
                .expect_stderr("start one with `sluice cluster scheduler`");
        }
    }
    nothing_was_done(&held);
}

#[test]
fn an_answer_without_end_is_not_waited_for() {
    let held = GatedBatch::with_logs(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let talk = move || {
        // Until the client hangs up. Three clients connect, one of them twice.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while stream.write_all(&[b'a'; 4096]).is_ok() {}
        }
    };
    std::thread::Builder::new().spawn(talk).unwrap();
    for said in said_of(&held, &address) {
        let told = said.stderr.contains(&address);
        assert!(told && matches!(said.code, Some(1 | 2)), "{:?} {}", said.code, said.stderr);
    }
    nothing_was_done(&held);
}

/// A program of the same version with one more plugin.
const OTHER: &str = env!("CARGO_BIN_EXE_sluice-with-example");

#[test]
fn an_executor_with_another_plugin_is_not_let_in() {
    let held = GatedBatch::with_logs(1);
    let cluster = held.cluster(0);
    let mut other = held.executor_by(&[OTHER], &cluster.address);
    assert_eq!(other.code(), Some(2), "{}", other.said());
    let said = other.said();
    assert!(said.contains("is not the same program"), "{said}");
    assert!(said.contains("plugins are missing there: source lines"), "{said}");
    let none = super::status(&held, &cluster)["executors"].as_array().unwrap().is_empty();
    assert!(none && held.home.names().is_empty());
}

#[test]
fn a_driver_with_other_plugins_than_the_cluster_sends_nothing() {
    let held = GatedBatch::with_logs(1);
    let cluster = held.cluster(1);
    let run = ["run", "batch.toml", "--allow-exec"];
    let mut command = std::process::Command::new(OTHER);
    command.current_dir(held.folder.path()).args(run).args(cluster.engine());
    let said = ProgramOutput::from_output(command.output().unwrap()).expect(2);
    said.expect_stderr("plugins are missing there: source lines").expect_stderr("nothing was done");
    assert_eq!(held.folder.names(), ["batch.toml", "free", "in", "places", "wait.sh"]);
}

#[test]
fn a_driver_with_fewer_plugins_than_the_cluster_sends_nothing() {
    let held = GatedBatch::with_logs(1);
    let arguments = ["cluster", "scheduler", "--listen", "127.0.0.1:0"];
    let mut command = std::process::Command::new(OTHER);
    let scheduler = crate::cluster::processes::ClusterProcess::start(
        command.current_dir(held.home.path()).args(arguments),
    );
    let address = scheduler.wait_for_line("listening on ");
    let [driver, executor, status] = said_of(&held, &address);
    for said in [driver, executor] {
        said.expect(2).expect_stderr("plugins are missing here: source lines");
    }
    // `status` works nonetheless, for diagnosis.
    assert!(status.expect(0).text().contains("executors: 0"));
    nothing_was_done(&held);
}

/// Restarts the scheduler of a cluster at its address.
fn start_anew(held: &GatedBatch, cluster: &mut Cluster) {
    cluster.scheduler.kill();
    cluster.scheduler = held.scheduler(&cluster.address);
    cluster.scheduler.wait_for_line("listening on ");
}

#[track_caller]
fn until_joined_again(cluster: &Cluster) {
    for executor in &cluster.executors {
        until("an executor to join again", || {
            (executor.said().matches("joined ").count() > 1).then_some(())
        });
    }
}

#[test]
fn a_run_goes_on_when_its_scheduler_is_started_anew() {
    let held = GatedBatch::with_logs(8);
    let mut cluster = held.cluster(2);
    held.let_through(3);
    let mut run = held.start(&cluster, &[]);
    held.until_published(3);
    held.until_begun(5);
    start_anew(&held, &mut cluster);
    until_joined_again(&cluster);
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.until_quiet();
    held.is_whole();
}

#[test]
fn a_run_goes_on_when_its_scheduler_is_started_anew_before_any_unit_was_done() {
    let held = GatedBatch::with_logs(4);
    let mut cluster = held.cluster(1);
    held.let_through(0);
    let mut run = held.start(&cluster, &[]);
    held.until_begun(1);
    start_anew(&held, &mut cluster);
    until_joined_again(&cluster);
    held.let_through(ALL);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.until_quiet();
    held.is_whole();
}

#[test]
fn a_run_whose_scheduler_stays_away_says_so_and_is_resumed_later() {
    let held = GatedBatch::with_logs(6);
    let mut cluster = held.cluster(1);
    held.let_through(2);
    let mut run = held.start(&cluster, &["--cluster-patience", "3s"]);
    held.until_published(2);
    held.until_begun(3);
    cluster.scheduler.kill();
    assert_eq!(run.code(), Some(1), "{}", run.said());
    let said = run.said();
    assert!(said.contains(&format!("the scheduler at {}", cluster.address)), "{said}");
    assert!(said.contains("--resume"), "{said}");
    held.let_through(ALL);
    held.until_quiet();
    assert_eq!(super::hidden(held.folder.path()), Vec::<std::path::PathBuf>::new());
    start_anew(&held, &mut cluster);
    until_joined_again(&cluster);
    let mut run = held.start(&cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    held.is_whole();
}
