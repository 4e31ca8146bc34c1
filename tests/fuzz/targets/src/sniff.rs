//! Sniffing formats by the first bytes of files.

use sluice_model::SniffResult;

use crate::inputs;

/// Any bytes match some formats or none; the strongest claim comes first.
pub fn sniff(bytes: &[u8]) {
    let found = inputs::registry().sniff(bytes);
    let sure: Vec<SniffResult> = found.iter().map(|plugin| (plugin.sniff)(bytes)).collect();
    assert!(sure.is_sorted_by(|a, b| a >= b) && !sure.contains(&SniffResult::No));
    let best = inputs::registry().sniff_best(bytes);
    let best = best.map(|(sniff, plugin)| (sniff, plugin.name));
    assert_eq!(best, found.first().map(|plugin| ((plugin.sniff)(bytes), plugin.name)));
    let path = inputs::file("any", bytes);
    if let Err(error) = inputs::registry().sniff_path(&path) {
        let error = error.to_string();
        assert!(error.contains("compressed with a dictionary"), "the file can be read: {error}");
    }
}
