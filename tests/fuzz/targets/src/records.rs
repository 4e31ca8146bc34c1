//! Logs of described formats, as the source `records` reads them.

use serde_json::{Value, json};

use crate::{inputs, pieces};

/// Any bytes are a log of a format, any text is a format description or refused; splits yield the
/// same as the whole, and damage lies in the file.
pub fn records(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let (description, log) = match which {
        0x80.. => {
            let (text, log) = inputs::cut_at(rest, 0);
            let Ok(Value::Object(description)) = serde_json::from_slice(text) else { return };
            (Value::Object(description), log)
        }
        which => (described(*which), rest),
    };
    let mut options = description;
    options["path"] = json!(inputs::file("log.bin", log));
    match inputs::make_source("records", options) {
        Ok(source) => drop(pieces::read(&*source, log.len())),
        Err(refusal) => {
            assert!(*which >= 0x80, "{}", refusal.message);
            assert!(!refusal.message.is_empty());
        }
    }
}

/// Formats that cover all kinds of fields.
fn described(which: u8) -> Value {
    let head = json!([
        { "type": "u16", "role": "length", "counts": "payload" },
        { "type": "u8", "role": "kind" },
        { "name": "clock", "type": "u32", "role": "time", "unit": "ms" }
    ]);
    let kinds = json!({
        "1": { "name": "IMU", "fields": [
            { "name": "a", "type": "i16", "count": 3, "scale": 0.001 },
        ] },
        "2": { "name": "LIST", "fields": [
            { "name": "n", "type": "u8" }, { "name": "x", "type": "f32", "count": "n" },
            { "name": "more", "type": "bytes", "size": "rest" }] }
    });
    match which % 3 {
        0 => json!({ "sync": "0xaa 55", "head": head, "kinds": kinds, "max_record": 512,
            "tail": [
                { "type": "u16", "role": "checksum", "algorithm": "crc16-modbus", "from": 2 },
            ] }),
        1 => {
            json!({ "sync": "$", "head": head, "kinds": kinds, "max_record": 200, "epoch": "start",
            "other_kinds": "damage" })
        }
        _ => json!({ "magic": "LOG1", "endian": "big", "max_record": 200, "fields": [
            { "name": "t", "type": "u64", "role": "time", "unit": "us" },
            { "name": "s", "type": "text", "size": 4 }, { "name": "v", "type": "f64" }] }),
    }
}
