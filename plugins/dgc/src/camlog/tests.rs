use std::fs;
use std::path::{Path, PathBuf};

use jpeg_encoder::{ColorType, Encoder};
use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{SourceContents, any_splitting_is_the_same, gather, gather_with};

use super::*;

/// The camera that looks ahead.
const AHEAD: u64 = 0xb0_9d01_0062_bd06;
/// 2007-11-03T14:00:00Z.
const BEGIN: u64 = 1_194_098_400_000_000;
const MJPG: u32 = 0x4750_4a4d;

fn field(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    [&[0xed, 0xed][..], &kind.to_be_bytes(), &len.to_be_bytes(), body].concat()
}

fn format(size: [u16; 2]) -> Vec<u8> {
    let numbers = [size[0], size[1], 0].map(u16::to_be_bytes).concat();
    [numbers, MJPG.to_be_bytes().to_vec()].concat()
}

/// A frame as the vehicle's last logger wrote it.
fn frame(uid: u64, micros: u64, number: u32, image: &[u8]) -> Vec<u8> {
    let info = [
        &format([752, 480])[..],
        &micros.to_be_bytes(),
        &7u32.to_be_bytes(),
        &uid.to_be_bytes(),
        &number.to_be_bytes(),
        &0u64.to_be_bytes(),
    ];
    [field(7, &info.concat()), field(1, image)].concat()
}

/// A frame as the logger before wrote it.
fn legacy(uid: Option<u64>, micros: u64, image: &[u8]) -> Vec<u8> {
    let halves = [(micros / 1_000_000) as u32, (micros % 1_000_000) as u32, 0];
    let time = halves.map(u32::to_be_bytes).concat();
    let uid = uid.map(|uid| field(6, &uid.to_be_bytes())).unwrap_or_default();
    [field(2, &format([752, 480])), field(3, &time), uid, field(1, image)].concat()
}

struct TempLog {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn log(bytes: &[u8]) -> TempLog {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.camlog");
    fs::write(&path, bytes).unwrap();
    TempLog { path, _folder: folder }
}

fn source(path: &Path, more: Value) -> Box<dyn Source> {
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    make(options, &Registry::default()).unwrap()
}

/// Reads these bytes, with any splitting.
fn read(bytes: &[u8]) -> SourceContents {
    let log = log(bytes);
    any_splitting_is_the_same(&*source(&log.path, json!({})), &[1, 7, 50, 130, 1000])
}

/// The expected message.
fn message(micros: u64, size: [u16; 2], image: &[u8]) -> Vec<u8> {
    let len = u32::try_from(image.len()).unwrap();
    let head = [&0xcc27_dfe2_9341_1b79u64.to_be_bytes()[..], &micros.to_be_bytes()];
    [&head.concat()[..], &format(size), &len.to_be_bytes(), image].concat()
}

#[test]
fn frames_of_every_form_become_messages() {
    let later = [
        field(2, &format([10, 20])),
        field(8, &[BEGIN + 3, 41, 0].map(u64::to_be_bytes).concat()),
        field(9, &[0, 0]),
        field(1, b"third"),
    ];
    let bytes = [
        frame(AHEAD, BEGIN + 1, 40, b"first"),
        legacy(Some(AHEAD), BEGIN + 2, b"second"),
        later.concat(),
        legacy(None, BEGIN + 4, b""),
    ];
    let fourth = i64::try_from(bytes[..3].concat().len()).unwrap();
    let found = read(&bytes.concat());
    assert_eq!(found.damage, []);
    let events: Vec<_> = found
        .events
        .iter()
        .map(|e| (e.timestamp, e.sequence, &*e.channel, e.payload.clone()))
        .collect();
    let time = |micros: u64| (BEGIN + micros).cast_signed() * 1_000;
    let second = i64::try_from(bytes[0].len()).unwrap();
    assert_eq!(
        events,
        [
            (time(1), 40, "CAM_THUMB_RFC", message(BEGIN + 1, [752, 480], b"first")),
            (time(2), second, "CAM_THUMB_RFC", message(BEGIN + 2, [752, 480], b"second")),
            (time(3), 41, "CAMERA", message(BEGIN + 3, [10, 20], b"third")),
            (time(4), fourth, "CAMERA", message(BEGIN + 4, [752, 480], b"")),
        ]
    );
}

#[test]
fn dropped_fields_are_noted() {
    let comment = field(4, b"wet road");
    let bytes =
        [comment, frame(AHEAD, BEGIN, 0, b"a"), legacy(None, BEGIN, b"b"), frame(0, 1, 1, b"c")];
    let log = log(&bytes.concat());
    let notes = |options: Value| {
        let context = ReadContext::standalone("test");
        gather_with(&*source(&log.path, options), u64::MAX, &context).unwrap();
        context.losses.take_notes()
    };
    let found = notes(json!({}));
    let counts: Vec<u64> = found.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 1, 2], "{found:?}");
    assert!(
        found[2].0.contains("of which camera") && found[2].0.contains("`channel`"),
        "{found:?}"
    );
    // No note about `channel` if it is set.
    assert_eq!(notes(json!({ "channel": "CAM" })).len(), 2);
}

