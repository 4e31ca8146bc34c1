//! Recordings for viewers, read by the programs of others: Python's protobuf, Rerun and Foxglove's
//! own schemas. Tests say so if one is missing.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::kit::{Folder, LcmEvent, drive, hex_log, log, peer_tool, report_skip, root, run_sluice};
use crate::tables::asks;

/// A folder with a recording of a demo drive, `out.mcap`, and its layout.
fn recording() -> Folder {
    let folder = Folder::new();
    let run = |arguments: &[&str]| run_sluice(&folder, arguments).expect(0);
    run(&["run", "quickstart", "--set", "SECONDS=2", "--set", "OUT=quick"]);
    run(&["run", "dgc-view", "--set", "INPUT=quick/drive.lcm", "--set", "OUT=out"]);
    folder
}

#[test]
fn a_drive_becomes_a_recording_for_viewers_with_its_layout() {
    let folder = recording();
    let info = run_sluice(&folder, &["info", "out.mcap", "--json"]).expect(0);
    let text = info.text();
    for view in ["/tf", "/gps", "/view/POSE", "/view/VELODYNE", "/view/SKIRT_FC/points"] {
        assert!(text.contains(&format!("\"{view}\"")), "{view}: {text}");
    }
    let layout: Value = serde_json::from_slice(&folder.read("out.foxglove.json")).unwrap();
    let panels = &layout["configById"];
    assert_eq!(panels["3D!view"]["topics"]["/view/VELODYNE"]["visible"], true);
    assert_eq!(panels["map!view"]["followTopic"], "/gps");
    assert!(panels["Image!view0"]["imageMode"]["calibrationTopic"].is_string(), "{panels}");
}

/// A folder with a demo drive, `quick/drive.lcm`.
fn demo_drive() -> Folder {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1", "--set", "OUT=quick"])
        .expect(0);
    folder
}

#[test]
fn a_conversion_for_viewers_writes_a_layout_beside_the_file() {
    let folder = demo_drive();
    let convert = |arguments: &[&str], exit| {
        run_sluice(&folder, &[&["convert", "quick/drive.lcm"], arguments].concat()).expect(exit)
    };
    convert(&["--to", "a/drive.mcap"], 0);
    convert(&["--to", "b/{stem}.mcap.zst"], 0);
    let layout = folder.read("a/drive.foxglove.json");
    let parsed: Value = serde_json::from_slice(&layout).unwrap();
    assert_eq!(parsed["configById"]["3D!view"]["topics"]["/view/VELODYNE"]["visible"], true);
    assert_eq!(folder.read("b/drive.foxglove.json"), layout);
    // It is an output as any other.
    std::fs::remove_file(folder.at("a/drive.mcap")).unwrap();
    convert(&["--to", "a/drive.mcap"], 1);
    convert(&["--to", "a/drive.mcap", "--overwrite"], 0);
    let has_layout = |name: &str| folder.at(&format!("{name}.foxglove.json")).exists();
    convert(&["--to", "plain.mcap", "--sink-option", "view=none"], 0);
    convert(&["--to", "unnamed", "--as", "mcap"], 0);
    convert(&["--to", "c/drive.mcap", "--sink-option", "view=auto"], 0);
    assert!(folder.read("c/drive.mcap") == folder.read("a/drive.mcap"));
    convert(&["--to", "d/drive.mcap", "--sink-option", "view=only"], 2)
        .expect_stderr("--sink-option view: expected `auto` or `none`, found `only`");
    assert!(!has_layout("plain") && !has_layout("unnamed") && folder.at("unnamed").exists());
    // Nothing of this log can be shown.
    folder.write("other.lcm", log(&drive(7, 10)));
    let output = run_sluice(&folder, &["convert", "other.lcm", "--to", "other.mcap"]).expect(0);
    output.expect_stderr("no layout is written: no event is a view");
    assert!(!has_layout("other") && folder.at("other.mcap").exists());
}

