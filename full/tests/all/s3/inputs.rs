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
fn objects_that_a_glob_has_listed_are_looked_up_three_times_at_most() {
    let (folder, server) = with_logs();
    for to in ["s3://out/{stem}.lcm", "all.lcm"] {
        server.ran(&folder, &["convert", "s3://logs/drives/*.lcm", "--to", to]).expect(0);
        let requests = server.requests();
        for name in ["a", "b", "c"] {
            let name = format!("drives/{name}.lcm");
            // By the detection of three formats.
            let is_look_up =
                |request: &&String| request.contains(&name) && request.starts_with("HEAD ");
            assert!(requests.iter().filter(is_look_up).count() <= 3, "{requests:#?}");
        }
    }
}
