//! Logs for tests, and how they are read.

use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_kit::contract::{SourceContents, gather_with};
use sluice_model::{BlockPool, ReadContext, Registry, Source};
use sluice_vel::fuzzing::{
    FileHead, IMU_STATE, IndexBuilder, LASER_CONFIG, LASER_DATA, MARKER, UNUSED, append_message,
    simple_hash,
};

const ODOMETRY: &str = "OdometryM";

pub(crate) fn plugin_source(options: serde_json::Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    registry.source("vel", options).unwrap()
}

pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    plugin_source(json!({ "path": path }))
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The type, version and payload of message `n`; some payloads hold whole messages.
pub(crate) fn message(n: usize) -> (u32, i32, Vec<u8>) {
    let named =
        |rest: &[u8]| [text("brand"), text(["left", "right"][n % 2]), rest.to_vec()].concat();
    let count = n * 7 % 60;
    let values = [&(count as u32).to_le_bytes()[..], &vec![n as u8; count * 4]].concat();
    match n % 6 {
        0 => (LASER_DATA, 102, named(&[&values[..], &values, &[0; 4]].concat())),
        1 => (IMU_STATE, 102, named(&[0x31; 28])),
        2 => (LASER_DATA, 100, values),
        3 => (LASER_CONFIG, 100, named(&[n as u8; 40])),
        4 => {
            let mut inner = Vec::new();
            append_message(&mut inner, MARKER, (IMU_STATE, 102), 5.0, &named(&[0; 28])).unwrap();
            (simple_hash(ODOMETRY.as_bytes()), 3, inner)
        }
        _ => (0x1234_5678, 7, vec![n as u8; n % 50]),
    }
}

/// A log of `count` messages, ten a second, with a right index and some entries that are not used.
pub(crate) fn log(count: usize) -> Vec<u8> {
    log_of((0..count).map(|n| (n as f64 * 100.0, message(n))))
}

pub(crate) fn log_of(messages: impl Iterator<Item = (f64, (u32, i32, Vec<u8>))>) -> Vec<u8> {
    let (mut body, mut seconds) = (Vec::new(), IndexBuilder::new(1000));
    for (ms, (type_id, version, payload)) in messages {
        seconds.add_message(body.len() as u64, ms);
        append_message(&mut body, MARKER, (type_id, version), ms, &payload).unwrap();
    }
    let head = FileHead::new(seconds.positions().len() as u32 + 3);
    let places = seconds.positions().iter().map(|place| (head.body() + place) as i64);
    let entries: Vec<u8> = places.chain([UNUSED; 3]).flat_map(i64::to_le_bytes).collect();
    [&head.write()[..], &entries, &body].concat()
}

pub(crate) fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.vel");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// Reads with blocks of this size, so that small logs have many.
pub(crate) fn gathered_with_blocks(path: &Path, block: usize) -> SourceContents {
    let mut context = ReadContext::standalone("test");
    context.blocks = BlockPool::new(block, 2);
    gather_with(&*source(path), u64::MAX, &context).unwrap()
}

/// Bytes of the file that an event takes.
pub(crate) fn taken(all: &SourceContents) -> u64 {
    let events: u64 = all.events.iter().map(|event| 21 + event.payload.len() as u64).sum();
    events + all.damage.iter().map(|(_, length, _)| length).sum::<u64>()
}

pub(crate) fn body(bytes: &[u8]) -> u64 {
    FileHead::parse(bytes.first_chunk().unwrap()).unwrap().1.body()
}