#[test]
fn views_that_are_named_are_noted_where_they_are_not_read() {
    let folder = demo_drive();
    run_sluice(&folder, &["convert", "quick/drive.lcm", "--to", "a.mcap"]).expect(0);
    let note = "events of views, which only show what other channels hold";
    let named = ["--channel", "/view/*", "--channel", "POSE"];
    let cat = run_sluice(&folder, &[&["cat", "a.mcap", "--limit", "1"][..], &named].concat());
    cat.expect(0).expect_stderr(note);
    let convert = |to: &str, more: &[&str]| {
        run_sluice(&folder, &[&["convert", "a.mcap", "--to", to][..], more].concat()).expect(0)
    };
    convert("views.lcm", &["--channel", "/view/*"])
        .expect_stderr("a conversion to MCAP keeps them");
    let views = convert("views.mcap", &["--channel", "/view/*"]);
    // Nobody misses views in a copy of what they show.
    let all = convert("all.lcm", &[]);
    for output in [&views, &all] {
        assert!(!output.stderr.contains(note), "{}", output.stderr);
    }
    let has_views = run_sluice(&folder, &["info", "views.mcap", "--json"]).expect(0).text();
    assert!(has_views.contains("\"/view/POSE\""), "{has_views}");
    // Views have the numbers of what they show, and those are whole.
    let info = run_sluice(&folder, &["info", "a.mcap", "--json"]).expect(0).text();
    assert!(info.contains("\"number_jumps\":0,"), "{info}");
    let told = run_sluice(&folder, &["info", "a.mcap"]).expect(0).text();
    assert!(told.contains("only show others") && !told.contains("jump"), "{told}");
    let told = run_sluice(&folder, &["info", "views.mcap"]).expect(0).text();
    assert!(!told.contains("only show others"), "{told}");
    let count = crate::kit::events(&folder.read("quick/drive.lcm")).len();
    folder.write("e.toml", format!("[log]\ncount = {count}\n"));
    let checked = run_sluice(&folder, &["check-log", "a.mcap", "--expect", "e.toml", "--json"]);
    let checked: Value = serde_json::from_str(&checked.expect(0).text()).unwrap();
    assert_eq!(checked["events"], count);
}

#[test]
fn views_without_what_they_show_are_read_as_any_other_events() {
    let folder = demo_drive();
    let run = |arguments: &[&str]| run_sluice(&folder, arguments).expect(0);
    run(&["run", "dgc-view", "--set", "INPUT=quick/drive.lcm", "--set", "OUT=views"]);
    let count = |log: &str| {
        let info: Value = serde_json::from_str(&run(&["info", log, "--json"]).text()).unwrap();
        info["events"].as_u64().unwrap()
    };
    let views = count("views.mcap");
    assert!(views > 0);
    run(&["convert", "views.mcap", "--to", "views.lcm"]);
    assert_eq!(count("views.lcm"), views);
    run(&["convert", "views.mcap", "--channel", "/gps", "--to", "gps.jsonl"]);
    let gps = String::from_utf8(folder.read("gps.jsonl")).unwrap();
    assert!(gps.contains("latitude"), "{gps}");
    // A copy lacks nothing of it, and is the same again once it has what the views show.
    run(&["convert", "views.mcap", "--to", "copy.mcap"]);
    assert_eq!(count("copy.mcap"), views);
    run(&["convert", "quick/drive.lcm", "--to", "all.mcap"]);
    run(&["convert", "all.mcap", "--channel", "/gps", "--channel", "GPS*", "--to", "part.mcap"]);
    run(&["convert", "part.mcap", "--to", "part.lcm"]);
    assert_eq!(count("part.lcm"), count("part.mcap"));
    run(&["convert", "all.mcap", "--channel", "/gps", "--channel", "POSE", "--to", "poses.mcap"]);
    run(&["convert", "poses.mcap", "--to", "poses.lcm"]);
    assert!(count("poses.lcm") < count("poses.mcap"));
    // Without an index, nobody knows what follows.
    let whole = folder.read("views.mcap");
    folder.write("cut.mcap", &whole[..whole.len() - 100]);
    let cut = run_sluice(&folder, &["convert", "cut.mcap", "--to", "cut.lcm"]);
    cut.expect(3).expect_stderr("/tf: it shows other channels");
    assert!(count("cut.lcm") > views / 2);
}

#[test]
fn channels_with_the_names_of_views_keep_them_on_the_way_back() {
    let folder = Folder::new();
    let drive = demo_drive();
    let mut events = crate::kit::events(&drive.read("quick/drive.lcm"));
    events.push(LcmEvent::new(0, 1_194_098_400_000_000, "/tf", b"hello"));
    folder.write("tf.lcm", log(&events));
    run_sluice(&folder, &["convert", "tf.lcm", "--to", "tf.mcap"]).expect(0);
    run_sluice(&folder, &["convert", "tf.mcap", "--to", "back.lcm"]).expect(0);
    assert_eq!(channels(&folder, "back.lcm"), channels(&folder, "tf.lcm"));
}

