//! Inputs that are no logs, and some that cannot be read among many that can.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::kit::{Folder, Ran, drive, log, ran, skipped, sluice};

const SOURCES: [&str; 7] = ["lcm-log", "vel", "orca", "parquet", "archive", "jsonl", "csv"];

#[test]
fn what_cannot_be_opened_is_named_with_the_reason_whatever_reads_it() {
    let folder = Folder::new();
    fs::create_dir(folder.at("folder")).unwrap();
    symlink("nowhere", folder.at("dangling")).unwrap();
    symlink("around", folder.at("round")).unwrap();
    symlink("round", folder.at("around")).unwrap();
    let _socket = UnixListener::bind(folder.at("socket")).unwrap();
    let before = folder.names();
    for source in SOURCES {
        for input in ["folder", "dangling", "round", "socket"] {
            // A table of text is told its columns in a pipeline file.
            if source == "csv" {
                continue;
            }
            let convert = ["convert", input, "--from", source, "--to", "out.lcm"];
            ran(&folder, &convert).expect(1).says(input);
            assert_eq!(folder.names(), before, "{source} {input}");
        }
    }
}

#[test]
fn files_that_the_system_makes_up_are_read_as_what_they_hold() {
    let folder = Folder::new();
    for source in SOURCES.into_iter().filter(|source| *source != "csv") {
        // Their length is told as 0.
        for input in ["/proc/self/status", "/proc/self/environ", "/proc/self/mem"] {
            let convert = ["convert", input, "--from", source, "--to", "out.lcm", "--overwrite"];
            let told = ran(&folder, &convert);
            assert!(matches!(told.code, Some(1 | 3)), "{source} {input}: {:?}", told.code);
        }
    }
}

#[test]
fn a_pipe_that_ends_in_an_event_is_damage() {
    let folder = Folder::new();
    let whole = log(&drive(1, 300));
    let made = Command::new("mkfifo").arg(folder.at("pipe.lcm")).status();
    if !made.is_ok_and(|made| made.success()) {
        return skipped("a named pipe: there is no mkfifo");
    }
    let convert = ["convert", "pipe.lcm", "--from", "lcm-log", "--to", "out.lcm"];
    let running = sluice(&folder).args(convert).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = fs::OpenOptions::new().write(true).open(folder.at("pipe.lcm")).unwrap();
    pipe.write_all(&whole[..whole.len() - 7]).unwrap();
    drop(pipe);
    Ran::of(running.wait_with_output().unwrap()).expect(3);
    assert!(whole.starts_with(&folder.read("out.lcm")));
    assert_eq!(crate::kit::numbers(&folder.read("out.lcm")).len(), 299);
}

#[test]
fn inputs_that_cannot_be_read_cost_only_themselves_where_the_others_are_wanted() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..300 {
        folder.write(&format!("in/{n:03}.lcm"), log(&drive(n, 2)));
    }
    // Files that are there and cannot be read, whoever tries.
    for n in [7, 77, 177] {
        let path = folder.at(&format!("in/{n:03}.lcm"));
        fs::remove_file(&path).unwrap();
        symlink("/proc/self/mem", path).unwrap();
    }
    folder.write("in/250.lcm", "this is no log, and nothing of one");
    let convert = ["convert", "in/*.lcm", "--from", "lcm-log", "--to", "out/{stem}.lcm"];
    let told = ran(&folder, &[&convert[..], &["--keep-going"]].concat());
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    for n in ["007", "077", "177"] {
        assert!(told.stderr.contains(&format!("in/{n}.lcm")), "{n} in:\n{}", told.stderr);
    }
    let made = super::tree(&folder.at("out"));
    let logs = made.keys().filter(|name| name.extension().is_some_and(|e| e == "lcm")).count();
    assert_eq!(logs, 297, "{}", told.stderr);
}

#[test]
fn an_input_that_is_not_there_is_told_before_anything_is_done() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    folder.write("in/1.lcm", log(&drive(1, 2)));
    symlink("nowhere", folder.at("in/2.lcm")).unwrap();
    let convert = ["convert", "in/*.lcm", "--to", "out/{stem}.lcm", "--keep-going"];
    ran(&folder, &convert).expect(1).says("in/2.lcm").says("no such file");
    assert_eq!(folder.names(), ["in"]);
}
