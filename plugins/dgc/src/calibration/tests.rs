use proptest::prelude::*;

use super::*;
use crate::geometry::Quaternion;

fn built_in() -> Calibration {
    Calibration::load(Path::new(BUILT_IN)).unwrap()
}

fn from_toml(text: &str) -> VehicleCalibration {
    Calibration::from_toml("a.toml", text).unwrap().vehicle
}

fn from_cfg(text: &str) -> VehicleCalibration {
    Calibration::from_cfg("a.cfg", text).unwrap().vehicle
}

fn toml_error(text: &str) -> String {
    Calibration::from_toml("a.toml", text).unwrap_err()
}

fn cfg_error(text: &str) -> String {
    Calibration::from_cfg("a.cfg", text).unwrap_err()
}

#[test]
fn the_built_in_vehicle_is_complete() {
    let calibration = built_in();
    assert_eq!(calibration.names().count(), 12 + 15 + 6 + 2 + 3);
    assert_eq!(calibration.cameras().len(), 6);
    let velodyne = calibration.mount("VELODYNE").unwrap();
    assert_eq!(velodyne.position, [1.56, -0.00408, 2.55]);
    let turned = Quaternion::from_roll_pitch_yaw_degrees([2.683627, -0.076601, 91.026067]);
    assert_eq!(velodyne.orientation, turned);
    assert_eq!(calibration.mask("BROOM_L"), Some([1.45, 1.6]));
    assert_eq!(calibration.mask("VELODYNE"), None);
    assert_eq!(calibration.vehicle_bounds().unwrap().rear_right, [-1.36, -1.0]);
    assert_eq!(calibration.nad83_offset(), Some([4.46e-06, -1.15e-05, -0.729]));
}

#[test]
fn a_camera_is_found_by_its_name_and_by_its_channel() {
    let calibration = built_in();
    let camera = calibration.camera("CAM_THUMB_RFC_6mm").unwrap();
    assert_eq!(camera.name, "cam_roof_fc_6mm");
    assert_eq!(calibration.camera("cam_roof_fc_6mm"), Some(camera));
    assert_eq!((camera.width, camera.height), (752, 480));
    assert_eq!(camera.pinhole.cx, 373.788212);
    let center = [-0.001310066976, -0.01458390567];
    assert_eq!(camera.distortion, Distortion::Spherical { center, param: 0.68462101929529 });
    assert_eq!(calibration.mount(&camera.name), Some(camera.mount));
}

#[test]
fn a_forward_camera_looks_ahead() {
    let camera = built_in().camera("cam_roof_fc").unwrap().mount;
    let [x, y, z] = camera.orientation.rotate([0.0, 0.0, 1.0]);
    assert!(x > 0.99 && y.abs() < 0.1 && z.abs() < 0.1, "{x} {y} {z}");
}

#[test]
fn both_languages_describe_the_same_vehicle() {
    let text = include_str!("../../testdata/mit-dgc.cfg");
    let cfg = Calibration::from_cfg("mit-dgc.cfg", text).unwrap();
    assert_eq!(cfg.vehicle, built_in().vehicle);
    assert_ne!(cfg.fingerprint(), built_in().fingerprint());
}

#[test]
fn a_mount_moves_with_its_parent() {
    let vehicle = from_toml(
        "[sensor.top]\nposition = [0, 0, 1]\nrpy = [0, 0, 0]\nrelative_to = 'middle'\n\
         [sensor.middle]\nposition = [1, 0, 0]\nrpy = [0, 90, 0]\nrelative_to = 'base'\n\
         [sensor.base]\nposition = [0, 5, 0]\nrpy = [0, 0, 90]\n",
    );
    // The middle is turned to the left with its base, so its z axis points to the left.
    let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(vehicle.mounts["middle"].position, [0.0, 6.0, 0.0]));
    assert!(near(vehicle.mounts["top"].position, [0.0, 7.0, 0.0]));
}

#[test]
fn a_cycle_of_mounts_is_refused() {
    let sensor = |name: &str, other: &str| {
        format!("[sensor.{name}]\nposition=[0,0,0]\nrpy=[0,0,0]\nrelative_to='{other}'\n")
    };
    let text = [sensor("a", "b"), sensor("b", "c"), sensor("c", "b")].concat();
    let message = toml_error(&text);
    assert!(message.contains("`b` is relative to `c`, which leads back to it"), "{message}");
    assert_eq!(message.matches("error:").count(), 1, "{message}");
    assert!(toml_error(&sensor("a", "a")).contains("which leads back to it"));
    assert!(toml_error(&sensor("a", "nowhere")).contains("unknown frame `nowhere`"));
}