#[test]
fn views_that_are_renamed_with_what_they_show_stay_views() {
    let folder = demo_drive();
    run_sluice(&folder, &["convert", "quick/drive.lcm", "--to", "a.mcap"]).expect(0);
    let rename = |names: &str, source: &str, stages: &str, last: &str| {
        let text = format!(
            "[sources.log]\n{source}\n{stages}\n\
             [stages.named]\nplugin = \"rename\"\nfrom = \"{last}\"\n{names}\n\
             [sinks.out]\nplugin = \"mcap\"\nfrom = \"named\"\npath = \"out.mcap\"\n"
        );
        folder.write("rename.toml", text);
        run_sluice(&folder, &["run", "rename.toml", "--overwrite"]).expect(0);
        run_sluice(&folder, &["convert", "out.mcap", "--to", "out.lcm", "--overwrite"]).expect(0);
        channels(&folder, "out.lcm")
    };
    let before = channels(&folder, "quick/drive.lcm");
    let mcap = "plugin = \"mcap\"\npath = \"a.mcap\"";
    let prefixed: BTreeSet<_> = before.iter().map(|name| format!("r1/{name}")).collect();
    assert_eq!(rename("prefix = \"r1/\"", mcap, "", "log"), prefixed);
    let lcm = "plugin = \"lcm-log\"\npath = \"quick/drive.lcm\"";
    let views = "[stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
                 [stages.views]\nplugin = \"foxglove\"\nfrom = \"typed\"\n";
    let mut mapped = before.clone();
    mapped.remove("POSE");
    mapped.insert("pose".to_owned());
    assert_eq!(rename("map = { POSE = \"pose\" }", lcm, views, "views"), mapped);
}

