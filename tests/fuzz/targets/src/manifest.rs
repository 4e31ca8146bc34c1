//! Manifests of folders, and records of batches.

use std::fs;

use sluice_io::output::MANIFEST;
use sluice_pipeline::batch::{BatchRecord, JOURNAL, UnitRecord};
use sluice_pipeline::manifest::Manifest;

use crate::inputs;

/// Any bytes are a manifest and the journal of a batch: nothing panics, what was read round-trips,
/// and a truncated line affects no other.
pub fn manifest(bytes: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<Manifest>(bytes) {
        let text = serde_json::to_string(&read).expect("it was read");
        let again: Manifest = serde_json::from_str(&text).expect("it was written");
        assert_eq!(serde_json::to_string(&again).expect("it was read"), text);
    }
    let folder = inputs::empty_folder("record");
    let (record, journal) = inputs::cut_at(bytes, 0);
    fs::write(folder.join(MANIFEST), record).expect("a temporary file takes bytes");
    fs::write(folder.join(JOURNAL), journal).expect("a temporary file takes bytes");
    let Ok(Some(read)) = BatchRecord::read(&folder) else { return };
    assert!(read.is_open);
    assert_eq!(read.latest_first().count(), read.units.len() + read.journal.units.len());
    let lines: Vec<String> = read.journal.units.iter().map(line).collect();
    let with_a_cut_line = [&lines.concat(), "{\"pipeline\":\"x"].concat();
    fs::write(folder.join(JOURNAL), with_a_cut_line).expect("a temporary file takes bytes");
    let again = BatchRecord::read(&folder).expect("it was read").expect("it is there");
    assert_eq!((again.units, again.journal.units), (read.units, read.journal.units));
}

fn line(unit: &UnitRecord) -> String {
    serde_json::to_string(unit).expect("it was read") + "\n"
}
