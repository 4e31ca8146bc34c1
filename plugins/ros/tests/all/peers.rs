//! Compares with PyPI `rosbags`: messages of both generations, field for field, and bags. Needs the
//! Python of `.cache/peers-venv`, which `.ci/run` installs; otherwise prints that it is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_kit::contract::gather;
use sluice_kit::json::JsonRows;
use sluice_model::{
    BatchBuilder, Channel, ChannelId, EmbeddedSchema, Encoding, KnownType, Name, PayloadType,
    Registry,
};

/// The Python with rosbags, or `None` with a message.
pub(crate) fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("SLUICE_PEERS").map(PathBuf::from);
    let python = folder.unwrap_or_else(|| root.join(".cache/peers-venv")).join("bin/python3");
    let asked = Command::new(&python).args(["-c", "import rosbags"]).output();
    if asked.is_ok_and(|asked| asked.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: there is no Python with rosbags; .ci/run installs it");
    None
}

/// Prints messages that rosbags makes of many types: text, payload, and values.
const MESSAGES: &str = include_str!("../messages.py");

/// The JSON that rows and rosbags have in common: floats by their digits, all bytes in base64.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Object(all) => {
            Value::Object(all.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        other => other.clone(),
    }
}

/// The type that a channel declares.
fn declared(language: &str, name: &str, text: &str) -> KnownType {
    let (codec, encoding) = match language {
        "ros1msg" => ("ros1", Encoding::Ros1),
        _ => ("ros2", Encoding::Cdr),
    };
    let codec = Registry::linked().codec(codec, json!({})).unwrap();
    let mut channel = Channel::new(Name::from_text("/topic"), "log", encoding);
    channel.type_name = Some(name.into());
    channel.schema =
        Some(EmbeddedSchema { encoding: language.into(), data: text.as_bytes().into() });
    codec.embedded(&channel).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// The row of a payload as JSON.
fn row(of: &PayloadType, payload: &[u8]) -> Value {
    let mut batch = BatchBuilder::default();
    batch.push_copy(0, 0, ChannelId(0), payload);
    let mut bad = Vec::new();
    let all = of.decode_all(&batch.finish(), &[0], &mut bad).unwrap();
    assert_eq!(bad, []);
    let mut row = Vec::new();
    JsonRows::new(&all[0].columns).unwrap().write(0, &mut row);
    serde_json::from_slice(&row).unwrap()
}

#[test]
fn messages_have_the_values_that_rosbags_gives_them() {
    let Some(python) = python() else { return };
    let ran = Command::new(python).args(["-c", MESSAGES]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let mut count = 0;
    for line in str::from_utf8(&ran.stdout).unwrap().lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| message[key].as_str().unwrap();
        let name = text("name");
        let payload = bytes(text("payload"));
        let mut texts = vec![(format!("{}msg", text("generation")), text("text"))];
        texts.extend(message["idl"].as_str().map(|idl| ("ros2idl".to_owned(), idl)));
        for (language, text) in texts {
            let of = declared(&language, name, text).payload_type;
            let of = of.unwrap_or_else(|why| panic!("{name} in {language}: {why}"));
            assert_eq!(plain(&row(&of, &payload)), plain(&message["values"]), "{name}");
        }
        count += 1;
    }
    assert!(count > 300, "{count} messages");
}

/// Prints the messages of a bag as rosbags reads it.
const READ: &str = r#"
import json, sys
from rosbags.rosbag1 import Reader
with Reader(sys.argv[1]) as bag:
    for connection, time, data in bag.messages():
        print(json.dumps([connection.topic, time, bytes(data).hex()]))
"#;

#[test]
fn bags_have_the_messages_that_rosbags_reads() {
    let Some(python) = python() else { return };
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case);
        let path = folder.join("log.bag");
        let ran = Command::new(&python).args(["-c", READ]).arg(&path).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let read = |line: &str| -> (String, i64, String) { serde_json::from_str(line).unwrap() };
        let mut expected: Vec<_> = str::from_utf8(&ran.stdout).unwrap().lines().map(read).collect();
        let source = Registry::linked().source("ros1-bag", json!({ "path": path })).unwrap();
        let found = gather(&*source, u64::MAX).unwrap().events.into_iter();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let mut found: Vec<_> =
            found.map(|event| (event.channel, event.timestamp, hex(&event.payload))).collect();
        // Ours are in the order of the file.
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }
}
