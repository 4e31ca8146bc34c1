//! Bags of ROS 1.

use serde_json::json;

use crate::{inputs, memory, pieces};

/// Any bytes are a bag: damage lies in the file, in order, and splits yield the same as the whole.
pub fn ros1_bag(bytes: &[u8]) {
    let bag = [b"#ROSBAG V2.0\n", bytes].concat();
    let len = bag.len();
    let path = memory::object("log.bag", bag);
    // Small, so that the fuzzer meets the limit.
    let source = inputs::source("ros1-bag", json!({ "path": path, "max_chunk": "64KiB" }));
    pieces::read(&*source, len);
}
