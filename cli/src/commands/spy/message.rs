//! Formats one message as lines: its fields as JSON, or a hex dump.

use serde_json::Value;
use sluice_io::escape::printable;
use sluice_model::units;

/// The maximum number of bytes shown of a message of unknown type.
const MAX_BYTES_SHOWN: usize = 4096;

/// The maximum number of lines shown of a message.
const MAX_LINES: usize = 10_000;

/// The fields of a message.
pub(super) fn fields(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    push(value, "", 0, "", &mut lines);
    lines
}

/// Lists of plain values take one line; other members take a line each.
fn push(value: &Value, name: &str, depth: usize, end: &str, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let (open, close, members): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(members) if !members.is_empty() => {
            let key = |key: &String| format!("{}: ", Value::from(key.as_str()));
            ("{", "}", members.iter().map(|(name, value)| (key(name), value)).collect())
        }
        Value::Array(values) if values.iter().any(is_nested) => {
            ("[", "]", values.iter().map(|value| (String::new(), value)).collect())
        }
        plain => {
            add(format!("{indent}{name}{plain}{end}"), lines);
            return;
        }
    };
    add(format!("{indent}{name}{open}"), lines);
    let last = members.len() - 1;
    for (at, (name, value)) in members.into_iter().enumerate() {
        push(value, &name, depth + 1, if at < last { "," } else { "" }, lines);
    }
    add(format!("{indent}{close}{end}"), lines);
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// JSON does not escape all control characters.
fn add(line: String, lines: &mut Vec<String>) {
    if lines.len() < MAX_LINES {
        lines.push(printable(&line).into_owned());
    }
}

/// A hex dump: offset, 16 bytes per line, and printable characters.
pub(super) fn bytes(payload: &[u8]) -> Vec<String> {
    let shown = payload.get(..MAX_BYTES_SHOWN).unwrap_or(payload);
    let line = |(at, bytes): (usize, &[u8])| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = bytes.iter().map(|byte| match byte {
            0x20..0x7f => char::from(*byte),
            _ => '.',
        });
        format!("{:06x}  {:<47}  {}", at * 16, hex.join(" "), text.collect::<String>())
    };
    let mut lines: Vec<String> = shown.chunks(16).enumerate().map(line).collect();
    let more = payload.len() - shown.len();
    if more > 0 {
        lines.push(format!("and {} more bytes", units::count(more as u64)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_have_a_line_each_and_lists_stand_in_one() {
        let value = json!({ "utime": 5, "pos": [1.5, 2.0], "s": { "x": "a\u{9b}b" }, "none": {},
            "all": [{ "y": 1 }, { "y": 2 }] });
        let expected = r#"{
  "utime": 5,
  "pos": [1.5,2.0],
  "s": {
    "x": "a\u{9b}b"
  },
  "none": {},
  "all": [
    {
      "y": 1
    },
    {
      "y": 2
    }
  ]
}"#;
        assert_eq!(fields(&value).join("\n"), expected);
    }

    #[test]
    fn bytes_are_shown_with_their_printable_characters() {
        let lines = bytes(b"\x00hub\x1b and so on, 20");
        assert_eq!(
            lines[0],
            "000000  00 68 75 62 1b 20 61 6e 64 20 73 6f 20 6f 6e 2c  .hub. and so on,"
        );
        assert_eq!(lines[1], format!("000010  {:<47}   20", "20 32 30"));
        assert_eq!(bytes(&[0; MAX_BYTES_SHOWN + 3]).last().unwrap(), "and 3 more bytes");
    }
}
