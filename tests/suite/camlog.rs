//! Camera logs compared with the LCM logs of the same drive: stages for images accept both.

use serde_json::Value;

use crate::kit::{Folder, LcmEvent, ProgramOutput, events, root, run_sluice, sluice};

/// The forward camera.
const UID: u64 = 0xb0_9d01_0062_bd06;
/// The number of bytes of a frame before its image.
const FRONT: usize = 58;

fn field(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    [&[0xed, 0xed][..], &kind.to_be_bytes(), &len.to_be_bytes(), body].concat()
}

/// The frame with the contents of an `image_t` message.
fn frame(number: u32, message: &[u8]) -> Vec<u8> {
    let (time, shape, image) = (&message[8..16], &message[16..26], &message[30..]);
    let bus_time = 0u32.to_be_bytes();
    let rest = [&UID.to_be_bytes()[..], &number.to_be_bytes(), &[0; 8]].concat();
    let info = [shape, time, &bus_time, &rest].concat();
    [field(7, &info), field(1, image)].concat()
}

/// A folder with a demo drive, `drive.lcm`; a log of its forward camera only, `thumbs.lcm`; and the
/// same images as a camera log, `forward.camlog`.
fn demo_drive_with_camlog() -> (Folder, Vec<LcmEvent>) {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=1.2", "--set", "OUT=quick"])
        .expect(0);
    std::fs::rename(folder.at("quick/drive.lcm"), folder.at("drive.lcm")).unwrap();
    let forward = ["--channel", "CAM_THUMB_RFC", "--to", "thumbs.lcm"];
    run_sluice(&folder, &[&["convert", "drive.lcm"][..], &forward].concat()).expect(0);
    let images = events(&folder.read("thumbs.lcm"));
    let frames = (0..).zip(&images).map(|(n, image)| frame(n, &image.payload));
    folder.write("forward.camlog", frames.flatten().collect::<Vec<u8>>());
    (folder, images)
}

fn payloads(events: &[LcmEvent]) -> Vec<(String, &[u8])> {
    let each = events.iter();
    each.map(|e| (String::from_utf8_lossy(&e.channel).into_owned(), &*e.payload)).collect()
}

#[test]
fn a_camera_log_becomes_the_messages_that_small_images_come_in() {
    let (folder, images) = demo_drive_with_camlog();
    run_sluice(&folder, &["convert", "forward.camlog", "--to", "out.lcm"]).expect(0);
    let found = events(&folder.read("out.lcm"));
    assert_eq!(payloads(&found), payloads(&images));
    // The time of an event is when the image was taken.
    let taken = |event: &LcmEvent| i64::from_be_bytes(*event.payload[8..].first_chunk().unwrap());
    assert!(found.iter().all(|event| event.utime == taken(event)));
    let info = run_sluice(&folder, &["info", "forward.camlog", "--json"]).expect(0).text();
    let info: Value = serde_json::from_str(&info).unwrap();
    assert!(info.to_string().contains("lcmtypes.image_t"), "{info}");
    assert!(info.to_string().contains("CAM_THUMB_RFC"), "{info}");
    // Its types are built in.
    let cat = run_sluice(&folder, &["cat", "forward.camlog", "--limit", "1"]).expect(0).text();
    assert!(cat.contains("width") && cat.contains("376"), "{cat}");
}

#[test]
fn pipes_and_compressed_camera_logs_are_read_too() {
    let (folder, images) = demo_drive_with_camlog();
    let packed = zstd::encode_all(&folder.read("forward.camlog")[..], 1).unwrap();
    folder.write("forward.camlog.zst", packed);
    run_sluice(&folder, &["convert", "forward.camlog.zst", "--to", "packed.lcm"]).expect(0);
    let mut piped = sluice(&folder);
    let input = std::fs::File::open(folder.at("forward.camlog")).unwrap();
    piped.args(["convert", "-", "--to", "piped.lcm"]).stdin(input);
    ProgramOutput::from_output(piped.output().unwrap()).expect(0);
    for name in ["packed.lcm", "piped.lcm"] {
        assert_eq!(payloads(&events(&folder.read(name))), payloads(&images), "{name}");
    }
}

#[test]
fn the_image_pipelines_give_the_same_output_for_a_camera_log() {
    let (folder, images) = demo_drive_with_camlog();
    let run = |input: &str, out: &str, more: &[&str]| {
        let (input, out) = (format!("INPUT={input}"), format!("OUT={out}"));
        let set = ["run", "dgc-images", "--set", &input, "--set", &out, "--set", "FORMAT=text"];
        run_sluice(&folder, &[&set[..], more].concat()).expect(0);
    };
    run("thumbs.lcm", "small", &[]);
    run("forward.camlog", "full", &["--set", "SOURCE=camlog"]);
    let names = String::from_utf8(folder.read("small/index.txt")).unwrap();
    assert_eq!(names.lines().count(), images.len());
    assert_eq!(String::from_utf8(folder.read("full/index.txt")).unwrap(), names);
    for name in names.lines() {
        let read = |from: &str| folder.read(&format!("{from}/{name}"));
        assert!(read("full") == read("small"), "{name}");
    }
}

