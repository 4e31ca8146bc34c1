//! LCM logs, as the source `lcm-log` reads them.

use serde_json::json;

use crate::{given, pieces};

/// Any bytes are a log whose pieces give what the whole gives, and whose damage lies in it.
pub fn lcm_log(bytes: &[u8]) {
    let path = given::file("log", bytes);
    // Small, so that the fuzzer meets the limit.
    let source = given::source("lcm-log", json!({ "path": path, "max_event": 4096 }));
    pieces::read(&*source, bytes.len()).expect("no log is refused");
}