#[test]
fn every_mistake_is_reported_with_its_position() {
    let message = toml_error(
        "[sensor.a]\nposition = [1, 2]\nrpy = [0, 0, 'x']\n\n[sensor.b]\nposition = [1, 2, 3]\n\
         [camera.c]\nposition = [1, inf, 3]\norientation = [0, 0, 0, 0]\nwidth = 0\nheigth = 5\n\
         pinhole = [0, 1, 0, 0, 0]\ndistortion_model = 'fish'\n[extra]\n",
    );
    for expected in [
        "expected 3 numbers as `position`, found 2",
        "--> a.toml:2:13",
        "expected a number in `rpy`, found `x`",
        "--> a.toml:3:14",
        "`b` has no orientation",
        "expected a number in `position`, found `inf`",
        "found a quaternion of length 0",
        "expected a number of pixels from 1 to 65535",
        "unknown key `heigth`",
        "`c` has no `height`",
        "expected focal lengths above 0",
        "expected `spherical` or `none`",
        "unknown key `extra`",
    ] {
        assert!(message.contains(expected), "{expected} is not in\n{message}");
    }
}

#[test]
fn the_first_line_counts_the_mistakes_below() {
    let message = toml_error("[sensor.a]\nposition = [1, 2]\nrpy = [0, 0, 0]\n");
    let (head, drawn) = message.split_once("\n\n").unwrap();
    assert_eq!(head, "1 mistake in the calibration");
    assert!(drawn.starts_with("error: expected 3 numbers as `position`, found 2\n"), "{drawn}");
    let message = cfg_error("calibration { A { position = [1]; } B { rpy = [1]; } }");
    assert!(message.starts_with("4 mistakes in the calibration\n\nerror: "), "{message}");
}

#[test]
fn mistakes_in_a_configuration_file_are_reported_with_their_positions() {
    let message =
        cfg_error("calibration {\n  A { position = [1, 2, 3]; }\n  B { rpy = [1, 2, 3]; }\n}");
    assert!(
        message.contains("`A` has no orientation") && message.contains("a.cfg:2:3"),
        "{message}"
    );
    assert!(
        message.contains("`B` has no `position`") && message.contains("a.cfg:3:3"),
        "{message}"
    );
    assert!(cfg_error("a = 1;").contains("no calibration data"));
    assert!(cfg_error("calibration { A { position = [1, 2, 3] } }").contains("expected `;`"));
}

#[test]
fn a_quaternion_takes_precedence_over_angles_and_these_over_an_axis() {
    let mount = |text: &str| {
        let text = format!("calibration {{ A {{ position = [0, 0, 0]; {text} }} }}");
        from_cfg(&text).mounts["A"].orientation
    };
    let quaternion = "orientation = [0, 0, 0, 1];";
    let (angles, axis) = ("rpy = [180, 0, 0];", "angleaxis = [1, 0, 1, 0];");
    assert_eq!(mount(&[axis, angles, quaternion].concat()), mount(quaternion));
    assert_eq!(mount(&[axis, angles].concat()), mount(angles));
    assert_eq!(mount(axis), Quaternion::from_angle_axis(1.0, [0.0, 1.0, 0.0]));
}

#[test]
fn missing_settings_of_a_group_are_inherited() {
    let vehicle = from_cfg(
        "rpy = [0, 0, 90]; calibration { relative_to = base; A { position = [1, 0, 0]; } \
         base { position = [0, 0, 5]; relative_to = body; } }",
    );
    let [x, y, z] = vehicle.mounts["A"].position;
    assert!(x.abs() < 1e-12 && (y - 1.0).abs() < 1e-12 && z == 5.0, "{x} {y} {z}");
}

#[test]
fn missing_settings_of_a_camera_are_inherited_from_its_enclosing_groups() {
    let settings = "width = 752; height = 480; rpy = [0, 0, 0];";
    let camera = "c1 { pinhole = [5, 5, 0, 1, 1]; position = [1, 2, 3]; }";
    for text in [
        format!("cameras {{ {settings} {camera} }}"),
        format!("calibration {{ cameras {{ {settings} {camera} }} }}"),
        format!("calibration {{ {settings} cameras {{ {camera} }} }}"),
        format!("{settings} cameras {{ {camera} }}"),
        format!("calibration {{ {camera} }} cameras {{ {settings} c1 {{ uid = 5; }} }}"),
    ] {
        let vehicle = from_cfg(&text);
        let sizes = vehicle.cameras.iter().map(|camera| (camera.width, camera.height));
        assert_eq!(sizes.collect::<Vec<_>>(), [(752, 480)], "{text}");
    }
    let other_settings =
        "calibration { width = 1; height = 1; } cameras { width = 2; height = 2; rpy = [0, 0, 0];";
    assert_eq!(from_cfg(&format!("{other_settings} {camera} }}")).cameras[0].width, 2);
    let elsewhere = cfg_error(&format!("calibration {{ {settings} }} cameras {{ {camera} }}"));
    assert!(elsewhere.contains("`c1` has no `width`"), "{elsewhere}");
}

