//! Any bytes are a master and a subfile: no panic, damage that lies in a file, and the same for any splits.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use sluice_core::contract::gather;
use sluice_core::{Kind, Make, Registry};
use sluice_orca as _;

/// Ends the master: what follows is the subfile `a`.
const CUT: u8 = 0xfe;

fuzz_target!(|bytes: &[u8]| {
    let cut = bytes.iter().position(|byte| *byte == CUT).unwrap_or(bytes.len());
    let (master, subfile) = bytes.split_at(cut);
    let subfile = subfile.get(1..).unwrap_or_default();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m");
    fs::write(&path, master).expect("a temporary file takes bytes");
    fs::write(folder.path().join("a"), subfile).expect("a temporary file takes bytes");
    let registry = Registry::linked();
    let plugin = registry.get(Kind::Source, "orca").expect("the crate is linked");
    let _ = (plugin.sniff)(master);
    let Make::Source(make) = plugin.make else { unreachable!("a source makes a source") };
    let source = || make(json!({ "path": path })).expect("a path is enough");
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
});