#[test]
fn sizes_and_times_that_become_negative_are_noted() {
    let of_size = |size| {
        let info = [&format(size)[..], &[0; 32]].concat();
        [field(7, &info), field(1, b"a")].concat()
    };
    let frames = [of_size([40000, 480]), of_size([32767, 32767]), frame(AHEAD, 1 << 63, 1, b"b")];
    let log = log(&frames.concat());
    let context = ReadContext::standalone("test");
    let found = gather_with(&*source(&log.path, json!({})), u64::MAX, &context).unwrap();
    assert_eq!((found.events.len(), found.events[0].payload[16..18].to_vec()), (3, vec![156, 64]));
    let notes = context.losses.take_notes();
    let counts = |part: &str| {
        notes.iter().filter(|note| note.0.contains(part)).map(|note| note.1).collect::<Vec<_>>()
    };
    assert_eq!(counts("above 32767"), [1], "{notes:?}");
    assert_eq!(counts("negative `utime`"), [1], "{notes:?}");
}

#[test]
fn channels_follow_from_cameras_or_the_option_channel() {
    let log = log(&[frame(AHEAD, BEGIN, 0, b"a"), frame(5, BEGIN, 1, b"b")].concat());
    let names = |options: Value| {
        let events = gather(&*source(&log.path, options), u64::MAX).unwrap().events;
        events.into_iter().map(|event| event.channel).collect::<Vec<_>>()
    };
    assert_eq!(names(json!({})), ["CAM_THUMB_RFC", "CAMERA_0000000000000005"]);
    assert_eq!(names(json!({ "channel": "CAM" })), ["CAM", "CAM"]);
    let folder = log.path.parent().unwrap();
    let text = include_str!("../../testdata/mit-dgc.cfg").replace("0xb09d010062bd06", "5");
    let (other, wrong) = (folder.join("other.cfg"), folder.join("wrong.cfg"));
    fs::write(&other, &text).unwrap();
    assert_eq!(
        names(json!({ "calibration": other })),
        ["CAMERA_00b09d010062bd06", "CAM_THUMB_RFC"]
    );
    fs::write(&wrong, text.replace("uid = \"5\"", "uid = \"five\"")).unwrap();
    let refused = make(json!({ "path": log.path, "calibration": wrong }), &Registry::default())
        .err()
        .unwrap();
    assert_eq!(refused.path, ["calibration"]);
    assert!(refused.message.contains("`five`"), "{refused:?}");
}

#[test]
fn times_beyond_64_bits_of_nanoseconds_are_kept() {
    let micros = u64::MAX - 5;
    let log = log(&frame(AHEAD, micros, 0, b"a"));
    let source = source(&log.path, json!({}));
    let split = source.splits(u64::MAX, &Query::default()).unwrap().remove(0);
    let context = ReadContext::standalone("test");
    let batch =
        source.read(&split, SplitStart::At(0), &context).unwrap().next_batch().unwrap().unwrap();
    assert_eq!(batch.wide_time(0), Some(i128::from(micros) * 1_000));
    assert_eq!(batch.payload(0), message(micros, [752, 480], b"a"));
}

