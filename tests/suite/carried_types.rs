//! Types that a log declares for its channels, behind an archive or a table of all events: they
//! decode messages as in the log itself. Logs without such types are read as ever.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, drive, hex_log, log, root, run_sluice};

/// The forms of a log that carry the types of its channels.
const CARRIERS: [&str; 2] = ["all.arrow.zst", "all.parquet"];

/// Writes `in.mcap`, a log of ROS 2, and its carriers.
fn carried_ros(recording: &str) -> Folder {
    let folder = Folder::new();
    let recording = root().join("tests/suite/ros").join(recording);
    folder.write("in.mcap", fs::read(recording).unwrap());
    for carrier in CARRIERS {
        run_sluice(&folder, &["convert", "in.mcap", "--to", carrier]).expect(0);
    }
    folder
}

/// Writes the carriers of a log that declares no types.
fn carried_lcm() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 200)));
    for carrier in CARRIERS {
        run_sluice(&folder, &["convert", "in.lcm", "--to", carrier]).expect(0);
    }
    folder
}

/// The tables below a folder, by path, each with its events.
fn tables(folder: &Folder, below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.at(below)];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension() == Some("parquet".as_ref()) => {
                    found.push(table(folder, below, &path));
                }
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn table(folder: &Folder, below: &str, path: &Path) -> (String, String) {
    let name = path.strip_prefix(folder.at(below)).unwrap().to_str().unwrap().to_owned();
    let events = run_sluice(folder, &["cat", "--json", "--payload", path.to_str().unwrap()]);
    (name, events.expect(0).text())
}

/// The notes and warnings of a run.
fn notes(output: &ProgramOutput) -> Vec<&str> {
    let lines = output.stderr.lines();
    lines.filter(|line| line.starts_with("note:") || line.starts_with("warning:")).collect()
}

#[test]
fn tables_of_a_carrier_are_those_of_the_log() {
    for recording in ["array_msgs_0.mcap", "wbag_0.mcap"] {
        let folder = carried_ros(recording);
        let direct = run_sluice(&folder, &["convert", "in.mcap", "--to", "direct/"]).expect(0);
        let expected = tables(&folder, "direct");
        assert!(expected.iter().all(|(_, events)| events.contains("\"fields\":{")));
        for carrier in CARRIERS {
            let ran = run_sluice(&folder, &["convert", carrier, "--to", "tables/", "--overwrite"]);
            let ran = ran.expect(0);
            let mut new = notes(&ran).into_iter().filter(|note| !notes(&direct).contains(note));
            assert_eq!(new.next(), None, "{carrier}");
            assert!(tables(&folder, "tables") == expected, "{carrier}");
        }
    }
}

/// Events without their numbers, which are positions in some formats.
fn without_numbers(events: &str) -> String {
    let without = |line: &str| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        event.as_object_mut().unwrap().remove("sequence");
        format!("{event}\n")
    };
    events.lines().map(without).collect()
}

#[test]
fn payloads_of_an_encoding_with_one_set_of_types_are_decoded_in_a_carrier() {
    let vel = Folder::new();
    vel.write("in.vel", hex_log("plugins/vel/testdata/example/log.hex"));
    let orca = Folder::new();
    orca.copy_all("plugins/orca/testdata/dialect_a");
    let logs = [(vel, "in.vel", Some("in.vel.zst")), (orca, "master.log", None)];
    for (folder, log, archive) in &logs {
        let print = |log: &str| {
            let text = run_sluice(folder, &["cat", "--json", log]).expect(0).text();
            without_numbers(&text)
        };
        let numbered = |tables: Vec<(String, String)>| -> Vec<(String, String)> {
            tables.into_iter().map(|(name, text)| (name, without_numbers(&text))).collect()
        };
        let convert = |from: &str, to: &str| {
            drop(run_sluice(folder, &["convert", from, "--to", to]).expect(0))
        };
        convert(log, "direct/");
        let expected = print(log);
        assert!(expected.contains("\"fields\":{"), "{expected}");
        for carrier in archive.iter().chain(&CARRIERS) {
            convert(log, carrier);
            assert_eq!(print(carrier), expected, "{carrier}");
            let of_carrier = format!("of-{carrier}");
            convert(carrier, &format!("{of_carrier}/"));
            let (found, direct) = (tables(folder, &of_carrier), tables(folder, "direct"));
            assert_eq!(numbered(found), numbered(direct), "{carrier}");
        }
    }
    // Given types may declare the same names otherwise.
    let (vel, ..) = &logs[0];
    let own = fs::read(root().join("plugins/vel/types/vel.veltypes")).unwrap();
    vel.write("own.veltypes", own);
    let given = ["cat", "--json", "in.vel.zst", "--types", "own.veltypes"];
    let text = run_sluice(vel, &given).expect(0).text();
    assert_eq!(text, run_sluice(vel, &["cat", "--json", "in.vel.zst"]).expect(0).text());
}

