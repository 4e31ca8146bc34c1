//! Bags of ROS 2 in SQLite.

use serde_json::json;

use crate::{inputs, memory, pieces};

/// Any bytes are a bag, whose pages are short: damage lies in the file, and splits yield the same
/// as the whole.
pub fn ros2_db3(bytes: &[u8]) {
    let bag = [b"SQLite format 3\0\x02\0", bytes].concat();
    let len = bag.len();
    let path = memory::object("log.db3", bag);
    let source = inputs::source("ros2-db3", json!({ "path": path, "max_message": "64KiB" }));
    pieces::read_from_anywhere(&*source, len);
}