#[test]
fn damage_is_reported_with_its_position_and_the_next_frame_is_read() {
    let whole = |n: u32| frame(AHEAD, BEGIN + u64::from(n), n, &[n as u8; 90]);
    let (a, b, c) = (whole(1), whole(2), whole(3));
    let len = a.len();
    let without_image = b[..50].to_vec();
    let mut no_mark = b.clone();
    no_mark[0] = 0;
    let mut long = b.clone();
    long[54..58].copy_from_slice(&u32::MAX.to_be_bytes());
    let cases: [(&str, Vec<u8>, u64, &str); 6] = [
        ("garbage", vec![7; 33], 33, "no field"),
        ("a frame without its image", without_image, 50, "another frame starts"),
        ("a frame without its front", b[50..].to_vec(), len as u64 - 50, "format and time"),
        ("a frame without its mark", no_mark, len as u64, "no field"),
        ("an image of 4 GiB", long, len as u64, "longer than 32 MiB"),
        ("a frame whose image is cut off", b[..100].to_vec(), 100, "contradicts"),
    ];
    for (what, middle, length, reason) in cases {
        let found = read(&[&a[..], &middle, &c].concat());
        let numbers: Vec<i64> = found.events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, [1, 3], "{what}: {:?}", found.damage);
        let [(offset, found_length, why)] = &found.damage[..] else {
            panic!("{what}: {:?}", found.damage)
        };
        assert_eq!((*offset, *found_length), (len as u64, length), "{what}");
        assert!(why.contains(reason), "{what}: {why}");
    }
    let cut = read(&[&a[..], &b[..len - 1]].concat());
    assert_eq!((cut.events.len(), cut.damage.len()), (1, 1), "{:?}", cut.damage);
    assert_eq!((cut.damage[0].0, cut.damage[0].1), (len as u64, len as u64 - 1));
}

#[test]
fn a_frame_between_two_damaged_ones_is_read() {
    let whole = |n: u32| frame(AHEAD, BEGIN + u64::from(n), n, &[n as u8; 90]);
    let parts = [58, 98, 120];
    for (first, second) in parts.iter().flat_map(|first| parts.map(|second| (*first, second))) {
        // Without their mark, and without what is at these places.
        let hurt =
            |n, place: usize| [&[0], &whole(n)[1..place], &[0xee], &whole(n)[place + 1..]].concat();
        let bytes = [whole(1), hurt(2, first), whole(3), hurt(4, second), whole(5)].concat();
        let found = read(&bytes);
        let numbers: Vec<i64> = found.events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, [1, 3, 5], "{first} {second}: {:?}", found.damage);
        assert_eq!(found.damage.len(), 2, "{first} {second}: {:?}", found.damage);
    }
}

#[test]
fn a_time_window_only_needs_frame_headers() {
    let frames = |n: u64| frame(AHEAD, BEGIN + n * 1_000_000, n as u32, &vec![n as u8; 80_000]);
    let log = log(&(0..20).flat_map(frames).collect::<Vec<u8>>());
    let source = source(&log.path, json!({}));
    let mut context = ReadContext::standalone("test");
    let nanos = |n: u64| Some((BEGIN + n * 1_000_000).cast_signed() * 1_000);
    context.query = Query { start: nanos(7), end: nanos(9), ..Query::default() };
    let found = gather_with(&*source, 200_000, &context).unwrap();
    let numbers: Vec<i64> = found.events.iter().map(|event| event.sequence).collect();
    assert_eq!((numbers, found.damage.len()), (vec![7, 8], 0));
}

