//! Names of outputs that differ only in case, or are reserved on other systems; and inputs that
//! lcm-logger names.

use std::fs;

use sluice_io::escape::folded;

use crate::kit::{BEGIN, Folder, LcmEvent, log, run_sluice};

/// The names of everything in a folder, sorted.
fn file_names(folder: &Folder, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.at(name)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn on_channels(channels: &[&str]) -> Vec<u8> {
    let event = |(number, channel): (i64, &&str)| {
        LcmEvent::new(number, BEGIN + number * 1_000, channel, &number.to_be_bytes())
    };
    log(&(0..).zip(channels).map(event).collect::<Vec<_>>())
}

#[test]
fn channels_that_differ_in_case_have_folders_that_differ_in_more() {
    let folder = Folder::new();
    let channels = ["pose", "POSE", "CAM", "a.", "a", "\u{c9}", "\u{e9}", "POSE", "pose", "Pose"];
    folder.write("in.lcm", on_channels(&channels));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    let names = file_names(&folder, "tables");
    assert!(names.contains(&"channel=POSE".to_owned()), "{names:?}");
    assert!(names.contains(&"channel=%70%6F%73%65".to_owned()), "{names:?}");
    assert!(names.contains(&"channel=%61%2E".to_owned()), "{names:?}");
    let mut as_one: Vec<String> = names.iter().map(|name| folded(name)).collect();
    as_one.sort();
    as_one.dedup();
    assert_eq!(as_one.len(), names.len(), "{names:?}");
    run_sluice(&folder, &["verify", "tables"]).expect(0);
    run_sluice(&folder, &["convert", "tables", "--to", "out.lcm"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    // A single table also names its channel.
    let table = "tables/channel=%70%6F%73%65/part-00000.parquet";
    let output = run_sluice(&folder, &["info", table, "--json"]).expect(0).text();
    assert!(output.contains("\"name\":\"pose\""), "{output}");
    // Names depend neither on the order of channels nor on the number of threads.
    let mut backwards = channels;
    backwards.reverse();
    folder.write("backwards.lcm", on_channels(&backwards));
    let arguments = ["convert", "backwards.lcm", "--to", "backwards/", "--jobs", "1"];
    run_sluice(&folder, &arguments).expect(0);
    assert_eq!(file_names(&folder, "backwards"), names);
}

#[test]
fn channels_that_do_not_collide_keep_their_folders() {
    let folder = Folder::new();
    folder.write("in.lcm", on_channels(&["POSE", "cam.left", "a.", "Mixed", "CON"]));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    let names = file_names(&folder, "tables");
    let plain = ["POSE", "cam.left", "a.", "Mixed", "CON"].map(|name| format!("channel={name}"));
    assert!(plain.iter().all(|name| names.contains(name)), "{names:?}");
}

#[test]
fn channels_with_names_of_devices_have_files_and_folders_that_are_none() {
    let folder = Folder::new();
    let channels = ["CON", "aux.txt", "com1", "POSE", "CONSOLE", "nul"];
    folder.write("in.lcm", on_channels(&channels));
    let files = |name: &str, out: &str| {
        let pipeline = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [sinks.out]\nplugin = \"files\"\nfrom = \"log\"\npath = \"{out}/\"\n\
             name = \"{name}\"\n"
        );
        folder.write("files.toml", pipeline);
        run_sluice(&folder, &["run", "files.toml"]).expect(0);
        run_sluice(&folder, &["verify", out]).expect(0);
        let mut names = file_names(&folder, out);
        names.retain(|name| name != "_manifest.json" && !name.starts_with("index."));
        names
    };
    let plain = ["%43%4F%4E", "%61%75%78.txt", "%63%6F%6D1", "%6E%75%6C", "CONSOLE", "POSE"];
    assert_eq!(files("{channel}", "plain"), plain);
    let ended = plain.map(|name| format!("{name}.bin"));
    assert_eq!(files("{channel}.bin", "ended"), ended);
    assert_eq!(files("{channel}/{sequence}.bin", "folders"), plain);
    // With a prefix or suffix, a name is not a device.
    let kept = ["CON-0", "CONSOLE-4", "POSE-3", "aux.txt-1", "com1-2", "nul-5"];
    // Except for the one that ends before the number.
    let kept = kept.map(|name| name.replace("aux.", "%61%75%78."));
    let mut kept = kept.to_vec();
    kept.sort();
    assert_eq!(files("{channel}-{sequence}", "numbered"), kept);
    let table = String::from_utf8(folder.read("plain/index.csv")).unwrap();
    assert!(table.contains("%43%4F%4E") && table.contains(",CON,"), "{table}");
    // Folders of tables have a prefix, so they keep the name.
    run_sluice(&folder, &["convert", "in.lcm", "--to", "tables/"]).expect(0);
    assert!(channels.iter().all(|name| folder.at(&format!("tables/channel={name}")).exists()));
}

#[test]
fn clouds_of_channels_with_names_of_devices_are_no_devices() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=0.3", "--set", "OUT=quick"])
        .expect(0);
    folder.write(
        "clouds.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"quick/drive.lcm\"\n\
         [stages.points]\nplugin = \"velodyne\"\nfrom = \"log\"\n\
         [stages.scans]\nplugin = \"filter\"\nfrom = \"points\"\nchannels = [\"VELODYNE\"]\n\
         [stages.named]\nplugin = \"rename\"\nfrom = \"scans\"\nmap = { VELODYNE = \"aux\" }\n\
         [sinks.out]\nplugin = \"las\"\nfrom = \"named\"\npath = \"clouds/\"\n",
    );
    run_sluice(&folder, &["run", "clouds.toml"]).expect(0);
    assert!(folder.at("clouds/%61%75%78.las").exists(), "{:?}", file_names(&folder, "clouds"));
}

#[test]
fn logs_named_by_the_lcm_logger_make_outputs_by_their_whole_names() {
    let folder = Folder::new();
    fs::create_dir(folder.at("logs")).unwrap();
    for name in ["lcmlog-2022-09-23.00", "lcmlog-2022-09-23.01"] {
        folder.write(&format!("logs/{name}"), on_channels(&["POSE"]));
    }
    let refused = run_sluice(&folder, &["convert", "logs/*", "--to", "out/{stem}.parquet"]);
    assert!(refused.code != Some(0));
    refused.expect_stderr("put `{name}` into its path");
    run_sluice(&folder, &["convert", "logs/*", "--to", "out/{name}.parquet"]).expect(0);
    let names = file_names(&folder, "out");
    for name in ["lcmlog-2022-09-23.00.parquet", "lcmlog-2022-09-23.01.parquet"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    // Files in different folders have the same name, the folders do not.
    fs::create_dir(folder.at("more")).unwrap();
    folder.write("more/lcmlog-2022-09-23.00", on_channels(&["POSE"]));
    let inputs = ["convert", "logs/lcmlog-2022-09-23.00", "more/lcmlog-2022-09-23.00"];
    run_sluice(&folder, &[&inputs[..], &["--to", "two/{name}.parquet"]].concat())
        .expect_stderr("put `{parent}` or `{index}`");
}
