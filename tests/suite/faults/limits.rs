//! Logs of more channels, and batches of more inputs, than a program may have files open or memory for.

use std::fs;

use crate::kit::{BEGIN, Event, Folder, drive, log, ran};

/// As much address space as a run with the usual memory may have: most of it is never used.
const ROOM: &str = "ulimit -v 2500000";

/// The most channels a run may have.
const MOST: i64 = 1 << 16;

/// A log of an event on each of so many channels.
fn log_of_channels(channels: i64, rounds: i64) -> Vec<u8> {
    let event = |n: i64| Event::new(n, BEGIN + n, &format!("c{:06}", n % channels), b"payload");
    log(&(0..channels * rounds).map(event).collect::<Vec<_>>())
}

#[test]
fn as_many_channels_as_may_be_fit_into_memory() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(MOST, 1));
    let runs: [&[&str]; 6] = [
        &["info", "in.lcm"],
        &["info", "in.lcm", "--json"],
        &["cat", "in.lcm", "--json"],
        &["convert", "in.lcm", "--to", "out.lcm", "--report", "report.json"],
        &["convert", "in.lcm", "--to", "out.parquet"],
        &["convert", "in.lcm", "--to", "out.lcm.zst"],
    ];
    for arguments in runs {
        super::ran_behind(&folder, ROOM, arguments).expect(0);
    }
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    super::ran_behind(&folder, ROOM, &["verify", "out.lcm", "out.parquet"]).expect(0);
}

#[test]
fn more_channels_are_refused_and_nothing_is_left() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(MOST + 1, 1));
    let runs: [&[&str]; 6] = [
        &["info", "in.lcm"],
        &["cat", "in.lcm"],
        &["verify", "in.lcm"],
        &["convert", "in.lcm", "--to", "out.lcm"],
        &["convert", "in.lcm", "--to", "out/"],
        &["convert", "in.lcm", "--to", "out.parquet"],
    ];
    for arguments in runs {
        let refused = super::ran_behind(&folder, ROOM, arguments).expect(1);
        refused.says("more than 65536 channels").says("--start");
        assert_eq!(folder.names(), ["in.lcm"], "{arguments:?}");
    }
    // What the error says helps.
    let half = (BEGIN + MOST / 2).to_string();
    assert_eq!(half.len(), 16);
    let seconds = format!("{}.{}", &half[..10], &half[10..]);
    ran(&folder, &["convert", "in.lcm", "--to", "half.lcm", "--end", &seconds]).expect(1);
}

#[test]
fn names_that_take_too_much_together_are_refused() {
    let folder = Folder::new();
    let name = |n: i64| format!("{n}{}", "x".repeat(900_000));
    let events: Vec<Event> =
        (0..40).map(|n| Event::new(n, BEGIN + n, &name(n), b"payload")).collect();
    folder.write("in.lcm", log(&events));
    for to in ["out.lcm", "out/"] {
        let refused = super::ran_behind(&folder, ROOM, &["convert", "in.lcm", "--to", to]);
        refused.expect(1).says("longer than 32 MiB");
        assert_eq!(folder.names(), ["in.lcm"]);
    }
}

#[test]
fn a_table_for_each_of_many_channels_needs_few_open_files() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(1_500, 2));
    super::ran_behind(&folder, "ulimit -n 400", &["convert", "in.lcm", "--to", "out/"]).expect(0);
    assert_eq!(super::files(&folder.at("out")).len(), 1_501);
    let too_few = ["convert", "in.lcm", "--to", "few/"];
    let refused = super::ran_behind(&folder, "ulimit -n 100", &too_few).expect(1);
    refused.says("too many files are open").says("ulimit -n");
    assert_eq!(folder.names(), ["in.lcm", "out"]);
}

#[test]
fn thousands_of_inputs_are_read_with_few_open_files() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..1_000 {
        folder.write(&format!("in/{n:04}.lcm"), log(&drive(n, 3)));
    }
    let few = "ulimit -n 40";
    super::ran_behind(&folder, few, &["convert", "in/*.lcm", "--to", "one.lcm"]).expect(0);
    let whole: Vec<u8> = (0..1_000).flat_map(|n| folder.read(&format!("in/{n:04}.lcm"))).collect();
    assert!(folder.read("one.lcm") == whole);
    super::ran_behind(&folder, few, &["convert", "in/*.lcm", "--to", "out/{stem}.lcm"]).expect(0);
    assert_eq!(super::files(&folder.at("out")).len(), 1_001);
    super::ran_behind(&folder, few, &["info", "in/*.lcm", "--json"]).expect(0);
    super::ran_behind(&folder, few, &["verify", "out"]).expect(0);
}
