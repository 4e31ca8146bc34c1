//! The JSON of `info`, `cat`, `verify`, `plugins`, `schema` and `--report`.

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, run_sluice};
use crate::report_shape::ReportShape;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(|key| &key[..]).collect()
}

#[test]
fn a_report_has_the_keys_that_scripts_read_and_its_books_balance() {
    let folder = Folder::new();
    let bytes = log(&drive(1, 400));
    folder.write("in.lcm", [&bytes[..], b"stray", &bytes].concat());
    let convert = ["convert", "in.lcm", "--to", "out.lcm", "-c", "[AB]", "--report", "report.json"];
    run_sluice(&folder, &convert).expect(3);
    let report = json(&String::from_utf8(folder.read("report.json")).unwrap());
    assert_eq!(report["exit"], 3);
    assert_eq!(report["sources"]["log"]["events"], 800);
    assert_eq!(report["damage"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&report["damage"][0]["offset"], &report["damage"][0]["length"]),
        (&bytes.len().into(), &5.into())
    );
    let channels = report["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 5);
    for row in channels {
        let kept = matches!(row["channel"].as_str(), Some("A" | "B"));
        assert_eq!((row["out"] != 0, row["filtered"] != 0), (kept, !kept), "{row}");
    }
    let file = &report["files"][0];
    let written = folder.read("out.lcm");
    assert_eq!(file["bytes"], written.len());
    assert_eq!(file["rows"], crate::kit::events(&written).len());
    assert_eq!(file["blake3"].as_str().map(str::len), Some(64));
    ReportShape(report).check();
}

#[test]
fn a_report_of_a_run_that_failed_says_so() {
    let folder = Folder::new();
    run_sluice(
        &folder,
        &["convert", "nowhere.lcm", "--to", "out.lcm", "--from", "lcm-log", "--report", "r.json"],
    )
    .expect(1);
    let report = json(&String::from_utf8(folder.read("r.json")).unwrap());
    assert_eq!(report["exit"], 1);
    assert!(report["error"].as_str().is_some_and(|text| text.contains("nowhere.lcm")), "{report}");
    assert_eq!((&report["files"], &report["bytes_read"]), (&json("[]"), &0.into()));
}

#[test]
fn a_report_of_a_run_that_failed_has_what_was_read_until_then() {
    let folder = Folder::new();
    let damaged = [log(&drive(1, 300)), b"stray".to_vec(), log(&drive(2, 100))].concat();
    folder.write("in.lcm", damaged);
    let convert = ["convert", "in.lcm", "--to", "/dev/full", "--as", "lcm-log"];
    let failed = [&convert[..], &["--report", "r.json"]].concat();
    run_sluice(&folder, &failed).expect(1).expect_stderr("no space left");
    let report = json(&String::from_utf8(folder.read("r.json")).unwrap());
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("/dev/full"), "{error}");
    assert_eq!((&report["exit"], &report["interrupted"]), (&1.into(), &false.into()));
    assert_eq!((&report["sources"]["log"]["events"], &report["files"]), (&400.into(), &json("[]")));
    assert_eq!(report["damaged_ranges"], 1);
    assert_eq!(report["damage"][0]["length"], 5);
    // What became of the events is not known.
    assert!(report.get("sinks").is_none() && report.get("channels").is_none(), "{report}");
}

#[test]
fn info_counts_what_is_in_a_log() {
    let folder = Folder::new();
    let events = drive(1, 300);
    folder.write("in.lcm", [log(&events), b"stray".to_vec()].concat());
    let output = json(&run_sluice(&folder, &["info", "in.lcm", "--json"]).expect(3).text());
    for key in [
        "path",
        "format",
        "events",
        "bytes",
        "first_timestamp_ns",
        "last_timestamp_ns",
        "channels",
        "damage",
    ] {
        assert!(output.get(key).is_some(), "{key} is missing: {:?}", keys(&output));
    }
    assert_eq!(
        (&output["path"], &output["format"], &output["events"]),
        (&"in.lcm".into(), &"lcm-log".into(), &300.into())
    );
    assert_eq!(output["first_timestamp_ns"], events[0].utime * 1_000);
    assert_eq!(output["last_timestamp_ns"], events[299].utime * 1_000);
    let channels = output["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 5);
    for channel in channels {
        let name = channel["name"].as_str().unwrap().as_bytes();
        let of_it = || events.iter().filter(|event| event.channel == name);
        assert_eq!(channel["events"], of_it().count());
        assert_eq!(channel["bytes"], of_it().map(|event| event.payload.len()).sum::<usize>());
        assert_eq!(channel["encoding"], "lcm");
        assert!(channel.get("source").is_some() && channel.get("type").is_some(), "{channel}");
    }
    assert_eq!(output["damage"][0]["offset"], log(&events).len());
    assert_eq!(output["damage"][0]["length"], 5);
}

#[test]
fn info_prints_a_line_a_file() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 3)));
    folder.write("b.lcm", log(&drive(1, 4)));
    let output = run_sluice(&folder, &["info", "a.lcm", "b.lcm", "--json"]).expect(0).text();
    let counts: Vec<Value> = output.lines().map(|line| json(line)["events"].clone()).collect();
    assert_eq!(counts, [3, 4]);
}

