//! Logs and outputs on an object store: a real server on this machine.

mod answers;
mod inputs;
mod leftovers;
pub(crate) mod server;
mod settings;
mod together;

use std::fs;

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, numbers, run_sluice};
use server::{PlannedFault, SECRET, Server};

/// A folder and a server with the same small logs: `in/a.lcm` and so on in the folder,
/// `logs/drives/a.lcm` on the server.
fn with_logs() -> (Folder, Server) {
    let (folder, server) = (Folder::new(), Server::start());
    fs::create_dir(folder.at("in")).unwrap();
    for (seed, name) in ["a", "b", "c"].into_iter().enumerate() {
        let bytes = log(&drive(seed as u64, 400));
        folder.write(&format!("in/{name}.lcm"), &bytes);
        server.put(&format!("logs/drives/{name}.lcm"), &bytes);
    }
    (folder, server)
}

/// All files below a local folder, as keys.
fn local(folder: &Folder, name: &str) -> Vec<(String, Vec<u8>)> {
    fn collect(root: &std::path::Path, at: &std::path::Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, found);
            } else {
                let key = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((key, fs::read(&path).unwrap()));
            }
        }
    }
    let (mut found, root) = (Vec::new(), folder.at(name));
    collect(&root, &root, &mut found);
    found.sort();
    found
}

#[test]
fn a_log_is_transferred_unchanged() {
    let (folder, server) = with_logs();
    server
        .ran(&folder, &["convert", "s3://logs/drives/a.lcm", "--to", "s3://out/x/a.lcm"])
        .expect(0);
    assert_eq!(server.get("out/x/a.lcm"), folder.read("in/a.lcm"));
    assert_eq!(server.keys("out"), ["x/a.lcm"]);
    server.ran(&folder, &["convert", "s3a://logs/drives/b.lcm", "--to", "b.lcm"]).expect(0);
    assert_eq!(folder.read("b.lcm"), folder.read("in/b.lcm"));
    server.ran(&folder, &["convert", "in/c.lcm", "--to", "s3://out/c.lcm.zst"]).expect(0);
    let back = ["convert", "s3://out/c.lcm.zst", "--to", "c.lcm"];
    server.ran(&folder, &back).expect(0);
    assert_eq!(folder.read("c.lcm"), folder.read("in/c.lcm"));
}

/// Two names of equal length, one local and one remote: outputs differ only in the name.
const HERE: &str = "outs/here/table/";
const THERE: &str = "s3://out/tables/";

/// Replaces the local name by the remote one.
fn as_there(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> =
        bytes.windows(HERE.len()).enumerate().fold(Vec::new(), |mut all, (at, word)| {
            all.extend((word == HERE.as_bytes()).then_some(at));
            all
        });
    places.iter().for_each(|at| bytes[*at..*at + HERE.len()].copy_from_slice(THERE.as_bytes()));
    bytes
}

/// A table without the checksum of its footer, which contains names.
fn without_footer_checksum(table: &[u8]) -> Vec<u8> {
    let tail = table.len() - 8;
    let len = u32::from_le_bytes(*table[tail..].first_chunk().unwrap()) as usize;
    [&table[..tail - len - 4], &table[tail - len..]].concat()
}

#[test]
fn remote_tables_and_manifests_equal_local_ones() {
    let (folder, server) = with_logs();
    run_sluice(&folder, &["convert", "in/a.lcm", "--to", HERE]).expect(0);
    server.ran(&folder, &["convert", "in/a.lcm", "--to", THERE]).expect(0);
    let ours = local(&folder, HERE);
    let names: Vec<&String> = ours.iter().map(|(key, _)| key).collect();
    assert_eq!(names, server.keys("out/tables").iter().collect::<Vec<_>>());
    for (key, bytes) in &ours {
        let there = server.get(&format!("out/tables/{key}"));
        let (mut ours, mut theirs) = (as_there(bytes), there);
        if key == "_manifest.json" {
            // The hashed bytes contain the names.
            ours = without_hashes(&ours);
            theirs = without_hashes(&theirs);
        } else {
            [ours, theirs] = [ours, theirs].map(|table| without_footer_checksum(&table));
        }
        assert!(ours == theirs, "{key}");
        assert!(!theirs.windows(SECRET.len()).any(|word| word == SECRET.as_bytes()), "{key}");
    }
    server.ran(&folder, &["convert", THERE, "--to", "back.lcm"]).expect(0);
    assert_eq!(folder.read("back.lcm"), folder.read("in/a.lcm"));
    server.ran(&folder, &["verify", THERE]).expect(0);
}

