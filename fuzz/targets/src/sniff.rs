//! What tells formats by how files begin.

use sluice_core::SniffResult;

use crate::inputs;

/// Any bytes are of some formats or of none; whoever is asked first is the surest.
pub fn sniff(bytes: &[u8]) {
    let found = inputs::registry().sniff(bytes);
    let sure: Vec<SniffResult> = found.iter().map(|plugin| (plugin.sniff)(bytes)).collect();
    assert!(sure.is_sorted_by(|a, b| a >= b) && !sure.contains(&SniffResult::No));
    let path = inputs::file("any", bytes);
    inputs::registry().sniff_path(&path).expect("the file can be read");
}