#[test]
fn info_prints_an_object_for_a_log_that_cannot_be_read() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 3)));
    folder.write("b.bin", [0, 1, 2, 3]);
    let names = ["missing.lcm", "a.lcm", "b.bin"];
    let output = run_sluice(&folder, &[&["info", "--json"], &names[..]].concat()).expect(2).text();
    let lines: Vec<Value> = output.lines().map(json).collect();
    assert_eq!(lines.iter().map(|line| &line["path"]).collect::<Vec<_>>(), names);
    assert!(lines[0]["error"].as_str().unwrap().contains("no such file"), "{output}");
    assert!(lines[2]["error"].as_str().unwrap().contains("format"), "{output}");
    assert_eq!((&lines[1]["error"], &lines[1]["events"]), (&Value::Null, &3.into()));
}

#[test]
fn cat_prints_events_as_json() {
    let folder = Folder::new();
    let events = [
        LcmEvent::new(7, BEGIN, "POSE", b"some payload"),
        LcmEvent { channel: b"\xff\n".to_vec(), ..LcmEvent::new(-1, -5, "", b"") },
    ];
    folder.write("in.lcm", log(&events));
    let text = run_sluice(&folder, &["cat", "in.lcm", "--json", "--payload"]).expect(0).text();
    let lines: Vec<Value> = text.lines().map(json).collect();
    assert_eq!(lines.len(), 2);
    let known = ["timestamp_ns", "source", "channel", "sequence", "size", "crc32", "payload"];
    assert_eq!(keys(&lines[0]), known);
    assert_eq!(lines[0]["timestamp_ns"], BEGIN * 1_000);
    assert_eq!((&lines[0]["channel"], &lines[0]["sequence"]), (&"POSE".into(), &7.into()));
    assert_eq!((&lines[0]["size"], &lines[0]["payload"]), (&12.into(), &"c29tZSBwYXlsb2Fk".into()));
    assert_eq!(lines[1]["channel"], "\\xff\n");
    assert_eq!(lines[1]["timestamp_ns"], -5_000);
}

#[test]
fn cat_selects_and_stops() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 3_000)));
    let text =
        run_sluice(&folder, &["cat", "in.lcm", "-c", "B", "-n", "7", "--json"]).expect(0).text();
    let expected: Vec<i64> =
        drive(1, 3_000).iter().filter(|e| e.channel == b"B").map(|e| e.number).take(7).collect();
    let found: Vec<Value> = text.lines().map(|line| json(line)["sequence"].clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn cat_lets_no_log_control_the_terminal() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&[LcmEvent::new(0, 0, "\u{1b}[2J\u{7}", b"\x1b]0;x\x07")]));
    let text = run_sluice(&folder, &["cat", "in.lcm"]).expect(0).text();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn verify_finds_changed_files() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 200)));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out/\"\nsplit_mb = 0.03\n";
    folder.write("split.toml", text);
    run_sluice(&folder, &["run", "split.toml", "--report", "report.json"]).expect(0);
    run_sluice(&folder, &["verify", "out", "report.json", "in.lcm"]).expect(0);
    run_sluice(&folder, &["verify", "in.lcm", "--source-option", "on_damage=skip"]).expect(0);
    let mut part = folder.read("out/part-00001.lcm");
    part[200] ^= 1;
    folder.write("out/part-00001.lcm", part);
    run_sluice(&folder, &["verify", "out"]).expect(1);
    run_sluice(&folder, &["verify", "report.json"]).expect(1);
    std::fs::remove_file(folder.at("out/part-00001.lcm")).unwrap();
    run_sluice(&folder, &["verify", "out"]).expect(1);
}