#[test]
fn a_mask_may_be_given_in_the_group_of_its_scanner() {
    let vehicle = from_cfg(
        "calibration { A { position = [0, 0, 0]; rpy = [0, 0, 0]; mask = [-1, 1.5]; } \
         laser_mask { A = [7, 8]; B = [2, 3]; } }",
    );
    assert_eq!((vehicle.masks["A"], vehicle.masks["B"]), ([-1.0, 1.5], [2.0, 3.0]));
}

#[test]
fn a_file_may_have_masks_only() {
    assert_eq!(from_toml("[laser_mask]\nA = [1, 2]").masks["A"], [1.0, 2.0]);
    assert!(toml_error("").contains("no calibration data"));
}

#[test]
fn the_language_of_a_file_follows_from_its_extension_or_else_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Calibration::load(&path)
    };
    let (toml, cfg) = (BUILT_IN_TEXT, include_str!("../../testdata/mit-dgc.cfg"));
    for (name, text) in [("a.toml", toml), ("a.cfg", cfg), ("a", toml), ("b", cfg)] {
        assert_eq!(write(name, text).unwrap().vehicle, built_in().vehicle, "{name}");
    }
    assert!(write("b.toml", cfg).is_err() && write("b.cfg", toml).is_err());
    assert!(write("empty.cfg", "").unwrap_err().contains("empty.cfg"));
    assert!(
        write("long.cfg", &"#".repeat(MAX_FILE_LEN + 1)).unwrap_err().contains("longer than 1 MiB")
    );
    assert!(Calibration::load(Path::new("/nowhere/a.cfg")).unwrap_err().contains("/nowhere"));
}

#[test]
fn an_option_is_a_name_or_a_path() {
    let read = |value: serde_json::Value| serde_json::from_value::<CalibrationPath>(value);
    assert_eq!(read("mit-dgc".into()).unwrap(), CalibrationPath::default());
    assert!(CalibrationPath::default().load().is_ok());
    assert!(read(5.into()).is_err());
}

#[test]
fn too_many_sensors_are_refused() {
    let sensor = |n: usize| {
        format!("A{n} {{ position = [0, 0, 1]; rpy = [0, 0, 0]; relative_to = A{}; }}", n + 1)
    };
    let chain = |len: usize| {
        let sensors: Vec<String> = (0..len).map(sensor).collect();
        let last = format!("A{len} {{ position = [0, 0, 1]; rpy = [0, 0, 0]; }}");
        format!("calibration {{ {} {last} }}", sensors.join("\n"))
    };
    assert_eq!(from_cfg(&chain(1000)).mounts["A0"].position, [0.0, 0.0, 1001.0]);
    assert!(cfg_error(&chain(5000)).contains("more than 1024 sensors and cameras"));
}

fn changed(text: &'static str) -> impl Strategy<Value = String> {
    let change = (0..text.len(), 0..40_usize, "[-a-z0-9=;{},.#\"\\[\\] \n]{0,6}");
    prop::collection::vec(change, 1..4).prop_map(|changes| {
        let mut text = text.to_owned();
        for (at, len, new) in changes {
            let at = text.floor_char_boundary(at.min(text.len()));
            let end = text.ceil_char_boundary((at + len).min(text.len()));
            text.replace_range(at..end, &new);
        }
        text
    })
}

/// A valid calibration, or mistakes with positions.
fn is_valid_or_explained(read: Result<Calibration, String>) -> bool {
    match read {
        Ok(calibration) => {
            let numbers = calibration.vehicle.mounts.values().flat_map(|mount| mount.position);
            calibration.vehicle != VehicleCalibration::default()
                && numbers.into_iter().all(f64::is_finite)
                && calibration.cameras().iter().all(|c| calibration.mount(&c.name) == Some(c.mount))
        }
        Err(message) => message.contains("error:") && message.contains("--> a.file:"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_mutated_toml_file_is_valid_or_its_mistakes_are_reported(text in changed(BUILT_IN_TEXT)) {
        prop_assert!(is_valid_or_explained(Calibration::from_toml("a.file", &text)));
    }

    #[test]
    fn a_mutated_configuration_file_is_valid_or_its_mistakes_are_reported(
        text in changed(include_str!("../../testdata/mit-dgc.cfg")),
    ) {
        prop_assert!(is_valid_or_explained(Calibration::from_cfg("a.file", &text)));
    }
}