#[test]
fn pictures_of_cameras_that_are_not_in_the_calibration_are_written_too() {
    let (folder, images) = demo_drive_with_camlog();
    folder.write("none.toml", "[sensor.FRONT]\nposition = [1, 0, 0]\nrpy = [0, 0, 0]\n");
    let text = include_str!("../../pipelines/library/dgc-images.toml");
    let source = "[sources.log]\ncalibration = \"none.toml\"";
    folder.write("images.toml", text.replacen("[sources.log]", source, 1));
    let set = ["SOURCE=camlog", "INPUT=forward.camlog", "OUT=out", "FORMAT=text"];
    let mut arguments = vec!["run", "images.toml"];
    set.iter().for_each(|set| arguments.extend(["--set", set]));
    run_sluice(&folder, &arguments).expect(0);
    let names = String::from_utf8(folder.read("out/index.txt")).unwrap();
    assert_eq!(names.lines().count(), images.len());
    assert!(names.lines().all(|name| name.starts_with("CAMERA")), "{names}");
}

/// Runs a stage on the images of the camera log and of the LCM log, and returns both outputs.
fn run_stage_on_both(folder: &Folder, stage: &str) -> [String; 2] {
    [("camlog", "forward.camlog"), ("lcm-log", "thumbs.lcm")].map(|(plugin, path)| {
        let pipeline = format!(
            "[sources.images]\nplugin = \"{plugin}\"\npath = \"{path}\"\n\
             [stages.made]\nfrom = \"images\"\n{stage}\n\
             [sinks.out]\nplugin = \"jsonl\"\nfrom = \"made\"\npath = \"{plugin}.jsonl\"\n"
        );
        folder.write("stage.toml", pipeline);
        run_sluice(folder, &["run", "stage.toml", "--overwrite"]).expect(0);
        let lines = String::from_utf8(folder.read(&format!("{plugin}.jsonl"))).unwrap();
        let value = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let fields = lines.lines().map(|line| value(line)["fields"].to_string());
        fields.collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn camera_stages_give_the_same_output_for_a_camera_log() {
    let (folder, images) = demo_drive_with_camlog();
    for stage in [
        "plugin = \"unproject\"\nheight = 0.0\nevery = 40\nmax_range = 60.0",
        "plugin = \"undistort\"",
        "plugin = \"decode\"\ntypes = \"mit-dgc\"",
    ] {
        let [of_camera_log, of_log] = run_stage_on_both(&folder, stage);
        assert_eq!(of_camera_log.lines().count(), images.len(), "{stage}");
        assert!(of_camera_log.len() > 100 * images.len(), "{stage}: {of_camera_log:.200}");
        assert!(of_camera_log == of_log, "{stage}");
    }
}

#[test]
fn points_get_colours_from_a_camera_log_beside_the_drive() {
    let (folder, _) = demo_drive_with_camlog();
    folder.write(
        "paint.toml",
        "[sources.drive]\nplugin = \"lcm-log\"\npath = \"drive.lcm\"\n\
         [stages.sensors]\nplugin = \"filter\"\nfrom = \"drive\"\nexclude = [\"CAM_*\"]\n\
         [sources.images]\nplugin = \"camlog\"\npath = \"forward.camlog\"\n\
         [stages.points]\nplugin = \"velodyne\"\nfrom = [\"sensors\", \"images\"]\n\
         [stages.local]\nplugin = \"to-frame\"\nfrom = \"points\"\n\
         [stages.seen]\nplugin = \"camera\"\nfrom = \"local\"\ncameras = [\"cam_roof_fc\"]\n\
         unseen = \"drop\"\n\
         [stages.clouds]\nplugin = \"filter\"\nfrom = \"seen\"\nchannels = [\"VELODYNE\"]\n\
         [sinks.out]\nplugin = \"csv\"\nfrom = \"clouds\"\npath = \"points.csv\"\n\
         unnest = \"points\"\n",
    );
    let ran = run_sluice(&folder, &["run", "paint.toml"]);
    assert!(ran.code == Some(0), "{}", ran.stderr);
    let csv = String::from_utf8(folder.read("points.csv")).unwrap();
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let red = head.iter().position(|name| name.ends_with("red")).expect("points have colours");
    let reds = csv
        .lines()
        .skip(1)
        .filter(|line| line.split(',').nth(red).is_some_and(|red| !red.is_empty()));
    assert!(reds.count() > 100, "{csv:.300}");
}

#[test]
fn damage_is_reported_with_file_and_offset_and_costs_one_image() {
    let (folder, images) = demo_drive_with_camlog();
    let mut bytes = folder.read("forward.camlog");
    let second = FRONT + images[0].payload.len() - 30;
    // The length of the second image.
    bytes[second + FRONT - 4] = 0x7f;
    folder.write("bad.camlog", &bytes);
    let convert = ["convert", "bad.camlog", "--to", "out.lcm", "--report", "report.json"];
    run_sluice(&folder, &convert).expect(3);
    let mut kept = payloads(&images);
    kept.remove(1);
    assert_eq!(payloads(&events(&folder.read("out.lcm"))), kept);
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let damage = &report["damage"][0];
    assert_eq!(damage["offset"], second as u64, "{report:#}");
    assert!(damage["input"].to_string().contains("bad.camlog"), "{report:#}");
    assert!(damage["reason"].to_string().contains("longer than 32 MiB"), "{report:#}");
}

#[test]
fn the_legacy_form_is_recognised_and_read() {
    let folder = Folder::new();
    let sample = root().join("plugins/dgc/testdata/camlog/legacy.camlog");
    // Whatever its name.
    folder.write("old.log", std::fs::read(sample).unwrap());
    let ran = run_sluice(&folder, &["convert", "old.log", "--to", "out.lcm"]).expect(0);
    ran.expect_stderr("do not say of which camera");
    let channels: Vec<String> = events(&folder.read("out.lcm"))
        .iter()
        .map(|e| String::from_utf8_lossy(&e.channel).into())
        .collect();
    assert_eq!(channels, ["CAM_THUMB_RFC", "CAM_THUMB_RFC", "CAMERA", "CAM_THUMB_RFC"]);
}
