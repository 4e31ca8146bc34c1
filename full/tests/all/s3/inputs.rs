//! What is read of an object store besides logs, and how often objects are looked up.

use std::fs;

use super::with_logs;
use crate::kit::{ProgramOutput, run_sluice};

#[test]
fn types_are_read_from_a_folder_of_objects() {
    let (folder, server) = with_logs();
    let types = "package p; struct point_t { int32_t x; }";
    fs::create_dir(folder.at("types")).unwrap();
    folder.write("types/point.lcm", types);
    server.put("logs/types/point.lcm", types);
    server.put("logs/types/more/readme.txt", "no types");
    let convert = ["convert", "in/a.lcm", "--overwrite", "--to", "out.jsonl", "--types"];
    let notes = |ran: ProgramOutput| {
        let lines = ran.expect(0).stderr.lines().map(str::to_owned).collect::<Vec<_>>();
        lines.into_iter().filter(|line| line.contains("no declared type")).collect::<Vec<_>>()
    };
    let here = notes(run_sluice(&folder, &[&convert[..], &["types/"]].concat()));
    assert!(!here.is_empty());
    let there = server.ran(&folder, &[&convert[..], &["s3://logs/types/"]].concat());
    assert_eq!(notes(there), here);
    let none = server.ran(&folder, &[&convert[..], &["s3://logs/types/more/"]].concat());
    none.expect(2).expect_stderr("no file below s3://logs/types/more/ declares types");
}

#[test]
fn globs_of_folders_mean_those_that_are_logs() {
    let (folder, server) = with_logs();
    for name in ["a", "b"] {
        let (from, to) = (format!("in/{name}.lcm"), format!("s3://out/tables/{name}/"));
        server.ran(&folder, &["convert", &from, "--to", &to]).expect(0);
    }
    let glob = "s3://out/tables/*/";
    let batch = ["convert", glob, "--to", "s3://out/back/{stem}.lcm"];
    server.ran(&folder, &batch).expect(0).expect_stderr("2 inputs done");
    for name in ["a", "b"] {
        let back = server.get(&format!("out/back/{name}.lcm"));
        assert_eq!(back, folder.read(&format!("in/{name}.lcm")), "{name}");
    }
    server.ran(&folder, &["verify", glob]).expect(0);
    server.put("out/tables/notes/readme.txt", "no log");
    let info = server.ran(&folder, &["info", glob]).expect(0);
    let info = info.expect_stderr("matches a folder that no source reads: s3://out/tables/notes/");
    assert!(info.text().contains("2 logs, "), "{}", info.text());
    let none = server.ran(&folder, &["info", "s3://out/tables/c*/"]).expect(1);
    none.expect_stderr("no object matches `s3://out/tables/c*/`");
}

#[test]
fn objects_that_a_glob_has_listed_are_looked_up_once_at_most() {
    let (folder, server) = with_logs();
    for to in ["s3://out/{stem}.lcm", "all.lcm"] {
        server.ran(&folder, &["convert", "s3://logs/drives/*.lcm", "--to", to]).expect(0);
        let requests = server.requests();
        for name in ["a", "b", "c"] {
            let name = format!("drives/{name}.lcm");
            // This store lists no versions.
            let is_look_up =
                |request: &&String| request.contains(&name) && request.starts_with("HEAD ");
            assert!(requests.iter().filter(is_look_up).count() <= 1, "{requests:#?}");
        }
    }
}
