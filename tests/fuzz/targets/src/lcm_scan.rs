//! Events and damage in LCM logs.

use sluice_lcm::fuzzing::{EventScan, ScanLimits, classify, next_event};

/// Any bytes are a log: events and damage tile it, and damage ends where an event starts.
pub fn lcm_scan(log: &[u8]) {
    // Small, so that the fuzzer meets the limit.
    let limits = ScanLimits { max_event: 4096 };
    let (mut at, len, mut after_damage) = (0, log.len() as u64, false);
    loop {
        let end = match classify(&mut &*log, at, &limits).expect("memory can be read") {
            EventScan::Event { header, end } => {
                assert_eq!(header.record_len(), Some(end - at));
                after_damage = false;
                end
            }
            EventScan::Damage { end, reason } => {
                assert!(!after_damage, "one damage follows another");
                assert!(!reason.to_string().is_empty());
                let next =
                    next_event(&mut &*log, at..u64::MAX, &limits).expect("memory can be read");
                assert_eq!(next.unwrap_or(len), end);
                after_damage = true;
                end
            }
            EventScan::End => break,
        };
        assert!(at < end && end <= len, "{at}..{end} of {len}");
        at = end;
    }
    assert_eq!(at, len);
}
