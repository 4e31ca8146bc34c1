//! Runs on a cluster of real processes produce the same output as runs on this machine.

pub(crate) mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{Folder, ProgramOutput, drive, log, run_sluice, sluice};
use processes::{Cluster, ClusterProcess, FakeScheduler, executor, until};

/// A batch with every kind of output: one file, compressed, and a folder of files.
const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[sinks.packed]
plugin = "archive"
from = "log"
path = "out/{stem}.lcm.zst"
[sinks.table]
plugin = "parquet"
from = "log"
path = "out/tables/{stem}/"
[sinks.lines]
plugin = "jsonl"
from = "log"
path = "out/{stem}.jsonl"
"#;

/// A folder with `logs` different logs in `in/`, and the batch.
pub(crate) fn folder(logs: u64) -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..logs {
        let events = drive(n + 1, 400 + 300 * (n as i64 % 3));
        folder.write(&format!("in/{n:02}.lcm"), log(&events));
    }
    folder.write("batch.toml", BATCH);
    folder
}

/// All files below a folder, by path, without those that others remove meanwhile.
pub(crate) fn read_tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| match fs::read(folder.join(&name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        bytes => Some((name, bytes.unwrap())),
    };
    names(folder).into_iter().filter_map(read).collect()
}

/// The paths of all files below a folder, even while others write to it.
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inside) = folders.pop() {
        let Ok(entries) = fs::read_dir(&inside) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    files
}

#[track_caller]
pub(crate) fn assert_same_files(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in a {
        assert!(&b[name] == bytes, "{name} differs");
    }
}

/// The output of the batch on this machine, which is then removed.
pub(crate) fn run_locally(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    run_sluice(folder, &["run", "batch.toml"]).expect(0);
    let made = read_tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    made
}

/// Runs the program on a cluster.
pub(crate) fn run_on(cluster: &Cluster, folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let arguments = [arguments, &cluster.engine()].concat();
    run_sluice(folder, &arguments)
}

/// A report without times and other values that change between runs.
fn timeless(report: &[u8]) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for name in ["seconds", "begun", "ended", "jobs"] {
                    fields.remove(name);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut report = serde_json::from_slice(report).unwrap();
    strip(&mut report);
    report
}

#[test]
fn two_executors_write_the_same_bytes_as_one_program() {
    let folder = folder(12);
    let expected = run_locally(&folder);
    assert!(expected.contains_key("_manifest.json"));
    let cluster = Cluster::start(&folder, 2);
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0).expect_stderr("12 inputs done");
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}

#[test]
fn reports_do_not_depend_on_the_engine() {
    let folder = folder(5);
    let mut damaged = folder.read("in/03.lcm");
    let middle = damaged.len() / 2;
    damaged[middle..middle + 600].fill(0);
    folder.write("in/03.lcm", damaged);
    let run = ["run", "batch.toml", "--report", "-"];
    let local = run_sluice(&folder, &run).expect(3);
    fs::remove_dir_all(folder.at("out")).unwrap();
    let cluster = Cluster::start(&folder, 2);
    let remote = run_on(&cluster, &folder, &run).expect(3);
    let (local, remote) = (timeless(&local.stdout), timeless(&remote.stdout));
    assert_eq!(format!("{local:#}"), format!("{remote:#}"));
}

#[test]
fn killing_an_executor_midway_costs_only_time() {
    let folder = folder(12);
    let expected = run_locally(&folder);
    let mut cluster = Cluster::start(&folder, 2);
    let arguments = [&["run", "batch.toml"][..], &cluster.engine()].concat();
    let mut run = ClusterProcess::start(sluice(&folder).args(arguments));
    until("the first output", || {
        let there = fs::read_dir(folder.at("out")).ok()?;
        there
            .filter_map(Result::ok)
            .find(|entry| entry.path().extension().is_some_and(|e| e == "jsonl"))
    });
    cluster.executors[0].kill();
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}

