//! Reads written files back with the LAS library: every point, and all that files hold of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::kit::{
    BEGIN, CloudEvent, LasOutcome, ListKind, Point, at, batch, batch_of_numbers, context, line,
    make, one_event, run, run_on, write,
};
use arrow_array::{ArrayRef, Float64Array, TimestampNanosecondArray, UInt8Array};
use las::Reader;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_model::SinkContext;

/// The points of a file.
fn read(path: &Path) -> (las::Header, Vec<las::Point>) {
    let mut reader = Reader::from_path(path).unwrap();
    let points: Vec<las::Point> = reader.read_all().unwrap().points().map(Result::unwrap).collect();
    (reader.header().clone(), points)
}

fn assert_like(found: &las::Point, expected: &Point, has_color: bool) {
    for (found, expected) in [found.x, found.y, found.z].into_iter().zip(expected.position) {
        assert!((found - expected).abs() < 0.000_501, "{found} {expected}");
    }
    let intensity = (f64::from(expected.intensity.unwrap_or(0.0)) * 65_535.0).round() as u16;
    assert_eq!(found.intensity, intensity);
    assert_eq!(found.point_source_id, expected.laser);
    assert_eq!((found.return_number, found.number_of_returns), (1, 1));
    let gps = (expected.time - BEGIN) as f64 / 1e9 + f64::from(1_194_098_400 - 1_315_964_800 + 14);
    assert!((found.gps_time.unwrap() - gps).abs() < 1e-7);
    let color = found.color.map(|c| [c.red, c.green, c.blue]);
    let expected = expected.color.unwrap_or_default().map(|part| u16::from(part) << 8);
    assert_eq!(color, has_color.then_some(expected));
}

#[test]
fn points_round_trip_in_order_with_all_fields() {
    let folder = tempfile::tempdir().unwrap();
    let points = line(300, [-1234.5678, 77.0, 3.25]);
    let events =
        [CloudEvent("A", Some(points[..1].to_vec())), CloudEvent("B", Some(points[1..].to_vec()))];
    for version in ["1.2", "1.4"] {
        for name in ["cloud.las", "cloud.laz"] {
            for color in ["auto", "drop"] {
                let path = folder.path().join(name);
                let more = json!({ "version": version, "colour": color });
                let outcome = write(&path, &events, more).unwrap();
                assert_eq!((outcome.written, outcome.notes.len()), (2, 0), "{outcome:?}");
                let (header, found) = read(&path);
                assert_eq!(header.version().to_string(), version);
                assert_eq!((header.number_of_points(), found.len()), (300, 300));
                assert_eq!(header.number_of_points_by_return(1), Some(300));
                assert!(header.gps_time_type().is_standard());
                assert_eq!(header.has_wkt_crs(), version == "1.4");
                assert_eq!(header.transforms().x.offset, -1200.0);
                let bounds = header.bounds();
                assert!((bounds.min.x - -1234.568).abs() < 1e-9, "{bounds:?}");
                assert!((bounds.min.y - (77.0 - 149.5)).abs() < 1e-9, "{bounds:?}");
                assert!((bounds.max.z - 3.25).abs() < 1e-9, "{bounds:?}");
                for (found, expected) in found.iter().zip(&points) {
                    assert_like(found, expected, color == "auto");
                }
            }
        }
    }
}

#[test]
fn batches_and_threads_do_not_change_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<CloudEvent> = (0..60)
        .map(|n| {
            let points = line(if n == 7 { 130_000 } else { n * 10 }, [n as f64 * 100.0, 0.0, 1.0]);
            CloudEvent(if n % 3 == 0 { "A" } else { "B" }, (n % 5 != 4).then_some(points))
        })
        .collect();
    for name in ["cloud.las", "cloud.laz", "each/"] {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (cut, threads) in [(60, 1), (7, 2), (1, 8)] {
            let path = folder.path().join(format!("{cut}-{name}"));
            let (context, tasks) = (context(), TaskPool::thread_per_task(threads));
            let batches = events.chunks(cut).map(|some| batch(some, &context.channels)).collect();
            let outcome = run_on(&tasks, json!({ "path": path }), batches, &context).unwrap();
            assert_eq!((outcome.written, outcome.left_out), (48, 12));
            let bytes: Vec<Vec<u8>> = match name {
                "each/" => ["A.las", "B.las"].map(|f| fs::read(path.join(f)).unwrap()).into(),
                _ => vec![fs::read(&path).unwrap()],
            };
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{name} {cut}");
        }
    }
}