fn without_hashes(manifest: &[u8]) -> Vec<u8> {
    let mut manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    for file in manifest["files"].as_array_mut().unwrap() {
        assert!(file["blake3"].take().is_string());
    }
    serde_json::to_vec(&manifest).unwrap()
}

#[test]
fn remote_archives_equal_local_ones() {
    let (folder, server) = with_logs();
    run_sluice(&folder, &["convert", "in/a.lcm", "--to", "a.lcm.zst"]).expect(0);
    server
        .ran(&folder, &["convert", "s3://logs/drives/a.lcm", "--to", "s3://out/a.lcm.zst"])
        .expect(0);
    assert_eq!(server.get("out/a.lcm.zst"), folder.read("a.lcm.zst"));
}

#[test]
fn globs_and_placeholders_make_batches() {
    let (folder, server) = with_logs();
    let batch = ["convert", "s3://logs/drives/*.lcm", "--to", "s3://out/{parent}/{stem}.lcm"];
    server.ran(&folder, &batch).expect(0);
    for name in ["a", "b", "c"] {
        let there = server.get(&format!("out/drives/{name}.lcm"));
        assert_eq!(there, folder.read(&format!("in/{name}.lcm")), "{name}");
    }
    assert_eq!(
        server.keys("out"),
        ["_manifest.json", "drives/a.lcm", "drives/b.lcm", "drives/c.lcm"]
    );
    assert_eq!(folder.names(), ["in"]);
    server.ran(&folder, &batch).expect(1).expect_stderr("--resume");
    server.put("out/drives/b.lcm", "broken");
    let again = [&batch[..], &["--resume"]].concat();
    server.ran(&folder, &again).expect(0).expect_stderr("1 input done, 2 done before");
    assert_eq!(server.get("out/drives/b.lcm"), folder.read("in/b.lcm"));
    server.ran(&folder, &["verify", "s3://out/"]).expect(0);
    server.put("out/drives/b.lcm", "broken");
    server.ran(&folder, &["verify", "s3://out"]).expect(1);
}

#[test]
fn objects_are_replaced_only_on_request() {
    let (folder, server) = with_logs();
    let convert = ["convert", "s3://logs/drives/a.lcm", "--to", "s3://out/a.lcm"];
    server.ran(&folder, &convert).expect(0);
    server
        .ran(&folder, &convert)
        .expect(1)
        .expect_stderr("the output exists")
        .expect_stderr("s3://out/a.lcm");
    let other = ["convert", "s3://logs/drives/b.lcm", "--to", "s3://out/a.lcm", "--overwrite"];
    server.ran(&folder, &other).expect(0);
    assert_eq!(server.get("out/a.lcm"), folder.read("in/b.lcm"));
    assert_eq!(server.keys("out"), ["a.lcm"]);
    let itself = ["convert", "s3://out/a.lcm", "--to", "s3a://out/a.lcm", "--overwrite"];
    server.ran(&folder, &itself).expect(1).expect_stderr("also an input");
}

#[test]
fn a_finished_folder_is_not_repeated() {
    let (folder, server) = with_logs();
    let convert = ["convert", "s3://logs/drives/a.lcm", "--to", "s3://out/t/", "--resume"];
    server.ran(&folder, &convert).expect(0);
    server.requests();
    server.ran(&folder, &convert).expect(0).expect_stderr("already done");
    assert!(!server.requests().iter().any(|request| request.starts_with("PUT")));
    server.put("logs/drives/a.lcm", log(&drive(7, 400)));
    server.ran(&folder, &convert).expect(0);
    assert!(server.requests().iter().any(|request| request.starts_with("PUT")));
    server.ran(&folder, &["verify", "s3://out/t/"]).expect(0);
    fs::remove_file(server.path("out/t/_manifest.json")).unwrap();
    server.ran(&folder, &["verify", "s3://out/t/"]).expect(1);
}

#[test]
fn looking_at_logs_works_as_on_files() {
    let (folder, server) = with_logs();
    let here = run_sluice(&folder, &["cat", "in/a.lcm"]).expect(0).text();
    assert_eq!(server.ran(&folder, &["cat", "s3://logs/drives/a.lcm"]).expect(0).text(), here);
    let info = server.ran(&folder, &["info", "s3://logs/drives/a.lcm"]).expect(0).text();
    assert!(info.contains("400") && info.contains("s3://logs/drives/a.lcm"), "{info}");
    server.ran(&folder, &["verify", "s3://logs/drives/b.lcm"]).expect(0);
}

