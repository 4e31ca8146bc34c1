//! Uploads whose answers are lost, and batches that write to several folders of a store, or to one
//! at the same time.

use std::fs;
use std::sync::atomic::Ordering;

use rustix::process::Signal;

use super::server::{PlannedFault, Server};
use super::{long_log, with_logs};
use crate::cluster::processes::{ClusterProcess, until};
use crate::kit::{Folder, ProgramOutput, drive, log};

#[test]
fn an_upload_that_succeeds_although_the_server_says_otherwise_is_ours() {
    let (folder, server) = with_logs();
    server.on("PUT /out/a.lcm", 1, PlannedFault::Forget);
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]).expect(0);
    assert!(server.get("out/a.lcm") == folder.read("in/a.lcm"));
    long_log(&folder, &server);
    server.on("POST /out/long.lcm?uploadId", 1, PlannedFault::Forget);
    server.ran(&folder, &["convert", "long.lcm", "--to", "s3://out/long.lcm"]).expect(0);
    assert!(server.get("out/long.lcm") == folder.read("long.lcm"));
    assert_eq!(server.keys("out"), ["a.lcm", "long.lcm"]);
}

#[test]
fn an_object_that_appears_while_one_is_uploaded_is_not_replaced() {
    let (folder, server) = (Folder::new(), Server::start());
    long_log(&folder, &server);
    folder.write("short.lcm", log(&drive(1, 400)));
    let requests = ["POST /out/long.lcm?uploadId", "PUT /out/short.lcm"];
    for (name, request) in ["long.lcm", "short.lcm"].into_iter().zip(requests) {
        let to = format!("out/{name}");
        server.on(request, 1, PlannedFault::Change(server.path(&to), b"theirs".to_vec()));
        let ran = server.ran(&folder, &["convert", name, "--to", &format!("s3://{to}")]);
        ran.expect(1).expect_stderr("has appeared since the run began");
        assert_eq!(server.get(&to), b"theirs");
    }
}

/// Two sinks, whose outputs are in different folders, and the record in the first.
const TWO_FOLDERS: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[sinks.first]
plugin = "lcm-log"
from = "log"
path = "FIRST/{stem}.lcm"
[sinks.second]
plugin = "lcm-log"
from = "log"
path = "s3://out/second/{stem}.lcm"
"#;

#[test]
fn batches_write_to_several_folders_of_a_store() {
    for first in ["s3://out/first", "first"] {
        let (folder, server) = with_logs();
        folder.write("two.toml", TWO_FOLDERS.replace("FIRST", first));
        server.ran(&folder, &["run", "two.toml"]).expect(0);
        let first = format!("{first}/");
        server.ran(&folder, &["verify", &first]).expect(0);
        let again = ["run", "two.toml", "--resume"];
        server.ran(&folder, &again).expect(0).expect_stderr("3 done before");
        server.put("out/second/b.lcm", "broken");
        let found = server.ran(&folder, &["verify", &first]).expect(1).text();
        assert!(found.contains("s3://out/second/b.lcm"), "{found}");
        server.ran(&folder, &again).expect(0).expect_stderr("1 input done, 2 done before");
        assert!(server.get("out/second/b.lcm") == folder.read("in/b.lcm"));
        // Only what is in the second folder is in the way.
        let other = TWO_FOLDERS.replace("FIRST", "other");
        folder.write("other.toml", other);
        let refused = server.ran(&folder, &["run", "other.toml"]).expect(1);
        refused.expect_stderr("--resume").expect_stderr("s3://out/second/a.lcm");
    }
}

#[test]
fn a_batch_that_ends_while_another_does_keeps_its_record() {
    let (folder, server) = with_logs();
    let batch = |name: &str| {
        let from = format!("in/{name}.lcm");
        server.ran(&folder, &["convert", &from, "--to", "s3://out/{stem}.lcm"]).expect(0)
    };
    batch("a");
    let theirs = server.get("out/_manifest.json");
    let path = server.path("out/_manifest.json");
    // The first batch in the folder ends while the second one is about to write its record.
    fs::remove_file(&path).unwrap();
    server.on("PUT /out/_manifest.json", 1, PlannedFault::Change(path.clone(), theirs));
    batch("b");
    server.ran(&folder, &["verify", "s3://out/a.lcm", "s3://out/b.lcm"]).expect(0);
    // The same with a record that both have continued.
    let before = server.get("out/_manifest.json");
    batch("c");
    let theirs = server.get("out/_manifest.json");
    fs::write(&path, before).unwrap();
    folder.write("in/d.lcm", log(&drive(9, 400)));
    server.on("PUT /out/_manifest.json", 1, PlannedFault::Change(path, theirs));
    batch("d");
    let all = ["a", "b", "c", "d"].map(|name| format!("s3://out/{name}.lcm"));
    let all: Vec<&str> = all.iter().map(|name| &**name).collect();
    server.ran(&folder, &[&["verify"], &all[..]].concat()).expect(0);
    server.ran(&folder, &["verify", "s3://out"]).expect(0);
}

