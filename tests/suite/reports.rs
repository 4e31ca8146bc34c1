//! Reports of logs: what they show of a drive, of damage, and that nothing else changes them.

use std::fs;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, run_sluice, sluice};

/// A folder with a log of a demo drive, `drive.lcm`.
fn drive() -> Folder {
    let folder = Folder::new();
    let quick = ["run", "quickstart", "--set", "SECONDS=2", "--set", "OUT=quick"];
    run_sluice(&folder, &quick).expect(0);
    folder.write("drive.lcm", folder.read("quick/drive.lcm"));
    folder
}

fn figures(folder: &Folder, arguments: &[&str], exit: i32) -> Value {
    let arguments = [&["report", "--json", "-q"], arguments].concat();
    serde_json::from_str(&run_sluice(folder, &arguments).expect(exit).text()).unwrap()
}

fn by_channel<'f>(figures: &'f Value, list: &str, key: &str, channel: &str) -> &'f Value {
    let all = figures[list].as_array().unwrap();
    let found = all.iter().find(|one| one[key] == channel);
    found.unwrap_or_else(|| panic!("{list} of {channel} in {figures}"))
}

#[test]
fn a_report_has_what_is_in_a_drive() {
    let folder = drive();
    let figures = figures(&folder, &["drive.lcm"], 0);
    let info = run_sluice(&folder, &["info", "drive.lcm", "--json"]).expect(0).text();
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(figures["events"], info["events"]);
    for channel in info["channels"].as_array().unwrap() {
        let name = channel["name"].as_str().unwrap();
        let ours = by_channel(&figures, "channels", "name", name);
        for (key, theirs) in [("events", "events"), ("bytes", "bytes")] {
            assert_eq!(ours[key], channel[theirs], "{key} of {name}");
        }
        let counted = ours["timeline"].as_array().unwrap().iter();
        let counted: u64 = counted.map(|events| events.as_u64().unwrap()).sum();
        assert_eq!(channel["events"], counted, "{name}");
    }
    let pose = by_channel(&figures, "channels", "name", "POSE");
    assert_eq!(pose["undecoded"], 0);
    assert_eq!(pose["latency"]["field"], "utime");
    let fields = pose["fields"].as_array().unwrap().iter();
    let x = fields.into_iter().find(|field| field["path"] == "pos[0]").unwrap();
    assert!(x["series"].as_array().unwrap().len() > 100, "{x}");
    assert!(by_channel(&figures, "tracks", "channel", "POSE")["length"].as_f64().unwrap() > 1.0);
    let fixes = by_channel(&figures, "fixes", "channel", "GPS_TO_LOCAL");
    assert!(fixes["positions"].as_array().unwrap().len() > 10, "{fixes}");
    let camera = by_channel(&figures, "pictures", "channel", "CAM_THUMB_RFC");
    assert_eq!((&camera["bad"], camera["thumbnails"].as_array().unwrap().len()), (&0.into(), 12));
    let laser = by_channel(&figures, "clouds", "channel", "VELODYNE");
    assert!(laser["count"].as_u64().unwrap() > 1_000, "{laser}");
    by_channel(&figures, "clouds", "channel", "SKIRT_FC");
}

#[test]
fn events_of_no_known_type_are_undecoded_in_reports_and_checks() {
    let folder = drive();
    let opaque = ["convert", "drive.lcm", "--channel", "LOGGER_*", "--to", "opaque.lcm", "-q"];
    run_sluice(&folder, &opaque).expect(0);
    let figures = figures(&folder, &["opaque.lcm"], 0);
    let channel = by_channel(&figures, "channels", "name", "LOGGER_STRING");
    assert!(channel["events"].as_u64() > Some(0), "{channel}");
    assert_eq!(channel["undecoded"], channel["events"]);
    assert_eq!(figures["findings"][0]["kind"], "undecoded", "{}", figures["findings"]);
    folder.write("u.toml", "[channels.\"*\"]\nundecoded = 0\n");
    let check = ["check-log", "opaque.lcm", "--expect", "u.toml", "--json", "-q"];
    let check: Value = serde_json::from_str(&run_sluice(&folder, &check).expect(4).text()).unwrap();
    let found = check["unmet"][0]["found"].as_str().unwrap().to_owned();
    assert!(found.starts_with(&format!("{} ", channel["undecoded"])), "{found}");
}

#[test]
fn a_report_is_the_same_with_any_number_of_threads() {
    let folder = drive();
    for name in ["page.html", "figures.json"] {
        let report = |jobs: &str| {
            let arguments =
                ["report", "drive.lcm", "--to", name, "--jobs", jobs, "--overwrite", "-q"];
            run_sluice(&folder, &arguments).expect(0);
            folder.read(name)
        };
        let one = report("1");
        assert!(!one.is_empty() && one == report("4"), "{name}");
    }
}

