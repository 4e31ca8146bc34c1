//! Types of messages, and the keys that identify them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The key of a payload type within its codec: for LCM, the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeKey(pub u64);

impl fmt::Display for TypeKey {
    /// Sixteen lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TypeKey {
    /// A key for a type whose format has none: a hash of `parts`.
    pub fn from_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut hash = blake3::Hasher::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
        let hash = hash.finalize();
        Self(hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_key = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl Serialize for TypeKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TypeKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("expected sixteen hexadecimal digits");
        Self::parse(&text).ok_or_else(wrong)
    }
}

/// The codec name of types that no codec can encode.
const PART: &str = "-";

/// The description of a type that travels with its rows: enough to encode their payloads again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageType {
    /// Its full name.
    pub name: Arc<str>,
    /// Its key within its codec.
    pub key: TypeKey,
    /// The name of its codec; empty if unknown, `-` if rows are parts of messages.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub codec: Arc<str>,
    /// Its declaration and those of all types it uses, in the codec's own language.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Arc<str>,
}

impl MessageType {
    /// A type of which only name and key are known.
    pub fn named(name: impl Into<Arc<str>>, key: TypeKey) -> Self {
        Self { name: name.into(), key, ..Self::default() }
    }

    /// A type of rows that are elements of messages, or some of their fields, and cannot be
    /// encoded.
    pub fn part(name: impl Into<Arc<str>>, key: TypeKey) -> Self {
        Self { codec: PART.into(), ..Self::named(name, key) }
    }

    /// Whether rows of this type are only parts of messages.
    pub fn is_part(&self) -> bool {
        &*self.codec == PART
    }
}
