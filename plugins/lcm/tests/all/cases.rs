//! The logs in `testdata`, and pieces of logs in archives.

use sluice_lcm as _;

#[test]
fn every_case_has_the_expected_events_and_damage() {
    sluice_conformance::cases(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"));
}

#[test]
fn pieces_of_logs_keep_their_events() {
    sluice_conformance::byte_format("lcm-log");
}
