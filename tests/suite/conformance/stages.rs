//! Conformance tests of the stages.

use serde_json::json;
use sluice_conformance::stage;
use sluice_kit::contract::trials;

/// The stages tested here.
pub(super) const NAMES: &[&str] = &[
    "align",
    "camera",
    "decode",
    "encode",
    "episodes",
    "expect",
    "filter",
    "foxglove",
    "from-protobuf",
    "gaps",
    "georeference",
    "laser",
    "limit",
    "mounts",
    "rename",
    "sample",
    "time",
    "to-protobuf",
    "to-frame",
    "undistort",
    "unproject",
    "velodyne",
];

/// Some channels of a demo drive.
fn drive(channels: &str, seconds: f64) -> String {
    format!(
        "[sources.drive]\nplugin = \"demo\"\nseconds = {seconds}\n\
         [stages.events]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = {channels}\n"
    )
}

/// The same with stages in between, for stages that need more than a log.
fn after(channels: &str, seconds: f64, stages: &str) -> String {
    let drive = drive(channels, seconds).replace("stages.events", "stages.few");
    format!("{drive}{stages}")
}

const TYPED: &str = "[stages.events]\nplugin = \"decode\"\nfrom = \"few\"\ntypes = [\"mit-dgc\"]\n";
const SCANS: &str = "[stages.events]\nplugin = \"laser\"\nfrom = \"few\"\n";
const SENSORS: &str = "[\"POSE\", \"GPS*\", \"SKIRT_FC\", \"CAM_THUMB_RFC\"]";

#[test]
fn filter() {
    stage("filter").options(json!({ "channels": ["POSE*"] })).check();
    stage("filter").options(json!({ "exclude": "CAM*", "start": "+0.2", "end": "+1s" })).check();
    let typed = after("[\"POSE\", \"GPS*\"]", 0.5, TYPED);
    stage("filter").options(json!({ "where": "pos[0] > 1" })).fed_by(&typed).check();
}

#[test]
fn align() {
    let typed = after(SENSORS, 0.5, TYPED);
    let fields = json!({ "vel": "POSE.vel", "state": ["POSE.pos[0]", "GPS_TO_LOCAL.local[1]"],
        "orientation": { "field": "POSE.orientation", "method": "slerp" },
        "image": { "field": "CAM_THUMB_RFC.image", "method": "nearest", "tolerance": "60ms" } });
    let rate = json!({ "rate": "50Hz", "fields": fields, "tolerance": "500ms" });
    stage("align").options(rate).fed_by(&typed).check();
    let own = json!({ "clock": "CAM_THUMB_RFC", "missing": "null", "time": "utime",
        "fields": { "scan": "SKIRT_FC.ranges",
            "height": { "field": "POSE.pos[2]", "method": "linear" } } });
    stage("align").options(own).fed_by(&typed).check();
}

#[test]
fn episodes() {
    let typed = after(SENSORS, 0.5, TYPED);
    let options = json!({ "channel": "POSE", "change": "pos[0]", "where": "vel[0] > -1" });
    stage("episodes").options(options).fed_by(&typed).check();
    let long = json!({ "channel": "POSE", "gap": "9.9ms", "min_rows": 3 });
    stage("episodes").options(long).fed_by(&typed).check();
}

#[test]
fn expect() {
    let rules = json!({ "log": { "no_other_channels": true, "duration": { "max": "1us" } },
        "channels": { "POSE": { "max_gap": 0 }, "NOWHERE": { "must_exist": "warn" } } });
    stage("expect").options(rules).check();
    let typed = after("[\"POSE\", \"GPS*\"]", 0.5, TYPED);
    let fields = json!({ "channels": { "POSE": { "fields": { "pos[0]": { "max": 0 } } } } });
    stage("expect").options(fields).fed_by(&typed).check();
}

#[test]
fn time() {
    stage("time").options(json!({ "shift": "-1.5s", "clip_start": "+0.1s" })).check();
    stage("time").options(json!({ "sort": "50ms" })).fed_by(&drive(SENSORS, 0.5)).check();
    let late = json!({ "sort": "1ms", "late": "drop", "sort_events": 3 });
    stage("time").options(late).fed_by(&drive(SENSORS, 0.5)).check();
}

#[test]
fn rename() {
    let options = json!({ "map": { "POSE": "pose" }, "prefix": "talos/", "source": "talos",
        "channels": [{ "from": "re:(.*)\\.raw", "to": "$1" }] });
    stage("rename").options(options).check();
}

#[test]
fn to_protobuf() {
    let typed = after(SENSORS, 0.5, TYPED);
    stage("to-protobuf").fed_by(&typed).check();
    stage("to-protobuf").options(json!({ "channels": "GPS*" })).fed_by(&typed).check();
}

