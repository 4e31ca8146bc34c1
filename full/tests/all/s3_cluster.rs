//! Runs on a cluster between buckets of an object store: a real server and real processes.

use std::collections::BTreeMap;
use std::fs;

use crate::cluster::processes::{ClusterProcess, until};
use crate::cluster::{assert_same_files, names, read_tree};
use crate::kit::{Folder, ProgramOutput, drive, log};
use crate::s3::server::{PlannedFault, SECRET, Server};

/// A batch with every kind of output.
const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "FROM/*.lcm"
[sinks.packed]
plugin = "archive"
from = "log"
path = "TO/{stem}.lcm.zst"
[sinks.table]
plugin = "parquet"
from = "log"
path = "TO/tables/{stem}/"
[sinks.lines]
plugin = "jsonl"
from = "log"
path = "TO/{stem}.jsonl"
"#;

const THERE: (&str, &str) = ("s3://logs/in", "s3://out/made");
const HERE: (&str, &str) = ("in", "made");
const CLUSTER: [&str; 4] = ["--engine", "ballista", "--local-cluster", "2"];

/// A folder and a server with the same logs, and a batch.
struct S3Batch {
    folder: Folder,
    server: Server,
}

impl S3Batch {
    fn with_logs(logs: u64, (from, to): (&str, &str)) -> Self {
        let (folder, server) = (Folder::new(), Server::start());
        fs::create_dir(folder.at("in")).unwrap();
        for n in 0..logs {
            let bytes = log(&drive(n + 1, 400 + 300 * (n as i64 % 3)));
            folder.write(&format!("in/{n:02}.lcm"), &bytes);
            server.put(&format!("logs/in/{n:02}.lcm"), &bytes);
        }
        folder.write("batch.toml", BATCH.replace("FROM", from).replace("TO", to));
        Self { folder, server }
    }

    fn ran(&self, arguments: &[&[&str]]) -> ProgramOutput {
        self.server
            .ran(&self.folder, &[&["run", "batch.toml"], arguments.concat().as_slice()].concat())
    }

    fn start(&self, arguments: &[&str]) -> ClusterProcess {
        ClusterProcess::start(self.server.sluice(&self.folder).args(arguments))
    }

    fn start_run(&self, engine: &[&str]) -> ClusterProcess {
        self.start(&[&["run", "batch.toml"], engine].concat())
    }

    /// All objects in the output bucket.
    fn output(&self) -> BTreeMap<String, Vec<u8>> {
        read_tree(&self.server.path("out"))
    }

    /// The output of a run on this machine, which is then removed.
    fn run_locally(&self) -> BTreeMap<String, Vec<u8>> {
        self.ran(&[]).expect(0);
        let made = self.output();
        assert!(made.contains_key("made/_manifest.json"));
        self.clear();
        made
    }

    fn clear(&self) {
        fs::remove_dir_all(self.server.path("out")).unwrap();
        fs::create_dir(self.server.path("out")).unwrap();
    }

    fn until_first(&self) {
        // Names only: a file may be renamed at any moment.
        let has = |name: &String| name.starts_with("made/") && name.ends_with(".jsonl");
        let out = self.server.path("out");
        until("the first output", || names(&out).iter().any(has).then_some(()));
    }
}

#[test]
fn a_batch_between_buckets_writes_the_same_bytes_as_one_program() {
    let setup = S3Batch::with_logs(6, THERE);
    let expected = setup.run_locally();
    setup.ran(&[&CLUSTER]).expect(0).expect_stderr("6 inputs done");
    assert_same_files(&expected, &setup.output());
    for (name, bytes) in read_tree(&setup.server.path("")) {
        assert!(!bytes.windows(SECRET.len()).any(|word| word == SECRET.as_bytes()), "{name}");
    }
    assert_eq!(setup.folder.names(), ["batch.toml", "in"]);
    setup.server.ran(&setup.folder, &["verify", "s3://out/made/"]).expect(0);
    setup.ran(&[&CLUSTER]).expect(1).expect_stderr("--resume");
    setup.ran(&[&CLUSTER, &["--resume"]]).expect(0).expect_stderr("0 inputs done, 6 done before");
    setup.server.put("out/made/03.jsonl", "broken");
    setup.ran(&[&CLUSTER, &["--resume"]]).expect(0).expect_stderr("1 input done, 5 done before");
    setup.ran(&[&["--resume"]]).expect(0).expect_stderr("0 inputs done, 6 done before");
    assert_same_files(&expected, &setup.output());
    setup.server.put("out/made/02.jsonl", "broken");
    setup.ran(&[&CLUSTER, &["--overwrite"]]).expect(0).expect_stderr("6 inputs done");
    assert_same_files(&expected, &setup.output());
}

#[test]
fn logs_of_a_folder_are_written_into_a_store() {
    let setup = S3Batch::with_logs(3, (HERE.0, THERE.1));
    let expected = setup.run_locally();
    setup.ran(&[&CLUSTER]).expect(0);
    assert_same_files(&expected, &setup.output());
}

#[test]
fn logs_of_a_store_are_written_into_a_folder() {
    let setup = S3Batch::with_logs(3, (THERE.0, HERE.1));
    setup.ran(&[]).expect(0);
    let expected = read_tree(&setup.folder.at("made"));
    fs::remove_dir_all(setup.folder.at("made")).unwrap();
    setup.ran(&[&CLUSTER]).expect(0);
    assert_same_files(&expected, &read_tree(&setup.folder.at("made")));
    assert!(setup.output().is_empty());
}

