//! Time windows contain all their events, whatever the order of times in a log.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sluice_kit::contract::gather_splits;
use sluice_model::{Query, ReadContext, Registry};

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, events, log, report_skip, run_sluice};

/// A log of more than 16 MiB with an event at each of these seconds.
fn log_at(seconds: impl Iterator<Item = i64>) -> Vec<LcmEvent> {
    let each = seconds.enumerate().map(|(n, second)| {
        let payload = vec![n as u8; if n % 4 == 0 { 100 } else { 60_000 }];
        LcmEvent::new(n as i64, BEGIN + second * 1_000_000, "POSE", &payload)
    });
    each.collect()
}

/// Logs with unordered times.
fn logs() -> [(&'static str, Vec<LcmEvent>); 3] {
    let jump = |n: i64| if (250..300).contains(&n) { n + 3600 } else { n };
    [
        ("two logs in one", log_at((5000..5300).chain(0..300))),
        ("appended after the clock was set back", log_at((0..400).chain(100..300))),
        ("a clock that jumps for a moment", log_at((0..600).map(jump))),
    ]
}

/// Applies a window to `from` and returns the events.
fn cut(folder: &Folder, from: &str, window: &[&str], more: &[&str]) -> Vec<LcmEvent> {
    let line = [&["convert", from, "--to", "cut.lcm", "--overwrite"], window, more].concat();
    run_sluice(folder, &line).expect(0);
    events(&folder.read("cut.lcm"))
}

#[test]
fn a_window_of_a_log_is_that_of_its_archive_and_of_its_table() {
    for (what, all) in logs() {
        let folder = Folder::new();
        folder.write("in.lcm", log(&all));
        run_sluice(&folder, &["convert", "in.lcm", "--to", "in.lcm.zst"]).expect(0);
        run_sluice(&folder, &["convert", "in.lcm", "--to", "in.parquet"]).expect(0);
        // From 100 s to 300 s, from 3850 s, up to 150 s; each as seconds after BEGIN.
        let at = |second: i64| (BEGIN / 1_000_000 + second).to_string();
        for (start, end) in [(Some(100), Some(300)), (Some(3850), None), (None, Some(150))] {
            let mut window = Vec::new();
            start.iter().for_each(|second| window.extend(["--start".to_owned(), at(*second)]));
            end.iter().for_each(|second| window.extend(["--end".to_owned(), at(*second)]));
            let window: Vec<&str> = window.iter().map(String::as_str).collect();
            let inside = |event: &&LcmEvent| {
                let second = (event.utime - BEGIN) / 1_000_000;
                start.is_none_or(|start| second >= start) && end.is_none_or(|end| second < end)
            };
            let expected: Vec<LcmEvent> = all.iter().filter(inside).cloned().collect();
            for (from, more) in [
                ("in.lcm", &[][..]),
                ("in.lcm", &["--source-option", "seek=false"]),
                ("in.lcm.zst", &[]),
                ("in.parquet", &[]),
            ] {
                let found = cut(&folder, from, &window, more);
                assert!(found == expected, "{what}, {from} {more:?}: {} events", found.len());
            }
        }
    }
}

#[test]
fn relative_times_count_from_the_first_event_in_the_file() {
    let folder = Folder::new();
    let all = log_at((5000..5300).chain(4990..5000));
    folder.write("in.lcm", log(&all));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "in.lcm.zst"]).expect(0);
    folder.write("plain.lcm.zst", zstd::encode_all(&log(&all)[..], 1).unwrap());
    folder.write("two.lcm.zst", [folder.read("in.lcm.zst"), folder.read("in.lcm.zst")].concat());
    for from in ["in.lcm", "in.lcm.zst", "plain.lcm.zst"] {
        let found = cut(&folder, from, &["--start", "+2s", "--end", "+4s"], &[]);
        assert!(found == all[2..4], "{from}");
        // Before the first event in time is before the window.
        assert_eq!(cut(&folder, from, &["--end", "+1s"], &[]).len(), 11, "{from}");
    }
    assert_eq!(cut(&folder, "two.lcm.zst", &["--end", "+1s"], &[]).len(), 22);
}

