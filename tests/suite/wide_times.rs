//! Times outside the range of 64-bit nanoseconds: the events are kept, and so are their times if
//! the format can hold them.

use std::process::Command;

use serde_json::Value;

use crate::kit::{
    BEGIN, Folder, LcmEvent, drive, events, joined_lines, log, python_with, run_sluice,
};

/// A folder with `in.lcm`: 900 events. On two of three channels, times are nanoseconds in place of
/// microseconds, as some writers store them, or as extreme as the field allows.
fn folder() -> Folder {
    let folder = Folder::new();
    let extremes = [BEGIN * 1_000, i64::MAX, i64::MIN, i64::MAX / 1_000 + 1, i64::MIN / 1_000 - 2];
    let each = (0..900).map(|n| match n % 3 {
        0 => LcmEvent::new(n, BEGIN + n, "GOOD", b"a payload that is longer than a view"),
        of => {
            let utime = extremes[(n % 5) as usize];
            LcmEvent::new(
                n,
                utime,
                if of == 1 { "NANOS" } else { "FAR" },
                b"another payload, as long",
            )
        }
    });
    folder.write("in.lcm", log(&each.collect::<Vec<_>>()));
    folder
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

#[test]
fn logs_and_archives_keep_them_byte_for_byte_whatever_is_between() {
    let folder = folder();
    let back = |from: &str, to: &str, more: &[&str]| {
        let line = [&["convert", from, "--to", to, "--report", "report.json"], more].concat();
        run_sluice(&folder, &line).expect(0);
        assert_eq!(report(&folder)["clamped_times"], 0);
    };
    back("in.lcm", "out.lcm", &[]);
    back("in.lcm", "out.lcm.zst", &["--sink-option", "frame=4KiB"]);
    back("out.lcm.zst", "again.lcm", &["--memory", "16MiB", "--jobs", "2"]);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    assert!(folder.read("again.lcm") == folder.read("in.lcm"));
    back("in.lcm", "far.lcm", &["--channel", "FAR"]);
    let far = |event: &LcmEvent| event.channel == b"FAR";
    let expected: Vec<LcmEvent> = events(&folder.read("in.lcm")).into_iter().filter(far).collect();
    assert_eq!(events(&folder.read("far.lcm")), expected);
    // A window selects those inside it: here those later than all other times.
    for from in ["in.lcm", "out.lcm.zst"] {
        back(from, "late.lcm", &["--start", "2200-01-01", "--overwrite"]);
        let late = events(&folder.read("late.lcm"));
        assert_eq!(late.len(), 360, "{from}");
        assert!(late.iter().all(|event| event.utime > i64::MAX / 1_000), "{from}");
    }
}

/// Copies `in.lcm` to `theirs.lcm` with LCM's own tools.
const COPY: &str = "
import lcm
out = lcm.EventLog('theirs.lcm', 'w', overwrite=True)
for event in lcm.EventLog('in.lcm', 'r'):
    out.write_event(event.timestamp, event.channel, event.data)
out.close()
";

#[test]
fn the_library_of_lcm_copies_them_to_the_same_bytes() {
    let Some(python) = python_with("lcm") else { return };
    let folder = folder();
    let copied = Command::new(python).args(["-c", COPY]).current_dir(folder.path()).output();
    let copied = copied.unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "ours.lcm"]).expect(0);
    assert!(folder.read("ours.lcm") == folder.read("theirs.lcm"));
}

#[test]
fn other_outputs_have_the_nearest_time_and_say_so_for_each_channel() {
    let folder = folder();
    for to in ["out.jsonl", "out.csv", "out.parquet", "tables/", "out.arrow.zst", "out.vel"] {
        let line = ["convert", "in.lcm", "--to", to, "--report", "report.json"];
        let stderr = run_sluice(&folder, &line).expect(3).stderr;
        let report = report(&folder);
        assert_eq!((&report["clamped_times"], &report["exit"]), (&600.into(), &3.into()), "{to}");
        let notes = report["notes"].as_array().unwrap();
        for channel in ["NANOS", "FAR"] {
            let begins = format!("{channel}: times outside the range of 64-bit nanoseconds");
            let note = notes.iter().find(|n| n["what"].as_str().unwrap().starts_with(&begins));
            assert_eq!(note.map(|note| &note["count"]), Some(&300.into()), "{to}: {notes:?}");
            assert!(stderr.contains(&begins), "{to}: {stderr}");
        }
        for row in report["channels"].as_array().unwrap() {
            assert_eq!((&row["out"], &row["damaged"]), (&300.into(), &0.into()), "{to}");
        }
    }
    let lines = String::from_utf8(folder.read("out.jsonl")).unwrap();
    let times: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |n: usize| times[n]["timestamp_ns"].as_i64().unwrap();
    assert_eq!((time(0), time(1), time(7)), (BEGIN * 1_000, i64::MAX, i64::MIN));
    // The output is complete; only its times differ.
    run_sluice(&folder, &["convert", "out.parquet", "--to", "back.lcm"]).expect(0);
    let payloads = |name| -> Vec<Vec<u8>> {
        events(&folder.read(name)).into_iter().map(|event| event.payload).collect()
    };
    assert_eq!(payloads("back.lcm"), payloads("in.lcm"));
}