#[test]
fn several_chunks_round_trip_through_compressed_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.laz");
    let points = line(120_001, [0.0; 3]);
    write(&path, &[CloudEvent("A", Some(points.clone()))], json!({})).unwrap();
    let (_, found) = read(&path);
    assert_eq!(found.len(), points.len());
    found.iter().zip(&points).for_each(|(found, expected)| assert_like(found, expected, true));
}

#[test]
fn a_file_without_points_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cloud.las", "cloud.laz"] {
        for version in ["1.2", "1.4"] {
            let path = folder.path().join(name);
            write(&path, &[CloudEvent("POSE", None)], json!({ "version": version })).unwrap();
            let (header, points) = read(&path);
            assert_eq!((header.number_of_points(), points.len()), (0, 0));
            assert_eq!(header.bounds().max.x, 0.0);
        }
    }
}

#[test]
fn events_without_points_are_left_out_and_noted_by_channel() {
    let folder = tempfile::tempdir().unwrap();
    let events = [
        CloudEvent("POSE", None),
        CloudEvent("A", Some(line(2, [0.0; 3]))),
        CloudEvent("POSE", None),
        CloudEvent("EMPTY", Some(Vec::new())),
    ];
    let LasOutcome { written, left_out, refused, notes, .. } =
        write(&folder.path().join("cloud.las"), &events, json!({})).unwrap();
    assert_eq!((written, left_out, refused.len()), (2, 2, 0));
    let noted = "POSE: left out, no field `points`".to_owned();
    assert_eq!(notes, [(noted, 2)]);
}

#[test]
fn a_list_of_other_elements_is_not_a_list_of_points() {
    let folder = tempfile::tempdir().unwrap();
    let context = context();
    let batches = vec![batch_of_numbers(&context.channels)];
    let options = json!({ "path": folder.path().join("cloud.las") });
    let outcome = run(options, batches, &context).unwrap();
    assert_eq!((outcome.written, outcome.left_out), (0, 1));
    let noted = "N: left out, the elements of `points` have no member `x`".to_owned();
    assert_eq!(outcome.notes, [(noted, 1)]);
}

#[test]
fn a_list_of_other_elements_is_named_among_many_channels_without_points() {
    let folder = tempfile::tempdir().unwrap();
    let context = context();
    let names = "A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 C0 C1 C2 C3 C4";
    let others: Vec<CloudEvent> =
        names.split_whitespace().map(|name| CloudEvent(name, None)).collect();
    let batches = vec![batch(&others, &context.channels), batch_of_numbers(&context.channels)];
    let options = json!({ "path": folder.path().join("cloud.las") });
    let outcome = run(options, batches, &context).unwrap();
    let noted = "N: left out, the elements of `points` have no member `x`".to_owned();
    assert!(outcome.notes.contains(&(noted, 1)), "{:?}", outcome.notes);
    let rest = "left out, no points on further channels".to_owned();
    assert!(outcome.notes.contains(&(rest, 6)), "{:?}", outcome.notes);
}

#[test]
fn a_version_may_be_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let points = || [CloudEvent("A", Some(line(2, [0.0; 3])))];
    write(&path, &points(), json!({ "version": 1.2 })).unwrap();
    assert_eq!(read(&path).0.version().to_string(), "1.2");
    let error = make(json!({ "path": path, "version": 1.3 })).err().unwrap();
    assert_eq!(error.path, ["version"]);
    assert!(error.message.contains("expected `1.2` or `1.4`, found `1.3`"), "{error}");
}

#[test]
fn all_list_types_and_member_widths_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    for kind in [crate::kit::ListKind::Large, crate::kit::ListKind::Fixed] {
        let context = context();
        let batches = vec![crate::kit::wide(kind, &context.channels)];
        let outcome = run(json!({ "path": path }), batches, &context).unwrap();
        let points = read(&path).1;
        let lasers: Vec<u16> = points.iter().map(|point| point.point_source_id).collect();
        let reds: Vec<u16> = points.iter().map(|point| point.color.unwrap().red).collect();
        assert_eq!((lasers, reds), (vec![7, 0], vec![300, 0]));
        let noted: Vec<(&str, u64)> =
            outcome.notes.iter().map(|(what, n)| (what.as_str(), *n)).collect();
        assert_eq!(noted.len(), 2, "{noted:?}");
        assert!(noted[0].0.contains("`laser`") && noted[1].0.contains("colours"), "{noted:?}");
        assert_eq!(outcome.losses.len(), 1, "a time that is a plain number is reported");
    }
}

