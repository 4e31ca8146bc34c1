//! Expectations of logs: `check-log`, the stage `expect` in pipelines and batches, and recordings.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, events, log, run_sluice};
use crate::recorder::Sender;

/// Twenty seconds of poses at 50 Hz and two cameras at 10 Hz.
fn drive() -> Vec<LcmEvent> {
    let mut times = Vec::new();
    times.extend((0..1000).map(|n| (n * 20_000, "POSE")));
    times.extend((0..200).map(|n| (n * 100_000 + 3_000, "CAM_L")));
    times.extend((0..200).map(|n| (n * 100_000 + 7_000, "CAM_R")));
    times.sort_unstable();
    numbered(times.into_iter().map(|(time, channel)| (BEGIN + time, channel.to_owned())))
}

fn numbered(events: impl IntoIterator<Item = (i64, String)>) -> Vec<LcmEvent> {
    let events = events.into_iter().zip(0..);
    events.map(|((time, channel), n)| LcmEvent::new(n, time, &channel, b"payload")).collect()
}

/// The same without pictures of both cameras from 8 to 11 seconds.
fn dropped_out() -> Vec<LcmEvent> {
    let silent = BEGIN + 8_000_000..BEGIN + 11_000_000;
    let is_lost =
        |event: &LcmEvent| event.channel.starts_with(b"CAM") && silent.contains(&event.utime);
    let left = drive().into_iter().filter(|event| !is_lost(event));
    numbered(left.map(|event| (event.utime, String::from_utf8(event.channel).unwrap())))
}

/// A good log, expectations made from it, a log with a drop-out, and a damaged one.
fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    let good = log(&drive());
    folder.write("in/good.lcm", &good);
    folder.write("in/silent.lcm", log(&dropped_out()));
    let mut torn = good;
    let middle = torn.len() / 2;
    torn[middle..middle + 40].fill(0xee);
    folder.write("torn.lcm", torn);
    let made = ["check-log", "--expect-from", "in/good.lcm", "--to", "expect.toml"];
    run_sluice(&folder, &made).expect(0);
    folder
}

