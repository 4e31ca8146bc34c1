//! Names of outputs: those that would be one file where case is ignored, and those of inputs that LCM names itself.

use std::fs;

use sluice_core::name::folded;

use crate::kit::{BEGIN, Event, Folder, log, ran};

/// The names of everything in a folder, sorted.
fn listed(folder: &Folder, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.at(name)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn on_channels(channels: &[&str]) -> Vec<u8> {
    let event = |(number, channel): (i64, &&str)| {
        Event::new(number, BEGIN + number * 1_000, channel, &number.to_be_bytes())
    };
    log(&(0..).zip(channels).map(event).collect::<Vec<_>>())
}

#[test]
fn channels_that_differ_in_case_have_folders_that_differ_in_more() {
    let folder = Folder::new();
    let channels = ["pose", "POSE", "CAM", "a.", "a", "\u{c9}", "\u{e9}", "POSE", "pose", "Pose"];
    folder.write("in.lcm", on_channels(&channels));
    ran(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    let names = listed(&folder, "tables");
    assert!(names.contains(&"channel=POSE".to_owned()), "{names:?}");
    assert!(names.contains(&"channel=%70%6F%73%65".to_owned()), "{names:?}");
    assert!(names.contains(&"channel=%61%2E".to_owned()), "{names:?}");
    let mut as_one: Vec<String> = names.iter().map(|name| folded(name)).collect();
    as_one.sort();
    as_one.dedup();
    assert_eq!(as_one.len(), names.len(), "{names:?}");
    ran(&folder, &["verify", "tables"]).expect(0);
    ran(&folder, &["convert", "tables", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    // A table by itself knows its channel, too.
    let table = "tables/channel=%70%6F%73%65/part-00000.parquet";
    let told = ran(&folder, &["info", table, "--json"]).expect(0).text();
    assert!(told.contains("\"name\":\"pose\""), "{told}");
    // Which of them come first, and how many threads there are, changes no name.
    let mut backwards = channels;
    backwards.reverse();
    folder.write("backwards.lcm", on_channels(&backwards));
    let arguments = ["convert", "backwards.lcm", "--to", "backwards/", "--jobs", "1"];
    ran(&folder, &arguments).expect(0);
    assert_eq!(listed(&folder, "backwards"), names);
}

#[test]
fn channels_that_do_not_collide_keep_their_folders() {
    let folder = Folder::new();
    folder.write("in.lcm", on_channels(&["POSE", "cam.left", "a.", "Mixed", "CON"]));
    ran(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    let names = listed(&folder, "tables");
    let plain = ["POSE", "cam.left", "a.", "Mixed", "CON"].map(|name| format!("channel={name}"));
    assert!(plain.iter().all(|name| names.contains(name)), "{names:?}");
}

#[test]
fn logs_named_by_the_lcm_logger_make_outputs_by_their_whole_names() {
    let folder = Folder::new();
    fs::create_dir(folder.at("logs")).unwrap();
    for name in ["lcmlog-2022-09-23.00", "lcmlog-2022-09-23.01"] {
        folder.write(&format!("logs/{name}"), on_channels(&["POSE"]));
    }
    let refused = ran(&folder, &["convert", "logs/*", "--to", "out/{stem}.parquet"]);
    assert!(refused.code != Some(0));
    refused.says("put `{name}` into its path");
    ran(&folder, &["convert", "logs/*", "--to", "out/{name}.parquet"]).expect(0);
    let names = listed(&folder, "out");
    for name in ["lcmlog-2022-09-23.00.parquet", "lcmlog-2022-09-23.01.parquet"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    // The names of files in different folders are the same: those of their folders are not.
    fs::create_dir(folder.at("more")).unwrap();
    folder.write("more/lcmlog-2022-09-23.00", on_channels(&["POSE"]));
    let inputs = ["convert", "logs/lcmlog-2022-09-23.00", "more/lcmlog-2022-09-23.00"];
    ran(&folder, &[&inputs[..], &["--to", "two/{name}.parquet"]].concat())
        .says("put `{parent}` or `{index}`");
}