#[test]
fn nulls_are_written_as_zero_or_black_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let part = |values: [Option<u8>; 4]| Arc::new(UInt8Array::from(values.to_vec())) as ArrayRef;
    let axis = || Arc::new(Float64Array::from(vec![1.0; 4])) as ArrayRef;
    let members = vec![
        ("x", axis()),
        ("y", axis()),
        ("z", axis()),
        ("laser", part([Some(9), None, None, None])),
        ("time", Arc::new(TimestampNanosecondArray::from(vec![None, Some(BEGIN), None, None]))),
        ("intensity", part([Some(8), None, None, None])),
        ("red", part([Some(1), None, Some(4), None])),
        ("green", part([Some(2), Some(2), None, None])),
        ("blue", part([Some(3), Some(3), None, None])),
    ];
    let written = |options| {
        let context = context();
        let batches = vec![one_event(members.clone(), ListKind::Large, &context.channels)];
        run(options, batches, &context).unwrap()
    };
    let plain = written(json!({ "path": folder.path().join("plain.las"), "colour": "drop" }));
    assert_eq!(plain.notes.len(), 3, "{:?}", plain.notes);
    let outcome = written(json!({ "path": path }));
    let points = read(&path).1;
    let colours: Vec<[u16; 3]> = points
        .iter()
        .map(|point| point.color.unwrap())
        .map(|color| [color.red, color.green, color.blue])
        .collect();
    assert_eq!(colours, [[256, 512, 768], [0; 3], [0; 3], [0; 3]]);
    let numbers: Vec<(u16, u16)> =
        points.iter().map(|point| (point.point_source_id, point.intensity)).collect();
    assert_eq!(numbers, [(9, 8), (0, 0), (0, 0), (0, 0)]);
    let notes: Vec<_> = outcome.notes.iter().map(|(note, count)| (&note[..], *count)).collect();
    assert_eq!(
        notes,
        [
            ("colours of which a component is null, written as black", 2),
            ("intensities that are null, written as 0", 3),
            ("values of `laser` that are null, written as 0", 3),
            ("values of `time` that are null, replaced by the time of their event", 3),
            ("colours that are null, written as black", 1),
        ]
    );
}

#[test]
fn colours_that_are_not_written_are_not_noted_as_black() {
    let folder = tempfile::tempdir().unwrap();
    let axis = || Arc::new(Float64Array::from(vec![1.0; 2])) as ArrayRef;
    let part = || Arc::new(UInt8Array::from(vec![Some(1), None])) as ArrayRef;
    let bare = || vec![("x", axis()), ("y", axis()), ("z", axis())];
    let coloured = [bare(), vec![("red", part()), ("green", part()), ("blue", part())]].concat();
    let context = context();
    let batches =
        [bare(), coloured].map(|members| one_event(members, ListKind::Large, &context.channels));
    let options = json!({ "path": folder.path().join("cloud.las") });
    let notes = run(options, batches.into(), &context).unwrap().notes;
    let [(note, 2)] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("not written since the first points have none"), "{note}");
}

#[test]
fn a_field_without_points_is_noted_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    for (more, reason) in [
        (json!({ "points": "utime" }), "`utime` is not a list"),
        (json!({ "coordinates": ["x", "y", "alt"] }), "`points` have no member `alt`"),
        (
            json!({ "coordinates": ["x", "y", "time"] }),
            "`time` in the elements of `points` is not a number",
        ),
    ] {
        let outcome = write(&path, &[CloudEvent("A", Some(line(2, [0.0; 3])))], more).unwrap();
        assert!(outcome.notes[0].0.contains(reason), "{outcome:?}");
    }
}

#[test]
fn points_without_a_position_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let nowhere = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|x| at(1.0, x, 0.0));
    let points = [&nowhere[..], &line(2, [5.0; 3])].concat();
    let outcome = write(&path, &[CloudEvent("A", Some(points))], json!({})).unwrap();
    let noted = "points with a coordinate that is not a finite number; left out".to_owned();
    assert_eq!((outcome.written, outcome.notes), (1, vec![(noted, 3)]));
    assert_eq!(read(&path).1.len(), 2);
}