#[test]
fn views_can_do_without_a_calibration_wherever_their_pipeline_is() {
    let folder = demo_drive();
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
                [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
                [stages.views]\nplugin = \"foxglove\"\nfrom = \"typed\"\n\
                calibration = \"none\"\n\
                [sinks.out]\nplugin = \"mcap\"\nfrom = \"views\"\npath = \"views.mcap\"\n";
    folder.write("quick/views.toml", text);
    run_sluice(&folder, &["run", "quick/views.toml"]).expect(0);
    let channels = channels(&folder, "quick/views.mcap");
    assert!(channels.contains("/view/CAM_THUMB_RFC"), "{channels:?}");
    assert!(!channels.contains("/view/CAM_THUMB_RFC/calibration"), "{channels:?}");
}

/// The names of the channels of a log.
fn channels(folder: &Folder, log: &str) -> BTreeSet<String> {
    let info = run_sluice(folder, &["info", log, "--json"]).expect(0).text();
    let info: Value = serde_json::from_str(&info).unwrap();
    let rows = info["channels"].as_array().unwrap();
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_recording_of_payloads_gets_its_views_by_naming_types() {
    let folder = demo_drive();
    let convert = |from: &str, to: &str, more: &[&str]| {
        run_sluice(&folder, &[&["convert", from, "--to", to], more].concat()).expect(0)
    };
    // As `record` writes it.
    let raw = "[sources.log]\nplugin = \"lcm-log\"\npath = \"quick/drive.lcm\"\n\
               [sinks.out]\nplugin = \"mcap\"\nfrom = \"log\"\npath = \"raw.mcap\"\n";
    folder.write("raw.toml", raw);
    run_sluice(&folder, &["run", "raw.toml"]).expect(0);
    convert("raw.mcap", "copy.mcap", &[]);
    convert("raw.mcap", "shown.mcap", &["--types", "mit-dgc"]);
    convert("shown.mcap", "back.lcm", &[]);
    let channels = |name: &str| run_sluice(&folder, &["info", name, "--json"]).expect(0).text();
    assert!(!channels("copy.mcap").contains("\"/tf\""));
    assert!(channels("shown.mcap").contains("\"/tf\""));
    assert!(folder.at("shown.foxglove.json").exists());
    assert!(folder.read("back.lcm") == folder.read("quick/drive.lcm"));
}

#[test]
fn a_conversion_for_viewers_does_not_depend_on_the_number_of_threads() {
    let folder = demo_drive();
    let made = ["1", "2", "3"].map(|jobs| {
        let to = format!("{jobs}.mcap");
        run_sluice(&folder, &["convert", "quick/drive.lcm", "--to", &to, "--jobs", jobs]).expect(0);
        [folder.read(&to), folder.read(&format!("{jobs}.foxglove.json"))]
    });
    assert!(made[0] == made[1] && made[0] == made[2]);
}

#[test]
fn other_programs_decode_every_view() {
    let folder = recording();
    asks(
        "mcap_protobuf",
        &folder,
        r#"
import math
from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory
counts, first, frames = {}, {}, set()
with open("out.mcap", "rb") as file:
    reader = make_reader(file, decoder_factories=[DecoderFactory()])
    for schema, channel, message, view in reader.iter_decoded_messages():
        counts[channel.topic] = counts.get(channel.topic, 0) + 1
        first.setdefault(channel.topic, view)
        if channel.topic == "/tf":
            frames |= {(one.parent_frame_id, one.child_frame_id) for one in view.transforms}
            for one in view.transforms:
                q = one.rotation
                assert abs(math.hypot(q.x, q.y, q.z, q.w) - 1) < 1e-6, one
# Every frame of a view leads to the vehicle, and the vehicle to its track.
assert ("odom", "base_link") in frames
for topic, view in first.items():
    if topic.startswith("/view/") and topic != "/view/POSE":
        assert ("base_link", view.frame_id) in frames, (topic, view.frame_id)
assert counts["/view/POSE"] > 150 and counts["/gps"] > 150, counts
assert 15 < counts["/view/VELODYNE"] < 40, counts
cloud = first["/view/VELODYNE"]
assert cloud.point_stride == 24 and len(cloud.data) % 24 == 0, cloud.point_stride
assert [field.name for field in cloud.fields] == ["x", "y", "z", "t", "intensity", "laser"]
fix = first["/gps"]
assert 34.57 < fix.latitude < 34.60 and -117.38 < fix.longitude < -117.34, fix
image = first["/view/CAM_THUMB_RFC"]
assert image.format == "jpeg" and image.data[:2] == b"\xff\xd8"
camera = first["/view/CAM_THUMB_RFC/calibration"]
assert (camera.width, camera.height, len(camera.K), len(camera.P)) == (376, 240, 9, 12), camera
"#,
    );
}

#[test]
fn rerun_shows_images_points_transforms_and_positions() {
    let rerun = peer_tool("rerun");
    if !rerun.exists() {
        report_skip("there is no Rerun; .ci/run installs it");
        return;
    }
    let folder = recording();
    let run = |arguments: &[&str]| {
        let output = Command::new(&rerun).args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&["mcap", "convert", "out.mcap", "-o", "out.rrd"]);
    let printed = run(&["rrd", "print", "out.rrd"]);
    for shown in ["EncodedImage:", "Points3D:", "Transform3D:", "GeoPoints:", "Pinhole:"] {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
}

#[test]
fn descriptors_are_those_of_foxglove() {
    let folder = Folder::new();
    let schemas = root().join("plugins/foxglove/schemas");
    let script = "
import pathlib
from foxglove import messages
files = sorted(pathlib.Path(FOLDER).glob('*.binpb'))
assert len(files) == 9, files
for file in files:
    schema = getattr(messages, file.stem).get_schema()
    assert schema.data == file.read_bytes(), file
";
    let folder_name = format!("{:?}", schemas.to_str().unwrap());
    asks("foxglove", &folder, &script.replace("FOLDER", &folder_name));
}

/// The channels of what a log becomes with views.
fn viewed(folder: &Folder, source: &str, path: &str, types: &str) -> String {
    let pipeline = format!(
        "[sources.log]\nplugin = \"{source}\"\npath = \"{path}\"\n\
         [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"{types}\"\n\
         [stages.view]\nplugin = \"foxglove\"\nfrom = \"typed\"\n\
         [sinks.out]\nplugin = \"mcap\"\nfrom = \"view\"\npath = \"out.mcap\"\n"
    );
    folder.write("view.toml", pipeline);
    run_sluice(folder, &["run", "view.toml"]).expect(0);
    run_sluice(folder, &["info", "out.mcap", "--json"]).expect(0).text().to_owned()
}

#[test]
fn messages_of_vel_logs_are_shown_whatever_their_version() {
    let folder = Folder::new();
    folder.write("drive.vel", hex_log("plugins/vel/testdata/example/log.hex"));
    let info = viewed(&folder, "vel", "drive.vel", "vel");
    assert!(info.contains("\"/view/imu/IMUStateM\"") && info.contains("\"/tf\""), "{info}");
}

#[test]
fn scanners_of_orca_logs_are_shown_where_they_are_mounted() {
    let folder = Folder::new();
    folder.copy_all("plugins/orca/testdata/dialect_a");
    let info = viewed(&folder, "orca", "master.log", "orca");
    for view in ["/tf", "/view/laser0/orca.Laser", "/view/laser0/orca.Laser/points"] {
        assert!(info.contains(&format!("\"{view}\"")), "{view}: {info}");
    }
}

#[test]
fn types_of_a_map_are_not_looked_for_among_channels() {
    let folder = Folder::new();
    let map = |types: &str, channels: &str| {
        let text = format!(
            "[sources.demo]\nplugin = \"demo\"\nseconds = 1\n\
             [stages.view]\nplugin = \"foxglove\"\nfrom = \"demo\"\n\
             [[stages.view.map]]\ntypes = [\"{types}\"]\nchannels = [\"{channels}\"]\n\
             pose = {{ at = {{ position = [\"pos[0]\", \"pos[1]\", \"pos[2]\"] }} }}\n\
             [sinks.out]\nplugin = \"null\"\nfrom = \"view\"\n"
        );
        folder.write("run.toml", text);
        run_sluice(&folder, &["run", "run.toml", "--strict"])
    };
    map("pose_t", "POSE").expect(0);
    map("no_such_type", "POSE").expect(0);
    map("pose_t", "PSOE").expect(2).expect_stderr("no channel matches `PSOE`");
}