#[test]
fn relative_times_behind_a_shift_count_from_the_shifted_first_event() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&log_at(0..60)));
    let time = |name: &str, from: &str, more: &str| {
        format!("[stages.{name}]\nplugin = \"time\"\nfrom = \"{from}\"\n{more}\n")
    };
    let cut = |stages: &[String], from: &str, window: [&str; 2]| -> Vec<i64> {
        let text = format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n{}[stages.cut]\n\
             plugin = \"filter\"\nfrom = {from}\nstart = \"{}\"\nend = \"{}\"\n\
             [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"cut\"\npath = \"cut.lcm\"\n",
            stages.concat(),
            window[0],
            window[1]
        );
        folder.write("run.toml", text);
        run_sluice(&folder, &["run", "run.toml", "--overwrite"]).expect(0);
        let cut = events(&folder.read("cut.lcm"));
        cut.iter().map(|event| (event.utime - BEGIN) / 1_000_000).collect()
    };
    let back = time("back", "log", "shift = \"-1h\"");
    let on = time("on", "log", "shift = \"2h\"\nsort = \"1s\"");
    let window = ["+5s", "+7s"];
    assert_eq!(cut(std::slice::from_ref(&back), "\"back\"", window), [-3595, -3594]);
    assert_eq!(cut(std::slice::from_ref(&on), "\"on\"", window), [7205, 7206]);
    let clipped = time("twice", "on", "shift = \"-1h\"\nclip_end = \"+6s\"");
    assert_eq!(cut(&[on.clone(), clipped], "\"twice\"", window), [3605]);
    // Of several inputs, the earliest counts.
    assert_eq!(cut(std::slice::from_ref(&on), "[\"log\", \"on\"]", window), [5, 6]);
    let both = [on, back];
    assert_eq!(cut(&both, "[\"on\", \"back\"]", window), [-3595, -3594]);
    assert_eq!(cut(&both, "[\"on\", \"back\"]", ["+59s", "+10801s"]), [-3541, 7200]);
}