#[test]
fn a_batch_leaves_the_journal_of_another_that_is_still_running() {
    let (folder, server) = with_logs();
    let line = "out/_units.jsonl/0000000000000000-1-00000000";
    server.put("out/_units.jsonl/placeholder", "");
    fs::remove_file(server.path("out/_units.jsonl/placeholder")).unwrap();
    let appears = PlannedFault::Change(server.path(line), b"{}\n".to_vec());
    server.on("PUT /out/_manifest.json", 1, appears);
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/{stem}.lcm"]).expect(0);
    assert!(server.keys("out").contains(&line.strip_prefix("out/").unwrap().to_owned()));
}

#[test]
fn stores_without_conditional_uploads_are_written_all_the_same() {
    let (folder, server) = with_logs();
    server.state.lacks_conditions.store(true, Ordering::Relaxed);
    let batch = |name: &str, to: &str, variables: &[(&str, &str)]| {
        let mut command = server.sluice(&folder);
        // A limit would hide that the library repeats such requests.
        command.env_remove("AWS_MAX_ATTEMPTS").envs(variables.iter().copied());
        command.args(["convert", &format!("in/{name}.lcm"), "--to", to]);
        ProgramOutput::from_output(command.output().unwrap())
    };
    for (folder, variables) in [("x", &[][..]), ("y", &[("AWS_CONDITIONAL_PUT", "disabled")])] {
        let to = format!("s3://out/{folder}/{{stem}}.lcm");
        // The second one replaces the record.
        for name in ["a", "b"] {
            batch(name, &to, variables).expect(0);
        }
        let puts = server.requests().into_iter().filter(|request| {
            request.starts_with("PUT /out/") && request.contains(&format!("{folder}/a.lcm"))
        });
        assert_eq!(puts.count(), if variables.is_empty() { 2 } else { 1 });
        server.ran(&Folder::new(), &["verify", &format!("s3://out/{folder}/")]).expect(0);
    }
    // It appears after the run has looked for it.
    let (to, name) = (server.path("out/c.lcm"), "HEAD /out/c.lcm");
    server.on(name, 2, PlannedFault::Change(to, b"theirs".to_vec()));
    let ran = batch("c", "s3://out/c.lcm", &[]).expect(1);
    ran.expect_stderr("has appeared since the run began");
    assert_eq!(server.get("out/c.lcm"), b"theirs");
}

#[test]
fn an_upload_that_conflicts_with_others_is_repeated() {
    let (folder, server) = with_logs();
    server.on("PUT /out/a.lcm", 1, PlannedFault::Conflict);
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]).expect(0);
    assert!(server.get("out/a.lcm") == folder.read("in/a.lcm"));
}

#[test]
fn an_upload_in_parts_that_conflicts_with_others_is_repeated() {
    let (folder, server) = (Folder::new(), Server::start());
    long_log(&folder, &server);
    server.on("POST /out/long.lcm?uploadId", 1, PlannedFault::Conflict);
    server.ran(&folder, &["convert", "long.lcm", "--to", "s3://out/long.lcm"]).expect(0);
    assert!(server.get("out/long.lcm") == folder.read("long.lcm"));
    // The other one was stored.
    fs::remove_file(server.path("out/long.lcm")).unwrap();
    server.on("POST /out/long.lcm?uploadId", 1, PlannedFault::Conflict);
    let mut other = server.sluice(&folder);
    other.env("AWS_MAX_ATTEMPTS", "1").args(["convert", "long.lcm", "--to", "s3://out/long.lcm"]);
    let ran = ProgramOutput::from_output(other.output().unwrap()).expect(1);
    ran.expect_stderr("reports other requests for the same object (status 409); try again");
}

#[test]
fn of_two_runs_that_write_one_folder_at_once_only_one_succeeds() {
    let (folder, server) = with_logs();
    let path = server.path("out/t/_manifest.json");
    let to = ["convert", "in/a.lcm", "--to", "s3://out/t/"];
    for more in [&[][..], &["--overwrite"]] {
        let theirs = PlannedFault::Change(path.clone(), b"theirs".to_vec());
        server.on("PUT /out/t/_manifest.json", 1, theirs);
        let ran = server.ran(&folder, &[&to[..], more].concat()).expect(1);
        ran.expect_stderr("another run has written into this folder").expect_stderr("s3://out/t/");
        assert_eq!(server.get("out/t/_manifest.json"), b"theirs");
        assert!(!server.keys("out").iter().any(|key| key.contains("sluice-tmp")));
        if more.is_empty() {
            assert_eq!(server.keys("out"), ["t/_manifest.json"]);
            fs::remove_file(&path).unwrap();
            server.ran(&folder, &to).expect(0);
        }
    }
}