#[test]
fn logs_are_recognised_by_their_first_field() {
    assert_eq!(sniff(&frame(1, 2, 3, b"a")), SniffResult::Yes);
    assert_eq!(sniff(&legacy(None, 2, b"a")), SniffResult::Yes);
    assert_eq!(sniff(&field(4, b"a comment")), SniffResult::Maybe);
    // The mark of an LCM log starts with the same byte.
    assert_eq!(sniff(b"\xed\xa1\xda\x01\0\0\0\0"), SniffResult::No);
    assert_eq!(sniff(&field(1, b"an image")), SniffResult::No);
    assert_eq!(sniff(&[0xed; 40]), SniffResult::No);
}

/// A picture of 16 by 10 pixels.
fn picture(shade: u8) -> Vec<u8> {
    let mut jpeg = Vec::new();
    let pixels: Vec<u8> = (0..16 * 10).map(|at| shade.wrapping_add(at)).collect();
    Encoder::new(&mut jpeg, 30).encode(&pixels, 16, 10, ColorType::Luma).unwrap();
    jpeg
}

/// `BLESS=1` writes the samples.
#[test]
fn the_samples_are_logs_of_each_form() {
    let time = |n: u64| BEGIN + n * 43_860;
    let info = |n: u64| frame(AHEAD, time(n), n as u32, &picture(20 * n as u8));
    let new = [field(4, b"forward camera"), (0..5).flat_map(info).collect()].concat();
    let old = |n: u64| legacy((n != 2).then_some(AHEAD), time(n), &picture(20 * n as u8));
    let old: Vec<u8> = (0..4).flat_map(old).collect();
    for (name, bytes, events) in [("frame-info.camlog", new, 5), ("legacy.camlog", old, 4)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/camlog").join(name);
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).unwrap() == bytes, "{name} is another");
        let found = read(&bytes);
        assert_eq!((found.events.len(), &found.damage[..]), (events, &[][..]), "{name}");
        let is_jpeg = |payload: &[u8]| {
            payload[30..].starts_with(&[0xff, 0xd8]) && payload.ends_with(&[0xff, 0xd9])
        };
        assert!(found.events.iter().all(|event| is_jpeg(&event.payload)), "{name}");
    }
}

/// A frame of any form: time, image and bytes.
fn any_frame() -> impl Strategy<Value = (u64, Vec<u8>, Vec<u8>)> {
    let image = proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xed), Just(0)], 0..60);
    (0..4u8, any::<u64>(), 0..u64::from(u32::MAX) * 1_000_000, image).prop_map(
        |(form, uid, micros, image)| {
            let bytes = match form {
                0 => frame(uid, micros, 9, &image),
                1 => legacy(Some(uid), micros, &image),
                2 => legacy(None, micros, &image),
                _ => [field(5, b"more"), frame(uid, micros, 9, &image)].concat(),
            };
            (micros, image, bytes)
        },
    )
}

proptest! {
    #[test]
    fn every_frame_comes_back(frames in proptest::collection::vec(any_frame(), 0..6)) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(_, _, bytes)| bytes.clone()).collect();
        let found = read(&bytes);
        prop_assert_eq!(&found.damage, &[]);
        let payloads: Vec<&[u8]> = found.events.iter().map(|event| &*event.payload).collect();
        let expected: Vec<Vec<u8>> = frames
            .iter()
            .map(|(micros, image, _)| message(*micros, [752, 480], image))
            .collect();
        prop_assert_eq!(payloads, expected);
    }

    #[test]
    fn a_decided_parse_does_not_change_with_more_bytes(
        (_, _, bytes) in any_frame(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = bytes;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let whole = CameraFrame::parse(&bytes);
        let mut decided = None;
        for len in 0..=bytes.len() {
            let parsed = CameraFrame::parse(&bytes[..len]);
            match &decided {
                None if parsed == ParsedFrame::More => {}
                None => decided = Some(parsed),
                Some(before) => prop_assert_eq!(before, &parsed),
            }
        }
        prop_assert_eq!(decided.unwrap_or(ParsedFrame::More), whole);
    }
}