/// The bytes this thread has read from files so far; `None` if the system does not report it.
fn read_by_this_thread() -> Option<u64> {
    let output = fs::read_to_string("/proc/thread-self/io").ok()?;
    output.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

/// The numbers of the events in a window, and the bytes read for them; `None` if that is not
/// reported.
fn read_window(
    plugin: &str,
    path: &Path,
    seek: Option<bool>,
    window: (i64, i64),
) -> Option<(Vec<i64>, u64)> {
    let mut options = json!({ "path": path });
    seek.iter().for_each(|seek| options["seek"] = Value::from(*seek));
    let registry = Registry::linked();
    let source = registry.source(plugin, options).unwrap();
    let query = Query { start: Some(window.0), end: Some(window.1), ..Query::default() };
    let mut context = ReadContext::standalone("test");
    context.query = query.clone();
    let before = read_by_this_thread()?;
    let splits = source.splits(8 << 20, &query).unwrap();
    let found = gather_splits(&*source, splits, &context).unwrap();
    let read = read_by_this_thread()? - before;
    assert_eq!(found.damage, [], "{plugin}");
    let is_inside = |time: i64| (window.0..window.1).contains(&time);
    let inside = found.events.iter().filter(|event| is_inside(event.timestamp));
    // Each payload begins with its number.
    let number = |bytes: &[u8]| i64::from(bytes[bytes.len() - 1]);
    Some((inside.map(|event| number(&event.payload)).collect(), read))
}

const COUNT: u8 = 40;
const PAYLOAD: usize = 400_000;

/// Logs of `COUNT` events, a second apart, with `PAYLOAD` bytes that end with the event number: the
/// plugin, whether it has the option to seek, the log, and the time of its first event in
/// nanoseconds.
fn logs_of_long_events() -> [(&'static str, bool, Vec<u8>, i64); 3] {
    let payload = |n: u8| vec![n; PAYLOAD];
    let utime = |n: u8| BEGIN + i64::from(n) * 1_000_000;
    let of_lcm = |n| LcmEvent::new(i64::from(n), utime(n), "CAM", &payload(n)).bytes();
    let of_vel = |n: u8| {
        let head =
            [&(PAYLOAD as u32 + 17).to_le_bytes()[..], &[0x31], &[0x34, 0x12, 0, 0]].concat();
        let ms = (f64::from(n) * 1000.0).to_le_bytes();
        [head, 1i32.to_le_bytes().to_vec(), ms.to_vec(), payload(n)].concat()
    };
    let of_camera = |n: u8| {
        let info = [&[0; 10][..], &utime(n).to_be_bytes(), &[0; 24]].concat();
        let image = (PAYLOAD as u32).to_be_bytes();
        [&b"\xed\xed\0\x07\0\0\0\x2a"[..], &info, b"\xed\xed\0\x01", &image, &payload(n)].concat()
    };
    let vel_head = vec![0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0];
    [
        ("lcm-log", true, (0..COUNT).flat_map(of_lcm).collect(), BEGIN * 1_000),
        ("vel", true, vel_head.into_iter().chain((0..COUNT).flat_map(of_vel)).collect(), 0),
        ("camlog", false, (0..COUNT).flat_map(of_camera).collect(), BEGIN * 1_000),
    ]
}

#[test]
fn payloads_outside_of_a_window_are_not_read() {
    if read_by_this_thread().is_none() {
        return report_skip("the system does not say how many bytes a thread has read");
    }
    let folder = Folder::new();
    for (plugin, has_seek, bytes, begin) in logs_of_long_events() {
        let path = folder.write(plugin, &bytes);
        let second = |n: i64| begin + n * 1_000_000_000;
        for (start, end) in [(17, 20), (-5, 1), (39, 99), (70, 90)] {
            let window = (second(start), second(end));
            let expected: Vec<i64> = (start.max(0)..end.min(i64::from(COUNT))).collect();
            let (found, read) = read_window(plugin, &path, None, window).unwrap();
            assert_eq!(found, expected, "{plugin}, {start} to {end}");
            // The selected events; the header of every event and what follows it; a few reads per
            // file.
            let expected = expected.len() * PAYLOAD;
            let most = expected + usize::from(COUNT) * (40 << 10) + (1 << 20);
            assert!(read < most as u64, "{plugin}, {start} to {end}: {read} of {}", bytes.len());
        }
        // The same without skipping, to validate the bound.
        if has_seek {
            let window = (second(17), second(20));
            let (found, read) = read_window(plugin, &path, Some(false), window).unwrap();
            assert_eq!(found, [17, 18, 19], "{plugin}");
            assert!(read >= bytes.len() as u64, "{plugin}: {read} of {}", bytes.len());
        }
    }
}

/// Folders with logs of events from 0 to 9 s after BEGIN on POSE, and at 0 s on GPS.
fn short_logs() -> Folder {
    let folder = Folder::new();
    let mut all = log_at(0..10);
    all.push(LcmEvent::new(10, BEGIN, "GPS", b"x"));
    folder.write("in.lcm", log(&all));
    for to in ["in.lcm.zst", "in.parquet", "in.vel", "in.mcap", "tables/"] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", to]).expect(0);
    }
    folder.write("plain.lcm.zst", zstd::encode_all(&log(&all)[..], 1).unwrap());
    folder
}

#[test]
fn a_window_that_no_event_meets_is_a_warning_with_the_times_of_the_log() {
    let folder = short_logs();
    let times = "the first is at 2007-11-03T14:00:00.000000000Z, the last at \
                 2007-11-03T14:00:09.000000000Z";
    let warning = format!("--start: no event is in the time window; {times}");
    for from in ["in.lcm", "in.lcm.zst", "in.parquet", "tables/", "in.mcap"] {
        for channel in [&[][..], &["-c", "POSE"], &["-x", "GPS"]] {
            let line = [&["convert", from, "--overwrite", "--to", "out.lcm"], channel].concat();
            let line = [&line[..], &["--start", "+60", "--end", "+90"]].concat();
            run_sluice(&folder, &line).expect(0).expect_stderr(&format!("warning: {warning}"));
            let strict = run_sluice(&folder, &[&line[..], &["--strict"]].concat()).expect(2);
            strict
                .expect_stderr(&format!("error: {warning}"))
                .expect_stderr("error: nothing was published: the time window has no event, and");
        }
    }
    let line = ["convert", "in.lcm", "--to", "x.lcm", "--end", "2001-01-01", "--report", "r.json"];
    run_sluice(&folder, &line).expect(0).expect_stderr("--end: no event is in the time window");
    let report: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let nearest = ["2007-11-03T14:00:00.000000000Z", "2007-11-03T14:00:09.000000000Z"];
    let unmatched = json!([{ "node": "keep", "option": "end", "kind": "window",
        "name": "2001-01-01", "found": "nothing in the window", "nearest": nearest }]);
    assert_eq!(report["unmatched"], unmatched);
}

#[test]
fn every_verb_with_a_window_says_that_no_event_is_in_it() {
    let folder = short_logs();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                [stages.cut]\nplugin = \"time\"\nfrom = \"log\"\nshift = \"1s\"\n\
                clip_start = \"+60\"\n\
                [sinks.out]\nplugin = \"null\"\nfrom = \"cut\"\n";
    folder.write("p.toml", text);
    run_sluice(&folder, &["run", "p.toml", "--strict"])
        .expect(2)
        .expect_stderr("error: cut: `clip_start`: no event is in the time window; the first is");
    for verb in [&["cat"][..], &["report", "--to", "out.html"]] {
        let line = [verb, &["in.lcm", "--start", "+60"]].concat();
        let done = run_sluice(&folder, &line);
        done.expect(0).expect_stderr("--start: no event is in the time window; the first is at");
    }
    // The last event of what has to be decompressed whole is not looked for.
    for from in ["plain.lcm.zst", "in.vel"] {
        let line = ["cat", from, "--strict", "--start", "+60"];
        let done = run_sluice(&folder, &line).expect(2);
        let done = done.expect_stderr("no event is in the time window; the first is at");
        assert_eq!(done.stderr.contains("the last"), from == "in.vel", "{}", done.stderr);
    }
    let line =
        ["convert", "plain.lcm.zst", "in.lcm", "--to", "{stem}.jsonl", "--start", "2020-01-01"];
    let done =
        run_sluice(&folder, &line).expect_stderr("no event is in the time window; the first");
    assert!(!done.stderr.contains("the last"), "{}", done.stderr);
    let input = std::fs::File::open(folder.at("in.lcm")).unwrap();
    let piped = crate::kit::sluice(&folder)
        .args(["cat", "-", "--start", "2020-01-01"])
        .stdin(input)
        .output()
        .unwrap();
    let piped = crate::kit::ProgramOutput::from_output(piped).expect(0);
    piped.expect_stderr("--start: no event is in the time window");
}

#[test]
fn a_window_of_aligned_rows_that_no_event_meets_is_a_warning_unless_one_is_near() {
    let folder = Folder::new();
    let rows = (0..100).map(|n| format!("{}.{},{n}\n", 1_700_000_000 + n / 10, n % 10));
    folder.write("in.csv", "time,x\n".to_owned() + &rows.collect::<String>());
    let line = ["convert", "in.csv", "--to", "out.csv", "--align", "10Hz", "--field", "log.x"];
    let align = |window: &[&str]| run_sluice(&folder, &[&line, window, &["--strict"]].concat());
    for window in [["--start", "2030-01-01"], ["--end", "2001-01-01"], ["--start", "+100"]] {
        let times = "the first is at 2023-11-14T22:13:20.000000000Z, the last at \
                     2023-11-14T22:13:29.900000000Z";
        let says = format!("error: {}: no event is in the time window; {times}", window[0]);
        align(&window).expect(2).expect_stderr(&says);
    }
    // No row is in it, but events just before it could have made one.
    let near = align(&["--start", "+10.05s"]).expect(0);
    assert!(!near.stderr.contains("no event is in the time window"), "{}", near.stderr);
    assert_eq!(folder.read("out.csv").iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn a_window_with_events_that_are_not_wanted_is_no_warning() {
    let folder = short_logs();
    folder.write("empty.lcm", "");
    let silent = |line: &[&str]| {
        let done = run_sluice(&folder, line).expect(0);
        assert!(!done.stderr.contains("no event is in the time window"), "{}", done.stderr);
    };
    silent(&["cat", "in.lcm", "--strict", "--start", "+2", "-c", "GPS"]);
    silent(&["cat", "in.lcm", "--strict", "--start", "+9"]);
    silent(&["cat", "empty.lcm", "--strict", "--start", "2001-01-01"]);
    // One of two logs has events in it.
    let late = log_at(60..70);
    folder.write("late.lcm", log(&late));
    let batch = ["convert", "in.lcm", "late.lcm", "--to", "{stem}.jsonl", "--strict"];
    let window = |start: &'static str| [&batch[..], &["--start", start]].concat();
    let at = "2007-11-03T14:00:30Z";
    silent(&window(at));
    let none = [&window("2007-11-04")[..], &["--overwrite"]].concat();
    let none = run_sluice(&folder, &none).expect(2);
    none.expect_stderr("the first is at 2007-11-03T14:00:00.000000000Z, the last at")
        .expect_stderr("2007-11-03T14:01:09.000000000Z");
}

/// Runs a pipeline of these tables, which ends in a sink behind these nodes.
fn run_tables(folder: &Folder, tables: &[&str], from: &str, more: &[&str]) -> ProgramOutput {
    let sink = format!("[sinks.out]\nplugin = \"null\"\nfrom = {from}\n");
    folder.write("p.toml", format!("{}\n{sink}", tables.join("\n")));
    run_sluice(folder, &[&["run", "p.toml"], more].concat())
}

const LOG: &str = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"";
const LATE: &str = "[sources.late]\nplugin = \"lcm-log\"\npath = \"late.lcm\"";

fn window_stage(name: &str, from: &str, bounds: &str) -> String {
    format!("[stages.{name}]\nplugin = \"filter\"\nfrom = \"{from}\"\n{bounds}")
}

const NO_EVENT: &str = "no event is in the time window";

#[test]
fn each_window_is_judged_by_its_own_bounds() {
    let folder = short_logs();
    let until = window_stage("one", "log", "end = \"2007-11-03T14:00:03Z\"");
    let since =
        |bound: &str| window_stage("cut", "one", &format!("start = \"2007-11-03T14:00:{bound}Z\""));
    // Each has events, and both together none.
    let done = run_tables(&folder, &[LOG, &until, &since("05")], "\"cut\"", &["--strict"]);
    assert!(!done.expect(0).stderr.contains(NO_EVENT));
    let done = run_tables(&folder, &[LOG, &until, &since("30")], "\"cut\"", &["--strict"]);
    let done = done.expect(2).expect_stderr(&format!("cut: `start`: {NO_EVENT}; the first is at"));
    assert!(!done.stderr.contains("one: `end`"));
}

#[test]
fn windows_with_the_same_bounds_are_one() {
    let folder = short_logs();
    folder.write("late.lcm", log(&log_at(60..70)));
    let run = |bounds: [&str; 2]| {
        let cut = window_stage("cut", "log", bounds[0]);
        let other = window_stage("other", "late", bounds[1]);
        run_tables(&folder, &[LOG, LATE, &cut, &other], "[\"cut\", \"other\"]", &["--strict"])
    };
    let at = "start = \"2007-11-03T14:00:30Z\"";
    assert!(!run([at, at]).expect(0).stderr.contains(NO_EVENT));
    run([at, "start = \"2007-11-03T14:00:31Z\""])
        .expect(2)
        .expect_stderr(&format!("cut: `start`: {NO_EVENT}"));
    let none = "start = \"2007-11-04\"";
    let last = "the first is at 2007-11-03T14:00:00.000000000Z, the last at \
                2007-11-03T14:01:09.000000000Z";
    run([none, none])
        .expect(2)
        .expect_stderr(&format!("cut: `start`: {NO_EVENT}; {last}"))
        .expect_stderr(&format!("other: `start`: {NO_EVENT}; {last}"));
}

#[test]
fn a_window_without_events_is_found_beside_other_branches_but_not_behind_a_shift_or_limit() {
    let folder = short_logs();
    let cut = |from: &str| window_stage("cut", from, "start = \"2007-11-04\"");
    let both = "[\"cut\", \"log\"]";
    run_tables(&folder, &[LOG, &cut("log")], both, &["--strict"])
        .expect(2)
        .expect_stderr(&format!("cut: `start`: {NO_EVENT}; the first is at"));
    for stage in ["plugin = \"time\"\nshift = \"1s\"", "plugin = \"limit\"\nevents = 3"] {
        let before = format!("[stages.before]\nfrom = \"log\"\n{stage}");
        let done = run_tables(&folder, &[LOG, &before, &cut("before")], "\"cut\"", &["--strict"]);
        assert!(!done.expect(0).stderr.contains(NO_EVENT), "{stage}");
    }
}