#[test]
fn damage_is_in_the_report_of_its_log() {
    let folder = drive();
    let mut log = folder.read("drive.lcm");
    let middle = log.len() / 2;
    log[middle..middle + 5_000].fill(0xA5);
    folder.write("broken.lcm", &log);
    let figures = figures(&folder, &["broken.lcm"], 3);
    let input = &figures["inputs"][0];
    assert_eq!((&input["name"], &input["bytes"]), (&"broken.lcm".into(), &log.len().into()));
    assert_eq!(input["damaged_ranges"], input["damage"].as_array().unwrap().len());
    let bytes = input["damaged_bytes"].as_u64().unwrap();
    assert!(bytes >= 4_000, "{input}");
    let parts = input["damage_by_part"].as_array().unwrap();
    assert_eq!(parts.iter().map(|lost| lost.as_u64().unwrap()).sum::<u64>(), bytes);
    assert_eq!(input["blake3"].as_str().unwrap().len(), 64);
}

#[test]
fn each_log_has_its_page() {
    let folder = drive();
    folder.write("other.lcm", folder.read("drive.lcm"));
    run_sluice(&folder, &["report", "drive.lcm", "other.lcm"]).expect(0);
    let pages = ["drive.html", "other.html"].map(|name| folder.read(name));
    assert!(pages.iter().all(|page| page.starts_with(b"<!DOCTYPE html>")));
    let text = run_sluice(&folder, &["report", "--json", "drive.lcm", "other.lcm"]).expect(0);
    assert_eq!(text.text().lines().count(), 2);
    run_sluice(&folder, &["report", "missing.lcm"]).expect(1);
}

#[test]
fn the_page_of_one_log_is_a_file_without_a_record() {
    let folder = drive();
    for name in ["a{stem}.lcm", "b.c.lcm"] {
        folder.write(name, folder.read("drive.lcm"));
    }
    let before = folder.names();
    // Of each log by itself, in a folder that holds the tables of a run.
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "tables/"]).expect(0);
    for log in ["drive.lcm", "a{stem}.lcm", "./b.c.lcm"] {
        let mut report = sluice(&folder);
        report.current_dir(folder.at("tables")).args(["report", &format!("../{log}")]);
        ProgramOutput::from_output(report.output().unwrap()).expect(0);
        run_sluice(&folder, &["report", log]).expect(0);
        run_sluice(&folder, &["report", log]).expect(1).expect_stderr("--overwrite replaces it");
        run_sluice(&folder, &["report", log, "--overwrite"]).expect(0);
    }
    let pages = ["a{stem}.html", "b.c.html", "drive.html"];
    let added: Vec<String> =
        folder.names().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(added, [&pages[..], &["tables"]].concat());
    for page in pages {
        assert!(folder.read(&format!("tables/{page}")) == folder.read(page), "{page}");
    }
    let print = ["report", "drive.lcm", "--print-pipeline"];
    let text = run_sluice(&folder, &print).expect(0).text();
    assert!(text.contains("/drive.html\""), "{text}");
    // A part of a batch is a batch.
    fs::remove_file(folder.at("drive.html")).unwrap();
    run_sluice(&folder, &["report", "drive.lcm", "--shard", "1/1"]).expect(0);
    assert!(folder.at("_shard-1-of-1.json").exists());
}

#[test]
fn the_page_of_one_log_is_in_the_record_of_its_folder() {
    let folder = drive();
    let drive = folder.read("drive.lcm");
    folder.write("other.lcm", &drive);
    run_sluice(&folder, &["report", "drive.lcm", "other.lcm"]).expect(0);
    folder.write("drive.lcm", [&drive[..], &drive].concat());
    run_sluice(&folder, &["report", "drive.lcm", "--overwrite"]).expect(0);
    run_sluice(&folder, &["verify", "."]).expect(0);
    let resume = ["report", "drive.lcm", "--resume"];
    run_sluice(&folder, &resume).expect(0).expect_stderr("1 done before");
    // Without a record, what is resumed begins one, and what matches a glob.
    for log in ["drive.lcm", "driv*.lcm"] {
        for name in ["_manifest.json", "drive.html"] {
            fs::remove_file(folder.at(name)).unwrap();
        }
        let log = ["report", log, "--report", "r.json"];
        let first = if log[1].contains('*') { "--overwrite" } else { "--resume" };
        run_sluice(&folder, &[&log[..], &[first]].concat()).expect(0);
        let report: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
        assert_eq!(report["units"].as_array().map(Vec::len), Some(1), "{report:#}");
        run_sluice(&folder, &resume).expect(0).expect_stderr("1 done before");
    }
}

