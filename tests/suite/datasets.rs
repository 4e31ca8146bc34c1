//! Datasets for learning: the library's pipelines, and what their report and the readers of others
//! say of them.

use std::path::PathBuf;
use std::process::Command;

use crate::kit::{Folder, python_with, report_skip, root, run_sluice};

/// Checks a dataset with this script of the sink's tests.
#[track_caller]
fn check(python: &PathBuf, script: &str, folder: &Folder, dataset: &str) -> String {
    let script = root().join("plugins/lerobot/tests").join(script);
    let mut command = Command::new(python);
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.at("cache"));
    let ran = command.arg(script).arg(folder.at(dataset)).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// What the checker says of a dataset, or LeRobot itself where it is installed.
#[track_caller]
fn is_read(folder: &Folder, dataset: &str, contents: &str) {
    if let Some(python) = python_with("pyarrow, pandas, PIL") {
        let said = check(&python, "check_dataset.py", folder, dataset);
        assert!(said.starts_with(contents), "{said}");
    }
    match std::env::var_os("SLUICE_LEROBOT").map(PathBuf::from) {
        Some(python) => assert!(
            check(&python, "load_dataset.py", folder, dataset).ends_with("frames: ok\n"),
            "{dataset}"
        ),
        None => report_skip("SLUICE_LEROBOT names no Python that has LeRobot"),
    }
}

#[track_caller]
fn run(folder: &Folder, name: &str, set: &[&str]) -> String {
    let mut arguments = vec!["run", name];
    arguments.extend(set.iter().flat_map(|set| ["--set", *set]));
    run_sluice(folder, &arguments).expect(0).stderr
}

#[test]
fn the_demo_drive_becomes_a_dataset_with_a_camera() {
    let folder = Folder::new();
    let said = run(&folder, "demo-to-lerobot", &["SECONDS=3"]);
    assert!(said.contains("aligned: rows on the grid (31 times)"), "{said}");
    let info: serde_json::Value =
        serde_json::from_slice(&folder.read("demo-dataset/meta/info.json")).unwrap();
    assert_eq!(info["fps"], 10);
    assert_eq!(info["features"]["observation.images.front"]["dtype"], "image");
    assert_eq!(info["features"]["action"]["shape"], serde_json::json!([2]));
    let frames = info["total_frames"].as_u64().unwrap();
    assert!((29..=31).contains(&frames), "{frames}");
    is_read(&folder, "demo-dataset", &format!("1 episodes, {frames} frames, 1 tasks"));
}

#[test]
fn logs_become_datasets_and_these_one() {
    let folder = Folder::new();
    for (seed, name) in [("1", "one"), ("2", "two")] {
        let text = format!(
            "[sources.drive]\nplugin = \"demo\"\nseconds = 2\nseed = {seed}\n\n[sinks.log]\n\
             plugin = \"lcm-log\"\nfrom = \"drive\"\npath = \"logs/{name}.lcm\"\n"
        );
        folder.write("drive.toml", text);
        run_sluice(&folder, &["run", "drive.toml"]).expect(0);
    }
    let signals = ["STATE=POSE.vel, POSE.rotation_rate[2]", "ACTION=POSE.accel", "FPS=20"];
    let many = ["INPUT=logs/*.lcm", "OUT=parts/{stem}/"];
    run(&folder, "lcm-to-lerobot", &[&many[..], &signals].concat());
    let parts = ["parts/one/", "parts/two/"];
    let to = ["--from", "lerobot", "--to", "whole/", "--as", "lerobot"];
    run_sluice(&folder, &[&["convert"][..], &parts, &to].concat()).expect(0);
    let info: serde_json::Value =
        serde_json::from_slice(&folder.read("whole/meta/info.json")).unwrap();
    assert_eq!(info["total_episodes"], 2);
    assert_eq!(info["features"]["observation.state"]["shape"], serde_json::json!([4]));
    let frames = info["total_frames"].as_u64().unwrap();
    is_read(&folder, "whole", &format!("2 episodes, {frames} frames, 1 tasks"));

    let camera = ["INPUT=logs/one.lcm", "IMAGE=CAM_THUMB_RFC.image", "OUT=seen/"];
    run(&folder, "lcm-to-lerobot", &camera);
    let info = String::from_utf8(folder.read("seen/meta/info.json")).unwrap();
    assert!(info.contains("observation.images.front"), "{info}");
}

