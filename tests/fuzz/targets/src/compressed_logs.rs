//! Logs in several compressed frames, some of them damaged, as the sources of their formats read
//! them.

use std::io::Write;
use std::sync::OnceLock;

use serde_json::json;
use sluice_kit::contract::{PlainEvent, SourceContents, gather};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Document, Pipeline, Variables};

use crate::inputs;

/// The formats, with options of their sinks, and whether the frames of one can be read without
/// those before them.
const FORMATS: [(&str, &str, bool); 6] = [
    ("lcm-log", "", true),
    ("jsonl", "payload = true", true),
    ("vel", "", false),
    ("csv", "", false),
    ("mcap", "chunk = \"4KiB\"", false),
    ("ros1-bag", "", false),
];

/// A bag without its first line: no sink writes any.
const BAG: &[u8] = include_bytes!("../../seeds/ros1_bag/plain");

/// A log of each format.
fn log(which: usize) -> &'static [u8] {
    static LOGS: [OnceLock<Vec<u8>>; FORMATS.len()] = [const { OnceLock::new() }; FORMATS.len()];
    LOGS[which].get_or_init(|| match FORMATS[which] {
        ("ros1-bag", ..) => [b"#ROSBAG V2.0\n", BAG].concat(),
        (format, options, _) => written(format, options),
    })
}

/// A second of a drive, written in this format.
fn written(format: &str, options: &str) -> Vec<u8> {
    let path = inputs::empty_folder("drive").join("log");
    let text = format!(
        "[sources.demo]\nplugin = \"demo\"\nseconds = 1.0\n\
         [stages.few]\nplugin = \"filter\"\nfrom = \"demo\"\n\
         channels = [\"POSE\", \"GPS_TO_LOCAL\", \"LOGGER_STRING\"]\n\
         [sinks.out]\nplugin = \"{format}\"\nfrom = \"few\"\npath = {path:?}\n{options}"
    );
    let document = Document::generated("the log", text);
    let pipeline = Pipeline::read(&document, &Variables::default(), inputs::registry());
    let pipeline = pipeline.expect("the pipeline is right");
    run::run(pipeline, &Options::default()).expect("the log is written");
    std::fs::read(path).expect("the log is there")
}

/// The log in frames that hold this much each.
fn compress(log: &[u8], len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in log.chunks(len) {
        let mut frame = zstd::Encoder::new(&mut all, 1).expect("a level that there is");
        frame.include_checksum(true).expect("frames have checksums");
        frame.write_all(piece).and_then(|()| frame.finish().map(drop)).expect("memory can grow");
    }
    all
}

/// Damages bytes as an edit of four bytes says: where, what, and how.
fn damage(bytes: &mut Vec<u8>, edit: [u8; 4]) {
    let [low, high, what, how] = edit;
    if bytes.is_empty() {
        return;
    }
    let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
    match what % 4 {
        0 | 1 => bytes[at] ^= how,
        2 => drop(bytes.drain(at..(at + usize::from(how)).min(bytes.len()))),
        _ => bytes.truncate(at.max(1)),
    }
}

fn read(format: &str, bytes: &[u8]) -> Option<SourceContents> {
    let mut options = json!({ "path": inputs::file("log", bytes) });
    if format == "csv" {
        options["channel_column"] = json!("channel");
    }
    let mut found = gather(&*inputs::source(format, options), u64::MAX).ok()?;
    // Those of the events that are there.
    found.events.iter_mut().for_each(|event| event.sequence = 0);
    Some(found)
}

fn is_within(part: &[PlainEvent], all: &[PlainEvent]) -> bool {
    let mut all = all.iter();
    part.iter().all(|event| all.any(|other| other == event))
}

/// A log of a format in frames.
struct PackedLog {
    bytes: Vec<u8>,
    events: Vec<PlainEvent>,
}

impl PackedLog {
    /// Every log, in frames of eight lengths, is made once.
    fn of(which: usize, len: usize) -> &'static Self {
        static LOGS: [OnceLock<PackedLog>; 8 * FORMATS.len()] =
            [const { OnceLock::new() }; 8 * FORMATS.len()];
        LOGS[which * 8 + len].get_or_init(|| {
            let bytes = compress(log(which), 64 << len);
            let found = read(FORMATS[which].0, &bytes).expect("a sound log is read");
            assert_eq!(found.damage, []);
            Self { bytes, events: found.events }
        })
    }
}

/// A log of a format, in frames, with these edits: unless frames can be missing as a whole, what is
/// missing or altered is reported. After a single edit nothing that is compressed is altered unless
/// the damage says that it may be, and what follows the damaged frame is read.
pub fn compressed_logs(bytes: &[u8]) {
    let Some(([which, len], edits)) = bytes.split_first_chunk() else { return };
    let which = usize::from(*which) % FORMATS.len();
    let (format, _, is_independent) = FORMATS[which];
    let sound = PackedLog::of(which, usize::from(len % 8));
    let mut packed = sound.bytes.clone();
    let edits = edits.as_chunks().0;
    let edits = &edits[..edits.len().min(8)];
    edits.iter().for_each(|edit| damage(&mut packed, *edit));
    let Some(found) = read(format, &packed) else { return };
    let has_all = packed.len() == sound.bytes.len();
    assert!(
        found.events == sound.events || !found.damage.is_empty() || !has_all,
        "{} of {} events are there, and no damage is reported",
        found.events.len(),
        sound.events.len()
    );
    // Without its first bytes, a file is not compressed.
    let first = packed.iter().zip(&sound.bytes).position(|(a, b)| a != b);
    let ([[_, _, 0 | 1 | 4 | 5, _]], Some(first @ 4..)) = (edits, first) else { return };
    let is_told = found.damage.iter().any(|(.., why)| why.contains("may be wrong"));
    assert!(is_told || is_within(&found.events, &sound.events), "an event is altered");
    if is_independent && first < packed.len() / 4 && 64 << (len % 8) < log(which).len() / 4 {
        assert_eq!(found.events.last(), sound.events.last(), "what follows is read");
    }
}
