//! The MIT Urban Challenge pipelines, compared with the output of the dataset's own programs
//! (recorded files, and an independent script), and run on faulty logs.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, LcmEvent, events, log, python_script, root, run_sluice};
use crate::tables::asks;

/// A log with three sensors, and the output of the original programs for it.
fn golden(name: &str) -> Vec<u8> {
    std::fs::read(root().join("plugins/dgc/testdata/golden").join(name)).unwrap()
}

/// A folder with a demo drive of this many seconds, `drive.lcm`.
fn demo_drive(seconds: &str) -> Folder {
    let folder = Folder::new();
    let (seconds, out) = (format!("SECONDS={seconds}"), "OUT=quick");
    run_sluice(&folder, &["run", "quickstart", "--set", &seconds, "--set", out]).expect(0);
    std::fs::rename(folder.at("quick/drive.lcm"), folder.at("drive.lcm")).unwrap();
    folder
}

/// Runs a pipeline of the dataset on a log of the folder, into the folder `out`.
fn run_on(folder: &Folder, pipeline: &str, log: &str, set: &[&str]) -> crate::kit::ProgramOutput {
    let input = format!("INPUT={log}");
    let mut arguments = vec!["run", pipeline, "--set", &input, "--set", "OUT=out", "--overwrite"];
    arguments.extend(["--report", "report.json"]);
    set.iter().for_each(|set| arguments.extend(["--set", set]));
    run_sluice(folder, &arguments)
}

fn report(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("report.json")).unwrap()
}

/// Fails at the first line that differs.
#[track_caller]
fn same_lines(found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (found, expected): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (lines(found), lines(expected));
    let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    let at = at.unwrap_or(found.len().min(expected.len()));
    let show = |lines: &[Vec<u8>]| {
        let line = lines.get(at).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
    };
    let (count, of) = (found.len(), expected.len());
    panic!(
        "line {at} ({count} lines, {of} expected): {:?} and not {:?}",
        show(&found),
        show(&expected)
    );
}

#[test]
fn poses_are_printed_as_the_original_program_prints_them() {
    let folder = Folder::new();
    folder.write("golden.lcm", golden("mitdgc-synth-small.lcm"));
    run_on(&folder, "dgc-poses", "golden.lcm", &["FORMAT=text"]).expect(0);
    same_lines(&folder.read("out/poses.txt"), &golden("poses.txt"));
}

#[test]
fn a_window_of_the_velodyne_is_printed_as_the_original_program_prints_it() {
    let folder = Folder::new();
    folder.write("golden.lcm", golden("mitdgc-synth-small.lcm"));
    let window = ["FORMAT=text", "START=0.5", "END=0.6"];
    run_on(&folder, "dgc-velodyne", "golden.lcm", &window).expect(0);
    same_lines(&folder.read("out/velodyne.txt"), &golden("velodyne_0.5_0.6.txt"));
}

#[test]
fn every_example_is_printed_as_a_script_works_it_out() {
    let folder = demo_drive("2");
    let lasers = root().join("plugins/dgc/data/hdl-64e.csv");
    let lasers = lasers.to_str().unwrap();
    let velodyne = ["velodyne", "drive.lcm", lasers, "1.9", "1.93"];
    for (pipeline, file, arguments, set) in [
        ("dgc-poses", "poses.txt", &["poses", "drive.lcm"][..], &[][..]),
        ("dgc-images", "index.txt", &["images", "drive.lcm"], &[]),
        ("dgc-gps", "gps.txt", &["gps", "drive.lcm"], &[]),
        ("dgc-sick", "sick.txt", &["sick", "drive.lcm"], &[]),
        ("dgc-velodyne", "velodyne.txt", &velodyne, &["START=1.9", "END=1.93"]),
    ] {
        let Some(expected) = python_script(&folder, "dgc_examples.py", arguments) else { return };
        run_on(&folder, pipeline, "drive.lcm", &[&["FORMAT=text"], set].concat()).expect(0);
        assert!(expected.lines().count() > 10, "{pipeline}");
        same_lines(&folder.read(&format!("out/{file}")), expected.as_bytes());
        std::fs::remove_dir_all(folder.at("out")).unwrap();
    }
}

