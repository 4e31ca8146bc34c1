//! Logs and outputs on a store by others, moto's, which checks signatures and permissions, behind a
//! proxy that fails on demand. Needs the packages that `.ci/peers` installs.

mod proxy;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sluice_kit::contract::trials;

use crate::cluster::{assert_same_files, read_tree};
use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, drive, log, report_skip, root, sluice};
use proxy::{FaultyProxy, ProxyFault};

/// A store with the logs of a folder in the bucket `logs`. It ends with this, or with the test.
struct MotoStore {
    folder: Folder,
    proxy: FaultyProxy,
    server: Child,
    /// The credentials of the user who may do everything, and of the one who may only read.
    owner: [String; 2],
    reader: [String; 2],
}

impl MotoStore {
    /// Starts a store with the logs `in/0.lcm` and so on of its folder, and `more` other objects;
    /// `None`, with a message, if it is not installed.
    fn start(more: u32) -> Option<Self> {
        let python = root().join(".cache/moto/bin/python3");
        if !root().join(".cache/moto/wanted").exists() {
            report_skip("there is no moto, a second object store; .ci/peers installs it");
            return None;
        }
        let mut command = Command::new(python);
        command.arg(root().join("full/tests/all/s3_moto/serve.py")).arg(more.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect("it serves");
        let port = u16::try_from(said["port"].as_u64().unwrap()).unwrap();
        let user = |name: &str| serde_json::from_value(said[name].clone()).unwrap();
        let folder = Folder::new();
        fs::create_dir(folder.at("in")).unwrap();
        for n in 0..3 {
            folder.write(&format!("in/{n}.lcm"), log(&drive(n + 1, 400)));
        }
        let proxy = FaultyProxy::start(([127, 0, 0, 1], port).into());
        let (owner, reader) = (user("owner"), user("reader"));
        let store = Self { folder, proxy, server, owner, reader };
        store.ran(&["convert", "in/*.lcm", "--to", "s3://logs/in/{stem}.lcm"]).expect(0);
        Some(store)
    }

    /// The program, with the address of the proxy and these credentials in its environment.
    fn sluice(&self, [key, secret]: [&str; 2]) -> Command {
        let mut command = sluice(&self.folder);
        let others = std::env::vars_os().map(|(name, _)| name);
        for name in others.filter(|name| name.as_encoded_bytes().starts_with(b"AWS_")) {
            command.env_remove(name);
        }
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.proxy.address))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", key)
            .env("AWS_SECRET_ACCESS_KEY", secret);
        command
    }

    fn ran_as(&self, user: [&str; 2], arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::from_output(self.sluice(user).args(arguments).output().unwrap())
    }

    fn ran(&self, arguments: &[&str]) -> ProgramOutput {
        self.ran_as([&self.owner[0], &self.owner[1]], arguments)
    }

    /// Copies a log of the store into the folder, and asserts that it is the one there.
    #[track_caller]
    fn assert_copies(&self) {
        let copy = ["convert", "s3://logs/in/0.lcm", "--to", "copy.lcm", "--overwrite"];
        self.ran(&copy).expect(0);
        assert!(self.folder.read("copy.lcm") == self.folder.read("in/0.lcm"));
    }
}