#[test]
fn a_pipeline_without_placeholders_writes_an_object_or_a_folder_of_them() {
    let setup = S3Batch::with_logs(1, THERE);
    for to in ["s3://out/a.jsonl", "s3://out/t/"] {
        let convert = ["convert", "s3://logs/in/00.lcm", "--to", to];
        setup.server.ran(&setup.folder, &convert).expect(0);
        let expected = setup.output();
        setup.clear();
        let convert = [&convert[..], &CLUSTER].concat();
        setup.server.ran(&setup.folder, &convert).expect(0);
        assert_same_files(&expected, &setup.output());
        setup.server.ran(&setup.folder, &convert).expect(1).expect_stderr("exists");
        assert_same_files(&expected, &setup.output());
        setup.clear();
    }
}

#[test]
fn an_object_that_appears_while_one_is_published_is_not_replaced() {
    let setup = S3Batch::with_logs(1, THERE);
    let theirs = PlannedFault::Change(setup.server.path("out/a.jsonl"), b"theirs".to_vec());
    setup.server.on("POST /out/a.jsonl?uploadId", 1, theirs);
    let convert = ["convert", "s3://logs/in/00.lcm", "--to", "s3://out/a.jsonl"];
    let ran = setup.server.ran(&setup.folder, &[&convert[..], &CLUSTER].concat()).expect(1);
    ran.expect_stderr("has appeared since the run began");
    assert_eq!(setup.server.get("out/a.jsonl"), b"theirs");
}

#[test]
fn an_object_is_published_although_the_store_says_otherwise_or_to_try_again() {
    for fault in [PlannedFault::Forget, PlannedFault::Conflict] {
        let setup = S3Batch::with_logs(1, THERE);
        let convert = ["convert", "s3://logs/in/00.lcm", "--to", "s3://out/a.jsonl"];
        setup.server.ran(&setup.folder, &convert).expect(0);
        let expected = setup.output();
        setup.clear();
        setup.server.on("POST /out/a.jsonl?uploadId", 1, fault);
        setup.server.ran(&setup.folder, &[&convert[..], &CLUSTER].concat()).expect(0);
        assert_same_files(&expected, &setup.output());
    }
}

#[test]
fn outputs_both_in_a_store_and_elsewhere_are_refused() {
    let setup = S3Batch::with_logs(1, THERE);
    let text = String::from_utf8(setup.folder.read("batch.toml")).unwrap();
    let mixed = text.replace("s3://out/made/{stem}.jsonl", "made/{stem}.jsonl");
    setup.folder.write("batch.toml", mixed);
    setup
        .ran(&[&CLUSTER])
        .expect(2)
        .expect_stderr("outputs are in several places")
        .expect_stderr("--engine local");
    assert!(setup.output().is_empty());
}

#[test]
fn a_killed_executor_leaves_nothing_in_a_store() {
    let setup = S3Batch::with_logs(8, THERE);
    let expected = setup.run_locally();
    let (_scheduler, address, mut executors) = cluster(&setup, 2);
    let mut run = setup.start_run(&["--engine", "ballista", "--scheduler", &address]);
    setup.until_first();
    executors[0].kill();
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert_same_files(&expected, &setup.output());
}

/// A scheduler, its address, and executors.
fn cluster(setup: &S3Batch, executors: usize) -> (ClusterProcess, String, Vec<ClusterProcess>) {
    let listen = ["cluster", "scheduler", "--listen", "127.0.0.1:0", "--executor-timeout", "4s"];
    let scheduler = setup.start(&listen);
    let address = scheduler.wait_for_line("listening on ");
    let start = |_| setup.start(&["cluster", "executor", "--slots", "1", "--scheduler", &address]);
    let executors: Vec<ClusterProcess> = (0..executors).map(start).collect();
    executors.iter().for_each(|executor| drop(executor.wait_for_line("joined ")));
    (scheduler, address, executors)
}

#[test]
fn after_its_driver_was_killed_a_run_is_resumed_and_cleaned_up() {
    let setup = S3Batch::with_logs(8, THERE);
    let expected = setup.run_locally();
    let mut run = setup.start_run(&CLUSTER);
    setup.until_first();
    run.kill();
    setup.ran(&[&CLUSTER, &["--resume"]]).expect(0).expect_stderr("8 ");
    assert_same_files(&expected, &setup.output());
}

#[test]
fn a_second_driver_in_a_folder_of_a_store_is_refused() {
    let setup = S3Batch::with_logs(2, THERE);
    let expected = setup.run_locally();
    let (_scheduler, address, _) = cluster(&setup, 0);
    let engine = ["--engine", "ballista", "--scheduler", &address];
    let mut first = setup.start_run(&engine);
    until("its staging directory", || {
        setup.output().keys().any(|name| name.ends_with("/driver")).then_some(())
    });
    setup.ran(&[&engine]).expect(1).expect_stderr("another run on a cluster");
    // Files in the staging directory are no output.
    let output = setup.server.ran(&setup.folder, &["verify", "s3://out/made/"]);
    assert!(!(output.text() + &output.stderr).contains(".cluster."), "{}", output.stderr);
    let _executor = setup.start(&["cluster", "executor", "--scheduler", &address]);
    assert_eq!(first.code(), Some(0), "{}", first.stderr());
    assert_same_files(&expected, &setup.output());
}