fn check(folder: &Folder, arguments: &[&str], code: i32) -> ProgramOutput {
    let arguments = [&["check-log", "--expect", "expect.toml"], arguments].concat();
    run_sluice(folder, &arguments).expect(code)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_good_log_meets_the_expectations_made_from_it() {
    let folder = folder();
    let text = String::from_utf8(folder.read("expect.toml")).unwrap();
    for line in ["[channels.CAM_L]", "rate = { hz = 10, tolerance = 0.1 }", "damage = 0"] {
        assert!(text.contains(line), "{text}");
    }
    let told = check(&folder, &["in/good.lcm"], 0).text();
    assert_eq!(told, "in/good.lcm: ok (1,400 events)\n");
    // It is not replaced, and printed without `--to`.
    let again = ["check-log", "--expect-from", "in/good.lcm", "--to", "expect.toml"];
    run_sluice(&folder, &again).expect(1);
    run_sluice(&folder, &[&again[..], &["--overwrite"]].concat()).expect(0);
    let printed = run_sluice(&folder, &["check-log", "--expect-from", "in/good.lcm"]).expect(0);
    assert_eq!(printed.text(), text);
}

#[test]
fn a_drop_out_of_cameras_fails_once_with_its_time() {
    let folder = folder();
    let told = check(&folder, &["in/silent.lcm"], 4).text();
    let gaps: Vec<&str> = told.lines().filter(|line| line.contains("max_gap")).collect();
    let [gap] = &gaps[..] else { panic!("{told}") };
    assert!(gap.contains("CAM_L, CAM_R: max_gap: expected at most 200 ms, found 3.1 s"), "{told}");
    assert!(gap.contains("at +7.903 s (2007-11-03T14:00:07.903"), "{told}");
    assert!(!told.contains("POSE:"), "{told}");
    let json = check(&folder, &["in/silent.lcm", "--json"], 4).text();
    let [result] = &lines(&json)[..] else { panic!("{json}") };
    let unmet = &result["unmet"][0];
    assert_eq!((&unmet["rule"], &result["exit"]), (&"max_gap".into(), &4.into()));
    assert_eq!(unmet["when"]["after"], 7_903_000_000i64);
    assert!(unmet["place"].as_str().unwrap().starts_with("expect.toml:"), "{unmet}");
}

#[test]
fn the_result_does_not_depend_on_threads() {
    let folder = folder();
    let told = |jobs| {
        let logs = ["in/silent.lcm", "torn.lcm", "--json", "--memory", "16MiB", "--jobs", jobs];
        let text = check(&folder, &logs, 4).text();
        // Bytes are read ahead, so their number varies.
        lines(&text).iter().map(|result| result["unmet"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told("1"), told("4"));
}

#[test]
fn a_log_starts_and_ends_with_its_earliest_and_latest_event() {
    let folder = Folder::new();
    let times = [20_000, 0, 40_000, 80_000, 60_000].map(|time| (BEGIN + time, "A".to_owned()));
    folder.write("in.lcm", log(&numbered(times)));
    folder.write("expect.toml", "[channels.A]\nstarts_within = \"0s\"\nends_within = \"0s\"\n");
    check(&folder, &["in.lcm"], 0);
}

#[test]
fn damage_is_not_expected_unless_allowed() {
    let folder = folder();
    let told = check(&folder, &["torn.lcm"], 4).text();
    assert!(told.contains("damage: expected none, found "), "{told}");
    assert!(told.contains("of torn.lcm"), "{told}");
    folder.write("expect.toml", "[log]\ndamage = \"10%\"\n");
    check(&folder, &["torn.lcm"], 3);
}

#[test]
fn a_log_that_cannot_be_read_never_passes_and_others_are_checked() {
    let folder = folder();
    folder.write("not-a-log.bin", "hello");
    folder.write("empty.lcm", "");
    for (log, why) in [
        ("missing.lcm", "missing.lcm"),
        ("nothing/*.lcm", "nothing"),
        ("not-a-log.bin", "cannot detect the format"),
        ("udpm://239.255.76.67:7667", "sluice record --expect"),
    ] {
        let ran = check(&folder, &[log, "in/good.lcm", "in/silent.lcm"], 1);
        let told = ran.text();
        assert!(told.starts_with(&format!("{log}: not checked\n")), "{told}");
        assert!(told.contains("good.lcm: ok") && told.contains("silent.lcm: "), "{told}");
        ran.expect_stderr(why);
    }
    let empty = check(&folder, &["empty.lcm"], 4).text();
    assert!(empty.contains("must_exist"), "{empty}");
}

#[test]
fn results_are_written_for_ci_systems() {
    let folder = folder();
    check(&folder, &["in/*.lcm", "missing.lcm", "--junit", "result.xml"], 1);
    let xml = String::from_utf8(folder.read("result.xml")).unwrap();
    assert!(xml.contains("<testsuite name=\"in/good.lcm\" tests=\"1\" failures=\"0\""), "{xml}");
    assert!(xml.contains("name=\"CAM_L, CAM_R max_gap\"><failure"), "{xml}");
    assert!(xml.contains("<error message="), "{xml}");
    check(&folder, &["in/good.lcm", "--junit", "result.xml"], 0);
    // On standard output they replace those for people.
    let printed = check(&folder, &["in/good.lcm", "--junit", "-"], 0).text();
    assert!(printed.as_bytes() == folder.read("result.xml"), "{printed}");
    check(&folder, &["in/good.lcm", "--junit", "-", "--json"], 2);
    assert!(!folder.names().contains(&"-".to_owned()));
}

#[test]
fn results_never_replace_what_was_read() {
    let folder = folder();
    let (log, expect) = (folder.read("in/good.lcm"), folder.read("expect.toml"));
    symlink(folder.at("in/good.lcm"), folder.at("link.xml")).unwrap();
    for file in ["in/good.lcm", "link.xml", "expect.toml"] {
        check(&folder, &["in/*.lcm", "--junit", file], 2).expect_stderr("would replace an input");
    }
    assert!(folder.read("in/good.lcm") == log && folder.read("expect.toml") == expect);
}

#[test]
fn results_never_replace_a_file_of_a_folder_that_is_read() {
    let folder = folder();
    run_sluice(&folder, &["convert", "in/good.lcm", "--to", "tables/"]).expect(0);
    let tables = || crate::batch::tree(&folder.at("tables"));
    let before = tables();
    let table = before.keys().find(|name| name.ends_with(".parquet")).unwrap();
    fs::create_dir(folder.at("types")).unwrap();
    folder.write("types/t.lcm", "struct t { int32_t x; }\n");
    let (table, types) = (&*format!("tables/{table}"), "types/t.lcm");
    // Nothing is decoded in this check.
    for arguments in [&["tables", "--junit", table][..], &["in/good.lcm", "--junit", types]] {
        let types = ["--types", "types"];
        check(&folder, &[arguments, &types].concat(), 2).expect_stderr("would replace an input");
    }
    assert!(tables() == before && folder.read(types).starts_with(b"struct"));
}

#[test]
fn a_report_of_a_log_has_what_is_not_met_as_findings() {
    let folder = folder();
    let arguments = ["report", "in/silent.lcm", "--json", "--expect", "expect.toml"];
    let ran = run_sluice(&folder, &arguments).expect(4);
    let figures: Value = serde_json::from_str(&ran.text()).unwrap();
    let first = &figures["findings"][0];
    assert_eq!((&first["kind"], &first["channel"]), (&"unmet".into(), &"CAM_L".into()));
    ran.expect_stderr("CAM_L, CAM_R: max_gap");
}

#[test]
fn mistakes_in_expectations_have_a_line_and_are_told_once() {
    let folder = folder();
    folder.write("expect.toml", "[log]\ndamage = 0\n[channels.POSE]\nmax_gab = \"1s\"\n");
    let ran = check(&folder, &["in/good.lcm", "in/silent.lcm"], 2);
    assert_eq!(ran.text(), "");
    assert_eq!(ran.stderr.matches("unknown key `max_gab`").count(), 1, "{}", ran.stderr);
    ran.expect_stderr("expect.toml:4:1").expect_stderr("did you mean `max_gap`?");
    folder.write("expect.toml", "");
    check(&folder, &["in/silent.lcm"], 2).expect_stderr("no rule, so any log would meet it");
    let missing = ["check-log", "in/good.lcm", "--expect", "nowhere.toml"];
    run_sluice(&folder, &missing).expect(2).expect_stderr("nowhere.toml");
    run_sluice(&folder, &["check-log", "in/good.lcm"]).expect(2).expect_stderr("--expect");
}

#[test]
fn mistakes_in_expectations_of_a_pipeline_file_are_shown_where_they_are() {
    let rules = "log = { damge = 0 }\n[stages.gate.channels.POSE]\nrate = 0\nmax_gab = \"1s\"\n\
                 [stages.gate.channels.\"re:(\"]\ncount = 1\n";
    let folder = folder();
    folder.write("gate.toml", BATCH.replace("file = \"expect.toml\"\n", rules));
    let mut ran = run_sluice(&folder, &["check", "gate.toml"]).expect(2);
    for place in ["8:17", "10:8", "11:11", "12:1"] {
        ran = ran.expect_stderr(&format!("--> gate.toml:{place}\n"));
    }
    ran.expect_stderr("did you mean `max_gap`?").expect_stderr("4 mistakes in gate.toml");
}

const BATCH: &str = r#"
[sources.log]
plugin = "lcm-log"
path = "in/*.lcm"
[stages.gate]
plugin = "expect"
from = "log"
file = "expect.toml"
[sinks.lines]
plugin = "jsonl"
from = "gate"
path = "out/{stem}.jsonl"
"#;

#[test]
fn a_batch_with_one_bad_log_writes_all_outputs_and_fails() {
    let folder = folder();
    folder.write("gate.toml", BATCH);
    let ran = run_sluice(&folder, &["run", "gate.toml", "--report", "report.json"]).expect(4);
    assert!(
        ran.stderr.contains("error: in/silent.lcm: gate: CAM_L, CAM_R: max_gap"),
        "{}",
        ran.stderr
    );
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    assert_eq!(report["exit"], 4);
    let exits: Vec<_> =
        report["units"].as_array().unwrap().iter().map(|unit| &unit["exit"]).collect();
    assert_eq!(exits, [0, 4]);
    let unmet = &report["unmet_expectations"][0];
    assert_eq!((&unmet["node"], &unmet["input"]), (&"gate".into(), &"in/silent.lcm".into()));
    for stem in ["good", "silent"] {
        assert!(folder.at(&format!("out/{stem}.jsonl")).exists(), "{stem}");
    }
    // Outputs that exist already do not make it better, unless expectations change.
    let again = run_sluice(&folder, &["run", "gate.toml", "--resume"]).expect(4);
    assert!(again.stderr.contains("1 input did not meet the expectations"), "{}", again.stderr);
    run_sluice(&folder, &["verify", "out"]).expect(0);
    folder.write("expect.toml", "[channels.POSE]\n");
    run_sluice(&folder, &["run", "gate.toml", "--resume"]).expect(0);
}

#[test]
fn resuming_tells_of_earlier_losses_beside_unmet_expectations() {
    let folder = folder();
    // Damage is not expected either.
    fs::rename(folder.at("torn.lcm"), folder.at("in/torn.lcm")).unwrap();
    let one_run = BATCH.replace("\"jsonl\"", "\"parquet\"").replace("out/{stem}.jsonl", "tables/");
    for (pipeline, told) in
        [(BATCH, "1 input had losses in an earlier run"), (&one_run, "the earlier run had losses")]
    {
        folder.write("gate.toml", pipeline);
        run_sluice(&folder, &["run", "gate.toml"]).expect(4).expect_stderr("could not be read");
        run_sluice(&folder, &["run", "gate.toml", "--resume"]).expect(4).expect_stderr(told);
    }
}

#[test]
fn shards_of_a_batch_fail_each_for_itself() {
    let folder = folder();
    folder.write("gate.toml", BATCH);
    run_sluice(&folder, &["run", "gate.toml", "--shard", "1/2"]).expect(0);
    run_sluice(&folder, &["run", "gate.toml", "--shard", "2/2"]).expect(4);
    run_sluice(&folder, &["merge-manifests", "out"]).expect(0);
    let manifest: Value = serde_json::from_slice(&folder.read("out/_manifest.json")).unwrap();
    let exits: Vec<_> =
        manifest["units"].as_array().unwrap().iter().map(|unit| &unit["exit"]).collect();
    assert_eq!(exits, [0, 4]);
}

#[test]
fn a_limit_behind_the_gate_does_not_hide_the_rest_of_the_log() {
    let folder = folder();
    let text = BATCH.replace("in/*.lcm", "in/silent.lcm").replace("{stem}", "few").replace(
        "[sinks.lines]\nplugin = \"jsonl\"\nfrom = \"gate\"",
        "[stages.few]\nplugin = \"limit\"\nfrom = \"gate\"\nevents = 3\n\
         [sinks.lines]\nplugin = \"jsonl\"\nfrom = \"few\"",
    );
    folder.write("few.toml", text);
    let ran = run_sluice(&folder, &["run", "few.toml"]).expect(4);
    assert!(ran.stderr.contains("CAM_L, CAM_R: max_gap"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("duration"), "{}", ran.stderr);
}

#[test]
fn a_recording_is_complete_and_fails_if_expectations_are_not_met() {
    let folder = folder();
    let record = |log: &str, code| {
        let url = format!("file://{log}");
        let to = format!("recorded-{code}.lcm");
        let arguments = ["record", &url, "--to", &to, "--expect", "expect.toml"];
        run_sluice(&folder, &arguments).expect(code);
        assert_eq!(folder.read(&to), folder.read(log), "{log}");
    };
    record("in/good.lcm", 0);
    record("in/silent.lcm", 4);
}

#[test]
fn a_recording_of_multicast_is_complete_and_fails_if_a_channel_is_silent() {
    let folder = Folder::new();
    folder.write("expect.toml", "[channels.\"CAM_*\"]\ncount = 20\n[channels.POSE]\ncount = 80\n");
    let record = |messages: &[LcmEvent], code| {
        let (mut sender, limit) = (Sender::new(), messages.len().to_string());
        let to = format!("{code}.lcm");
        let arguments = ["--to", &to, "--limit", &limit, "--expect", "expect.toml"];
        let recorder = sender.start(&folder, &arguments);
        sender.send_all(messages);
        let ended = recorder.end().expect(code);
        let content = |event: &LcmEvent| (event.channel.clone(), event.payload.clone());
        let recorded: Vec<_> = events(&folder.read(&to)).iter().map(content).collect();
        assert_eq!(recorded, messages.iter().map(content).collect::<Vec<_>>());
        ended
    };
    let name = |n: i64| if n % 5 == 0 { "CAM_L" } else { "POSE" };
    let whole: Vec<LcmEvent> =
        (0..100).map(|n| LcmEvent::new(n, BEGIN, name(n), b"payload")).collect();
    record(&whole, 0);
    let is_pose = |event: &&LcmEvent| event.channel == b"POSE";
    let silent: Vec<LcmEvent> = whole.iter().filter(is_pose).cloned().collect();
    record(&silent, 4).expect_stderr("must_exist: expected a channel that matches `CAM_*`");
}

#[test]
fn fields_and_types_are_compared_if_the_file_asks_for_them() {
    let folder = Folder::new();
    let demo = "[sources.drive]\nplugin = \"demo\"\nseconds = 1\n\
        [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"POSE\"]\n\
        [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"few\"\npath = \"drive.lcm\"\n";
    folder.write("demo.toml", demo);
    run_sluice(&folder, &["run", "demo.toml"]).expect(0);
    let expect = |text: &str, code| {
        folder.write("expect.toml", text);
        check(&folder, &["drive.lcm"], code).text()
    };
    expect(
        "[channels.POSE]\ntype = \"lcmtypes.pose_t\"\nundecoded = 0\nfields.\"vel[0]\" = {}\n",
        0,
    );
    let told = expect("[channels.POSE]\nfields.\"vel[0]\" = { max = -1e9 }\n", 4);
    assert!(
        told.contains("POSE: fields: expected field vel[0] at most -1000000000, found"),
        "{told}"
    );
    let told = expect("[channels.POSE]\ntype = \"lcmtypes.image_t\"\n", 4);
    assert!(told.contains("expected type lcmtypes.image_t, found lcmtypes.pose_t"), "{told}");
}

#[test]
fn wrong_options_of_a_source_are_refused_once() {
    let folder = folder();
    let told = check(&folder, &["in/*.lcm", "--source-option", "bogus=1"], 2);
    assert_eq!(told.text(), "");
    assert_eq!(told.stderr.matches("--source-option bogus: ").count(), 1, "{}", told.stderr);
    let told = check(&folder, &["missing.lcm", "in/*.lcm", "--source-option", "seek=false"], 1);
    assert!(told.text().contains("in/good.lcm: ok"), "{}", told.text());
}
