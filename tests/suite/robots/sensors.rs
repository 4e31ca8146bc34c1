//! Sensors of one kind stay apart in formats that keep only the channel name, and everything such a
//! format can store is restored.

use std::collections::BTreeSet;

use crate::kit::{Folder, ProgramOutput, run_sluice, sluice};

use super::{convert, events, orca, vel};

/// The channel names of a log.
fn channels(folder: &Folder, log: &str) -> BTreeSet<String> {
    events(folder, log).into_iter().map(|[_, _, channel, ..]| channel).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("\"{name}\"")).collect()
}

/// The Orca log with a second laser scanner that repeats the first.
fn two_lasers(folder: &Folder) {
    orca(folder);
    let (laser, master) = (folder.at("orca/laser0.log"), folder.at("orca/master.log"));
    std::fs::copy(laser, folder.at("orca/laser1.log")).unwrap();
    let text = std::fs::read_to_string(&master).unwrap();
    let text = text.replace("#data\n", "::orca::Laser ice laser1.log\n#data\n");
    let last = "1154412009 0 2 1\n1154412009 0 2 2\n";
    std::fs::write(master, text + last).unwrap();
}

#[test]
fn sensors_of_one_type_get_channels_of_their_own_where_names_are_all_that_is_kept() {
    let folder = Folder::new();
    two_lasers(&folder);
    for jobs in ["1", "4"] {
        let to = format!("lasers-{jobs}.lcm");
        convert(&folder, "orca/master.log", &to, &["--jobs", jobs]).expect(0);
    }
    assert!(folder.read("lasers-1.lcm") == folder.read("lasers-4.lcm"));
    let lasers = ["orca.Laser.laser0", "orca.Laser.laser1", "orca.Laser.config.laser0"];
    let others = ["orca.Laser.config.laser1", "orca.Position2d", "orca.Position2d.config"];
    assert_eq!(channels(&folder, "lasers-1.lcm"), names(&[lasers, others].concat()));
    vel(&folder);
    convert(&folder, "drive.vel", "drive.lcm", &[]).expect(0);
    let scans = ["LaserRange2DDataM.front", "LaserRange2DDataM.back", "IMUStateM"];
    assert_eq!(channels(&folder, "drive.lcm"), names(&scans));
    // An archive keeps what the format of its content keeps.
    convert(&folder, "drive.vel", "drive.lcm.zst", &[]).expect(0);
    assert_eq!(channels(&folder, "drive.lcm.zst"), names(&scans));
    convert(&folder, "drive.vel", "copy.vel.zst", &[]).expect(0);
    assert_eq!(channels(&folder, "copy.vel.zst"), names(&["IMUStateM", "LaserRange2DDataM"]));
    // If nothing would be merged, names are unchanged.
    convert(&folder, "drive.vel", "one.lcm", &["--channel", "IMUStateM"]).expect(0);
    assert_eq!(channels(&folder, "one.lcm"), names(&["IMUStateM"]));
    convert(&folder, "drive.vel", "drive.jsonl", &["--sink-option", "payload=true"]).expect(0);
    assert_eq!(channels(&folder, "drive.jsonl"), names(&["IMUStateM", "LaserRange2DDataM"]));
}

#[test]
fn types_and_versions_of_vel_messages_come_back_by_way_of_orca() {
    let folder = Folder::new();
    let mut log = vel(&folder);
    log.extend(unknown_message());
    folder.write("more.vel", &log);
    convert(&folder, "more.vel", "drive.vel", &["--overwrite"]).expect(0);
    for dialect in ["A", "C"] {
        let option = format!("dialect={dialect}");
        let options = ["--sink-option", &option, "--overwrite"];
        convert(&folder, "drive.vel", "by/log.orca", &options).expect(0);
        convert(&folder, "by/log.orca", "back.vel", &["--overwrite"]).expect(0);
        assert!(folder.read("back.vel") == folder.read("drive.vel"), "dialect {dialect}");
    }
}

/// A message of an unknown type.
fn unknown_message() -> Vec<u8> {
    let mut message = 22_u32.to_le_bytes().to_vec();
    message.push(0x31);
    message.extend(0x0001_be24_u32.to_le_bytes());
    message.extend(7_i32.to_le_bytes());
    message.extend(6000.0_f64.to_le_bytes());
    message.extend(b"wheel");
    message
}

#[test]
fn the_number_of_an_unknown_vel_type_survives_lcm_and_the_version_is_reported() {
    let folder = Folder::new();
    let mut log = vel(&folder);
    log.extend(unknown_message());
    folder.write("more.vel", &log);
    let there = convert(&folder, "more.vel", "by.lcm", &[]).expect(0);
    assert!(there.stderr.contains("versions of payloads are not written"), "{}", there.stderr);
    convert(&folder, "by.lcm", "back.vel", &[]).expect(0);
    let found = channels(&folder, "back.vel");
    assert_eq!(found, names(&["0x0001BE24", "IMUStateM", "LaserRange2DDataM"]));
    assert_eq!(events(&folder, "back.vel").len(), 61);
}

#[test]
fn merged_channels_of_unseekable_inputs_are_reported_by_name() {
    let folder = Folder::new();
    vel(&folder);
    convert(&folder, "drive.vel", "drive.vel.zst", &[]).expect(0);
    let merged = |stderr: &str| {
        let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_told = words.contains("LaserRange2DDataM: 2 sources (`back`, `front`) became one");
        assert!(is_told && !words.contains("IMUStateM: "), "{words}");
    };
    // An archive, and standard input.
    merged(&convert(&folder, "drive.vel.zst", "archive.lcm", &[]).expect(0).stderr);
    let log = std::fs::File::open(folder.at("drive.vel")).unwrap();
    let piped = sluice(&folder)
        .args(["convert", "-", "--from", "vel", "--to", "piped.lcm"])
        .stdin(log)
        .output();
    merged(&ProgramOutput::from_output(piped.unwrap()).expect(0).stderr);
    // The advice works.
    let line = "[sources.log]\nplugin = \"archive\"\npath = \"drive.vel.zst\"\n\
        [stages.own]\nplugin = \"rename\"\nfrom = \"log\"\nsuffix = \".{source}\"\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"own\"\npath = \"own.lcm\"\n";
    folder.write("own.toml", line);
    let stderr = run_sluice(&folder, &["run", "own.toml"]).expect(0).stderr;
    assert!(!stderr.contains("became one"), "{stderr}");
}