#[test]
fn tables_without_nanoseconds_have_the_nearest_microseconds() {
    let folder = Folder::new();
    let times = [BEGIN, BEGIN + 1, i64::MAX, i64::MIN, BEGIN + 2];
    let event = |n: usize| LcmEvent::new(n as i64, times[n], "A", b"payload");
    folder.write("in.lcm", log(&(0..times.len()).map(event).collect::<Vec<_>>()));
    let nearest = |time: i64| time.clamp(i64::MIN / 1_000, i64::MAX / 1_000);
    for (to, rows) in [("one.parquet", "1"), ("by_channel/", "1"), ("all.parquet", "5")] {
        let option = format!("row_group_rows={rows}");
        let line = ["convert", "in.lcm", "--to", to, "--sink-option", &option];
        run_sluice(&folder, &[&line[..], &["--report", "report.json"]].concat()).expect(3);
        assert_eq!(report(&folder)["clamped_times"], 2, "{to}");
        run_sluice(&folder, &["convert", to, "--to", "back.lcm", "--overwrite"]).expect(0);
        let mut back: Vec<i64> =
            events(&folder.read("back.lcm")).iter().map(|event| event.utime).collect();
        back.sort_unstable();
        let mut expected = times.map(nearest);
        expected.sort_unstable();
        assert_eq!(back, expected, "{to}");
    }
}

#[test]
fn a_stage_that_moves_times_brings_them_back() {
    let folder = Folder::new();
    let right = drive(3, 100);
    // Five centuries too late; a shift must fit a timestamp.
    let late = 2 * 7_889_400_000 * 1_000_000;
    let wrong: Vec<LcmEvent> =
        right.iter().map(|e| LcmEvent { utime: e.utime + late, ..e.clone() }).collect();
    folder.write("in.lcm", log(&wrong));
    let stage = |name: &str, from: &str| {
        format!("[stages.{name}]\nplugin = \"time\"\nfrom = \"{from}\"\nshift = \"-7889400000s\"\n")
    };
    let text = format!(
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n{}{}\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"second\"\npath = \"out.lcm\"\n",
        stage("first", "log"),
        stage("second", "first")
    );
    folder.write("run.toml", text);
    run_sluice(&folder, &["run", "run.toml"]).expect(0);
    assert!(folder.read("out.lcm") == log(&right));
}

#[test]
fn info_reports_them_by_channel() {
    let folder = folder();
    let text = run_sluice(&folder, &["info", "in.lcm"]).expect(0).text();
    assert!(text.contains("damage   none"), "{text}");
    let note = "NANOS: times outside the range of 64-bit nanoseconds (years 1677 to 2262) were \
        clamped (300 events)";
    assert!(joined_lines(&text).contains(note), "{text}");
    let json = run_sluice(&folder, &["info", "in.lcm", "--json"]).expect(0).text();
    let json: Value = serde_json::from_str(&json).unwrap();
    let clamped = |n: usize| &json["channels"][n]["clamped_times"];
    assert_eq!((clamped(0), clamped(1), clamped(2)), (&300.into(), &0.into(), &300.into()));
}

#[test]
fn relative_times_count_from_the_first_event_whose_time_is_one() {
    let folder = folder();
    let mut all = events(&folder.read("in.lcm"));
    all.remove(0);
    folder.write("in.lcm", log(&all));
    let line = ["convert", "in.lcm", "--to", "cut.lcm", "--start", "+0s", "--end", "+9us"];
    run_sluice(&folder, &line).expect(0);
    let numbers: Vec<i64> = events(&folder.read("cut.lcm")).iter().map(|e| e.number).collect();
    assert_eq!(numbers, [3, 6, 9]);
}

/// A VEL log of twenty messages; every other one has a time in milliseconds outside the range of
/// 64-bit nanoseconds.
fn vel_log() -> Vec<u8> {
    let mut log = vec![0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0];
    // Microseconds in place of milliseconds since 1970, and extreme values.
    let far = [1.2e15, 1.2e15 + 0.25, 9_223_372_036_855.0, -1e20, 1e32];
    for n in 0..20_u32 {
        let ms = if n % 2 == 0 { f64::from(n) * 10.0 } else { far[n as usize / 2 % 5] };
        log.extend((4 + 17_u32).to_le_bytes());
        log.push(0x31);
        log.extend((7 + n % 2).to_le_bytes());
        log.extend(1_i32.to_le_bytes());
        log.extend(ms.to_le_bytes());
        log.extend(n.to_le_bytes());
    }
    log
}