#[test]
fn members_that_files_cannot_hold_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let outcome = write(&path, &[CloudEvent("A", Some(line(2, [0.0; 3])))], json!({})).unwrap();
    assert!(outcome.losses[0].starts_with("members of points other than"), "{outcome:?}");
}

#[test]
fn an_event_that_does_not_fit_is_refused_and_the_others_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let good = || CloudEvent("A", Some(line(2, [0.0; 3])));
    let far = |x: f64| CloudEvent("A", Some(vec![at(0.0, 0.0, 0.0), at(0.0, x, 0.0)]));
    let cases = [
        (3_000_000.0, json!({ "offset": [0.0, 0.0, 0.0] }), "farther from `offset`"),
        (-1e30, json!({}), "too far out"),
        (2e10, json!({ "scale": [1e-7, 1.0, 1e-3] }), "too far out"),
    ];
    for (x, more, reason) in cases {
        let outcome = write(&path, &[far(x), good(), far(x)], more).unwrap();
        assert_eq!(outcome.written, 1);
        let places: Vec<u32> = outcome.refused.iter().map(|(event, _)| *event).collect();
        assert_eq!(places, [0, 2]);
        assert!(outcome.refused[0].1.contains(reason), "{outcome:?}");
        assert_eq!(read(&path).1.len(), 2);
    }
}

#[test]
fn an_error_out_of_reach_suggests_an_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let events = [
        CloudEvent("A", Some(line(1, [512.0, 3_827_000.0, 0.0]))),
        CloudEvent("A", Some(line(1, [0.0, 0.0, 0.0]))),
    ];
    let error = write(&path, &events, json!({})).unwrap_err().to_string();
    assert!(error.contains("the point [0.0, 0.0, 0.0] is 3827000 from"), "{error}");
    assert!(error.contains("first one, about [500.0, 3827000.0, 0.0]"), "{error}");
    assert!(error.contains("use `offset = [500.0, 1913500.0, 0.0]`"), "{error}");
    assert!(!path.exists());
    write(&path, &events, json!({ "offset": [500.0, 1_913_500.0, 0.0] })).unwrap();
    let events = [-5e6, 5e6].map(|x| CloudEvent("A", Some(vec![at(x, 0.0, 0.0)])));
    let error = write(&path, &events, json!({})).unwrap_err().to_string();
    assert!(error.contains("larger `scale`, at least 4.7e-3"), "{error}");
}

#[test]
fn large_coordinates_fit_with_the_default_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let points = line(3, [466_123.4, 3_827_431.2, 871.0]);
    write(&path, &[CloudEvent("A", Some(points.clone()))], json!({})).unwrap();
    let (header, found) = read(&path);
    assert_eq!(header.transforms().y.offset, 3_827_400.0);
    found.iter().zip(&points).for_each(|(found, expected)| assert_like(found, expected, true));
}

#[test]
fn the_first_points_decide_on_colours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let grey = |x: f64| CloudEvent("A", Some(vec![Point { color: None, ..at(x, 0.0, 0.0) }]));
    let bright = || CloudEvent("A", Some(line(2, [0.0; 3])));
    let formats = |events: &[CloudEvent], color: &str| {
        let outcome = write(&path, events, json!({ "colour": color })).unwrap();
        (read(&path).0.point_format().has_color, outcome.notes)
    };
    let (has_color, notes) = formats(&[grey(1.0), bright()], "auto");
    assert!(!has_color);
    assert_eq!(notes[0].1, 2);
    assert!(notes[0].0.contains("see `colour`"), "{notes:?}");
    assert_eq!(formats(&[bright(), grey(1.0)], "auto"), (true, Vec::new()));
    assert_eq!(formats(&[grey(1.0), bright()], "keep"), (true, Vec::new()));
    assert_eq!(formats(&[bright(), bright()], "drop"), (false, Vec::new()));
}