#[test]
fn verify_goes_on_behind_a_log_whose_source_does_not_take_an_option() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 200)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.vel"]).expect(0);
    folder.write("more.vel", folder.read("in.vel"));
    let verify = ["verify", "in.vel", "in.lcm", "more.vel", "--source-option", "epoch=0s"];
    let text = run_sluice(&folder, &verify).expect(1).text();
    let lines: Vec<&str> = text.lines().collect();
    let refused = "in.lcm: differs: --source-option epoch: `lcm-log` has no option `epoch`";
    assert!(lines[0].starts_with("in.vel: ok") && lines[2].starts_with("more.vel: ok"), "{text}");
    assert!(lines[1].starts_with(refused), "{text}");
    // An option that the source of no log takes is a mistake of the command line.
    for logs in [&["in.vel", "in.lcm"][..], &["in.vel", "in.lcm", "--from", "vel"]] {
        let refused = run_sluice(&folder, &[&["verify", "--source-option", "x=1"], logs].concat());
        assert_eq!(refused.expect(2).expect_stderr("has no option `x`").text(), "");
    }
}

#[test]
fn verify_compares_files_that_no_source_reads_with_their_manifest() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 3)));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.out]\nplugin = \"files\"\nfrom = \"log\"\npath = \"out/\"\n\
        name = \"{sequence}.bin\"\n";
    folder.write("payloads.toml", text);
    run_sluice(&folder, &["run", "payloads.toml"]).expect(0);
    run_sluice(&folder, &["verify", "out/0.bin"]).expect(0);
    folder.write("other.bin", folder.read("out/0.bin"));
    let said = run_sluice(&folder, &["verify", "other.bin"]).expect(1).text();
    assert!(
        said.contains("no manifest names it, and no source of this program reads it"),
        "{said}"
    );
}

#[test]
fn verify_says_where_a_report_is_verified() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 20)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out/", "--report", "r.json"]).expect(0);
    run_sluice(&folder, &["verify", "r.json"]).expect(0);
    let elsewhere = Folder::new();
    let report = folder.at("r.json").display().to_string();
    let text = run_sluice(&elsewhere, &["verify", &report]).expect(1).text();
    assert!(text.contains("verify the report there"), "{text}");
    std::fs::remove_file(folder.at("out/channel=A/part-00000.parquet")).unwrap();
    let text = run_sluice(&folder, &["verify", "r.json"]).expect(1).text();
    assert!(!text.contains("verify the report there"), "{text}");
}

#[test]
fn a_folder_gets_a_manifest_of_its_files() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 200)));
    run_sluice(
        &folder,
        &["convert", "in.lcm", "--to", "out/", "--as", "lcm-log", "--sink-option", "split_mb=0.03"],
    )
    .expect(0);
    let manifest = json(&String::from_utf8(folder.read("out/_manifest.json")).unwrap());
    let files = manifest["files"].as_array().unwrap();
    let rows: u64 = files.iter().map(|file| file["rows"].as_u64().unwrap()).sum();
    assert!(files.len() > 1 && rows == 200, "{manifest}");
    assert_eq!(manifest["inputs"][0]["bytes"], folder.read("in.lcm").len());
    assert!(manifest["pipeline"].as_str().unwrap().contains("split_mb"));
    assert_eq!(std::fs::read_dir(folder.at("out")).unwrap().count(), files.len() + 1);
}

#[test]
fn plugins_are_listed_for_programs() {
    let listed = json(&run_sluice(&Folder::new(), &["plugins", "--json"]).expect(0).text());
    let listed = listed.as_array().unwrap();
    for name in ["lcm-log", "demo", "filter", "jsonl"] {
        assert!(listed.iter().any(|plugin| plugin["name"] == name), "{name}");
    }
    assert!(listed.iter().all(|plugin| plugin["about"].as_str().is_some_and(|a| !a.is_empty())));
    assert!(!listed.iter().any(|plugin| plugin["name"] == "lines"), "the example is not linked");
    let schema = json(&run_sluice(&Folder::new(), &["schema"]).expect(0).text());
    assert!(schema["properties"]["sources"].is_object(), "{:?}", keys(&schema));
}
