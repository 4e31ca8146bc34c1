//! The contract of every sink, and the files of this one.

use std::process::Command;

use {{crate}} as _;

const NAME: &str = "{{name}}";
const PROGRAM: &str = env!("CARGO_BIN_EXE_{{name}}");

#[test]
fn it_keeps_the_contract_of_every_sink() {
    sluice_conformance::sink(NAME).check();
}

#[test]
fn each_event_is_a_line_with_time_source_channel_and_payload() {
    let out = format!("{}/{NAME}.txt", env!("CARGO_TARGET_TMPDIR"));
    let run = ["-q", "run", "pipeline.toml", "--overwrite", "--set"];
    let ran = Command::new(PROGRAM)
        .args(run)
        .arg(format!("OUT={out}"))
        .status();
    assert!(ran.unwrap().success());
    let text = std::fs::read_to_string(out).unwrap();
    assert!(!text.is_empty());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [time, source, channel, payload] = words[..] else {
            panic!("{line}")
        };
        assert!(time.parse::<i64>().is_ok(), "{line}");
        assert!(source == "log" && !channel.is_empty(), "{line}");
        assert!(
            payload.bytes().all(|digit| digit.is_ascii_hexdigit()),
            "{line}"
        );
    }
}
