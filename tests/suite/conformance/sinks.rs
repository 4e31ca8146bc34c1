//! Conformance tests of the sinks.

use serde_json::json;
use sluice_conformance::{EventOrder, FormatFidelity, TimeRounding, sink};
use sluice_kit::contract::trials;

use crate::kit::{Folder, root};

/// The sinks tested here.
pub(super) const NAMES: &[&str] = &[
    "archive",
    "csv",
    "expectations",
    "files",
    "jsonl",
    "las",
    "lcm-log",
    "lerobot",
    "mcap",
    "null",
    "orca",
    "parquet",
    "report",
    "text",
    "vel",
];

/// What an LCM log keeps of events.
const LCM: FormatFidelity = FormatFidelity {
    time_step: 1_000,
    rounding: TimeRounding::Down,
    sequences: true,
    sources: false,
    channels: true,
    encodings: false,
    rows: true,
    order: EventOrder::All,
};

/// A demo drive of this many seconds.
fn drive(seconds: f64) -> String {
    format!("[sources.events]\nplugin = \"demo\"\nseconds = {seconds}\n")
}

/// The poses of a demo drive, decoded.
const POSES: &str = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.5\n\
    [stages.poses]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"POSE\", \"GPS*\"]\n\
    [stages.events]\nplugin = \"decode\"\nfrom = \"poses\"\ntypes = [\"mit-dgc\"]\n";

/// A folder with a test log that is stored as hexadecimal digits.
fn folder_from_hex(case: &str) -> Folder {
    let folder = Folder::new();
    let text = std::fs::read_to_string(root().join(case)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits = lines.flat_map(str::split_whitespace);
    let bytes = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap());
    folder.write("in.vel", bytes.collect::<Vec<u8>>());
    folder
}

#[test]
fn lcm_log() {
    sink("lcm-log").read_by("lcm-log").keeps(LCM).check();
}

#[test]
fn lcm_log_compressed() {
    sink("lcm-log").path("out.lcm.zst").read_by("lcm-log").keeps(LCM).check();
}

#[test]
fn lcm_log_in_pieces() {
    let options = json!({ "split_mb": 0.05, "renumber": true });
    let keeps = FormatFidelity { sequences: false, ..LCM };
    let source = json!({ "path": "out-*.lcm" });
    sink("lcm-log")
        .path("out.lcm")
        .options(options)
        .read_with("lcm-log", source)
        .keeps(keeps)
        .check();
}

#[test]
fn lcm_log_in_a_folder() {
    let source = json!({ "path": "out/*.lcm" });
    let options = json!({ "split_mb": 0.1 });
    sink("lcm-log").path("out/").options(options).read_with("lcm-log", source).keeps(LCM).check();
}

#[test]
fn archive_of_an_lcm_log() {
    let options = json!({ "frame": "64KiB" });
    sink("archive").path("out.lcm.zst").options(options).read_by("archive").keeps(LCM).check();
}

#[test]
fn archive_of_any_events() {
    let options = json!({ "format": "arrow", "level": 1 });
    sink("archive").path("out.zst").options(options).read_by("archive").check();
}

#[test]
fn archive_of_vel() {
    let folder = folder_from_hex("plugins/vel/testdata/example/log.hex");
    let feed =
        format!("[sources.events]\nplugin = \"vel\"\npath = '{}'\n", folder.at("in.vel").display());
    let options = json!({ "format": "vel" });
    let keeps = FormatFidelity { sequences: false, sources: false, ..FormatFidelity::default() };
    let trial = sink("archive").path("out.vel.zst").options(options).fed_by(&feed);
    trial.read_by("archive").keeps(keeps).check();
}

#[test]
fn vel() {
    let folder = folder_from_hex("plugins/vel/testdata/example/log.hex");
    let feed =
        format!("[sources.events]\nplugin = \"vel\"\npath = '{}'\n", folder.at("in.vel").display());
    let keeps = FormatFidelity { sequences: false, sources: false, ..FormatFidelity::default() };
    sink("vel").fed_by(&feed).read_by("vel").keeps(keeps).check();
}

#[test]
fn orca() {
    let rounding = TimeRounding::Nearest;
    let keeps = FormatFidelity {
        time_step: 1_000,
        rounding,
        sequences: false,
        ..FormatFidelity::default()
    };
    for dialect in ["A", "C"] {
        let options = json!({ "dialect": dialect });
        sink("orca").path("out.orca").options(options).read_by("orca").keeps(keeps).check();
    }
}

#[test]
fn parquet_in_one_table() {
    let options = json!({ "row_group_rows": 50 });
    sink("parquet").options(options).read_by("parquet").check();
}