#[test]
fn a_local_cluster_lives_for_one_run() {
    let folder = folder(4);
    let expected = run_locally(&folder);
    let run = ["run", "batch.toml", "--engine", "ballista", "--local-cluster", "2"];
    run_sluice(&folder, &run).expect(0).expect_stderr("4 inputs done");
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}

#[test]
fn a_local_cluster_ends_with_its_run_even_if_killed() {
    let folder = folder(12);
    let run = ["run", "batch.toml", "--engine", "ballista", "--local-cluster", "2"];
    let mut run = ClusterProcess::start(sluice(&folder).args(run));
    until("the first output", || folder.at("out/00.jsonl").exists().then_some(()));
    assert!(count_processes_in(&folder) > 3);
    run.kill();
    until("the end of its parts", || (count_processes_in(&folder) == 0).then_some(()));
    // The next run continues what it left, and cleans up.
    let resume = ["run", "batch.toml", "--engine", "ballista", "--local-cluster", "1", "--resume"];
    run_sluice(&folder, &resume).expect(0);
    let made = read_tree(&folder.at("out"));
    fs::remove_dir_all(folder.at("out")).unwrap();
    assert_same_files(&run_locally(&folder), &made);
}

/// How many processes have this folder as working directory.
fn count_processes_in(folder: &Folder) -> usize {
    let folder = folder.path().canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let working = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    working.filter(|at| *at == folder).count()
}

#[test]
fn finished_units_are_not_repeated_by_either_engine() {
    let folder = folder(4);
    let cluster = Cluster::start(&folder, 1);
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0);
    let made = read_tree(&folder.at("out"));
    let resume = ["run", "batch.toml", "--resume"];
    run_on(&cluster, &folder, &resume).expect(0).expect_stderr("0 inputs done, 4 done before");
    run_sluice(&folder, &resume).expect(0).expect_stderr("0 inputs done, 4 done before");
    fs::remove_file(folder.at("out/02.jsonl")).unwrap();
    run_sluice(&folder, &resume).expect(0).expect_stderr("1 input done, 3 done before");
    fs::remove_file(folder.at("out/01.lcm.zst")).unwrap();
    run_on(&cluster, &folder, &resume).expect(0).expect_stderr("1 input done, 3 done before");
    assert_same_files(&made, &read_tree(&folder.at("out")));
}

#[test]
fn a_pipeline_without_placeholders_is_one_unit() {
    let folder = folder(3);
    let convert = ["convert", "in/00.lcm", "in/01.lcm", "in/02.lcm", "--to", "all.jsonl"];
    run_sluice(&folder, &convert).expect(0);
    let expected = folder.read("all.jsonl");
    fs::remove_file(folder.at("all.jsonl")).unwrap();
    let cluster = Cluster::start(&folder, 1);
    run_on(&cluster, &folder, &convert).expect(0);
    assert!(folder.read("all.jsonl") == expected);
    run_on(&cluster, &folder, &convert).expect(1).expect_stderr("exists");
    // No intermediate files are left.
    assert_eq!(folder.names(), ["all.jsonl", "batch.toml", "in"]);
}

#[test]
fn paths_are_relative_to_the_driver() {
    let (folder, elsewhere) = (folder(2), Folder::new());
    let expected = run_locally(&folder);
    let cluster = Cluster::start(&elsewhere, 1);
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0);
    assert_same_files(&expected, &read_tree(&folder.at("out")));
    assert!(elsewhere.names().is_empty());
}

#[test]
fn a_unit_that_fails_is_reported_and_stops_no_other() {
    let folder = folder(3);
    folder.write("in/01.lcm", vec![7; 1000]);
    let text = BATCH.replace("path = \"in/*.lcm\"", "path = \"in/*.lcm\"\non_damage = \"stop\"");
    folder.write("batch.toml", text);
    let cluster = Cluster::start(&folder, 1);
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(1).expect_stderr("in/01.lcm failed: ");
    assert!(folder.at("out/00.jsonl").exists() && folder.at("out/02.jsonl").exists());
    assert!(!folder.at("out/01.jsonl").exists());
}