#[test]
fn a_recording_of_ros2_becomes_a_dataset() {
    let folder = Folder::new();
    let recording = root().join("tests/suite/ros/array_msgs_0.mcap");
    let input = format!("INPUT={}", recording.display());
    let state = "STATE=/one_shot/imu.orientation_covariance";
    let action = "ACTION=/one_shot/imu.angular_velocity_covariance";
    let said = run(&folder, "ros2-to-lerobot", &[&input, state, action, "TOLERANCE=2s"]);
    assert!(said.contains("its rate is lower than that of the rows (19 times)"), "{said}");
    let Some(python) = python_with("pyarrow, pandas, PIL") else { return };
    let said = check(&python, "check_dataset.py", &folder, "dataset");
    assert_eq!(said, "1 episodes, 20 frames, 1 tasks: ok\n");
}

#[test]
fn joints_and_a_camera_of_ros2_become_a_dataset() {
    let Some(python) = python_with("mcap_ros2, PIL") else { return };
    let folder = Folder::new();
    let script = root().join("tests/suite/ros/make_joints.py");
    let made = Command::new(python).arg(script).arg(folder.at("arm.mcap")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let state = "STATE=/joint_states.position, /joint_states.velocity";
    let set = ["INPUT=arm.mcap", state, "ACTION=/joint_commands.position", "FPS=20", "OUT=arm/"];
    let image = "IMAGE=/camera/image/compressed.data";
    run(&folder, "ros2-to-lerobot", &[&set[..], &[image]].concat());
    let info: serde_json::Value =
        serde_json::from_slice(&folder.read("arm/meta/info.json")).unwrap();
    let shape = |name: &str| info["features"][name]["shape"].clone();
    assert_eq!(shape("observation.state"), serde_json::json!([12]));
    assert_eq!(shape("action"), serde_json::json!([6]));
    assert_eq!(shape("observation.images.front"), serde_json::json!([48, 64, 3]));
    assert_eq!(info["total_episodes"], 1);
    // The last values are held for 200 ms.
    is_read(&folder, "arm", "1 episodes, 63 frames, 1 tasks");
}

#[test]
fn a_field_that_no_message_has_is_named_with_the_option_of_align() {
    let folder = Folder::new();
    run(&folder, "quickstart", &["SECONDS=1"]);
    let arguments =
        ["convert", "quickstart-out/drive.lcm", "--align", "10Hz", "--to", "rows.jsonl"];
    let fields = ["--field", "POSE.vel", "--field", "POSE.accell"];
    let done = run_sluice(&folder, &[&arguments[..], &fields].concat());
    assert!(done.stderr.contains("--field: no declared type has a field `accell`"));
    assert!(!done.stderr.contains("where"), "{}", done.stderr);
}

#[test]
fn rows_reach_mcap_files_from_any_log_and_are_refused_where_payloads_are_written() {
    let folder = Folder::new();
    let bag = root().join("plugins/ros/testdata/bag-plain/log.bag");
    folder.write("drive.bag", std::fs::read(bag).unwrap());
    run_sluice(&folder, &["convert", "drive.bag", "--to", "drive.mcap"]).expect(0);
    let rows = |log: &str, out: &str| {
        let fields = ["--field", "a=/scan.angle_min", "--overwrite"];
        run_sluice(
            &folder,
            &[&["convert", log, "--align", "10Hz", "--to", out], &fields[..]].concat(),
        )
    };
    let fields = |file: &str| {
        let cat = run_sluice(&folder, &["cat", file, "--json"]).expect(0);
        let text = String::from_utf8(cat.stdout).unwrap();
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| line["fields"].clone()).collect::<Vec<_>>()
    };
    for log in ["drive.bag", "drive.mcap"] {
        rows(log, "rows.mcap").expect(0);
        rows(log, "rows.parquet").expect(0);
        let expected = fields("rows.parquet");
        assert!(!expected.is_empty());
        assert_eq!(fields("rows.mcap"), expected, "{log}");
        for out in ["rows.lcm", "rows.arrow.zst"] {
            rows(log, out).expect(2).expect_stderr("which rows of --align do not have");
            assert!(!folder.at(out).exists());
        }
    }
}

#[test]
fn rows_of_channels_whose_types_are_named_have_no_payloads_either() {
    let folder = Folder::new();
    run(&folder, "quickstart", &["SECONDS=1"]);
    let rows = |out: &str, named: &[&str]| {
        let log = "quickstart-out/drive.lcm";
        let given = ["convert", log, "--align", "10Hz", "--field", "POSE.pos", "--to", out];
        run_sluice(&folder, &[&given, named].concat())
    };
    let named = ["--type", "POSE=lcmtypes.pose_t"];
    for named in [&named[..], &[]] {
        let refused = rows("rows.lcm", named).expect(2);
        refused.expect_stderr("which rows of --align do not have");
    }
    rows("rows.csv", &named).expect(0);
    rows("gone.csv", &["--type", "POSE=lcmtypes.gone_t"]).expect(2).expect_stderr("gone_t");
}

