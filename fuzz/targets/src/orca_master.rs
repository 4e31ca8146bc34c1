//! Orca logs: a master file and a subfile.

use serde_json::json;
use sluice_core::contract::gather;

use crate::given;

/// Ends the master: what follows is the subfile `a`.
const CUT: u8 = 0xfe;

/// Any bytes are a master and a subfile: no panic, damage that lies in a file, and the same for
/// any splits.
pub fn orca_master(bytes: &[u8]) {
    let (master, subfile) = given::cut_at(bytes, CUT);
    let path = given::file("m", master);
    given::file("a", subfile);
    let source = || given::source("orca", json!({ "path": path }));
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
