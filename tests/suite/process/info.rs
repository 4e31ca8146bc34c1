//! The text output of `info`: fitting tables, the overview of many logs, and its symbols.

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, run_sluice};

/// The output of `info`; asserts that no line is wider than 80 columns.
fn info_output(folder: &Folder, arguments: &[&str], code: i32) -> String {
    let text = run_sluice(folder, &[&["info"], arguments].concat()).expect(code).text();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}\n{text}", line.chars().count());
    }
    text
}

const TYPES: &str = "package a_package_with_quite_a_long_name;\n\
    struct message_whose_name_does_not_fit_beside_numbers_t { double x; }\n";

/// A payload of the type, by its fingerprint.
fn payload(folder: &Folder) -> Vec<u8> {
    folder.write("types.lcm", TYPES);
    let types = run_sluice(folder, &["types", "types.lcm", "--json"]).expect(0).text();
    let types: serde_json::Value = serde_json::from_str(types.trim()).unwrap();
    let fingerprint = u64::from_str_radix(types["fingerprint"].as_str().unwrap(), 16).unwrap();
    [&fingerprint.to_be_bytes()[..], &1.5f64.to_be_bytes()].concat()
}

#[test]
fn tables_of_channels_fit_eighty_columns_and_lose_nothing() {
    let folder = Folder::new();
    let payload = payload(&folder);
    let long = "A_CHANNEL_WHOSE_NAME_IS_TOO_LONG_FOR_A_COLUMN_BUT_NOT_FOR_A_LINE";
    let mut events = Vec::new();
    for number in 0..2_000 {
        // Steps back in time and gaps of hours need further and wider columns.
        let time = BEGIN + [0, 7_200_000_000_000, 5][number as usize % 3] + number;
        let channel = [long, "SHORT", "日本語のチャンネル"][number as usize % 3];
        events.push(LcmEvent::new(number, time, channel, &payload));
    }
    folder.write("in.lcm", [log(&events), b"stray".to_vec(), log(&events)].concat());
    let text = info_output(&folder, &["in.lcm", "--types", "types.lcm"], 3);
    let name = "a_package_with_quite_a_long_name.message_whose_name_does_not_fit_beside_numbers_t";
    assert!(text.contains(long) && text.contains("日本語のチャンネル"), "{text}");
    // Wider than a line: the only case in which a name is clipped.
    assert!(name.len() > 74 && text.contains(&name[..70]), "{text}");
    assert!(text.contains("back") && text.contains("payloads lcm"), "{text}");
}

#[test]
fn sources_and_encodings_are_columns_where_they_differ() {
    let folder = Folder::new();
    let line = |n: u32, source: &str, encoding: &str| {
        format!(
            "{{\"timestamp_ns\":{n},\"source\":\"{source}\",\"channel\":\"CHANNEL_NUMBER_{n}\",\
             \"sequence\":{n},\"size\":3,\"encoding\":\"{encoding}\",\"payload\":\"AAAA\"}}\n"
        )
    };
    let long = "a source with a name of its own that is long";
    let lines = line(1, "front", "vel") + &line(2, long, "text") + &line(3, "front", "ice");
    folder.write("in.jsonl", lines);
    let text = info_output(&folder, &["in.jsonl"], 0);
    assert!(text.lines().any(|line| line.trim() == long), "{text}");
    assert!(text.contains("encoding, type"), "{text}");
    for encoding in ["vel -", "text -", "ice -"] {
        assert!(text.lines().any(|line| line.ends_with(encoding)), "{encoding}: {text}");
    }
    assert!(!text.contains("payloads"), "{text}");
}

#[test]
fn an_unknown_fingerprint_is_explained_and_only_then() {
    let folder = Folder::new();
    let payload = payload(&folder);
    folder.write("in.lcm", log(&[LcmEvent::new(0, BEGIN, "A", &payload)]));
    let unknown = info_output(&folder, &["in.lcm"], 0);
    let sign = unknown.lines().find(|line| line.trim_start().starts_with("?  "));
    assert!(sign.is_some_and(|sign| sign.contains("--types")), "{unknown}");
    let known = info_output(&folder, &["in.lcm", "--types", "types.lcm"], 0);
    assert!(!known.contains('?'), "{known}");
}

#[test]
fn many_logs_have_an_overview_with_a_line_each() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 1_500)));
    folder.write("b.lcm", [log(&drive(2, 40)), b"stray".to_vec()].concat());
    folder.write("c.lcm", "");
    let brief = info_output(&folder, &["--brief", "*.lcm"], 3);
    let lines: Vec<&str> = brief.lines().collect();
    assert_eq!(lines.len(), 5, "{brief}");
    assert!(lines[0].starts_with("format") && lines[0].ends_with("log"), "{brief}");
    for (line, parts) in [
        (lines[1], &["lcm-log", "1,500", "2007-11-03T14:00:00", "1.499 s", "a.lcm"][..]),
        (lines[2], &["40", "! b.lcm"]),
        (lines[3], &["0 B", " - ", "c.lcm"]),
        (lines[4], &["3 logs", "1,540 events", "1 damaged (!)"]),
    ] {
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
    // Printed after several full summaries as well, but not after one, where it adds nothing.
    let whole = info_output(&folder, &["a.lcm", "b.lcm", "c.lcm"], 3);
    assert!(whole.ends_with(&brief) && whole.len() > 2 * brief.len(), "{whole}");
    assert!(!info_output(&folder, &["a.lcm"], 0).contains("1 log"));
    let missing =
        run_sluice(&folder, &["info", "--brief", "a.lcm", "nowhere.lcm", "c.lcm"]).expect(1);
    let missing = missing.expect_stderr("nowhere.lcm").text();
    assert!(missing.contains("2 logs") && missing.contains("1 not readable"), "{missing}");
    run_sluice(&folder, &["info", "--brief", "--json", "a.lcm"]).expect(2);
}

