//! Channel names: any bytes, with a text form that loses nothing. Knows nothing of channels.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sluice_io::escape::{escaped, printable, unescaped};

/// A channel's name as in its log: any bytes, mostly UTF-8.
///
/// [`text`](Self::text) is the form for users, patterns and files. A name that is UTF-8 is its own
/// text; otherwise each byte that is not UTF-8 becomes `\xNN`, and a backslash that would read as
/// such an escape becomes `\x5c`. [`from_text`](Self::from_text) is the inverse.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    /// Only where the bytes differ from the text.
    raw: Option<Arc<[u8]>>,
}

impl Name {
    /// The name with exactly these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let text = escaped(bytes);
        if text.as_bytes() == bytes {
            return Self { text: text.as_ref().into(), raw: None };
        }
        Self { text: text.as_ref().into(), raw: Some(bytes.into()) }
    }

    /// The name whose text form this is.
    pub fn from_text(text: &str) -> Self {
        Self::from_bytes(&unescaped(text))
    }

    /// The bytes, as logs hold them.
    pub fn as_bytes(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// The text form: lossless, and identical to the name if that is UTF-8.
    pub fn text(&self) -> &str {
        &self.text
    }
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