#[test]
fn the_report_of_a_run_that_fails_has_what_is_known() {
    let folder = folder(1);
    let text = BATCH.replace("in/*.lcm", "in/00.lcm").replace("{stem}", "all");
    let run = ["run", "one.toml", "--report", "report.json"];
    let reported = |ran: ProgramOutput| {
        let code = ran.expect(1).code;
        let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
        assert!(report["error"].is_string() && report["files"] == json!([]), "{report}");
        assert_eq!((&report["interrupted"], &report["exit"]), (&json!(false), &json!(code)));
        timeless(report.to_string().as_bytes())
    };
    // It fails after the damage.
    let stray = [&folder.read("in/00.lcm")[..], b"stray"].concat();
    folder.write("in/00.lcm", [&stray[..], &vec![7; 1000]].concat());
    folder.write("one.toml", text.replace("path = \"in", "on_damage = \"stop\"\npath = \"in"));
    let local = reported(run_sluice(&folder, &run));
    assert!(local["bytes_read"].as_u64() > Some(1000), "{local}");
    assert!(local["sources"]["log"].is_object(), "{local}");
    let cluster = Cluster::start(&folder, 1);
    assert_eq!(reported(run_on(&cluster, &folder, &run)), local);
    // It fails when it is published.
    folder.write("one.toml", &text);
    fs::create_dir_all(folder.at("out/all.jsonl/x")).unwrap();
    reported(run_on(&cluster, &folder, &run));
    // It fails before it begins.
    let nobody = ["--engine", "ballista", "--scheduler", "127.0.0.1:1"];
    let report = reported(run_sluice(&folder, &[&run[..], &nobody].concat()));
    assert_eq!((&report["sources"], &report["bytes_read"]), (&json!({}), &json!(0)));
}

#[test]
fn a_missing_scheduler_is_reported_soon_and_nothing_is_done() {
    let folder = folder(1);
    // A port that was free just now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = free.to_string();
    let run = ["run", "batch.toml", "--engine", "ballista", "--scheduler", &address];
    let stderr =
        run_sluice(&folder, &run).expect(1).expect_stderr("cannot reach the scheduler at ");
    stderr.expect_stderr("is `sluice cluster scheduler` running there?");
    assert_eq!(folder.names(), ["batch.toml", "in"]);
    let executor = ["cluster", "executor", "--scheduler", &address];
    run_sluice(&folder, &executor).expect(1).expect_stderr("cannot reach the scheduler at ");
}

#[test]
fn a_cluster_of_another_version_or_with_other_plugins_is_refused() {
    let folder = folder(1);
    let state = {
        let cluster = Cluster::start(&folder, 0);
        run_sluice(&folder, &["cluster", "status", "--json", "--scheduler", &cluster.address])
            .expect(0)
    };
    let state: Value = serde_json::from_slice(&state.stdout).unwrap();
    let hello = |sluice: &Value, plugins: &Value, ballista: &Value| {
        let instance = "an impostor";
        json!({ "sluice": sluice, "plugins": plugins, "ballista": ballista, "instance": instance })
    };
    let (sluice, plugins, ballista) = (&state["sluice"], &state["plugins"], &state["ballista"]);
    let mut fewer = plugins.clone();
    fewer.as_array_mut().unwrap().retain(|name| name != "sink parquet");
    let cases = [
        (hello(&json!("0.0.1"), plugins, ballista), "Sluice 0.0.1"),
        (hello(sluice, &fewer, ballista), "plugins are missing there: sink parquet"),
        (hello(sluice, plugins, &json!("54.0.0")), "here and 54.0.0 there"),
        (json!({ "what": "else" }), "is not a Sluice scheduler"),
    ];
    for (answer, words) in cases {
        let impostor = FakeScheduler::with_json(&answer);
        let to = ["--scheduler", &impostor.address];
        let run = [&["run", "batch.toml", "--engine", "ballista"][..], &to].concat();
        run_sluice(&folder, &run).expect(2).expect_stderr(words);
        run_sluice(&folder, &[&["cluster", "executor"][..], &to].concat())
            .expect(2)
            .expect_stderr(words);
    }
    let stranger = FakeScheduler::with_response("SSH-2.0-OpenSSH_9.9\r\n".into());
    let run = ["run", "batch.toml", "--engine", "ballista", "--scheduler", &stranger.address];
    run_sluice(&folder, &run).expect(2).expect_stderr("is not a Sluice scheduler");
    assert_eq!(folder.names(), ["batch.toml", "in"]);
}