#[test]
fn verbs_show_the_messages_of_a_carrier_as_those_of_the_log() {
    let folder = carried_ros("array_msgs_0.mcap");
    let field = "/one_shot/imu.angular_velocity.x";
    for carrier in CARRIERS {
        for verb in [&["cat"][..], &["cat", "--json"], &["cat", "--where", "exists(velocity)"]] {
            let print = |log: &str| run_sluice(&folder, &[verb, &[log]].concat()).expect(0).text();
            assert_eq!(print(carrier), print("in.mcap"), "{carrier} {verb:?}");
        }
        let info = run_sluice(&folder, &["info", carrier]).expect(0).text();
        assert!(info.contains("sensor_msgs/msg/Imu"), "{info}");
        let aligned = |log: &str| {
            let rows = ["--align", "10Hz", "--field", field, "--to", "rows.csv", "--overwrite"];
            run_sluice(&folder, &[&["convert", log], &rows[..]].concat()).expect(0);
            folder.read("rows.csv")
        };
        assert!(aligned(carrier) == aligned("in.mcap"), "{carrier}");
        let page = ["report", carrier, "--to", "page.html", "--overwrite", "--field", "velocity"];
        assert!(!run_sluice(&folder, &page).expect(0).stderr.contains("no event has a field"));
    }
}

#[test]
fn carriers_give_the_declarations_back() {
    let folder = carried_ros("array_msgs_0.mcap");
    let channels = |log: &str| -> Vec<Value> {
        let info = run_sluice(&folder, &["info", log, "--json"]).expect(0).text();
        let info: Value = serde_json::from_str(&info).unwrap();
        let channels = info["channels"].as_array().unwrap().iter();
        channels.map(|channel| channel["types"].clone()).collect()
    };
    for carrier in CARRIERS {
        let back = run_sluice(&folder, &["convert", carrier, "--to", "back.mcap", "--overwrite"]);
        assert_eq!(notes(&back.expect(0)), [""; 0], "{carrier}");
        assert_eq!(channels("back.mcap"), channels("in.mcap"), "{carrier}");
        let text = |log: &str| run_sluice(&folder, &["cat", "--json", log]).expect(0).text();
        assert_eq!(text("back.mcap"), text("in.mcap"), "{carrier}");
    }
}

#[test]
fn an_archive_without_its_end_is_decoded_if_that_is_asked_for() {
    let cut = |folder: &Folder| {
        let mut archive = folder.read("all.arrow.zst");
        archive.truncate(archive.len() - 20);
        folder.write("cut.arrow.zst", archive);
    };
    let folder = carried_ros("wbag_0.mcap");
    cut(&folder);
    let text = |arguments: &[&str]| run_sluice(&folder, arguments).text();
    let embedded = ["cat", "--json", "--types", "embedded", "cut.arrow.zst"];
    assert!(text(&embedded) == text(&["cat", "--json", "in.mcap"]));
    // Nothing tells whether it declares types: a condition needs them.
    for folder in [folder, carried_lcm()] {
        cut(&folder);
        run_sluice(&folder, &["cat", "cut.arrow.zst", "--where", "x > 3"])
            .expect(2)
            .expect_stderr("only decoded messages have fields");
    }
}

