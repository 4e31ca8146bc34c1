//! Typed messages through the whole program: versions and clashes of types, tables and back,
//! conditions, and messages about what cannot be decoded or encoded.

mod versions;

use std::fs;

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, log, run_sluice};

/// The fingerprint of a type, as the program prints it.
fn fingerprint(folder: &Folder, types: &str, name: &str) -> u64 {
    let output = run_sluice(folder, &["types", types, "--json"]).expect(0).text();
    let types = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut named = types.filter(|known| known["name"] == name);
    u64::from_str_radix(named.next().unwrap()["fingerprint"].as_str().unwrap(), 16).unwrap()
}

fn payload(fingerprint: u64, parts: &[&[u8]]) -> Vec<u8> {
    [&fingerprint.to_be_bytes()[..], &parts.concat()].concat()
}

/// A log with one event per channel and payload.
fn logged(folder: &Folder, name: &str, events: &[(&str, Vec<u8>)]) {
    let event = |(number, (channel, payload)): (i64, &(&str, Vec<u8>))| {
        LcmEvent::new(number, BEGIN + number * 1_000, channel, payload)
    };
    let events: Vec<LcmEvent> = (0..).zip(events).map(event).collect();
    folder.write(name, log(&events));
}

fn types(folder: &Folder, name: &str, text: &str) {
    let path = folder.at(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Converts `in.lcm` to tables and back to a log, which must be equal.
fn check_round_trip(folder: &Folder, types: &str) {
    run_sluice(folder, &["convert", "in.lcm", "--types", types, "--to", "tables/"]).expect(0);
    run_sluice(folder, &["verify", "tables"]).expect(0);
    run_sluice(folder, &["convert", "tables", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

/// The number of undecoded events of a channel.
fn undecoded(report: &Value, channel: &str) -> u64 {
    let rows = report["channels"].as_array().unwrap();
    let row = rows.iter().find(|row| row["channel"] == channel).unwrap();
    row["undecoded"].as_u64().unwrap()
}

#[test]
fn an_option_chooses_what_to_do_with_undecodable_events() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct t { int32_t x; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    let (good, short) = (payload(key, &[&1_i32.to_be_bytes()]), payload(key, &[&[0]]));
    logged(&folder, "in.lcm", &[("A", good), ("A", short), ("B", b"text".to_vec())]);
    let pipeline = |undecoded: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
             [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"types.lcm\"\n\
             undecoded = \"{undecoded}\"\n\
             [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"typed\"\npath = \"{undecoded}.lcm\"\n"
        )
    };
    for choice in ["keep", "drop", "stop"] {
        folder.write(&format!("{choice}.toml"), pipeline(choice));
    }
    run_sluice(&folder, &["run", "keep.toml", "--report", "report.json"])
        .expect(0)
        .expect_stderr(
            "A: payload is not a valid `t`: the payload ends before its message does (1 time)",
        )
        .expect_stderr("payload does not identify its type (1 time)");
    assert!(folder.read("keep.lcm") == folder.read("in.lcm"));
    assert_eq!((undecoded(&report(&folder), "A"), undecoded(&report(&folder), "B")), (1, 1));
    run_sluice(&folder, &["run", "drop.toml"]).expect(0);
    assert_eq!(crate::kit::numbers(&folder.read("drop.lcm")), [0]);
    run_sluice(&folder, &["run", "stop.toml"])
        .expect(1)
        .expect_stderr("event 1 on channel `A` cannot be decoded: payload is not a valid `t`");
}

#[test]
fn only_channels_that_are_needed_later_are_decoded() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct t { int32_t x; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    let good = payload(key, &[&1_i32.to_be_bytes()]);
    logged(&folder, "in.lcm", &[("A", good.clone()), ("B", b"text".to_vec()), ("A", good)]);
    let pipeline = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"types.lcm\"\n\
         undecoded = \"stop\"\n\
         [stages.some]\nplugin = \"filter\"\nfrom = \"typed\"\nchannels = \"A\"\n\
         [sinks.out]\nplugin = \"jsonl\"\nfrom = \"some\"\npath = \"out.jsonl\"\n";
    folder.write("some.toml", pipeline);
    run_sluice(&folder, &["run", "some.toml", "--report", "report.json"]).expect(0);
    let lines = String::from_utf8(folder.read("out.jsonl")).unwrap();
    assert_eq!((lines.lines().count(), lines.matches("\"x\":1").count()), (2, 2), "{lines}");
    assert_eq!(undecoded(&report(&folder), "B"), 0);
    let all = "[sinks.all]\nplugin = \"null\"\nfrom = \"typed\"\n";
    folder.write("all.toml", format!("{pipeline}{all}"));
    run_sluice(&folder, &["run", "all.toml", "--overwrite"])
        .expect(1)
        .expect_stderr("event 1 on channel `B` cannot be decoded");
}

#[test]
fn mistakes_in_types_are_found_when_a_pipeline_is_checked() {
    let folder = Folder::new();
    types(&folder, "types/a.lcm", "struct a_t { b_t b; uint8_t c; }");
    types(&folder, "types/b.lcm", "struct b_t {\n    int32_t n;\n    float x[m];\n}\n");
    folder.write(
        "typed.toml",
        "[sources.log]\nplugin = \"demo\"\n\
         [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"types/\"\n\
         [sinks.out]\nplugin = \"null\"\nfrom = \"typed\"\n",
    );
    run_sluice(&folder, &["check", "typed.toml"])
        .expect(2)
        .expect_stderr("a.lcm:1:21")
        .expect_stderr("the language has `byte`")
        .expect_stderr("b.lcm:3:13")
        .expect_stderr("`m` is neither a number nor declared above");
    let output = run_sluice(&folder, &["types", "types"]).expect(2).expect_stderr("b.lcm:3:13");
    assert_eq!(output.text(), "");
    types(&folder, "types/c.lcm", "struct c_t { int8_t x; }");
    assert!(run_sluice(&folder, &["types", "types"]).expect(2).text().contains("c_t"));
    run_sluice(&folder, &["types", "nowhere.lcm"]).expect(2).expect_stderr("nowhere.lcm");
    run_sluice(&folder, &["types", "typed.toml"]).expect(2).expect_stderr(".lcm");
}

#[test]
fn tables_are_written_again_when_types_have_changed() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "enum e { A } struct t { e x; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    logged(&folder, "in.lcm", &[("A", payload(key, &[&1_i32.to_be_bytes()]))]);
    let convert = [
        "convert",
        "in.lcm",
        "--types",
        "types.lcm",
        "--to",
        "{stem}.tables/",
        "--as",
        "parquet",
        "--resume",
    ];
    run_sluice(&folder, &convert).expect(0);
    run_sluice(&folder, &convert).expect(0).expect_stderr("1 done before");
    // Names of enum values are not in a fingerprint, but in the tables.
    types(&folder, "types.lcm", "enum e { B } struct t { e x; }");
    let again = run_sluice(&folder, &convert).expect(0);
    assert!(
        again.stderr.contains("0 done before") || !again.stderr.contains("done before"),
        "{}",
        again.stderr
    );
}

#[test]
fn odd_names_of_fields_and_messages_without_fields_come_back() {
    let folder = Folder::new();
    let text = "struct odd_t { int64_t timestamp; string source; int8_t payload[2]; double a-b; \
        float größe; int16_t timestamp_; } struct none_t { }";
    types(&folder, "types.lcm", text);
    let (odd, none) =
        (fingerprint(&folder, "types.lcm", "odd_t"), fingerprint(&folder, "types.lcm", "none_t"));
    let text = [&3_i32.to_be_bytes()[..], b"\xffx\0"].concat();
    let parts: [&[u8]; 6] =
        [&[1; 8], &text, &[5, 6], &[0x7f, 0xf8, 0, 0, 0, 0, 0, 1], &[0x40, 0, 0, 0], &[0, 9]];
    let odd = payload(odd, &parts);
    logged(
        &folder,
        "in.lcm",
        &[("ODD", odd), ("NONE", payload(none, &[])), ("NONE", payload(none, &[]))],
    );
    check_round_trip(&folder, "types.lcm");
    let output = run_sluice(&folder, &["cat", "tables/channel=ODD", "--json"]).expect(0).text();
    let event: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(event["fields"]["timestamp"], 0x0101_0101_0101_0101_i64);
    assert_eq!((&event["fields"]["a-b"], &event["fields"]["größe"]), (&"NaN".into(), &2.0.into()));
    assert_eq!(event["fields"]["source"], "\\xffx");
}

#[test]
fn rows_without_payload_must_be_encoded_for_logs() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct t { int32_t x; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    let one = payload(key, &[&1_i32.to_be_bytes()]);
    logged(&folder, "in.lcm", &[("A", one.clone()), ("B", b"something of no type".to_vec())]);
    run_sluice(&folder, &["convert", "in.lcm", "--types", "types.lcm", "--to", "tables/"])
        .expect(0);
    folder.write(
        "straight.toml",
        "[sources.tables]\nplugin = \"parquet\"\npath = \"tables/\"\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"tables\"\npath = \"out.lcm\"\n",
    );
    run_sluice(&folder, &["run", "straight.toml", "--report", "report.json"])
        .expect(3)
        .expect_stderr("put the stage `encode` before the sink");
    assert_eq!(crate::kit::numbers(&folder.read("out.lcm")), [1]);
    assert_eq!(report(&folder)["channels"][0]["damaged"], 1);
    // How long payloads were is not known where there are none.
    let info = run_sluice(&folder, &["info", "tables", "--json"]).expect(0).text();
    let info: Value = serde_json::from_str(&info).unwrap();
    let lengths = info["channels"].as_array().unwrap().iter().map(|channel| &channel["bytes"]);
    assert_eq!(lengths.collect::<Vec<_>>(), [&Value::Null, &Value::from(20)]);
    let table = run_sluice(&folder, &["info", "tables"]).expect(0).text();
    assert!(!table.contains(" 0 B"), "{table}");
    // What is not decoded is nowhere else.
    let drop = ["--to", "dropped/", "--sink-option", "payload=drop"];
    run_sluice(&folder, &[&["convert", "in.lcm", "--types", "types.lcm"][..], &drop].concat())
        .expect(0)
        .expect_stderr("events that are not decoded are written without their contents");
    // Payloads are encoded again to be shown.
    let output = run_sluice(&folder, &["cat", "tables", "--json", "--payload"]).expect(0).text();
    assert!(output.lines().all(|line| line.contains("\"payload\":\"")), "{output}");
    // All other conversions keep both.
    for out in ["again/", "one.parquet", "log.lcm.zst", "log.jsonl"] {
        run_sluice(&folder, &["convert", "tables", "--to", out]).expect(0);
    }
    for log in ["again", "one.parquet", "log.lcm.zst"] {
        run_sluice(&folder, &["convert", log, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == folder.read("in.lcm"), "{log}");
    }
}

#[test]
fn the_types_of_channels_in_a_log_can_be_given() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "package p; struct t { int32_t x; }");
    let key = fingerprint(&folder, "types.lcm", "p.t");
    let events = [
        ("A", payload(key, &[&1_i32.to_be_bytes()])),
        ("A", payload(key, &[&2_i32.to_be_bytes()])),
        ("B", payload(0x1234, &[&[0; 4]])),
    ];
    logged(&folder, "in.lcm", &events);
    let output =
        run_sluice(&folder, &["info", "in.lcm", "--types", "types.lcm", "--json"]).expect(0).text();
    let output: Value = serde_json::from_str(&output).unwrap();
    let (a, b) = (&output["channels"][0], &output["channels"][1]);
    assert_eq!((&a["type"], &b["type"]), (&"p.t".into(), &Value::Null));
    assert_eq!(a["types"][0]["events"], 2);
    assert_eq!(b["types"][0]["fingerprint"], "0000000000001234");
    let text = run_sluice(&folder, &["info", "in.lcm", "--types", "types.lcm"]).expect(0).text();
    assert!(text.contains("p.t") && text.contains("0000000000001234?"), "{text}");
}

#[test]
fn typed_tables_are_the_same_for_any_number_of_threads() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=3", "--set", "OUT=made"])
        .expect(0);
    let tables = |jobs: &str| {
        let convert = ["convert", "made/drive.lcm", "--types", "mit-dgc", "--to", "tables/"];
        run_sluice(&folder, &[&convert[..], &["--jobs", jobs, "--overwrite"]].concat()).expect(0);
        folder.read("tables/_manifest.json")
    };
    assert!(tables("1") == tables("8"), "the manifests, and with them all hashes");
}

#[test]
fn conditions_and_fields_work_from_the_command_line() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct t { int32_t n; double v[3]; string s; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    let message = |n: i32, text: &[u8]| {
        let v: Vec<u8> = (0..3).flat_map(|k| f64::from(n * 10 + k).to_be_bytes()).collect();
        let len = (text.len() as i32 + 1).to_be_bytes();
        payload(key, &[&n.to_be_bytes(), &v, &len, text, &[0]])
    };
    let events =
        [("A", message(1, b"x")), ("B", b"not decoded".to_vec()), ("A", message(2, b"y,\"z\""))];
    logged(&folder, "in.lcm", &events);
    let types = ["--types", "types.lcm"];
    for condition in ["v[0] > 15", "-v[0] < -15"] {
        let convert = ["convert", "in.lcm", "--where", condition, "--to", "out.lcm", "--overwrite"];
        let ran = run_sluice(&folder, &[&convert[..], &types].concat());
        ran.expect(0).expect_stderr("not decoded");
        assert_eq!(crate::kit::numbers(&folder.read("out.lcm")), [2], "{condition}");
    }
    let csv = [
        "convert",
        "in.lcm",
        "--channel",
        "A",
        "--to",
        "out.csv",
        "--field",
        "v[1]",
        "--field",
        "s",
    ];
    run_sluice(&folder, &[&csv[..], &types].concat()).expect(0);
    let text = String::from_utf8(folder.read("out.csv")).unwrap();
    assert!(text.lines().next().unwrap().ends_with(",crc32,v[1],s"), "{text}");
    assert!(text.lines().nth(2).unwrap().ends_with(",21.0,\"y,\"\"z\"\"\""), "{text}");
    let cat = ["cat", "in.lcm", "--json", "--field", "v[-1]", "--where", "s matches 'y*'"];
    let output = run_sluice(&folder, &[&cat[..], &types].concat()).expect(0).text();
    assert!(
        output.contains("\"fields\":{\"v[-1]\":22.0}") && output.lines().count() == 1,
        "{output}"
    );
    let wrong = ["convert", "in.lcm", "--where", "v[0] >", "--to", "x.lcm"];
    run_sluice(&folder, &[&wrong[..], &types].concat()).expect(2).expect_stderr("v[0] >");
}

#[test]
fn events_without_payload_are_not_written_as_if_they_were_empty() {
    let folder = Folder::new();
    logged(&folder, "in.lcm", &[("A", b"something".to_vec()), ("A", b"else".to_vec())]);
    let drop = ["convert", "in.lcm", "--to", "t.parquet", "--sink-option", "payload=drop"];
    run_sluice(&folder, &drop).expect(0);
    run_sluice(&folder, &["convert", "t.parquet", "--to", "back.lcm"])
        .expect(3)
        .expect_stderr("not encoded");
    assert!(folder.read("back.lcm").is_empty());
    let output = run_sluice(&folder, &["cat", "t.parquet", "--json"]).expect(0).text();
    assert!(output.contains("\"size\":null"), "{output}");
}

#[test]
fn tables_of_every_depth_become_messages_again() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct t { int8_t v; int8_t n; t kids[n]; }");
    let key = fingerprint(&folder, "types.lcm", "t");
    let chain = payload(key, &[&[1, 1, 2, 1, 3, 1, 4, 1, 5, 0]]);
    logged(&folder, "in.lcm", &[("A", chain.clone()), ("A", chain)]);
    for depth in [0, 1, 3] {
        folder.write(
            "deep.toml",
            format!(
                "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                 [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"types.lcm\"\n\
                 depth = {depth}\n\
                 [sinks.tables]\nplugin = \"parquet\"\nfrom = \"typed\"\npath = \"deep/\"\n"
            ),
        );
        run_sluice(&folder, &["run", "deep.toml", "--overwrite"]).expect(0);
        run_sluice(&folder, &["convert", "deep", "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == folder.read("in.lcm"), "{depth}");
    }
}

#[test]
fn types_are_counted_wherever_batches_are_cut() {
    let folder = Folder::new();
    let of = |key: u64| ("A", payload(key, &[]));
    let events: Vec<_> =
        (0..30_000_u64).map(|n| of(if n % 3 == 0 { 1 } else { 2 + n % 20 })).collect();
    logged(&folder, "in.lcm", &events);
    let output = run_sluice(&folder, &["info", "in.lcm", "--json"]).expect(0).text();
    let output: Value = serde_json::from_str(&output).unwrap();
    let most = &output["channels"][0]["types"][0];
    assert_eq!(
        (&most["events"], &most["fingerprint"]),
        (&10_000.into(), &"0000000000000001".into())
    );
}
