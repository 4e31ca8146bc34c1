//! Channel names: any bytes, with a text form that loses nothing. Knows nothing of channels.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A channel's name as its log spells it: any bytes, mostly UTF-8.
///
/// [`text`](Self::text) is what people, patterns and files see. A name that is UTF-8 is its own text; in
/// others each byte that is not UTF-8 becomes `\xNN`, and a backslash that would read as such an escape
/// becomes `\x5c`. [`from_text`](Self::from_text) turns every text back into the same bytes.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    /// Only where the bytes differ from the text.
    raw: Option<Arc<[u8]>>,
}

impl Name {
    /// The name with exactly these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let text = escape(bytes);
        if text.as_bytes() == bytes {
            return Self { text: text.into(), raw: None };
        }
        Self { text: text.into(), raw: Some(bytes.into()) }
    }

    /// The name whose text form this is.
    pub fn from_text(text: &str) -> Self {
        Self::from_bytes(&unescape(text))
    }

    /// The bytes, as logs hold them.
    pub fn as_bytes(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// The text form: lossless, and the name itself wherever that is UTF-8.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// `text` with control characters spelled out, safe to print on a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let spelled = text.chars().map(|c| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    });
    Cow::Owned(spelled.collect())
}

/// Bytes as text that loses nothing: what is UTF-8 stays as it is, other bytes become `\xNN`, and a
/// backslash that would read as such an escape becomes `\x5c`.
pub fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\\') => Cow::Borrowed(text),
        _ => Cow::Owned(escape(bytes)),
    }
}

/// The bytes that [`escaped`] made text of.
pub fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if text.contains('\\') { Cow::Owned(unescape(text)) } else { Cow::Borrowed(text.as_bytes()) }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push_shielded(&mut text, chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Appends `valid`, shielding each backslash that would otherwise read as an escape.
fn push_shielded(text: &mut String, valid: &str) {
    for (at, c) in valid.char_indices() {
        let reads_as_escape = c == '\\' && valid.get(at..).and_then(escaped_byte).is_some();
        if reads_as_escape { text.push_str("\\x5c") } else { text.push(c) }
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match escaped_byte(rest) {
            Some(byte) => {
                bytes.push(byte);
                "\\xNN".len()
            }
            None => {
                bytes.extend_from_slice(rest.get(..c.len_utf8()).unwrap_or_default().as_bytes());
                c.len_utf8()
            }
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    bytes
}

/// The byte that the escape at the start of `text` stands for; only lower-case digits are an escape.
fn escaped_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("\\x")?.get(..2)?;
    let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if lower { u8::from_str_radix(digits, 16).ok() } else { None }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.text))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utf8_names_are_their_own_text() {
        for name in ["POSE", "a\\b", "ünï", "a\\x4", "a\\xFF", ""] {
            assert_eq!(Name::from_bytes(name.as_bytes()).text(), name);
        }
    }

    #[test]
    fn other_bytes_and_look_alikes_are_escaped() {
        assert_eq!(Name::from_bytes(b"CAM\xff\x01").text(), "CAM\\xff\u{1}");
        assert_eq!(Name::from_bytes(b"a\\x41").text(), "a\\x5cx41");
        assert_eq!(Name::from_bytes(b"\\\xff").text(), "\\\\xff");
    }

    proptest! {
        #[test]
        fn the_text_form_loses_nothing(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\\'), Just(b'x'), Just(b'4'), Just(0xffu8), any::<u8>()], 0..24))
        {
            let name = Name::from_bytes(&bytes);
            prop_assert_eq!(name.as_bytes(), &bytes[..]);
            let back = Name::from_text(name.text());
            prop_assert_eq!(back.as_bytes(), &bytes[..]);
        }
    }
}