#[test]
fn from_protobuf() {
    let typed = TYPED.replace("stages.events", "stages.typed");
    let shown = "[stages.events]\nplugin = \"to-protobuf\"\nfrom = \"typed\"\n";
    stage("from-protobuf").fed_by(&after(SENSORS, 0.5, &(typed + shown))).check();
    stage("from-protobuf").check();
}

#[test]
fn sample() {
    stage("sample").options(json!({ "every": 3 })).check();
    stage("sample").options(json!({ "max_hz": 20.0, "channels": "POSE*" })).check();
}

#[test]
fn limit() {
    stage("limit").options(json!({ "events": 100, "per_channel": 40 })).check();
}

#[test]
fn gaps() {
    stage("gaps").options(json!({ "longer_than": "10ms", "factor": 2 })).check();
}

#[test]
fn decode() {
    let options = json!({ "types": ["mit-dgc"] });
    stage("decode").options(options).fed_by(&drive(SENSORS, 0.5)).check();
}

#[test]
fn decode_that_drops() {
    let options = json!({ "types": ["mit-dgc"], "undecoded": "drop" });
    stage("decode").options(options).check();
}

#[test]
fn encode() {
    let typed = after(SENSORS, 0.5, TYPED);
    stage("encode").options(json!({ "all": true })).fed_by(&typed).check();
}

#[test]
fn laser() {
    let feed = drive("[\"SKIRT_*\", \"BROOM_*\", \"POSE\"]", 0.5);
    stage("laser").fed_by(&feed).check();
}

#[test]
fn velodyne() {
    stage("velodyne").fed_by(&drive("[\"VELODYNE\", \"POSE\"]", 0.1)).check();
}

#[test]
fn to_frame() {
    let scans = after("[\"SKIRT_FC\", \"POSE\"]", 0.4, SCANS);
    stage("to-frame").options(json!({ "frame": "body" })).fed_by(&scans).check();
    stage("to-frame").options(json!({ "frame": "local" })).fed_by(&scans).check();
}

#[test]
fn to_frame_between_poses() {
    let scans = after("[\"SKIRT_FC\", \"POSE\"]", 0.4, SCANS);
    let options = json!({ "frame": "local", "choose": "interpolate", "wait": "200ms" });
    stage("to-frame").options(options).fed_by(&scans).check();
}

#[test]
fn georeference() {
    let placed = SCANS.replace("events", "points")
        + "[stages.events]\nplugin = \"to-frame\"\nfrom = \"points\"\nframe = \"local\"\n";
    let feed = after("[\"SKIRT_FC\", \"POSE\", \"GPS*\"]", 0.4, &placed);
    stage("georeference").fed_by(&feed).check();
    stage("georeference").options(json!({ "choose": "at", "wait": "100ms" })).fed_by(&feed).check();
}

#[test]
fn camera() {
    let placed = SCANS.replace("events", "points")
        + "[stages.events]\nplugin = \"to-frame\"\nfrom = \"points\"\nframe = \"local\"\n";
    let feed = after("[\"SKIRT_FC\", \"POSE\", \"CAM_THUMB*\"]", 0.3, &placed);
    stage("camera").fed_by(&feed).check();
    stage("camera").options(json!({ "colour": false, "unseen": "drop" })).fed_by(&feed).check();
}

#[test]
fn unproject() {
    let events = trials(5, 12);
    let few = format!("[stages.events]\nplugin = \"limit\"\nfrom = \"few\"\nevents = {events}\n");
    let feed = after("[\"CAM_THUMB*\", \"POSE\"]", 0.3, &few);
    stage("unproject").options(json!({ "every": 40, "height": 0.0 })).fed_by(&feed).check();
}

#[test]
fn undistort() {
    let events = trials(3, 12);
    let few = format!("[stages.events]\nplugin = \"limit\"\nfrom = \"few\"\nevents = {events}\n");
    let feed = after("[\"CAM_THUMB*\", \"POSE\"]", 0.3, &few);
    stage("undistort").fed_by(&feed).check();
}

#[test]
fn foxglove() {
    let channels = "[\"POSE\", \"GPS*\", \"SKIRT_FC\", \"CAM_THUMB_RFC\", \"VELODYNE\"]";
    // At least two messages on each channel, and two turns of the scanner.
    let seconds = f64::from(trials(2, 4)) / 10.0;
    let feed = after(channels, seconds, TYPED);
    stage("foxglove").fed_by(&feed).check();
    let map =
        json!([{ "types": ["*pose_t"], "pose": { "at": { "position": ["pos[0]", "pos[1]"] } } }]);
    let options = json!({ "map": map, "calibration": "none", "repeat": "50ms" });
    let poses = after("[\"POSE\", \"GPS*\"]", seconds, TYPED);
    stage("foxglove").options(options).fed_by(&poses).check();
}

#[test]
fn mounts() {
    stage("mounts").fed_by(&drive(SENSORS, 0.3)).check();
    stage("mounts").options(json!({ "channel": "RIG" })).fed_by(&drive(SENSORS, 0.3)).check();
}
