//! The contract of every codec, and the columns of this one.

use std::process::Command;

use serde_json::{Value, json};
use sluice_model::Encoding;

use {{crate}} as _;

const NAME: &str = "{{name}}";
const PROGRAM: &str = env!("CARGO_BIN_EXE_{{name}}");

/// Count 7, acceleration 0, 0.5 and 9.75, temperature -3.
const PAYLOAD: &[u8] = b"\x07\0\0\0\0\0\0\0\0\0\0\x3f\0\0\x1c\x41\xfd\xff";

#[test]
fn it_keeps_the_contract_of_every_codec() {
    sluice_conformance::codec(NAME)
        .payload("IMU", Encoding::Unknown, PAYLOAD)
        .check();
}

#[test]
fn payloads_become_their_fields() {
    let out = format!("{}/{NAME}.jsonl", env!("CARGO_TARGET_TMPDIR"));
    let run = ["-q", "run", "pipeline.toml", "--overwrite", "--set"];
    let ran = Command::new(PROGRAM)
        .args(run)
        .arg(format!("OUT={out}"))
        .status();
    assert!(ran.unwrap().success());
    let text = std::fs::read_to_string(out).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let fields = json!({ "count": 7, "acceleration": [0.0, 0.5, 9.75], "temperature": -3 });
    assert_eq!(first["fields"], fields);
}
