//! LeRobot datasets: their description, and a data file.

use std::fs;

use serde_json::json;
use sluice_kit::contract::gather;

use crate::inputs;

/// A table of one task.
const TASKS: &[u8] = include_bytes!("lerobot_tasks.parquet");

/// Any two pieces of bytes are the description and a data file of a dataset: an error or events, no
/// panic, little memory.
pub fn lerobot(bytes: &[u8]) {
    let (info, data) = inputs::cut_at(bytes, 0);
    let folder = inputs::empty_folder("dataset");
    for (name, bytes) in [("meta/info.json", info), ("data/chunk-000/file-000.parquet", data)] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a path with folders")).expect("a folder");
        fs::write(path, bytes).expect("a temporary file takes bytes");
    }
    fs::write(folder.join("meta/tasks.parquet"), TASKS).expect("a temporary file takes bytes");
    let source = inputs::source("lerobot", json!({ "path": folder }));
    match gather(&*source, 1 << 20) {
        Ok(found) => {
            for (offset, length, reason) in found.damage {
                assert!(!reason.is_empty() && offset + length <= data.len() as u64);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