/// A log of 30 MB and 4000 seconds, uploaded by the program in parts.
fn long_log(folder: &Folder, server: &Server) {
    let events = (0..4000).map(|n| LcmEvent::new(n, BEGIN + n * 1_000_000, "LIDAR", &[7; 7500]));
    folder.write("long.lcm", log(&events.collect::<Vec<_>>()));
    server.ran(folder, &["convert", "long.lcm", "--to", "s3://logs/long.lcm"]).expect(0);
    assert!(server.get("logs/long.lcm") == folder.read("long.lcm"));
    assert!(server.requests().iter().any(|request| request.contains("partNumber=3")));
    server.sent();
}

/// A cut of it by time, in the middle.
const CUT: [&str; 4] = ["--start", "2007-11-03T14:33:20Z", "--end", "2007-11-03T14:33:30Z"];

#[test]
fn a_cut_of_a_sorted_log_transfers_a_small_part() {
    let (folder, server) = (Folder::new(), Server::start());
    long_log(&folder, &server);
    let cut = ["convert", "s3://logs/long.lcm", "--to", "cut.lcm", "--overwrite"];
    // Only the user can say that a log is sorted.
    server.ran(&folder, &[&cut[..], &CUT].concat()).expect(0);
    let (sent, requests) = (server.sent(), server.requests().len());
    assert_eq!(numbers(&folder.read("cut.lcm")), (2000..2010).collect::<Vec<i64>>());
    assert!(sent < 34 << 20 && requests < 60, "{sent} bytes in {requests} requests");
    let sorted = ["--source-option", "seek=sorted"];
    server.ran(&folder, &[&cut[..], &CUT, &sorted].concat()).expect(0);
    let (sent, requests) = (server.sent(), server.requests().len());
    assert_eq!(numbers(&folder.read("cut.lcm")), (2000..2010).collect::<Vec<i64>>());
    assert!(sent < 8 << 20, "{sent} bytes in {requests} requests");
    server.ran(&folder, &["convert", "s3://logs/long.lcm", "--to", "all.lcm"]).expect(0);
    let (sent, requests) = (server.sent(), server.requests().len());
    assert!(folder.read("all.lcm") == folder.read("long.lcm"));
    assert!(sent < 34 << 20 && requests < 60, "{sent} bytes in {requests} requests");
}

#[test]
fn a_cut_of_an_archive_transfers_its_index_and_some_frames() {
    let (folder, server) = (Folder::new(), Server::start());
    let events = drive(3, 40_000);
    folder.write("in.lcm", log(&events));
    server.ran(&folder, &["convert", "in.lcm", "--to", "s3://logs/in.lcm.zst"]).expect(0);
    let whole = server.get("logs/in.lcm.zst").len() as u64;
    server.sent();
    let cut =
        ["convert", "s3://logs/in.lcm.zst", "--to", "cut.lcm", "--start", "+20", "--end", "+20.5"];
    server.ran(&folder, &cut).expect(0);
    let sent = server.sent();
    assert!(!numbers(&folder.read("cut.lcm")).is_empty());
    assert!(sent < whole / 3, "{sent} of {whole} bytes");
}

#[test]
fn wrong_credentials_are_reported_without_showing_them() {
    let (folder, server) = with_logs();
    let mut command = server.sluice(&folder);
    command.env("AWS_SECRET_ACCESS_KEY", "anothersecret999");
    command.args(["convert", "s3://logs/drives/a.lcm", "--to", "a.lcm"]);
    let ran = crate::kit::ProgramOutput::from_output(command.output().unwrap()).expect(1);
    let ran = ran.expect_stderr("AWS_SECRET_ACCESS_KEY").expect_stderr("s3://logs/drives/a.lcm");
    for secret in [SECRET, "anothersecret999", "Signature="] {
        assert!(!ran.stderr.contains(secret), "{}", ran.stderr);
    }
    assert_eq!(folder.names(), ["in"]);
}

#[test]
fn a_missing_bucket_or_object_is_reported() {
    let (folder, server) = with_logs();
    server
        .ran(&folder, &["convert", "s3://logs/none.lcm", "--to", "a.lcm"])
        .expect(1)
        .expect_stderr("no such object")
        .expect_stderr("s3://logs/none.lcm");
    server
        .ran(&folder, &["convert", "s3://nowhere/*.lcm", "--to", "a.lcm"])
        .expect(1)
        .expect_stderr("no such bucket");
    server
        .ran(&folder, &["convert", "s3://logs/*.csv", "--to", "a.lcm"])
        .expect(1)
        .expect_stderr("no object matches");
}

