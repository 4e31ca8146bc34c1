//! The forms of payloads in lines: bytes as digits, or text where they are text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_io::escape::escaped;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Channel, Encoding};

use crate::write;

/// How to write payloads into a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum CsvPayload {
    /// Not at all.
    #[default]
    None,
    /// Two lower-case hexadecimal digits per byte.
    Hex,
    /// Base64 with padding.
    Base64,
    /// As text, with `\xNN` for each byte that is not UTF-8 or is zero, and `\x5c` for a backslash
    /// that would read as such.
    Text,
}

impl CsvPayload {
    /// Appends a payload as a cell. An empty one is an empty cell.
    pub(crate) fn write(self, payload: &[u8], delimiter: char, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Hex => write::hex(out, payload),
            Self::Base64 => write::base64(out, payload),
            Self::Text if payload.is_empty() => {}
            Self::Text => {
                let mut text = escaped(payload);
                // Many programs refuse a table with such a byte, or end a cell at it.
                if text.contains('\0') {
                    text = text.replace('\0', "\\x00").into();
                }
                write::csv_text(out, &text, delimiter);
            }
        }
    }
}

/// How to write payloads into JSON lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(crate = "sluice_model::schemars", with = "JsonPayloadOption")]
pub enum JsonPayload {
    /// Not at all.
    #[default]
    None,
    /// As `payload`, in base64.
    Base64,
    /// As `payload_text` where they are UTF-8 without zero bytes, and otherwise as `payload` in
    /// base64.
    Text,
}

/// The option as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a boolean, `base64` or `text`")]
#[schemars(crate = "sluice_model::schemars")]
enum JsonPayloadOption {
    Flag(bool),
    Format(JsonFormat),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
enum JsonFormat {
    Base64,
    Text,
}

impl Serialize for JsonPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => false.serialize(serializer),
            Self::Base64 => "base64".serialize(serializer),
            Self::Text => "text".serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for JsonPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match JsonPayloadOption::deserialize(deserializer)? {
            JsonPayloadOption::Flag(false) => Self::None,
            JsonPayloadOption::Flag(true) | JsonPayloadOption::Format(JsonFormat::Base64) => {
                Self::Base64
            }
            JsonPayloadOption::Format(JsonFormat::Text) => Self::Text,
        })
    }
}

impl JsonPayload {
    /// Appends the key and a payload.
    pub(crate) fn write(self, payload: &[u8], out: &mut Vec<u8>) {
        let text = match self {
            Self::None => return,
            Self::Base64 => None,
            // Zeros, which nearly all binary data has, would be six characters each.
            Self::Text => std::str::from_utf8(payload).ok().filter(|text| !text.contains('\0')),
        };
        if let Some(text) = text {
            out.extend_from_slice(b",\"payload_text\":");
            write::json_string(out, text);
            return;
        }
        out.extend_from_slice(b",\"payload\":\"");
        write::base64(out, payload);
        out.push(b'"');
    }
}

/// Whether people can read the payloads of a channel, if they are UTF-8.
pub(crate) fn is_readable(channel: &Channel) -> bool {
    matches!(channel.encoding, Encoding::Text | Encoding::Json)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use sluice_io::escape::unescaped;

    use super::*;

    #[test]
    fn a_flag_or_a_name_says_how_lines_have_payloads() {
        let read = |value: Value| serde_json::from_value::<JsonPayload>(value);
        assert_eq!(read(json!(false)).unwrap(), JsonPayload::None);
        assert_eq!(read(json!(true)).unwrap(), JsonPayload::Base64);
        assert_eq!(read(json!("base64")).unwrap(), JsonPayload::Base64);
        assert_eq!(read(json!("text")).unwrap(), JsonPayload::Text);
        let error = read(json!("hex")).unwrap_err().to_string();
        assert_eq!(error, "a boolean, `base64` or `text`");
    }

    #[test]
    fn what_is_not_text_stays_in_base64_under_its_own_key() {
        for (payload, line) in [
            (&b"a\"\n"[..], r#","payload_text":"a\"\n""#),
            (b"", r#","payload_text":"""#),
            (b"a\xff", r#","payload":"Yf8=""#),
            (b"a\0", r#","payload":"YQA=""#),
        ] {
            let mut out = Vec::new();
            JsonPayload::Text.write(payload, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), line);
        }
    }

    proptest! {
        #[test]
        fn cells_of_text_read_back_as_the_payload(
            payload in prop_oneof![
                vec(any::<u8>(), 0..20),
                "[a\\\\x0n5cf,;\"\r\n\0 é]{0,12}".prop_map(String::into_bytes)
            ],
            delimiter in prop::sample::select(vec![',', ';', '\t', ' ']))
        {
            let mut row = Vec::new();
            CsvPayload::Text.write(&payload, delimiter, &mut row);
            write::delimiter(&mut row, delimiter);
            row.extend_from_slice(b"end\n");
            let mut reader = ::csv::ReaderBuilder::new();
            let reader = reader.delimiter(delimiter as u8).has_headers(false);
            let mut reader = reader.from_reader(&row[..]);
            let cells = reader.records().next().unwrap().unwrap();
            prop_assert_eq!((&*unescaped(&cells[0]), &cells[1]), (&payload[..], "end"));
            prop_assert!(!row.contains(&0));
        }
    }
}