impl Drop for MotoStore {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// Every kind of output.
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
"#;

#[test]
fn batches_on_a_second_store_are_lossless() {
    let Some(store) = MotoStore::start(0) else { return };
    let batch = BATCH.replace("FROM", "s3://logs/in").replace("TO", "s3://out/made");
    store.folder.write("there.toml", batch);
    store.ran(&["run", "there.toml"]).expect(0).expect_stderr("3 inputs done");
    store.ran(&["run", "there.toml"]).expect(1).expect_stderr("--resume");
    store.ran(&["run", "there.toml", "--resume"]).expect(0).expect_stderr("3 done before");
    store.ran(&["verify", "s3://out/made"]).expect(0);
    let cluster = ["--overwrite", "--engine", "ballista", "--local-cluster", "2"];
    store.ran(&[&["run", "there.toml"][..], &cluster].concat()).expect(0);
    store.ran(&["verify", "s3://out/made"]).expect(0);
    for name in ["0", "1", "2"] {
        let back = format!("s3://out/made/tables/{name}/");
        store.ran(&["convert", &back, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(store.folder.read("back.lcm") == store.folder.read(&format!("in/{name}.lcm")));
        let packed = format!("s3://out/made/{name}.lcm.zst");
        store.ran(&["convert", &packed, "--to", "packed.lcm", "--overwrite"]).expect(0);
        assert!(store.folder.read("packed.lcm") == store.folder.read(&format!("in/{name}.lcm")));
    }
}

#[test]
fn a_second_store_keeps_objects_that_exist() {
    let Some(store) = MotoStore::start(0) else { return };
    let convert = ["convert", "in/1.lcm", "--to", "s3://logs/in/0.lcm"];
    store.ran(&convert).expect(1).expect_stderr("the output exists");
    store.assert_copies();
    // Missing when the run begins, and there when it publishes.
    store.proxy.on("HEAD /logs/in/0.lcm", 9, ProxyFault::Missing);
    store.ran(&convert).expect(1).expect_stderr("s3://logs/in/0.lcm");
    assert!(!store.proxy.faults().is_empty());
    store.proxy.end_faults();
    store.assert_copies();
}

#[test]
fn long_objects_reach_a_second_store_in_parts() {
    let Some(store) = MotoStore::start(0) else { return };
    let events = (0..4000).map(|n| LcmEvent::new(n, BEGIN + n * 1_000_000, "LIDAR", &[7; 7500]));
    store.folder.write("long.lcm", log(&events.collect::<Vec<_>>()));
    store.proxy.on("partNumber=2", 1, ProxyFault::ResetRequest(1 << 20));
    store.ran(&["convert", "long.lcm", "--to", "s3://logs/long.lcm"]).expect(0);
    assert_eq!(store.proxy.faults().len(), 1);
    store.proxy.on("GET /logs/long.lcm", 2, ProxyFault::ResetResponse(1 << 20));
    store.ran(&["convert", "s3://logs/long.lcm", "--to", "back.lcm"]).expect(0);
    assert_eq!(store.proxy.faults().len(), 2);
    assert!(store.folder.read("back.lcm") == store.folder.read("long.lcm"));
}

#[test]
fn users_who_may_not_are_told_so_without_their_secret() {
    let Some(store) = MotoStore::start(0) else { return };
    let [key, secret] = [&*store.owner[0], &*store.owner[1]];
    let [reader, password] = [&*store.reader[0], &*store.reader[1]];
    let read = ["convert", "s3://logs/in/0.lcm", "--to", "copy.lcm", "--overwrite"];
    let write = ["convert", "in/0.lcm", "--to", "s3://out/copy.lcm"];
    store.ran_as([reader, password], &read).expect(0);
    fs::remove_file(store.folder.at("copy.lcm")).unwrap();
    let wrong = "awrongsecret0123456789";
    let cases = [
        ([key, wrong], &read[..]),
        (["AKIANOBODY", wrong], &read[..]),
        ([reader, password], &write[..]),
    ];
    for (user, arguments) in cases {
        let refused = store.ran_as(user, arguments).expect(1).expect_stderr("denies access");
        for hidden in [secret, password, wrong, "Signature="] {
            assert!(!refused.stderr.contains(hidden), "{}", refused.stderr);
        }
    }
    assert_eq!(store.folder.names(), ["in"]);
}

#[test]
fn info_says_what_to_do_about_an_address() {
    let Some(store) = MotoStore::start(0) else { return };
    for (log, what) in [
        ("s3://logs", "pass its objects, such as s3://logs/*"),
        ("s3://logs/in", "pass its objects, such as s3://logs/in/*"),
        ("s3://logs/in/", "pass its objects, such as s3://logs/in/*"),
        ("s3://none", "there is no such bucket"),
        ("s3://none/*.lcm", "there is no such bucket"),
        ("s3://logs/in/9.lcm", "there is no such object"),
    ] {
        store.ran(&["info", log]).expect(1).expect_stderr(what).expect_stderr(log);
    }
    for log in ["s3://logs", "s3://logs/in", "s3://logs/in/0.lcm", "s3://none"] {
        let nobody = store.ran_as([&store.owner[0], "anothersecret"], &["info", log]).expect(1);
        let message = nobody.expect_stderr("AWS_SECRET_ACCESS_KEY").expect_stderr(log).stderr;
        assert!(!message.contains("anothersecret"), "{message}");
    }
}

#[test]
fn transient_failures_of_a_store_cost_only_time() {
    let Some(store) = MotoStore::start(0) else { return };
    let faults = [ProxyFault::Busy, ProxyFault::ResetResponse(700), ProxyFault::ResetRequest(0)];
    for fault in faults {
        store.proxy.on("GET /logs/in/0.lcm", 2, fault);
        store.assert_copies();
        assert_eq!(store.proxy.faults().len(), 2, "{fault:?}");
        for (request, times) in [("PUT /out/", 2), ("HEAD /out/", 1), ("GET /out", 1)] {
            store.proxy.on(request, times, fault);
            let to = ["convert", "in/0.lcm", "--to", "s3://out/t/", "--overwrite"];
            store.ran(&to).expect(0);
            store.ran(&["verify", "s3://out/t/"]).expect(0);
        }
    }
    store.proxy.on("GET /logs/in/0.lcm", 9, ProxyFault::Trickle(1000));
    store.assert_copies();
}

#[test]
fn an_outage_of_some_seconds_costs_only_time() {
    let Some(store) = MotoStore::start(0) else { return };
    store.proxy.on("GET /logs/in/0.lcm", 8, ProxyFault::Busy);
    store.assert_copies();
    assert_eq!(store.proxy.faults().len(), 8);
}

#[test]
fn an_upload_whose_answer_is_lost_has_succeeded() {
    let Some(store) = MotoStore::start(0) else { return };
    store.proxy.on("PUT /out/a.lcm", 1, ProxyFault::ResetResponse(0));
    store.ran(&["convert", "in/0.lcm", "--to", "s3://out/a.lcm"]).expect(0);
    assert_eq!(store.proxy.faults().len(), 1);
    store.proxy.end_faults();
    store.ran(&["convert", "s3://out/a.lcm", "--to", "back.lcm"]).expect(0);
    assert!(store.folder.read("back.lcm") == store.folder.read("in/0.lcm"));
}

#[test]
fn requests_that_are_never_answered_are_sent_again() {
    let Some(store) = MotoStore::start(0) else { return };
    store.proxy.on("GET /logs/in/0.lcm", 1, ProxyFault::Silence);
    let mut command = store.sluice([&store.owner[0], &store.owner[1]]);
    command.env("AWS_TIMEOUT", "2s");
    command.args(["convert", "s3://logs/in/0.lcm", "--to", "copy.lcm"]);
    ProgramOutput::from_output(command.output().unwrap()).expect(0);
    assert_eq!(store.proxy.faults().len(), 1);
    assert!(store.folder.read("copy.lcm") == store.folder.read("in/0.lcm"));
}

#[test]
fn a_store_that_stays_busy_fails_the_run_and_leaves_no_manifest() {
    let Some(store) = MotoStore::start(0) else { return };
    store.proxy.on("PUT /out/t/", 1_000, ProxyFault::Busy);
    let mut command = store.sluice([&store.owner[0], &store.owner[1]]);
    command.env("AWS_MAX_ATTEMPTS", "3").args(["convert", "in/0.lcm", "--to", "s3://out/t/"]);
    let busy = ProgramOutput::from_output(command.output().unwrap()).expect(1);
    busy.expect_stderr("s3://out/t/");
    store.proxy.end_faults();
    store.ran(&["verify", "s3://out/t/"]).expect(1);
    store.ran(&["convert", "in/0.lcm", "--to", "s3://out/t/"]).expect(0);
    store.ran(&["verify", "s3://out/t/"]).expect(0);
}

#[test]
fn long_listings_are_read_to_their_end() {
    // In pages of a thousand.
    let Some(store) = MotoStore::start(trials(2_500, 100_000)) else { return };
    for n in 0..3 {
        let to = format!("s3://many/drives/{}/999999.lcm", ["00", "50", "99"][n]);
        store.ran(&["convert", &format!("in/{n}.lcm"), "--to", &to]).expect(0);
    }
    let batch = ["convert", "s3://many/drives/**/*.lcm", "--to", "made/{parent}.lcm"];
    // The second page fails once.
    store.proxy.on("continuation-token", 1, ProxyFault::Busy);
    store.ran(&batch).expect(0).expect_stderr("3 inputs done");
    assert_eq!(store.proxy.faults().len(), 1);
    let mut made: BTreeMap<String, Vec<u8>> = read_tree(&store.folder.at("made"));
    made.remove("_manifest.json").unwrap();
    let log = |n: u32| store.folder.read(&format!("in/{n}.lcm"));
    let expected = [("00.lcm", 0), ("50.lcm", 1), ("99.lcm", 2)];
    let expected = expected.map(|(name, n)| (name.to_owned(), log(n)));
    assert_same_files(&BTreeMap::from(expected), &made);
}