/// A folder with `in.orca`: every other line has a time outside the range of 64-bit nanoseconds.
fn write_orca_log(folder: &Folder) {
    let far = ["1200000000000", "9223372036854775807", "-9223372037", "9223372037"];
    let line = |n: usize| {
        let seconds = if n.is_multiple_of(2) { n.to_string() } else { far[n / 2 % 4].to_owned() };
        format!("{seconds} {} {} {}\n", n * 1_000, n % 2, n / 2 + 1)
    };
    let lines: String = (0..20).map(line).collect();
    let header = "::orca::Power ice in_power0.log\n::orca::Cpu ice in_cpu0.log\n#data\n";
    folder.write("in.orca", format!("{header}{lines}"));
    let record = |n: u8| [&[4, 0, 0, 0][..], &[n, 1, 2, 0]].concat();
    for name in ["in_power0.log", "in_cpu0.log"] {
        folder.write(name, (0..10).flat_map(record).collect::<Vec<u8>>());
    }
}

/// Copies keep the times silently; other outputs get the nearest times, with a count per channel.
fn is_kept(folder: &Folder, from: &str, copies: &[&str], clamped: u64) {
    let convert = |from: &str, to: &str, code: i32| {
        let line = ["convert", from, "--to", to, "--report", "report.json", "--overwrite"];
        run_sluice(folder, &line).expect(code);
        let report = report(folder);
        assert_eq!(report["damaged_ranges"], 0, "{from} to {to}: {report}");
        report
    };
    for (n, to) in copies.iter().enumerate() {
        let from = n.checked_sub(1).map_or(from, |before| copies[before]);
        assert_eq!(convert(from, to, 0)["clamped_times"], 0, "{from} to {to}");
    }
    for to in ["out.jsonl", "tables/", "out.arrow.zst"] {
        let report = convert(from, to, 3);
        assert_eq!(report["clamped_times"], clamped, "{to}");
        let notes = report["notes"].as_array().unwrap();
        let counts = notes.iter().filter(|note| note["what"].as_str().unwrap().contains("64-bit"));
        assert_eq!(
            counts.map(|note| note["count"].as_u64().unwrap()).sum::<u64>(),
            clamped,
            "{to}"
        );
    }
    let info = run_sluice(folder, &["info", from]).expect(0).text();
    assert!(info.contains("damage   none") && info.contains("64-bit"), "{info}");
}

#[test]
fn vel_logs_keep_them() {
    let folder = Folder::new();
    folder.write("plain.vel", vel_log());
    run_sluice(&folder, &["convert", "plain.vel", "--to", "in.vel"]).expect(0);
    is_kept(&folder, "in.vel", &["copy.vel", "copy.vel.zst", "again.vel"], 10);
    let log = folder.read("in.vel");
    assert!(folder.read("copy.vel") == log && folder.read("again.vel") == log);
    let body = vel_log();
    assert!(log.ends_with(&body[12..]), "the messages are those of the plain log");
    // With the epoch given on both sides, they are restored, too.
    let epoch = ["--source-option", "epoch=2007-11-03T14:00:00Z"];
    let line = ["convert", "in.vel", "--to", "utc.vel", "--sink-option", epoch[1]];
    run_sluice(&folder, &[&line[..], &epoch].concat()).expect(0);
    assert!(folder.read("utc.vel") == log);
}

#[test]
fn orca_logs_keep_them() {
    let folder = Folder::new();
    write_orca_log(&folder);
    is_kept(&folder, "in.orca", &["copy.orca", "again.orca"], 10);
    let lines = |name: &str| -> Vec<String> {
        let text = String::from_utf8(folder.read(name)).unwrap();
        let data = text.split("#data\n").nth(1).unwrap();
        data.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(lines("again.orca"), lines("in.orca"));
    let copy = String::from_utf8(folder.read("copy.orca")).unwrap();
    assert_eq!(
        String::from_utf8(folder.read("again.orca")).unwrap(),
        copy.replace("copy_", "again_")
    );
    assert_eq!(folder.read("again_cpu0.log"), folder.read("in_cpu0.log"));
    // LCM can hold such times.
    run_sluice(&folder, &["convert", "in.orca", "--to", "out.lcm", "--channel", "orca.Cpu"])
        .expect(3);
    assert_eq!(events(&folder.read("out.lcm"))[0].utime, 1_200_000_000_000_001_000);
}