#[test]
fn a_page_that_is_named_stays_in_the_record_of_its_folder() {
    let folder = drive();
    folder.write("other.lcm", folder.read("drive.lcm"));
    run_sluice(&folder, &["report", "*.lcm", "--to", "pages/{stem}.html"]).expect(0);
    let before = folder.read("pages/drive.html");
    let named = ["report", "drive.lcm", "--to", "pages/drive.html", "--title", "Again"];
    run_sluice(&folder, &named).expect(1).expect_stderr("the output exists");
    run_sluice(&folder, &[&named[..], &["--overwrite"]].concat()).expect(0);
    assert!(folder.read("pages/drive.html") != before);
    run_sluice(&folder, &["verify", "pages"]).expect(0);
    // What has the name of another log is a page of its own.
    let elsewhere = ["report", "drive.lcm", "--to", "pages/x.html"];
    run_sluice(&folder, &elsewhere).expect(0);
    assert!(folder.at("pages/x.html").exists());
}

#[test]
fn one_report_of_a_run_is_never_replaced_by_that_of_the_next_log() {
    let folder = drive();
    folder.write("other.lcm", folder.read("drive.lcm"));
    let report = ["report", "--json", "--report", "r.json"];
    run_sluice(&folder, &[&report[..], &["drive.lcm", "other.lcm"]].concat())
        .expect(2)
        .expect_stderr("--report with --json takes one log, not 2");
    assert!(!folder.names().contains(&"r.json".to_owned()));
    run_sluice(&folder, &[&report[..], &["drive.lcm"]].concat()).expect(0);
    let pages = ["report", "drive.lcm", "other.lcm", "--report", "r.json"];
    run_sluice(&folder, &pages).expect(0);
    let all: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    assert_eq!(all["units"].as_array().unwrap().len(), 2);
}

#[test]
fn the_report_of_a_run_does_not_mix_with_an_output() {
    let folder = drive();
    let report = ["report", "drive.lcm", "--json", "--report", "-"];
    let convert = ["convert", "drive.lcm", "--to", "-", "--as", "jsonl", "--report", "-"];
    for arguments in [&report[..], &convert] {
        let refused = run_sluice(&folder, arguments).expect(2);
        assert_eq!(refused.text(), "");
        refused.expect_stderr("--report: an output is written to standard output");
    }
}

#[test]
fn one_field_is_plotted() {
    let folder = drive();
    figures(&folder, &["drive.lcm", "-f", "pos[0]"], 0);
    let print = ["report", "drive.lcm", "-f", "pos[0]", "--print-pipeline"];
    let pipeline = run_sluice(&folder, &print).expect(0).text();
    assert!(pipeline.contains("fields = [\n    \"pos[0]\",\n]"), "{pipeline}");
}

#[test]
fn fields_that_are_named_are_plotted_or_the_report_says_why_not() {
    let folder = drive();
    let plotted = |fields: &[&str]| -> Vec<String> {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-f", *field]).collect();
        let figures = figures(&folder, &[&["drive.lcm"], &fields[..]].concat(), 0);
        let channels = figures["channels"].as_array().unwrap().iter();
        let fields = channels.flat_map(|channel| channel["fields"].as_array().unwrap());
        let plotted = fields.filter(|field| !field["series"].as_array().unwrap().is_empty());
        plotted.map(|field| field["path"].as_str().unwrap().to_owned()).collect()
    };
    // It is the same in all scans.
    assert!(plotted(&["nranges"]).iter().all(|path| path == "nranges"));
    assert!(!plotted(&["nranges"]).is_empty());
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
                    [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
                    [sinks.out]\nplugin = \"report\"\nfrom = \"typed\"\npath = \"none.json\"\n\
                    fields = []\n";
    folder.write("none.toml", pipeline);
    run_sluice(&folder, &["run", "none.toml"]).expect(0);
    let none: Value = serde_json::from_slice(&folder.read("none.json")).unwrap();
    let pose = by_channel(&none, "channels", "name", "POSE");
    assert!(pose["fields"].as_array().unwrap().iter().all(|f| f["series"] == Value::from([0; 0])));
    for field in ["ranges", "image", "ranges[0]", "pos[-1]"] {
        let report = ["report", "drive.lcm", "--to", "o.html", "-f", field];
        run_sluice(&folder, &[&report[..], &["--strict"]].concat())
            .expect(2)
            .expect_stderr(&format!("--field: `{field}` is not plotted: expected a number"));
        assert!(!folder.names().contains(&"o.html".to_owned()));
    }
}

#[test]
fn a_page_of_standard_input_needs_a_name_and_figures_have_no_title() {
    let folder = drive();
    run_sluice(&folder, &["report", "-"]).expect(2).expect_stderr("--to PAGE.html");
    run_sluice(&folder, &["report", "drive.lcm", "--json", "--title", "T"])
        .expect(2)
        .expect_stderr("cannot be used with");
}