#[test]
fn a_missing_bucket_of_an_output_is_found_before_the_work() {
    let (folder, server) = with_logs();
    let to = ["convert", "s3://logs/drives/a.lcm", "--to", "s3://nowhere/a.lcm"];
    for more in [&[][..], &["--overwrite"]] {
        let refused = server.ran(&folder, &[&to[..], more].concat()).expect(1);
        refused.expect_stderr("no such bucket").expect_stderr("s3://nowhere/a.lcm");
        assert!(!server.requests().iter().any(|request| request.starts_with("PUT")));
    }
}

#[test]
fn a_bucket_alone_is_no_empty_log() {
    let (folder, server) = with_logs();
    for (log, says) in [
        ("s3://logs", "found a folder of objects: pass its objects, such as s3://logs/*"),
        ("s3://logs/", "found a folder of objects: pass its objects, such as s3://logs/*"),
        ("s3://out", "cannot open s3://out: the bucket has no objects; write s3://BUCKET/KEY"),
        ("s3://none", "cannot open s3://none: there is no such bucket"),
    ] {
        let pipeline = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"{log}\"\n\
             [sinks.out]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"out.jsonl\"\n"
        );
        folder.write("p.toml", pipeline);
        let query = ["query", "select count(*) from log", log, "--from", "lcm-log"];
        for command in [&["info", log][..], &["run", "p.toml"], &query] {
            server.ran(&folder, command).expect(1).expect_stderr(says);
        }
    }
    assert!(!folder.at("out.jsonl").exists());
}

#[test]
fn info_says_what_to_do_about_an_address() {
    let (folder, server) = with_logs();
    let said = |log: &str, variables: &[(&str, &str)]| {
        let mut command = server.sluice(&folder);
        command.args(["info", log]).envs(variables.iter().copied());
        let ran = crate::kit::ProgramOutput::from_output(command.output().unwrap()).expect(1);
        assert!(ran.stderr.contains(log) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
        ran.stderr
    };
    for (log, what) in [
        ("s3://logs", "pass its objects, such as s3://logs/*"),
        ("s3://logs/", "pass its objects, such as s3://logs/*"),
        ("s3://out", "write s3://BUCKET/KEY"),
        ("s3://none", "there is no such bucket"),
        ("s3://none/", "there is no such bucket"),
        ("s3://none/*.lcm", "there is no such bucket"),
        ("s3://none/drives/a.lcm", "there is no such"),
        ("s3://logs/drives/d.lcm", "there is no such object"),
    ] {
        let message = said(log, &[]);
        assert!(message.contains(what), "{log}: {message}");
    }
    for log in ["s3://logs", "s3://none", "s3://logs/drives/a.lcm", "s3://logs/*.lcm"] {
        for (name, value) in
            [("AWS_ACCESS_KEY_ID", "NOBODY"), ("AWS_SECRET_ACCESS_KEY", "anothersecret999")]
        {
            let message = said(log, &[(name, value)]);
            assert!(message.contains(name) && !message.contains(value), "{log}: {message}");
        }
    }
}

#[test]
fn a_server_that_dies_during_a_read_fails_the_run_and_nothing_is_published() {
    let (folder, server) = (Folder::new(), Server::start());
    long_log(&folder, &server);
    server.on("GET /logs/long.lcm", 8, PlannedFault::Die);
    let ran = server.ran(&folder, &["convert", "s3://logs/long.lcm", "--to", "out.lcm"]);
    ran.expect(1).expect_stderr("s3://logs/long.lcm");
    assert_eq!(folder.names(), ["long.lcm"]);
}

#[test]
fn a_server_that_dies_during_a_write_leaves_no_manifest() {
    let (folder, server) = with_logs();
    server.on("PUT /out/t/", 3, PlannedFault::Die);
    let ran = server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]);
    ran.expect(1).expect_stderr("s3://out/t/");
    assert!(!server.keys("out").iter().any(|key| key.contains("_manifest")));
}

#[test]
fn uploads_are_rolled_back_if_one_fails() {
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]).expect(0);
    let before: Vec<(String, Vec<u8>)> = {
        let keys = server.keys("out").into_iter();
        keys.map(|key| (key.clone(), server.get(&format!("out/{key}")))).collect()
    };
    server.on("PUT /out/t/channel%3DD", 1, PlannedFault::Refuse);
    let replace = ["convert", "in/b.lcm", "--to", "s3://out/t/", "--overwrite"];
    server
        .ran(&folder, &replace)
        .expect(1)
        .expect_stderr("denies access")
        .expect_stderr("rolled back");
    let keys = server.keys("out");
    assert_eq!(keys, before.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
    for (key, bytes) in before {
        assert!(server.get(&format!("out/{key}")) == bytes, "{key}");
    }
    server.ran(&folder, &["verify", "s3://out/t/"]).expect(0);
}

