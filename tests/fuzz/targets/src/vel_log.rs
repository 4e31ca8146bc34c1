//! VEL logs and their indexes.

use serde_json::json;
use sluice_kit::contract::gather;
use sluice_vel::fuzzing::{
    DeletedMessages, FileHead, FileStart, MessageScan, Rules, check_index, classify, narrow,
    read_start,
};

use crate::inputs;

/// Scans the messages of a log.
fn is_tiled(log: &[u8], from: u64, rules: &Rules) {
    let (mut at, len) = (from, log.len() as u64);
    loop {
        let end = match classify(&mut &*log, at, rules).expect("memory can be read") {
            MessageScan::Message { header, end } => {
                assert_eq!(header.message_len(), end - at);
                end
            }
            MessageScan::Damage { end, reason } => {
                assert!(!reason.to_string().is_empty());
                end
            }
            MessageScan::End => break,
        };
        assert!(at < end && end <= len, "{at}..{end} of {len}");
        at = end;
    }
}

/// Reads a file whole and in splits.
fn is_the_same_in_pieces(log: &[u8], target: u64) {
    let path = inputs::file("log.vel", log);
    let source = inputs::source("vel", json!({ "path": path, "max_message": 4096 }));
    let Ok(whole) = gather(&*source, u64::MAX) else { return };
    assert_eq!(gather(&*source, target).expect("it was read before"), whole);
}

/// Any bytes are a log: events and damage tile it, however it is split; and its index is checked.
pub fn vel_log(data: &[u8]) {
    let Some((kind, log)) = data.split_first() else { return };
    // Small, so that the fuzzer meets the limit.
    let mut rules = Rules { max_message: 4096, ..Rules::default() };
    if kind % 2 == 0 {
        rules.deleted = DeletedMessages::Keep;
    }
    let with_head = [&FileHead::new(u32::from(kind % 4)).write()[..], log].concat();
    let mut read = &with_head[..];
    if let FileStart::Sound { body, .. } | FileStart::Marred { body, .. } =
        read_start(&mut read, &rules).expect("memory can be read")
    {
        is_tiled(&with_head, body, &rules);
    }
    is_tiled(log, 0, &rules);
    check_index(&mut read, &rules).expect("memory can be read");
    narrow(&mut read, (Some(1e3), Some(5e3)), with_head.len() as u64, &rules)
        .expect("memory can be read");
    is_the_same_in_pieces(&with_head, 1 + u64::from(*kind));
}
