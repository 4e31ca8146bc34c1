//! Byte strings in a description: text, hexadecimal digits, or a list of numbers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// A byte string: `"LOG1"`, `"0xb5 62"` or `[0xb5, 0x62]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal(pub(crate) Vec<u8>);

/// The maximum length of a byte string.
const MAX_LITERAL_LEN: usize = 4096;

impl Literal {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(digits) = text.strip_prefix("0x") else { return Ok(Self(text.into())) };
        let wrong = || {
            format!(
                "`{text}` is not hexadecimal: expected two digits per byte after `0x`, such as \
                 0xb5 62"
            )
        };
        let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| match pair {
            [high, low] => Some((high.to_digit(16)? * 16 + low.to_digit(16)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a text, hexadecimal digits after 0x, or a list of bytes")]
        enum RawLiteral {
            Text(String),
            Bytes(Vec<u8>),
        }
        let literal = match RawLiteral::deserialize(deserializer)? {
            RawLiteral::Text(text) => Self::parse(&text).map_err(serde::de::Error::custom)?,
            RawLiteral::Bytes(bytes) => Self(bytes),
        };
        match literal.0.len() {
            0 => Err(serde::de::Error::custom("it is empty: at least one byte is needed")),
            1..=MAX_LITERAL_LEN => Ok(literal),
            len => Err(serde::de::Error::custom(format!(
                "expected at most {MAX_LITERAL_LEN} bytes, found {len}"
            ))),
        }
    }
}

impl JsonSchema for Literal {
    fn schema_name() -> Cow<'static, str> {
        "Literal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string" }, { "type": "array", "items": { "type": "integer" } } ],
            "description": "bytes: \"text\", \"0xb5 62\" or [0xb5, 0x62]" })
    }
}

/// Bytes as shown in damage reasons and error messages.
pub(crate) fn display_bytes(bytes: &[u8]) -> String {
    let is_plain = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if is_plain && !bytes.is_empty() {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[{}]", digits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<Vec<u8>, String> {
        serde_json::from_value::<Literal>(json).map(|l| l.0).map_err(|e| e.to_string())
    }

    #[test]
    fn bytes_are_read_in_every_form() {
        assert_eq!(read("LOG\n".into()), Ok(b"LOG\n".to_vec()));
        assert_eq!(read("0xb5 62".into()), Ok(vec![0xb5, 0x62]));
        assert_eq!(read(serde_json::json!([1, 255])), Ok(vec![1, 255]));
        for wrong in ["", "0x", "0xb", "0xzz"] {
            assert!(read(wrong.into()).is_err(), "{wrong}");
        }
        assert!(read(serde_json::json!([256])).is_err());
    }
}