#[test]
fn a_folder_has_one_file_per_channel_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("each/");
    let names = ["A", "../up", "", ".hidden"];
    let events = names.map(|name| CloudEvent(name, Some(line(2, [0.0; 3]))));
    write(&path, &events, json!({ "compression": "laz" })).unwrap();
    for name in ["A", "%2E.%2Fup", "%", "%2Ehidden"] {
        assert_eq!(read(&path.join(format!("{name}.laz"))).1.len(), 2, "{name}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 5, "and the manifest");
}

#[test]
fn intensities_are_scaled_and_clamped_to_16_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.las");
    let with = |intensity: Option<f32>| Point { intensity, ..at(0.0, 0.0, 0.0) };
    let intensities = [Some(-1.0), None, Some(f32::NAN), Some(9_000.0), Some(70_000.0)];
    let events = [CloudEvent("A", Some(intensities.map(with).to_vec()))];
    let outcome = write(&path, &events, json!({ "intensity_scale": 1.0 })).unwrap();
    let found: Vec<u16> = read(&path).1.iter().map(|point| point.intensity).collect();
    assert_eq!(found, [0, 0, 0, 9_000, 65_535]);
    assert_eq!(outcome.notes.iter().map(|note| note.1).collect::<Vec<_>>(), [1, 2, 1]);
    assert!(outcome.notes[1].0.contains("below 0"), "{outcome:?}");
}

#[test]
fn outputs_that_cannot_be_rewritten_are_refused() {
    for path in ["-", "cloud.las.zst", "cloud.laz.ZST"] {
        let error = make(json!({ "path": path })).err().unwrap();
        assert_eq!(error.path, ["path"], "{path}");
        assert!(error.to_string().contains("written last"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let null = folder.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &null).unwrap();
    let error = write(&null, &[CloudEvent("A", Some(line(1, [0.0; 3])))], json!({})).unwrap_err();
    assert!(error.to_string().contains("written last"), "{error}");
}

#[test]
fn a_folder_with_too_many_files_for_memory_suggests_more() {
    let folder = tempfile::tempdir().unwrap();
    let context = SinkContext { memory: 1 << 20, ..context() };
    let events = ["A", "B"].map(|name| CloudEvent(name, Some(line(2, [0.0; 3]))));
    let batches = vec![batch(&events, &context.channels)];
    let path = format!("{}/", folder.path().display());
    let error = run(json!({ "path": path }), batches, &context).unwrap_err().to_string();
    assert!(error.contains("give more `--memory`"), "{error}");
}

#[test]
fn invalid_options_are_refused_with_their_key() {
    let wrong = [
        ("scale", json!(0)),
        ("scale", json!([1, 2])),
        ("offset", json!([1, 2, 1e300])),
        ("version", json!("1.3")),
        ("intensity_scale", json!(-1)),
        ("points", json!("a[")),
    ];
    for (key, value) in wrong {
        let mut options = json!({ "path": "x.las" });
        options[key] = value;
        assert_eq!(make(options).err().unwrap().path, [key]);
    }
}

fn any_point() -> impl Strategy<Value = Point> {
    let position = proptest::array::uniform3(prop_oneof![
        8 => -2e6..2e6f64,
        1 => any::<f64>(),
        1 => Just(f64::NAN)
    ]);
    (position, any::<Option<f32>>(), any::<u16>(), any::<i64>(), any::<Option<[u8; 3]>>()).prop_map(
        |(position, intensity, laser, time, color)| Point {
            position,
            intensity,
            laser,
            time,
            color,
        },
    )
}

proptest! {
    // Each case syncs a file to the disk.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_event_is_written_or_refused_and_positions_round_trip(
        events in proptest::collection::vec(proptest::collection::vec(any_point(), 0..6), 0..8),
        compressed in any::<bool>())
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if compressed { "cloud.laz" } else { "cloud.las" });
        let events = events.into_iter().map(|points| CloudEvent("A", Some(points)));
        let events: Vec<CloudEvent> = events.collect();
        let more: Value = json!({ "offset": [0, 0, 0] });
        let outcome = write(&path, &events, more).unwrap();
        prop_assert_eq!(outcome.written as usize + outcome.refused.len(), events.len());
        let refused = |n: usize| outcome.refused.iter().any(|(event, _)| *event as usize == n);
        let expected: Vec<[f64; 3]> = events.iter().enumerate()
            .filter(|(n, _)| !refused(*n))
            .flat_map(|(_, CloudEvent(_, points))| points.iter().flatten())
            .map(|point| point.position)
            .filter(|position| position.iter().all(|value| value.is_finite()))
            .collect();
        let found = read(&path).1;
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            for (found, expected) in [found.x, found.y, found.z].into_iter().zip(expected) {
                prop_assert!((found - expected).abs() < 0.000_501);
            }
        }
    }
}
