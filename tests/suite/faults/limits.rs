//! Logs with more channels, and batches with more inputs, than the limits for open files and
//! memory.

use std::fs;

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, run_sluice};

/// The address space of a run with default memory: most of it is never used.
const ADDRESS_SPACE_LIMIT: &str = "ulimit -v 2500000";

/// The most channels a run may have.
const MAX_CHANNELS: i64 = 1 << 16;

/// A log with events on this many channels in turn, ten milliseconds apart.
fn log_of_channels(channels: i64, rounds: i64, payload: &[u8]) -> Vec<u8> {
    let event =
        |n: i64| LcmEvent::new(n, BEGIN + n * 10_000, &format!("c{:06}", n % channels), payload);
    log(&(0..channels * rounds).map(event).collect::<Vec<_>>())
}

#[test]
fn as_many_channels_as_may_be_fit_into_memory() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(MAX_CHANNELS, 1, b"payload"));
    let runs: [&[&str]; 5] = [
        &["info", "in.lcm", "--json"],
        &["cat", "in.lcm", "--json"],
        &["convert", "in.lcm", "--to", "out.lcm", "--report", "report.json"],
        &["convert", "in.lcm", "--to", "out.parquet"],
        &["convert", "in.lcm", "--to", "out.lcm.zst"],
    ];
    for arguments in runs {
        super::run_after_shell_line(&folder, ADDRESS_SPACE_LIMIT, arguments).expect(0);
    }
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    super::run_after_shell_line(
        &folder,
        ADDRESS_SPACE_LIMIT,
        &["verify", "out.lcm", "out.parquet"],
    )
    .expect(0);
}

#[test]
fn more_channels_are_refused_and_nothing_is_left() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(MAX_CHANNELS + 1, 1, &[7; 300]));
    let runs: [&[&str]; 6] = [
        &["info", "in.lcm"],
        &["cat", "in.lcm"],
        &["verify", "in.lcm"],
        &["convert", "in.lcm", "--to", "out.lcm"],
        &["convert", "in.lcm", "--to", "out/"],
        &["convert", "in.lcm", "--to", "out.parquet"],
    ];
    for arguments in runs {
        let refused =
            super::run_after_shell_line(&folder, ADDRESS_SPACE_LIMIT, arguments).expect(1);
        let output = refused.text() + &refused.stderr;
        for what in ["more than 65536 channels", "--end", "shorter files"] {
            assert!(output.contains(what), "{arguments:?}: {output}");
        }
        assert_eq!(folder.names(), ["in.lcm"], "{arguments:?}");
    }
    // The advice in the error helps: with the log declared as sorted, the rest of it is not read.
    let second = (BEGIN / 1_000_000 + 100).to_string();
    let cut = ["convert", "in.lcm", "--to", "part.lcm", "--end", &second];
    run_sluice(&folder, &[&cut[..], &["--source-option", "seek=sorted"]].concat()).expect(0);
    assert_eq!(crate::kit::numbers(&folder.read("part.lcm")).len(), 10_000);
    let whole = folder.read("in.lcm");
    folder.write("short.lcm", &whole[..whole.len() / 2]);
    run_sluice(&folder, &["info", "short.lcm"]).expect(3);
}

#[test]
fn names_that_take_too_much_together_are_refused() {
    let folder = Folder::new();
    let name = |n: i64| format!("{n}{}", "x".repeat(900_000));
    let events: Vec<LcmEvent> =
        (0..40).map(|n| LcmEvent::new(n, BEGIN + n, &name(n), b"payload")).collect();
    folder.write("in.lcm", log(&events));
    for to in ["out.lcm", "out/"] {
        let refused = super::run_after_shell_line(
            &folder,
            ADDRESS_SPACE_LIMIT,
            &["convert", "in.lcm", "--to", to],
        );
        refused.expect(1).expect_stderr("longer than 32 MiB");
        assert_eq!(folder.names(), ["in.lcm"]);
    }
}

#[test]
fn a_table_for_each_of_many_channels_needs_few_open_files() {
    let folder = Folder::new();
    folder.write("in.lcm", log_of_channels(600, 2, b"payload"));
    // Each table is complete before the next one is created.
    super::run_after_shell_line(&folder, "ulimit -n 24", &["convert", "in.lcm", "--to", "out/"])
        .expect(0);
    assert_eq!(super::files(&folder.at("out")).len(), 601);
    let too_few = ["convert", "in.lcm", "--to", "few/"];
    let refused = super::run_after_shell_line(&folder, "ulimit -n 6", &too_few).expect(1);
    refused.expect_stderr("too many files are open").expect_stderr("ulimit -n");
    assert_eq!(folder.names(), ["in.lcm", "out"]);
}

#[test]
fn hundreds_of_inputs_are_read_with_few_open_files() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    for n in 0..300 {
        folder.write(&format!("in/{n:04}.lcm"), log(&drive(n, 3)));
    }
    let few = "ulimit -n 40";
    super::run_after_shell_line(&folder, few, &["convert", "in/*.lcm", "--to", "one.lcm"])
        .expect(0);
    let whole: Vec<u8> = (0..300).flat_map(|n| folder.read(&format!("in/{n:04}.lcm"))).collect();
    assert!(folder.read("one.lcm") == whole);
    super::run_after_shell_line(&folder, few, &["convert", "in/*.lcm", "--to", "out/{stem}.lcm"])
        .expect(0);
    assert_eq!(super::files(&folder.at("out")).len(), 301);
    super::run_after_shell_line(&folder, few, &["info", "in/*.lcm", "--json"]).expect(0);
    super::run_after_shell_line(&folder, few, &["verify", "out"]).expect(0);
}
