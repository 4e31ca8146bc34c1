//! LCM logs, as the source `lcm-log` reads them.

use serde_json::json;
use sluice_lcm::fuzzing::SYNC;

use crate::{inputs, pieces};

/// Any bytes are a log: splits yield the same as the whole, and damage lies in it. Text and other
/// formats may be refused, but nothing that starts like a log.
pub fn lcm_log(bytes: &[u8]) {
    let path = inputs::file("log", bytes);
    // Small, so that the fuzzer meets the limit.
    let source = inputs::source("lcm-log", json!({ "path": path, "max_event": 4096 }));
    let read = pieces::read(&*source, bytes.len());
    assert!(read.is_some() || !bytes.starts_with(&SYNC), "no log is refused");
}