#[test]
fn an_object_that_changes_during_a_read_fails_the_run() {
    let (folder, server) = (Folder::new(), Server::start());
    server.put("logs/a.lcm", log(&drive(1, 20_000)));
    let other = log(&drive(2, 20_000));
    server.on("GET /logs/a.lcm", 3, PlannedFault::Change(server.path("logs/a.lcm"), other));
    server
        .ran(&folder, &["convert", "s3://logs/a.lcm", "--to", "out.lcm"])
        .expect(1)
        .expect_stderr("has changed since");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_missing_server_is_reported_soon() {
    let (folder, mut server) = with_logs();
    server.stop();
    let ran = server.ran(&folder, &["convert", "s3://logs/drives/a.lcm", "--to", "a.lcm"]);
    ran.expect(1).expect_stderr("cannot be reached").expect_stderr("AWS_ENDPOINT_URL");
}

#[test]
fn unsupported_operations_on_objects_are_refused() {
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/a.lcm"]).expect(0);
    let append = ["convert", "in/b.lcm", "--to", "s3://out/a.lcm", "--sink-option", "append=true"];
    server.ran(&folder, &append).expect(1).expect_stderr("cannot be continued");
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/a//b.lcm"]).expect(2);
}

#[test]
fn an_unreadable_table_is_an_error_and_not_damage() {
    let (folder, server) = with_logs();
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://logs/a.parquet"]).expect(0);
    for nth in [1, 2, 3] {
        server.on("GET /logs/a.parquet", nth, PlannedFault::Refuse);
        let convert = ["convert", "s3://logs/a.parquet", "--to", "out.lcm", "--from", "parquet"];
        let ran = server.ran(&folder, &convert);
        // The conversion may need fewer requests than `nth`.
        if nth == 1 || ran.code != Some(0) {
            let output = ran.expect(1).expect_stderr("denies access").stderr;
            assert!(!output.contains("Parquet file") && !output.contains("row group"), "{output}");
        }
        drop(fs::remove_file(folder.at("out.lcm")));
    }
}

#[test]
fn variables_that_are_not_utf8_are_ignored() {
    use std::os::unix::ffi::OsStrExt;
    let (folder, server) = with_logs();
    let mut command = server.sluice(&folder);
    command.env("ODD", std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    command.args(["convert", "s3://logs/drives/a.lcm", "--to", "a.lcm"]);
    crate::kit::ProgramOutput::from_output(command.output().unwrap()).expect(0);
}

#[test]
fn folder_markers_are_not_outputs() {
    const LISTED: &str = "<ListBucketResult>\
        <Name>out</Name><Prefix>t/</Prefix><KeyCount>1</KeyCount>\
        <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>t/</Key>\
        <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;d41d8cd9&quot;</ETag>\
        <Size>0</Size></Contents></ListBucketResult>";
    let (folder, server) = with_logs();
    server.on("GET /out?list-type=2", 1, PlannedFault::Say(LISTED));
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://out/t/"]).expect(0);
    assert!(server.keys("out").contains(&"t/_manifest.json".to_owned()));
}

#[test]
fn invalid_keys_are_reported() {
    const LISTED: &str = "<ListBucketResult>\
        <Name>logs</Name><Prefix></Prefix><KeyCount>1</KeyCount>\
        <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>a//b.lcm</Key>\
        <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;d41d8cd9&quot;</ETag>\
        <Size>7</Size></Contents></ListBucketResult>";
    let (folder, server) = with_logs();
    server.on("GET /logs?list-type=2", 1, PlannedFault::Say(LISTED));
    let ran = server.ran(&folder, &["convert", "s3://logs/**/*.lcm", "--to", "a.lcm"]);
    ran.expect(1).expect_stderr("a//b.lcm").expect_stderr("remove or rename it");
}

#[test]
fn mixed_formats_are_reported_by_the_first_that_differs() {
    let (folder, server) = with_logs();
    for n in 0..40 {
        server.put(&format!("logs/many/{n:02}.lcm"), log(&drive(n, 3)));
    }
    server.ran(&folder, &["convert", "in/a.lcm", "--to", "s3://logs/many/20.parquet"]).expect(0);
    let convert = ["convert", "s3://logs/many/*", "--to", "s3://out/{stem}.lcm"];
    let ran = server.ran(&folder, &convert).expect(2);
    ran.expect_stderr("many/00.lcm is lcm-log").expect_stderr("many/20.parquet is parquet");
}