#[test]
fn parquet_in_a_table_a_channel() {
    let source = json!({ "path": "tables/**/*.parquet" });
    sink("parquet").path("tables/").read_with("parquet", source).check();
}

#[test]
fn parquet_of_decoded_events() {
    let source = json!({ "path": "tables/**/*.parquet" });
    let options = json!({ "payload": "keep" });
    let trial = sink("parquet").path("tables/").options(options).fed_by(POSES);
    trial.read_with("parquet", source).check();
}

#[test]
fn jsonl() {
    for payload in [json!(true), json!("text")] {
        let options = json!({ "payload": payload });
        sink("jsonl").options(options).read_by("jsonl").check();
    }
}

#[test]
fn jsonl_of_decoded_events() {
    sink("jsonl").path("out.jsonl.zst").fed_by(POSES).check();
}

#[test]
fn csv() {
    sink("csv").check();
    sink("csv").fed_by(&POSES.replace("\"POSE\", ", "")).check();
    // Several types share only the chosen columns.
    let options = json!({ "fields": ["utime", "pos[0]"] });
    sink("csv").options(options).fed_by(POSES).check();
}

#[test]
fn text() {
    sink("text").check();
    let options = json!({ "line": "{channel} {utime} {pos[*]:.3}", "header": "# poses" });
    sink("text").options(options).fed_by(POSES).check();
}

#[test]
fn files() {
    let options = json!({ "name": "{channel}/{sequence}.bin" });
    sink("files").path("out/").options(options).check();
}

#[test]
fn files_of_images() {
    let feed = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.4\n\
        [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"CAM*\"]\n\
        [stages.events]\nplugin = \"decode\"\nfrom = \"few\"\ntypes = [\"mit-dgc\"]\n";
    let options = json!({ "name": "{channel}/{utime}.jpg", "field": "image", "check": "jpeg" });
    sink("files").path("out/").options(options).fed_by(feed).check();
}

#[test]
fn expectations() {
    sink("expectations").path("expect.toml").fed_by(&drive(0.3)).check();
    sink("expectations").path("expect.toml").fed_by(POSES).check();
}

#[test]
fn las() {
    let feed = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.1\n\
        [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"VELODYNE\"]\n\
        [stages.some]\nplugin = \"limit\"\nfrom = \"few\"\nevents = 25\n\
        [stages.events]\nplugin = \"velodyne\"\nfrom = \"some\"\n";
    for name in ["out.las", "out.laz", "clouds/"] {
        sink("las").path(name).fed_by(feed).check();
    }
}

#[test]
fn lerobot() {
    // The clock of the drive's receiver is a tenth of a second late at times, so rows split.
    let feed = "[sources.drive]\nplugin = \"demo\"\nseconds = 3\n\
        [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"GPS_TO_LOCAL\"]\n\
        [stages.events]\nplugin = \"decode\"\nfrom = \"few\"\ntypes = [\"mit-dgc\"]\n";
    let options = json!({ "fps": 10, "min_frames": 1, "task": "drive" });
    sink("lerobot").path("dataset/").options(options).fed_by(feed).check();
}

#[test]
fn report() {
    // At least two messages on each channel. JSON has no more than the sizes of pictures, and one
    // camera of a page is like another.
    let drive = drive(f64::from(trials(2, 4)) / 10.0).replace("events", "drive");
    let other_cameras = "[\"CAM*mm\", \"CAM*L\", \"CAM*R\", \"CAM*RRC\"]";
    for (name, exclude) in [("out.json", "\"CAM*\""), ("out.html", other_cameras)] {
        let typed = format!(
            "[stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nexclude = {exclude}\n\
            [stages.events]\nplugin = \"decode\"\nfrom = \"few\"\ntypes = [\"mit-dgc\"]\n"
        );
        sink("report").path(name).fed_by(&format!("{drive}{typed}")).check();
    }
}

#[test]
fn null() {
    sink("null").fed_by(&drive(0.1)).writes_nothing().check();
}

#[test]
fn mcap() {
    let options = json!({ "chunk": "64KiB" });
    sink("mcap").path("out.mcap").options(options).read_by("mcap").check();
}

#[test]
fn mcap_of_lz4_chunks() {
    let options = json!({ "chunk": "16KiB", "compression": "lz4" });
    sink("mcap").path("out.mcap").options(options).read_by("mcap").check();
}

#[test]
fn mcap_compressed_as_a_whole() {
    let options = json!({ "compression": "none", "profile": "x" });
    sink("mcap").path("out.mcap.zst").options(options).read_by("mcap").check();
}
