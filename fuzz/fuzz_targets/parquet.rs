//! Any bytes are a Parquet file: an error or events, no panic, in little memory.

#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use sluice_core::contract::gather;
use sluice_core::{Kind, Make, Registry};
use sluice_parquet as _;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("a temporary file takes bytes");
    let registry = Registry::linked();
    let plugin = registry.get(Kind::Source, "parquet").expect("the crate is linked");
    let Make::Source(make) = plugin.make else { unreachable!("a source makes a source") };
    let source = make(json!({ "path": file.path() })).expect("a path is enough");
    match gather(&*source, 1 << 20) {
        Ok(found) => {
            for (offset, length, reason) in found.damage {
                assert!(!reason.is_empty() && offset + length <= bytes.len() as u64);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