#[test]
fn rows_that_no_sink_could_write_are_a_mistake_in_a_pipeline_file() {
    let folder = Folder::new();
    run(&folder, "quickstart", &["SECONDS=1"]);
    let aligned = "[sources.log]\nplugin = \"lcm-log\"\npath = \"quickstart-out/drive.lcm\"\n\
                   [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = [\"mit-dgc\"]\n\
                   [stages.rows]\nplugin = \"align\"\nfrom = \"typed\"\nrate = \"10Hz\"\n\
                   fields = { v = \"POSE.vel\" }\n\
                   [sinks.table]\nplugin = \"jsonl\"\nfrom = \"rows\"\npath = \"rows.jsonl\"\n";
    let out = |from: &str| {
        let sink = "[sinks.out]\nplugin = \"lcm-log\"\npath = \"o.lcm\"\nfrom = ";
        folder.write("rows.toml", format!("{aligned}{sink}{from}\n"));
    };
    out("\"rows\"");
    for verb in ["check", "run"] {
        run_sluice(&folder, &[verb, "rows.toml"])
            .expect(2)
            .expect_stderr("this sink writes payloads, which events of `rows` do not have")
            .expect_stderr("rows.toml:19:8")
            .expect_stderr("put the stage `to-protobuf` before the sink");
    }
    // Stages that make no payloads change nothing.
    for stage in [
        "plugin = \"rename\"\nprefix = \"a/\"",
        "plugin = \"filter\"\nwhere = \"v > 0\"",
        "plugin = \"sample\"\nevery = 2",
    ] {
        out(&format!("\"others\"\n[stages.others]\n{stage}\nfrom = \"rows\""));
        run_sluice(&folder, &["check", "rows.toml"])
            .expect(2)
            .expect_stderr("this sink writes payloads, which events of `others` do not have");
    }
    // These write rows unless they are to write payloads.
    for sink in [
        "plugin = \"csv\"\npayload = \"hex\"\npath = \"o.csv\"",
        "plugin = \"jsonl\"\npayload = true\npath = \"o.jsonl\"",
        "plugin = \"parquet\"\npayload = \"keep\"\nlayout = \"rows\"\npath = \"o.parquet\"",
    ] {
        folder.write("rows.toml", format!("{aligned}[sinks.out]\n{sink}\nfrom = \"rows\"\n"));
        let refused = run_sluice(&folder, &["check", "rows.toml"]).expect(2);
        refused.expect_stderr("leave out `payload` of this sink, or put the stage `to-protobuf`");
    }
    out("\"messages\"\n[stages.messages]\nplugin = \"to-protobuf\"\nfrom = \"rows\"");
    run_sluice(&folder, &["run", "rows.toml"]).expect(0);
    // The events of the log have payloads.
    out("[\"rows\", \"log\"]");
    run_sluice(&folder, &["run", "rows.toml", "--overwrite"])
        .expect(3)
        .expect_stderr("which cannot be encoded; write it as a table, CSV or JSON lines");
}

#[test]
fn rows_are_cut_into_episodes_on_the_command_line() {
    let folder = Folder::new();
    run(&folder, "quickstart", &["SECONDS=3"]);
    let rows = |episodes: &[&str]| {
        let start = ["convert", "quickstart-out/drive.lcm", "--overwrite", "--align", "10Hz"];
        let field = ["--field", "vel=POSE.vel", "--to", "rows.jsonl"];
        let cut = episodes.iter().flat_map(|option| ["--episodes", *option]);
        run_sluice(&folder, &[&start[..], &field, &cut.collect::<Vec<_>>()].concat())
    };
    folder.write("times.csv", "start,end\n+0,+1\n+2,+3\n");
    rows(&["table=times.csv", "min_rows=2"]).expect(0);
    let text = String::from_utf8(folder.read("rows.jsonl")).unwrap();
    let of = |number: u64| {
        let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
        lines.filter(|line| line.as_ref().unwrap()["fields"]["episode"] == number).count()
    };
    assert_eq!(text.lines().count(), of(0) + of(1), "{text}");
    assert!(of(0) >= 9 && of(1) >= 9, "{text}");
    // A misspelt field cuts nothing, and is told.
    for episodes in ["change=vell", "change=vel[7]", "where=w > 1"] {
        rows(&[episodes]).expect(0).expect_stderr("no event has a field `");
    }
    rows(&["change=vel[0]"]).expect(0);
    let refused = rows(&["gap=-1s"]);
    assert!(refused.stderr.contains("--episodes gap: expected"), "{}", refused.stderr);
}

