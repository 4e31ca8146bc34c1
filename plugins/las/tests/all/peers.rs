//! Reads our files with laspy, with and without LASzip. Needs the Python of `.cache/peers-venv`,
//! which `.ci/run` installs; otherwise prints that it is missing.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{BEGIN, CloudEvent, Point, line, write};
use serde_json::{Value, json};

/// The Python with laspy and LASzip, or `None` with a message.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("SLUICE_PEERS").map(PathBuf::from);
    let python = folder.unwrap_or_else(|| root.join(".cache/peers-venv")).join("bin/python3");
    let asked = Command::new(&python).args(["-c", "import laspy, laszip"]).output();
    if asked.is_ok_and(|asked| asked.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: there is no Python with laspy and laszip; .ci/run installs them");
    None
}

/// Prints what laspy reads from files, each with the backend that follows it: a line of JSON a
/// file.
const READ: &str = r#"
import json, sys, laspy, numpy
each = lambda values: numpy.array(values).tolist()
for file, backend in zip(sys.argv[1::2], sys.argv[2::2]):
    backend = getattr(laspy.LazBackend, backend)
    las = laspy.read(file, laz_backend=backend)
    head = las.header
    colored = "red" in las.point_format.dimension_names
    print(json.dumps({
        "version": str(head.version), "format": head.point_format.id, "count": head.point_count,
        "returns": int(head.number_of_points_by_return[0]),
        "standard": int(head.global_encoding.gps_time_type),
        "least": each(head.mins), "most": each(head.maxs), "software": head.generating_software,
        "x": each(las.x), "y": each(las.y), "z": each(las.z),
        "intensity": each(las.intensity), "source": each(las.point_source_id),
        "return": each(las.return_number), "returned": each(las.number_of_returns),
        "time": each(las.gps_time),
        "color": [each(c) for c in (las.red, las.green, las.blue)] if colored else None,
    }))
"#;

/// What laspy reads from each file with its backend. Starting Python and numpy takes longer than
/// reading, so one process reads all.
fn read_all(python: &Path, files: &[(PathBuf, &str)]) -> Vec<Value> {
    let arguments = files.iter().flat_map(|(file, backend)| [file.as_os_str(), backend.as_ref()]);
    let ran = Command::new(python).args(["-c", READ]).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let found: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(found.len(), files.len());
    found
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_near(found: &Value, expected: impl Iterator<Item = f64>, within: f64) {
    let (found, expected) = (numbers(found), expected.collect::<Vec<f64>>());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.into_iter().zip(expected) {
        assert!((found - expected).abs() <= within, "{found} {expected}");
    }
}

/// 14:00 on that day in adjusted standard GPS time, with fourteen leap seconds.
const BEGIN_GPS: f64 = -121_866_386.0;

fn assert_holds(found: &Value, points: &[Point], has_color: bool) {
    assert_eq!(found["count"], points.len());
    assert_eq!((&found["returns"], &found["standard"]), (&json!(points.len()), &json!(1)));
    assert_eq!(found["software"], concat!("Sluice ", env!("CARGO_PKG_VERSION")));
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
        let positions = || points.iter().map(|point| point.position[axis]);
        // Half a step, plus rounding.
        assert_near(&found[name], positions(), 0.000_500_001);
        let (least, most) =
            (positions().fold(f64::MAX, f64::min), positions().fold(f64::MIN, f64::max));
        assert!((numbers(&found["least"])[axis] - least).abs() <= 0.000_500_001);
        assert!((numbers(&found["most"])[axis] - most).abs() <= 0.000_500_001);
    }
    let intensity = |p: &Point| (f64::from(p.intensity.unwrap()) * 65_535.0).round();
    assert_near(&found["intensity"], points.iter().map(intensity), 0.0);
    assert_near(&found["source"], points.iter().map(|p| f64::from(p.laser)), 0.0);
    for name in ["return", "returned"] {
        assert_near(&found[name], points.iter().map(|_| 1.0), 0.0);
    }
    let time = |p: &Point| BEGIN_GPS + (p.time - BEGIN) as f64 / 1e9;
    assert_near(&found["time"], points.iter().map(time), 1e-7);
    assert_eq!(found["color"].is_array(), has_color);
    for part in (0..3).filter(|_| has_color) {
        let color = |p: &Point| f64::from(p.color.unwrap()[part]) * 256.0;
        assert_near(&found["color"][part], points.iter().map(color), 0.0);
    }
}

/// Names of files, and what reads them.
const FORMS: [(&str, &str); 3] = [("a.las", "Laszip"), ("a.laz", "Laszip"), ("a.laz", "Lazrs")];

#[test]
fn laspy_and_laszip_read_what_we_wrote() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let points = line(60_000, [-466_123.25, 3_827_431.25, 871.0]);
    let events = [
        CloudEvent("A", Some(points[..20].to_vec())),
        CloudEvent("A", Some(points[20..].to_vec())),
    ];
    let (mut files, mut expected) = (Vec::new(), Vec::new());
    for (version, formats) in [("1.2", [1, 3]), ("1.4", [6, 7])] {
        for (format, color) in formats.into_iter().zip(["drop", "keep"]) {
            for (name, backend) in FORMS {
                let path = folder.path().join(format!("{format}-{backend}-{name}"));
                write(&path, &events, json!({ "version": version, "colour": color })).unwrap();
                files.push((path, backend));
                expected.push((version, format, color == "keep"));
            }
        }
    }
    for (found, (version, format, has_color)) in read_all(&python, &files).iter().zip(expected) {
        assert_eq!((&found["version"], &found["format"]), (&json!(version), &json!(format)));
        assert_holds(found, &points, has_color);
    }
}

#[test]
fn laspy_and_laszip_open_files_without_points() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for version in ["1.2", "1.4"] {
        for (name, backend) in FORMS {
            let path = folder.path().join(format!("{version}-{backend}-{name}"));
            write(&path, &[], json!({ "version": version })).unwrap();
            files.push((path, backend));
        }
    }
    for (found, (file, backend)) in read_all(&python, &files).iter().zip(&files) {
        assert_eq!(found["count"], 0, "{} {backend}", file.display());
    }
}
