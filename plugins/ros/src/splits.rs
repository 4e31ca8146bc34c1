//! Cuts a file into splits between its units, such as chunks.

use std::path::Path;

use sluice_model::Split;

/// Splits of about `target` bytes each. All but the first, which begins with the file, begin at a
/// unit. Of each unit, `units` has the position and the length in bytes.
pub(crate) fn cut(path: &Path, units: impl Iterator<Item = (u64, u64)>, target: u64) -> Vec<Split> {
    let whole = || Split::whole(path, Some(0));
    let mut splits = vec![whole()];
    for (at, len) in units {
        let Some(last) = splits.last_mut() else { continue };
        if last.bytes.is_some_and(|bytes| bytes >= target) {
            last.end = Some(at);
            splits.push(Split { start: at, ..whole() });
        }
        if let Some(Split { bytes: Some(bytes), .. }) = splits.last_mut() {
            *bytes = bytes.saturating_add(len);
        }
    }
    splits
}