/// Events of a channel `A` with numbers `v`, every 50 ms between two times in milliseconds.
fn numbers(folder: &Folder, name: &str, times: std::ops::Range<u64>) {
    let lines = times.step_by(50).map(|ms| format!("{ms}000000,A,{ms}\n"));
    folder.write(name, format!("timestamp_ns,channel,v\n{}", lines.collect::<String>()));
}

#[test]
fn a_log_that_starts_more_than_a_second_earlier_begins_an_episode() {
    let folder = Folder::new();
    numbers(&folder, "a.csv", 10_000..12_001);
    for (name, start, episodes) in [("second", 11_000, 1), ("more", 10_950, 2)] {
        let next = format!("{name}.csv");
        numbers(&folder, &next, start..14_000);
        let arguments = ["convert", "a.csv", &next, "--align", "10Hz", "-f", "v=A.v"];
        let to = ["--to", name, "--as", "lerobot", "--sink-option", "task=x"];
        run_sluice(&folder, &[&arguments[..], &to].concat()).expect(0);
        let info = folder.read(&format!("{name}/meta/info.json"));
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["total_episodes"], episodes, "{name}");
    }
}

#[test]
fn the_rate_of_aligned_rows_is_that_of_the_dataset() {
    let folder = Folder::new();
    let rows = [0].into_iter().chain(11..20).map(|n| format!("{},A,{n}\n", n * 100_000_000_i64));
    let text: String = ["timestamp_ns,channel,x\n".to_owned()].into_iter().chain(rows).collect();
    folder.write("log.csv", text);
    let fps = |to: &str, more: &[&str]| {
        let arguments = ["convert", "log.csv", "--align", "10 Hz", "--tolerance", "50ms"];
        let output = ["-f", "x=A.x", "--to", to, "--as", "lerobot", "--sink-option", "task=t"];
        run_sluice(&folder, &[&arguments[..], &output, more].concat()).expect(0);
        let info = folder.read(&format!("{to}meta/info.json"));
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        (info["fps"].clone(), info["total_frames"].clone())
    };
    // The first row is an episode of one frame.
    assert_eq!(fps("set/", &[]), (10.into(), 9.into()));
    // An option comes first.
    let given = ["--sink-option", "fps=10.0001"];
    assert_eq!(fps("given/", &given).0, serde_json::json!(10.0001));
}

#[test]
fn fields_that_a_dataset_would_lose_are_refused() {
    let folder = Folder::new();
    let text = "timestamp_ns,channel,x\n0,A,1\n1,B,70\n100000000,A,2\n100000001,B,80\n";
    folder.write("log.csv", text);
    let convert = |fields: [&str; 2]| {
        let arguments = ["convert", "log.csv", "--align", "10Hz", "-f", fields[0], "-f", fields[1]];
        let to = ["--to", "lost/", "--as", "lerobot", "--sink-option", "task=x"];
        run_sluice(&folder, &[&arguments[..], &to].concat())
    };
    convert(["A", "A.x=B.x"]).expect(1).expect_stderr("the fields A.x and `A.x` would be two");
    convert(["v=A.x", "task=B.x"]).expect(1).expect_stderr("expected text in the field `task`");
    assert!(!folder.at("lost/meta").exists());
}

/// A pipeline that writes a dataset of a short drive to `set/`.
pub(crate) const DATASET: &str = "[sources.drive]\nplugin = \"demo\"\nseconds = 2\n\
    [stages.typed]\nplugin = \"decode\"\nfrom = \"drive\"\ntypes = [\"mit-dgc\"]\n\
    [stages.aligned]\nplugin = \"align\"\nfrom = \"typed\"\nrate = \"10Hz\"\n\
    fields = { action = [\"POSE.vel\"] }\n\
    [sinks.dataset]\nplugin = \"lerobot\"\nfrom = \"aligned\"\npath = \"set/\"\nfps = 10\n";

/// Its tables cannot be read alone, so that their rows are not counted: their bytes are compared.
#[test]
fn verify_finds_a_changed_file_of_a_dataset() {
    let folder = Folder::new();
    folder.write("set.toml", DATASET);
    run_sluice(&folder, &["run", "set.toml"]).expect(0);
    run_sluice(&folder, &["verify", "set"]).expect(0);
    let table = "set/data/chunk-000/file-000.parquet";
    let mut bytes = folder.read(table);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write(table, bytes);
    let text = run_sluice(&folder, &["verify", "set"]).expect(1).text();
    assert!(text.contains("file-000.parquet has the hash"), "{text}");
}