#[test]
fn executors_outlive_their_scheduler_and_join_the_next_one() {
    let folder = folder(3);
    let expected = run_locally(&folder);
    let mut cluster = Cluster::start(&folder, 1);
    cluster.scheduler.kill();
    let address = cluster.address.clone();
    cluster.scheduler = processes::scheduler(&folder, &address);
    cluster.scheduler.wait_for_line("listening on ");
    until("the executor to join again", || {
        (cluster.executors[0].stderr().matches("joined ").count() == 2).then_some(())
    });
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0);
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}

#[test]
fn cluster_processes_stop_cleanly() {
    let folder = folder(0);
    let mut cluster = Cluster::start(&folder, 1);
    let status =
        run_sluice(&folder, &["cluster", "status", "--scheduler", &cluster.address]).expect(0);
    assert!(status.text().contains("executors: 1"), "{}", status.text());
    cluster.executors[0].signal(Signal::TERM);
    assert_eq!(cluster.executors[0].code(), Some(0));
    until("the scheduler to notice", || {
        let status = run_sluice(&folder, &["cluster", "status", "--scheduler", &cluster.address]);
        status.text().contains("executors: 0").then_some(())
    });
    cluster.scheduler.signal(Signal::INT);
    assert_eq!(cluster.scheduler.code(), Some(0));
}

#[test]
fn units_of_a_stopped_executor_are_reassigned() {
    let folder = folder(8);
    let expected = run_locally(&folder);
    let mut cluster = Cluster::start(&folder, 1);
    let arguments = [&["run", "batch.toml"][..], &cluster.engine()].concat();
    let mut run = ClusterProcess::start(sluice(&folder).args(arguments));
    until("the first output", || folder.at("out/00.jsonl").exists().then_some(()));
    cluster.executors[0].signal(Signal::TERM);
    assert_eq!(cluster.executors[0].code(), Some(0));
    assert!(run.is_running());
    cluster.executors.push(executor(&folder, &cluster.address, &["--slots", "2"]));
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}

#[test]
fn a_run_without_executors_says_so_and_waits() {
    let folder = folder(2);
    let mut cluster = Cluster::start(&folder, 0);
    let arguments = [&["run", "batch.toml"][..], &cluster.engine()].concat();
    let mut run = ClusterProcess::start(sluice(&folder).args(arguments));
    until("a word on executors", || run.stderr().contains("waiting for executors").then_some(()));
    cluster.executors.push(executor(&folder, &cluster.address, &[]));
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
}

#[test]
fn a_stopped_run_ends_soon_and_can_be_resumed() {
    let folder = folder(12);
    let expected = run_locally(&folder);
    let cluster = Cluster::start(&folder, 1);
    let arguments = [&["run", "batch.toml"][..], &cluster.engine()].concat();
    let mut run = ClusterProcess::start(sluice(&folder).args(arguments));
    until("the first output", || folder.at("out/00.jsonl").exists().then_some(()));
    run.signal(Signal::INT);
    let code = run.code();
    assert!(code == Some(130) || code == Some(0), "{code:?} {}", run.stderr());
    run_on(&cluster, &folder, &["run", "batch.toml", "--resume"]).expect(0);
    assert_same_files(&expected, &read_tree(&folder.at("out")));
}
