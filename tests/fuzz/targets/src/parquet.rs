//! Tables in Parquet files.

use serde_json::json;
use sluice_kit::contract::gather;

use crate::inputs;

/// Any bytes are a Parquet file: an error or events, no panic, little memory.
pub fn parquet(bytes: &[u8]) {
    let path = inputs::file("table.parquet", bytes);
    let source = inputs::source("parquet", json!({ "path": path }));
    match gather(&*source, 1 << 20) {
        Ok(found) => {
            for (offset, length, reason) in found.damage {
                assert!(!reason.is_empty() && offset + length <= bytes.len() as u64);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
