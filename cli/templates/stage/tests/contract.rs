//! The contract of every stage, and the events that this one keeps.

use std::process::Command;

use serde_json::{Value, json};

use {{crate}} as _;

const NAME: &str = "{{name}}";
const PROGRAM: &str = env!("CARGO_BIN_EXE_{{name}}");

#[test]
fn it_keeps_the_contract_of_every_stage() {
    sluice_conformance::stage(NAME)
        .options(json!({ "least": 16 }))
        .check();
}

#[test]
fn only_events_with_a_long_payload_pass() {
    let out = format!("{}/{NAME}.jsonl", env!("CARGO_TARGET_TMPDIR"));
    let run = ["-q", "run", "pipeline.toml", "--overwrite", "--set"];
    let ran = Command::new(PROGRAM)
        .args(run)
        .arg(format!("OUT={out}"))
        .status();
    assert!(ran.unwrap().success());
    let text = std::fs::read_to_string(out).unwrap();
    assert!(!text.is_empty());
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["size"].as_u64() >= Some(100), "{line}");
    }
}
