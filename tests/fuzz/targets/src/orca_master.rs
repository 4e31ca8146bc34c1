//! Orca logs: a master file and a subfile.

use serde_json::json;
use sluice_kit::contract::gather;

use crate::inputs;

/// Ends the master: what follows is the subfile `a`.
const CUT: u8 = 0xfe;

/// Any bytes are a master and a subfile: no panic, damage lies in a file, and all splits yield the
/// same.
pub fn orca_master(bytes: &[u8]) {
    let (master, subfile) = inputs::cut_at(bytes, CUT);
    let path = inputs::file("m", master);
    inputs::file("a", subfile);
    let source = || inputs::source("orca", json!({ "path": path }));
    let longest = master.len().max(subfile.len()) as u64;
    match gather(&*source(), u64::MAX) {
        Ok(found) => {
            for (offset, length, reason) in &found.damage {
                assert!(!reason.is_empty() && offset + length <= longest);
            }
            let pieces = gather(&*source(), 64).expect("what is read whole is read in pieces");
            assert_eq!(found, pieces);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
