//! The contract of every source, and the events of this one.

use serde_json::json;
use sluice_kit::DelimitedSource;
use sluice_kit::contract::gather;

use {{crate}}::LogSource;

const NAME: &str = "{{name}}";
const LOG: &[u8] = include_bytes!("../testdata/drive.bin");

#[test]
fn it_keeps_the_contract_of_every_source() {
    sluice_conformance::source(NAME)
        .sample("drive.bin", LOG)
        .events(12)
        .check();
}

#[test]
fn events_have_the_times_channels_and_payloads_of_the_log() {
    let log: DelimitedSource<LogSource> =
        serde_json::from_value(json!({ "path": "testdata/drive.bin" })).unwrap();
    let read = gather(&log, u64::MAX).unwrap();
    assert_eq!((read.events.len(), read.damage), (12, vec![]));
    let second = &read.events[1];
    assert_eq!(second.timestamp, 1_194_098_400_010_000_000);
    assert_eq!(second.channel, "GPS");
    assert_eq!(second.payload, b"fix 1");
}