#[test]
fn a_run_that_is_refused_leaves_what_another_has_written_since() {
    let (folder, server) = with_logs();
    let to = |input| ["convert", input, "--to", "s3://out/t/", "--overwrite"];
    server.ran(&folder, &to("in/a.lcm")).expect(0);
    // The same, or something else.
    for theirs in ["in/b.lcm", "in/a.lcm"] {
        let mut other = server.sluice(&folder);
        other.args(to(theirs));
        let run = move || {
            ProgramOutput::from_output(other.output().unwrap()).expect(0);
        };
        server.on("PUT /out/t/_manifest.json", 1, PlannedFault::Act(Box::new(run)));
        let ran = server.ran(&folder, &to("in/b.lcm")).expect(1);
        ran.expect_stderr("another run has written into this folder")
            .expect_stderr("were left as they are: another program has written there since");
        assert!(!server.keys("out").iter().any(|key| key.contains("sluice-tmp")));
        server.ran(&folder, &["verify", "s3://out/t/"]).expect(0);
    }
}

#[test]
fn an_upload_is_not_repeated_if_the_store_does_not_answer_any_longer() {
    // All requests from the upload on, or only uploads.
    for (text, from) in [("/out/a.lcm", 2), ("PUT /out/a.lcm", 1)] {
        let (folder, server) = with_logs();
        server.on(text, from, PlannedFault::Silence);
        let mut command = server.sluice(&folder);
        let attempts = if from == 2 { "2" } else { "1" };
        command.env("AWS_MAX_ATTEMPTS", attempts).env("AWS_TIMEOUT", "1s");
        command.args(["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]);
        let ran = ProgramOutput::from_output(command.output().unwrap()).expect(1);
        ran.expect_stderr("cannot be reached");
        let requests = server.requests();
        let puts = requests.iter().filter(|request| request.starts_with("PUT /out/a.lcm"));
        assert_eq!(puts.count(), 1, "{requests:#?}");
    }
}

#[test]
fn a_store_that_only_fails_is_reported_before_the_work() {
    let (folder, server) = with_logs();
    server.on("/out", 1, PlannedFault::Fail);
    let mut command = server.sluice(&folder);
    command.env_remove("AWS_MAX_ATTEMPTS");
    command.args(["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]);
    let ran = ProgramOutput::from_output(command.output().unwrap()).expect(1);
    ran.expect_stderr("cannot look at s3://out/a.lcm").expect_stderr("SlowDown");
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.starts_with("GET /out?")), "{requests:#?}");
    // As few as before the first answer.
    assert!(requests.len() <= 6, "{requests:#?}");
}

#[test]
fn who_may_write_need_not_list() {
    let (folder, server) = with_logs();
    server.on("GET /out?list-type=2", 1, PlannedFault::Refuse);
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]).expect(0);
    assert!(server.get("out/a.lcm") == folder.read("in/a.lcm"));
}

#[test]
fn the_second_interrupt_ends_rolling_back_and_what_is_left_is_named() {
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]).expect(0);
    server.on("PUT /out/t/channel%3DE/part", 1, PlannedFault::FallSilent);
    let mut command = server.sluice(&folder);
    command.env("AWS_MAX_ATTEMPTS", "1").env("AWS_TIMEOUT", "5s");
    command.args(["convert", "in/b.lcm", "--to", "s3://out/t/", "--overwrite"]);
    let mut run = ClusterProcess::start(&mut command);
    until("silence", || server.state.silent.load(Ordering::Relaxed).then_some(()));
    for word in ["another signal aborts", "aborting"] {
        run.signal(Signal::INT);
        until(word, || run.stderr().contains(word).then_some(()));
    }
    run.code();
    let said = run.stderr();
    assert!(said.contains("aborting: nothing but what is being published now"), "{said}");
    let left = "uploads could not be rolled back, such as this: s3://out/t/channel=";
    assert!(said.contains(left) && said.contains("(the run was aborted); copy"), "{said}");
    assert!(said.contains("copy s3://out/t/._manifest.json."), "{said}");
    assert!(!server.keys("out").contains(&"t/_manifest.json".to_owned()));
}
