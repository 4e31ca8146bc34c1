//! The bags in `testdata`.

use sluice_ros as _;

#[test]
fn every_case_has_the_expected_events_and_damage() {
    sluice_conformance::cases(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"));
}