#[test]
fn logs_that_declare_no_types_are_converted_beside_one_that_does() {
    let folder = carried_ros("array_msgs_0.mcap");
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", "OUT=quick"])
        .expect(0);
    run_sluice(&folder, &["convert", "quick/drive.lcm", "--to", "drive.arrow.zst"]).expect(0);
    let logs = ["all.arrow.zst", "drive.arrow.zst"];
    let convert = ["convert", "--to", "both/{stem}.mcap"];
    let ran = run_sluice(&folder, &[&convert[..], &logs].concat()).expect(0);
    assert!(!ran.stderr.contains("one_shot"), "{}", ran.stderr);
    for log in ["drive", "all"] {
        let from = format!("{log}.arrow.zst");
        run_sluice(&folder, &["convert", &from, "--to", "alone.mcap", "--overwrite"]).expect(0);
        assert!(folder.read(&format!("both/{log}.mcap")) == folder.read("alone.mcap"), "{log}");
    }
}

#[test]
fn carriers_of_a_log_without_types_are_read_as_ever() {
    let folder = carried_lcm();
    for carrier in CARRIERS {
        for to in ["tables/", "out.csv", "out.jsonl", "back.lcm"] {
            let convert = ["convert", carrier, "--to", to, "--overwrite"];
            assert_eq!(notes(&run_sluice(&folder, &convert).expect(0)), [""; 0], "{carrier} {to}");
            let text = run_sluice(&folder, &[&convert[..], &["--print-pipeline"]].concat()).text();
            assert!(!text.contains("decode"), "{text}");
        }
        assert!(folder.read("back.lcm") == folder.read("in.lcm"), "{carrier}");
        assert_eq!(tables(&folder, "tables").len(), 5);
        for verb in [&["cat"][..], &["cat", "--json", "--payload"], &["info"]] {
            let shown = run_sluice(&folder, &[verb, &[carrier]].concat()).expect(0);
            assert_eq!(notes(&shown), [""; 0], "{carrier} {verb:?}");
        }
    }
    run_sluice(&folder, &["cat", "all.arrow.zst", "--where", "x > 3"])
        .expect(2)
        .expect_stderr("only decoded messages have fields");
}

#[test]
fn types_that_were_asked_for_are_missed() {
    let folder = carried_lcm();
    folder.write("types.lcm", "struct unused_t { double v; }");
    for carrier in CARRIERS {
        for types in ["embedded", "types.lcm"] {
            run_sluice(&folder, &["cat", carrier, "--types", types])
                .expect(0)
                .expect_stderr("payload of no declared type");
        }
    }
}

#[test]
fn channels_without_a_type_pass_beside_those_with_one() {
    let folder = carried_ros("wbag_0.mcap");
    folder.write("in.lcm", log(&drive(7, 200)));
    for carrier in ["both.arrow.zst", "both.parquet"] {
        let plugin = if carrier.ends_with("zst") { "archive" } else { "parquet" };
        let format = if plugin == "archive" { "format = \"arrow\"\n" } else { "" };
        folder.write(
            "both.toml",
            format!(
                "[sources.ros]\nplugin = \"mcap\"\npath = \"in.mcap\"\n\
                 [sources.lcm]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                 [sinks.out]\nplugin = \"{plugin}\"\nfrom = [\"ros\", \"lcm\"]\n\
                 path = \"{carrier}\"\n{format}"
            ),
        );
        run_sluice(&folder, &["run", "both.toml"]).expect(0);
        let shown = run_sluice(&folder, &["cat", "--json", carrier]).expect(0);
        assert_eq!(notes(&shown), [""; 0], "{carrier}");
        let text = shown.text();
        let decoded = text.lines().filter(|line| line.contains("\"fields\":{\"data\":"));
        assert_eq!((decoded.count(), text.lines().count()), (1246, 1446), "{carrier}");
        run_sluice(&folder, &["cat", carrier, "--types", "embedded"])
            .expect(0)
            .expect_stderr("payload of no declared type (200 times)");
    }
}

#[test]
fn tables_of_a_log_that_was_not_decoded_are_reported_with_the_built_in_types() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", "OUT=quick"])
        .expect(0);
    let rules = |log: &str| run_sluice(&folder, &["check-log", "--expect-from", log]).text();
    let without_name = |text: String| text.split_once('\n').unwrap().1.to_owned();
    let expected = without_name(rules("quick/drive.lcm"));
    assert!(expected.contains("fields.\"pos[0]\""), "{expected}");
    for to in ["one.parquet", "tables/"] {
        run_sluice(&folder, &["convert", "quick/drive.lcm", "--to", to]).expect(0);
        assert_eq!(without_name(rules(to)), expected, "{to}");
    }
}