#[test]
fn points_that_were_tables_in_between_are_moved_as_in_one_go() {
    let folder = demo_drive("2");
    let lines = "plugin = \"jsonl\"\nfrom = \"body\"\npath =";
    let points = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
                  [stages.points]\nplugin = \"laser\"\nfrom = \"log\"\n\
                  [stages.scans]\nplugin = \"filter\"\nfrom = \"points\"\n\
                  channels = [\"SKIRT_FC\"]\n";
    let body = "[stages.body]\nplugin = \"to-frame\"\nframe = \"body\"\nfrom =";
    let tables = "[sinks.tables]\nplugin = \"parquet\"\nfrom = \"scans\"\npath = \"scans/\"\n";
    let at_once = format!("{points}{body} \"scans\"\n[sinks.out]\n{lines} \"once.jsonl\"\n");
    let again = "[sources.log]\nplugin = \"parquet\"\npath = \"scans/**/*.parquet\"\n";
    let again = format!("{again}{body} \"log\"\n[sinks.out]\n{lines} \"again.jsonl\"\n");
    for (name, text) in
        [("once", at_once), ("tables", format!("{points}{tables}")), ("again", again)]
    {
        let path = format!("{name}.toml");
        folder.write(&path, text);
        run_sluice(&folder, &["run", &path]).expect(0);
    }
    let fields = |name: &str| -> Vec<Value> {
        let text = String::from_utf8(folder.read(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (once, again) = (fields("once.jsonl"), fields("again.jsonl"));
    assert!(once.len() > 10);
    assert_eq!(once, again);
}

/// The events of a log by channel.
fn by_channel(log: &[u8]) -> BTreeMap<String, Vec<LcmEvent>> {
    let mut channels: BTreeMap<String, Vec<LcmEvent>> = BTreeMap::new();
    for event in events(log) {
        let name = String::from_utf8(event.channel.clone()).unwrap();
        channels.entry(name).or_default().push(event);
    }
    channels
}

#[test]
fn tables_have_the_contents_of_the_log() {
    let folder = demo_drive("2");
    let counts: BTreeMap<String, usize> = by_channel(&folder.read("drive.lcm"))
        .into_iter()
        .map(|(name, events)| (name, events.len()))
        .collect();
    folder.write("counts.json", serde_json::to_vec(&counts).unwrap());
    for (pipeline, set) in [
        ("dgc-poses", &[][..]),
        ("dgc-gps", &[]),
        ("dgc-sick", &[]),
        ("dgc-velodyne", &["START=1.5", "END=1.7"]),
    ] {
        run_on(&folder, pipeline, "drive.lcm", set).expect(0);
        std::fs::rename(folder.at("out"), folder.at(pipeline)).unwrap();
        run_sluice(&folder, &["verify", pipeline]).expect(0);
    }
    asks(
        "duckdb",
        &folder,
        r#"
import duckdb, json
counts = json.load(open("counts.json"))
ask = lambda query: duckdb.sql(query).fetchall()
one = lambda channel, of: ask(
    f"select count(*), min(utime) from '{of}/channel={channel}/*.parquet'")[0]
assert one("POSE", "dgc-poses")[0] == counts["POSE"]
assert one("GPS_TO_LOCAL", "dgc-gps")[0] == counts["GPS_TO_LOCAL"]
scanners = [name for name in counts if name.startswith(("BROOM", "SKIRT"))]
assert len(scanners) == 12
for name in scanners:
    assert one(name, "dgc-sick")[0] == counts[name], name
points = "'dgc-velodyne/channel=VELODYNE/*.parquet'"
columns = [row[:2] for row in ask(f"describe select * from {points}")]
names = [name for name, _ in columns]
for name in ("timestamp", "source", "sequence", "utime", "x", "y", "z", "intensity", "laser",
             "azimuth", "time"):
    assert name in names, names
rows, packets, lasers = ask(
    f"select count(*), count(distinct sequence), count(distinct laser) from {points}")[0]
assert rows == 384 * packets and lasers == 64 and 400 < packets < 600, (rows, packets, lasers)
# Where the vehicle is, the points are: in the local frame, around the poses.
(near,) = ask(f"""select avg(sqrt((p.x - q.x) ** 2 + (p.y - q.y) ** 2)) from {points} p,
    (select avg(pos[1]) as x, avg(pos[2]) as y from 'dgc-poses/channel=POSE/*.parquet') q""")[0]
assert 1 < near < 60, near
"#,
    );
}

#[test]
fn pictures_open_in_a_real_decoder_and_are_the_bytes_of_the_log() {
    let folder = demo_drive("2");
    run_on(&folder, "dgc-images", "drive.lcm", &[]).expect(0);
    let log = by_channel(&folder.read("drive.lcm"));
    let mut pictures = 0;
    for (name, events) in log.iter().filter(|(name, _)| name.starts_with("CAM_THUMB")) {
        for event in events {
            let utime = i64::from_be_bytes(event.payload[8..16].try_into().unwrap());
            let file = folder.read(&format!("out/{name}-{utime}.jpg"));
            assert!(file == event.payload[30..], "{name} {utime}");
            pictures += 1;
        }
    }
    assert!(pictures > 50, "{pictures}");
    let index = String::from_utf8(folder.read("out/index.csv")).unwrap();
    assert_eq!(index.lines().count(), pictures + 1);
    asks(
        "PIL",
        &folder,
        r#"
import glob, PIL.Image
files = glob.glob("out/*.jpg")
assert len(files) > 50, len(files)
for file in files:
    image = PIL.Image.open(file)
    image.load()
    assert image.size == (376, 240), (file, image.size)
"#,
    );
}

#[test]
fn everything_at_once_gives_tables_track_pictures_and_points() {
    let folder = demo_drive("2");
    run_on(&folder, "dgc-all", "drive.lcm", &[]).expect(0);
    for part in ["tables", "images", "track", "points"] {
        run_sluice(&folder, &["verify", &format!("out/{part}")]).expect(0);
    }
    let report = report(&folder);
    assert!(report.to_string().contains("VELODYNE"), "{report}");
    asks(
        "duckdb",
        &folder,
        r#"
import duckdb
ask = lambda query: duckdb.sql(query).fetchall()
track = "'out/track/channel=POSE/*.parquet'"
rows, lat, lon = ask(f"select count(*), avg(latitude), avg(longitude) from {track}")[0]
assert rows > 150 and 34.57 < lat < 34.60 and -117.38 < lon < -117.34, (rows, lat, lon)
channels = ask("""select distinct channel
    from read_parquet('out/points/*/*.parquet', hive_partitioning = true)""")
assert len(channels) == 13, channels
# Nearly all of what scanners see lies within what they reach, around the vehicle.
far = ask("""select count(*) filter (abs(p.x - q.x) > 130 or abs(p.y - q.y) > 130), count(*)
    from 'out/points/*/*.parquet' p, (select avg(pos[1]) as x, avg(pos[2]) as y
    from 'out/tables/channel=POSE/*.parquet') q""")[0]
assert far[0] == 0 and far[1] > 500_000, far
"#,
    );
}

#[test]
fn threads_change_nothing() {
    let folder = demo_drive("1");
    let mut hashes = Vec::new();
    for jobs in ["1", "2", "8"] {
        let set = ["run", "dgc-all", "--set", "INPUT=drive.lcm", "--set", "OUT=out", "--overwrite"];
        run_sluice(&folder, &[&set[..], &["--jobs", jobs, "--report", "report.json"]].concat())
            .expect(0);
        let report = report(&folder);
        let files = report["files"].as_array().unwrap().iter();
        let files = files.map(|file| (file["path"].to_string(), file["blake3"].clone()));
        hashes.push(files.collect::<BTreeMap<String, Value>>());
    }
    assert!(hashes[0].len() > 60, "{}", hashes[0].len());
    assert!(hashes.iter().all(|other| *other == hashes[0]));
}

#[test]
fn windows_beyond_the_log_give_the_existing_events() {
    let folder = Folder::new();
    folder.write("golden.lcm", golden("mitdgc-synth-small.lcm"));
    for (window, lines) in [(["START=1.5", "END=100"], true), (["START=100", "END=200"], false)] {
        let set = [&["FORMAT=text"][..], &window].concat();
        run_on(&folder, "dgc-velodyne", "golden.lcm", &set).expect(0);
        assert_eq!(!folder.read("out/velodyne.txt").is_empty(), lines, "{window:?}");
    }
}

#[test]
fn points_before_any_pose_are_omitted_and_reported() {
    let folder = demo_drive("1");
    let all = events(&folder.read("drive.lcm"));
    let late = |event: &LcmEvent| event.channel != b"POSE" || event.utime > all[0].utime + 300_000;
    let events: Vec<LcmEvent> = all.iter().filter(|event| late(event)).cloned().collect();
    folder.write("late.lcm", log(&events));
    let ran = run_on(&folder, "dgc-velodyne", "late.lcm", &["FORMAT=text"]).expect(0);
    assert!(ran.stderr.contains("VELODYNE"), "{}", ran.stderr);
    let velodyne = |event: &&LcmEvent| event.channel == b"VELODYNE";
    let first = events.iter().position(|event| event.channel == b"POSE").unwrap();
    let placed = events[first..].iter().filter(velodyne).count();
    let lines = folder.read("out/velodyne.txt").iter().filter(|byte| **byte == b'\n').count();
    assert!(placed > 1000 && lines == placed * 384, "{lines} of {placed} packets");
}

#[test]
fn packets_before_the_first_event_in_time_have_points_without_a_window() {
    let folder = demo_drive("1");
    let mut events = events(&folder.read("drive.lcm"));
    let packets = events.iter().filter(|event| event.channel == b"VELODYNE").count();
    // As after the clock was set back: the first event has the latest time.
    let first = events.iter().position(|event| event.channel == b"POSE").unwrap();
    let mut late = events[first].clone();
    late.utime += 10_000_000;
    events.insert(0, late);
    folder.write("back.lcm", log(&events));
    for (set, all) in [(&["FORMAT=text"][..], true), (&["FORMAT=text", "END=1"], false)] {
        run_on(&folder, "dgc-velodyne", "back.lcm", set).expect(0);
        let lines = folder.read("out/velodyne.txt").iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines == packets * 384, all, "{set:?}: {lines} of {packets} packets");
    }
}

/// The log with some payloads changed.
fn changed(events: &[LcmEvent], change: impl Fn(usize, &mut LcmEvent)) -> Vec<u8> {
    let mut events = events.to_vec();
    events.iter_mut().enumerate().for_each(|(at, event)| change(at, event));
    log(&events)
}

#[test]
fn faults_are_reported_by_channel_and_the_rest_is_converted() {
    let folder = demo_drive("1");
    let all = events(&folder.read("drive.lcm"));
    let wrong = changed(&all, |at, event| match (&event.channel[..], at % 50) {
        // A wrong length; a block of unknown kind; an empty picture; a truncated scan.
        (b"VELODYNE", 7) => event.payload.truncate(1000),
        (b"VELODYNE", 9) => event.payload[20 + 300] = 0x11,
        (b"CAM_THUMB_RFC", _) => {
            event.payload.truncate(30);
            event.payload[26..30].fill(0);
        }
        (b"CAM_THUMB_RFL", _) => {
            let half = event.payload.len() / 2;
            event.payload.truncate(half);
            let size = i32::try_from(half - 30).unwrap();
            event.payload[26..30].copy_from_slice(&size.to_be_bytes());
        }
        (b"BROOM_C", _) => event.payload.truncate(100),
        _ => {}
    });
    folder.write("wrong.lcm", wrong);
    let ran = run_on(&folder, "dgc-all", "wrong.lcm", &[]);
    assert!(matches!(ran.code, Some(0 | 3)), "{:?}\n{}", ran.code, ran.stderr);
    let printed = format!("{}\n{}", ran.stderr, report(&folder));
    for channel in ["VELODYNE", "CAM_THUMB_RFC", "CAM_THUMB_RFL", "BROOM_C"] {
        assert!(printed.contains(channel), "{channel} is not in:\n{printed}");
    }
    assert!(folder.at("out/images/CAM_THUMB_RFR").exists());
    assert!(folder.at("out/points/channel=BROOM_L").exists());
}

#[test]
fn a_pipeline_is_found_beside_the_folder_that_it_wrote() {
    let folder = Folder::new();
    folder.write("golden.lcm", golden("mitdgc-synth-small.lcm"));
    for flag in ["--resume", "--overwrite"] {
        run_sluice(&folder, &["run", "dgc-poses", "--set", "INPUT=golden.lcm", flag]).expect(0);
    }
    assert!(folder.at("dgc-poses/channel=POSE/part-00000.parquet").exists());
}

#[test]
fn an_unknown_format_is_reported_with_the_possible_ones() {
    let folder = Folder::new();
    folder.write("golden.lcm", golden("mitdgc-synth-small.lcm"));
    for pipeline in ["dgc-poses", "dgc-images", "dgc-gps", "dgc-velodyne", "dgc-sick"] {
        let ran = run_on(&folder, pipeline, "golden.lcm", &["FORMAT=tabel"]).expect(2);
        assert!(ran.stderr.contains("tabel"), "{}", ran.stderr);
    }
    assert!(!folder.at("out").exists());
}

#[test]
fn the_picture_of_the_documentation_is_made_by_its_script() {
    let folder = demo_drive("1");
    let set = ["START=0.2", "END=0.267", "DROP_ZERO_RETURNS=true"];
    run_on(&folder, "dgc-velodyne", "drive.lcm", &set).expect(0);
    let script = root().join("plugins/dgc/docs/revolution.py");
    let Some(python) = crate::kit::python_with("matplotlib") else { return };
    let mut draw = Command::new(python);
    let status =
        draw.arg(script).args(["out", "revolution.png"]).current_dir(folder.path()).status();
    assert!(status.unwrap().success() && folder.read("revolution.png").len() > 10_000);
}
