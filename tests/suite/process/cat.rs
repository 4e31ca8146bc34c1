//! `cat` with several logs, and with long messages.

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, numbers, run_sluice};

fn printed_numbers(text: &str) -> Vec<i64> {
    let number = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        line["sequence"].as_i64().unwrap()
    };
    text.lines().map(number).collect()
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 5)));
    folder.write("b.lcm", log(&drive(2, 9)[5..]));
    folder
}

#[test]
fn logs_are_printed_in_the_order_in_which_they_are_named() {
    let folder = folder();
    let cat = |arguments: &[&str]| {
        let printed = run_sluice(&folder, &[&["cat", "--json"], arguments].concat()).expect(0);
        printed_numbers(&printed.text())
    };
    assert_eq!(cat(&["a.lcm", "b.lcm"]), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(cat(&["b.lcm", "a.lcm"]), [5, 6, 7, 8, 0, 1, 2, 3, 4]);
    assert_eq!(cat(&["*.lcm"]), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(cat(&["b.lcm", "a.lcm", "--limit", "5"]), [5, 6, 7, 8, 0]);
    let text = run_sluice(&folder, &["cat", "a.lcm", "b.lcm"]).expect(0).text();
    assert_eq!(text.lines().count(), 9);
}

#[test]
fn logs_of_different_formats_are_printed_one_after_another() {
    let folder = folder();
    run_sluice(&folder, &["convert", "b.lcm", "--to", "b.parquet"]).expect(0);
    let names = ["b.parquet", "a.lcm", "b.lcm"];
    let cat = |arguments: &[&str]| {
        printed_numbers(
            &run_sluice(&folder, &[&["cat", "--json"], &names[..], arguments].concat())
                .expect(0)
                .text(),
        )
    };
    assert_eq!(cat(&[]), [5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(cat(&["-n", "6"]), [5, 6, 7, 8, 0, 1]);
    assert_eq!(cat(&["-n", "2"]), [5, 6]);
    // A channel in only some of the logs is fine; one in none of them is an error.
    let channel = String::from_utf8(drive(1, 1)[0].channel.clone()).unwrap();
    let one =
        run_sluice(&folder, &["cat", "a.lcm", "b.parquet", "-c", &channel, "--strict"]).expect(0);
    assert!(!one.stderr.contains("warning"), "{}", one.stderr);
    let none = run_sluice(&folder, &["cat", "a.lcm", "b.parquet", "-c", "NOWHERE"]).expect(0);
    assert_eq!(none.stderr.matches("NOWHERE").count(), 1, "{}", none.stderr);
    let relative = run_sluice(&folder, &["cat", "a.lcm", "b.parquet", "--start", "+1"]).expect(2);
    relative.expect_stderr("--start +1").expect_stderr("one by one");
}

#[test]
fn a_fault_in_one_of_several_logs_names_that_log() {
    let folder = folder();
    let cut = folder.read("b.lcm");
    folder.write("b.lcm", &cut[..cut.len() - 3]);
    let printed = run_sluice(&folder, &["cat", "a.lcm", "b.lcm", "--json"]).expect(3);
    assert_eq!(printed_numbers(&printed.text()).len(), 8);
    assert!(!printed.expect_stderr("b.lcm").stderr.contains("a.lcm"));
    // Nothing is printed if one of them does not exist.
    let missing = run_sluice(&folder, &["cat", "a.lcm", "nowhere.lcm"])
        .expect(1)
        .expect_stderr("nowhere.lcm");
    assert_eq!(missing.text(), "");
}

/// A log with one laser scan of 181 ranges, and one picture, of the built-in types.
fn folder_with_long_messages() -> Folder {
    let folder = Folder::new();
    let drive = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.3\n[sinks.log]\n\
        plugin = \"lcm-log\"\n\
                 from = \"drive\"\npath = \"drive.lcm\"\n";
    folder.write("make.toml", drive);
    run_sluice(&folder, &["run", "make.toml"]).expect(0);
    folder
}

#[test]
fn long_lists_and_bytes_are_shortened_for_people_and_whole_for_programs() {
    let folder = folder_with_long_messages();
    let cat = |arguments: &[&str]| {
        let channels = ["-c", "BROOM_C", "-c", "CAM_*", "-c", "POSE"];
        let all = [&["cat", "drive.lcm", "--types", "mit-dgc"], &channels[..], arguments].concat();
        run_sluice(&folder, &all).expect(0).text()
    };
    let (short, whole) = (cat(&[]), cat(&["--full"]));
    assert_eq!(short.lines().count(), whole.lines().count());
    for (short, whole) in short.lines().zip(whole.lines()) {
        assert!(short.len() < 700, "{} characters: {short}", short.len());
        if whole.contains("  POSE  ") {
            assert_eq!(short, whole);
        } else if whole.contains("  BROOM_C  ") {
            assert!(short.contains("… 173 more]"), "{short}");
        } else {
            assert!(whole.len() > 5_000 && short.contains(" characters)"), "{short}");
        }
    }
    for line in cat(&["--json", "-n", "50"]).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let fields = &line["fields"];
        assert!(line["channel"] != "BROOM_C" || fields["ranges"].as_array().unwrap().len() == 181);
        let image = fields["image"].as_str().map_or(usize::MAX, str::len);
        assert!(image > 5_000, "{image}");
    }
}

#[test]
fn a_limit_that_ends_inside_a_log_leaves_the_others_unread() {
    let folder = folder();
    folder.write("c.lcm", [log(&[LcmEvent::new(70, BEGIN, "A", b"")]), b"stray".to_vec()].concat());
    let text =
        run_sluice(&folder, &["cat", "a.lcm", "c.lcm", "-n", "3", "--json"]).expect(0).text();
    assert_eq!(printed_numbers(&text), numbers(&folder.read("a.lcm"))[..3]);
}

#[test]
fn payloads_of_text_are_words_wherever_they_are_written() {
    let folder = Folder::new();
    let line = |number: usize, encoding: &str, payload: &str| {
        let size = payload.len();
        let head = format!("{{\"timestamp_ns\":{number},\"source\":\"log\",\"channel\":\"NOTES\"");
        let size = format!("\"sequence\":{number},\"size\":{size},\"encoding\":\"{encoding}\"");
        let payload = Value::from(payload);
        format!("{head},{size},\"payload_text\":{payload}}}\n")
    };
    let long = "word ".repeat(20);
    let texts = [line(0, "text", "a=0 b"), line(1, "text", "two\nlines"), line(2, "text", &long)];
    // What is not UTF-8 stays in base64.
    let bytes = line(3, "text", "ab").replace("payload_text\":\"ab", "payload\":\"/wA=");
    folder.write("in.jsonl", texts.concat() + &bytes);

    let shown = |arguments: &[&str]| {
        let text =
            run_sluice(&folder, &[&["cat", "in.jsonl"], arguments].concat()).expect(0).text();
        let behind = |line: &str| line.split_once(" B  ").unwrap().1.to_owned();
        text.lines().map(behind).collect::<Vec<_>>()
    };
    let cut = format!("{}…", &long[..64]);
    assert_eq!(shown(&[]), ["a=0 b", r"two\nlines", &cut, "ff00"]);
    assert_eq!(shown(&["--full"])[2], long);

    let convert = |from: &str, to: &str| {
        run_sluice(&folder, &["convert", from, "--to", to, "--sink-option", "payload=text"])
            .expect(0);
        String::from_utf8(folder.read(to)).unwrap()
    };
    let lines = convert("in.jsonl", "out.jsonl");
    assert!(lines.contains(r#""payload_text":"two\nlines""#) && lines.contains("/wA="), "{lines}");
    run_sluice(&folder, &["convert", "in.jsonl", "--to", "in.parquet"]).expect(0);
    run_sluice(&folder, &["convert", "out.jsonl", "--to", "out.parquet"]).expect(0);
    let payloads =
        |file: &str| run_sluice(&folder, &["cat", "--json", "--payload", file]).expect(0).text();
    assert_eq!(payloads("in.parquet"), payloads("out.parquet"));
    let table = convert("in.jsonl", "out.csv");
    for cell in [",a=0 b\n", ",\"two\nlines\"\n", "word \n", ",\\xff\\x00\n"] {
        assert!(table.contains(cell), "{cell:?}: {table}");
    }
}