#[test]
fn the_size_of_a_log_is_that_of_all_its_files() {
    let folder = Folder::new();
    let case = crate::kit::root().join("plugins/orca/testdata/dialect_a");
    let names = ["master.log", "060804_153321_laser0.log", "060804_153321_power0.log"];
    let files = names.map(|name| std::fs::read(case.join(name)).unwrap());
    names.iter().zip(&files).for_each(|(name, bytes)| drop(folder.write(name, bytes)));
    let all = files.concat().len();
    let json = run_sluice(&folder, &["info", "master.log", "--json"]).expect(0).text();
    let json: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(json["bytes"], all);
    let text = info_output(&folder, &["master.log"], 0);
    assert!(text.contains("format   orca, 1.3 kB"), "{text}");
}

#[test]
fn quoted_names_in_damage_are_escaped_once() {
    let folder = Folder::new();
    let case = crate::kit::root().join("plugins/orca/testdata/path_traversal/master.log");
    let mut master = std::fs::read(case).unwrap();
    let at = master.windows(5).position(|bytes| bytes == b"/etc/").unwrap();
    master[at + 5] = 0x1b;
    folder.write("master.log", master);
    let text = info_output(&folder, &["master.log"], 3);
    assert!(text.contains(r"`/etc/\u{1b}ostname`"), "{text}");
}

#[test]
fn info_takes_what_pipelines_say_about_damage_and_keeps_no_bytes() {
    let folder = Folder::new();
    folder.write("in.lcm", [log(&drive(1, 20)), b"stray".to_vec()].concat());
    let info = |option: &str| run_sluice(&folder, &["info", "in.lcm", "--source-option", option]);
    for option in ["on_damage=skip", "on_damage=quarantine"] {
        info(option).expect(3);
    }
    info("on_damage=stop").expect(1).expect_stderr("in.lcm");
    info("on_damage=sotp").expect(2).expect_stderr("`stop`");
    assert_eq!(folder.names(), ["in.lcm"]);
}

#[test]
fn lines_without_payloads_are_refused_with_what_to_write_instead() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 20)));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "bare.jsonl"]).expect(0);
    for arguments in [
        &["info", "bare.jsonl"][..],
        &["cat", "bare.jsonl"],
        &["convert", "bare.jsonl", "--to", "x.lcm"],
    ] {
        run_sluice(&folder, arguments)
            .expect(2)
            .expect_stderr("cannot read bare.jsonl as a log: no payload in this line")
            .expect_stderr("`--sink-option payload=true`");
    }
    let with = ["--sink-option", "payload=true"];
    run_sluice(&folder, &[&["convert", "in.lcm", "--to", "whole.jsonl"][..], &with].concat())
        .expect(0);
    folder.write("mark.jsonl", [b"\xef\xbb\xbf", &folder.read("whole.jsonl")[..]].concat());
    run_sluice(&folder, &["convert", "mark.jsonl", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}

#[test]
fn a_log_that_two_formats_may_have_is_read_with_a_warning() {
    let folder = Folder::new();
    let line = b"{\"channel\":\"A\",\"payload\": damaged\n";
    folder.write("in", [line, &log(&drive(1, 20))[..]].concat());
    let warning = "warning: in is read by `jsonl`, and `lcm-log` may read it, too: name the right \
                   one with --from";
    run_sluice(&folder, &["info", "in"]).expect(3).expect_stderr(warning);
    let named = run_sluice(&folder, &["info", "in", "--from", "lcm-log"]).expect(3);
    assert!(!named.stderr.contains("may read it, too"), "{}", named.stderr);
    // Of several, each is named where it is read alone, and they are counted where not.
    for other in ["in2", "in3"] {
        folder.write(other, folder.read("in"));
    }
    let inputs = ["in", "in2", "in3"];
    let told = |line: &[&str], warning: &str, times: usize| {
        let ran = run_sluice(&folder, line).expect(3).expect_stderr(warning);
        assert_eq!(ran.stderr.matches("may read").count(), times, "{}", ran.stderr);
    };
    for input in inputs {
        let warning = warning.replace(" in is", &format!(" {input} is"));
        told(&[&["info"][..], &inputs].concat(), &warning, 3);
    }
    let warning = "warning: in and 2 other inputs are read by `jsonl`, and `lcm-log` may read them";
    told(&[&["convert"][..], &inputs, &["--to", "{name}.csv"]].concat(), warning, 1);
}
