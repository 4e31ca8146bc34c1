//! Codecs: which type a payload has, and payloads of one type as Arrow columns and back. Knows no format.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::name::printable;
use crate::{Batch, Channel, Error, Rows};

/// A type of payload, as its codec numbers it: for LCM, the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeKey(pub u64);

impl fmt::Display for TypeKey {
    /// Sixteen lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TypeKey {
    /// A number for a type whose format gives it none: another one for other parts.
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

/// Stands for the codec where there can be none.
const PART: &str = "-";

/// What is said of a type wherever its rows go: enough to make their payloads again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageType {
    /// Its full name.
    pub name: Arc<str>,
    /// As its codec numbers it.
    pub key: TypeKey,
    /// The name of its codec; empty where nobody knows it, and `-` where rows are parts of messages.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub codec: Arc<str>,
    /// How the codec describes it and everything it is made of, in the codec's own language.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Arc<str>,
}

impl MessageType {
    /// A type of which only name and number are known.
    pub fn named(name: impl Into<Arc<str>>, key: TypeKey) -> Self {
        Self { name: name.into(), key, ..Self::default() }
    }

    /// A type of rows that are elements of messages, or some of their fields: no codec makes messages of them.
    pub fn part(name: impl Into<Arc<str>>, key: TypeKey) -> Self {
        Self { codec: PART.into(), ..Self::named(name, key) }
    }

    /// Whether rows of this type are but parts of messages.
    pub fn is_part(&self) -> bool {
        &*self.codec == PART
    }
}

/// A type that its codec knows.
#[derive(Clone, Debug)]
pub struct KnownType {
    /// What it is.
    pub message_type: Arc<MessageType>,
    /// The file that declares it, where there is one.
    pub file: Option<PathBuf>,
    /// The line of its declaration.
    pub line: usize,
    /// Reads and makes its payloads; or why they cannot be decoded although its declaration is right.
    pub payload_type: Result<Arc<dyn PayloadType>, String>,
}

/// Types of a file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableTypes {
    /// The file that declares them; nothing where options do.
    pub file: Option<PathBuf>,
    /// Their names; none if the file cannot be read as far as that.
    pub types: Vec<String>,
    /// Why, on one line.
    pub why: String,
    /// Whether the mistake is in this file. Otherwise its types hold others that cannot be used.
    pub has_mistake: bool,
}

impl UnusableTypes {
    /// Adds a type, beside the one before if that is of the same file and cannot be used for the same reason.
    pub fn add(
        all: &mut Vec<Self>,
        file: Option<&Path>,
        name: &str,
        (why, has_mistake): (String, bool),
    ) {
        match all.last_mut() {
            Some(last) if last.file.as_deref() == file && last.why == why => {
                last.types.push(name.to_owned());
            }
            _ => {
                let (file, types) = (file.map(Path::to_owned), vec![name.to_owned()]);
                all.push(Self { file, types, why, has_mistake });
            }
        }
    }
}

impl fmt::Display for UnusableTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let names: Vec<String> =
            self.types.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let what = match (names.as_slice(), self.types.len().saturating_sub(SHOWN)) {
            ([], _) => "its types".to_owned(),
            (names, 0) => names.join(", "),
            (names, more) => format!("{} and {more} more types", names.join(", ")),
        };
        let file = self.file.as_deref().unwrap_or(Path::new("`messages`"));
        let text = format!("{}: {what} cannot be used: {}", file.display(), self.why);
        f.write_str(&printable(&text))
    }
}

/// Gives the number of a payload's type, known or not; nothing if it has none. Asked once an event.
pub type KeyOf = Arc<dyn Fn(&[u8]) -> Option<TypeKey> + Send + Sync>;

/// Knows the types of one kind of payload.
///
/// It is made from files that declare types. Mistakes in these do not keep it from being made: all of them
/// can be told, and types that none of them touches can be used.
pub trait Codec: Send + Sync {
    /// The mistakes in the files it was made from: with file, line, column and what to do.
    fn mistakes(&self) -> &[String];

    /// The types of these files that cannot be used because of the mistakes, and are not among
    /// [`types`](Self::types): by file, each with at least one entry for every file that has a mistake.
    fn unusable(&self) -> &[UnusableTypes] {
        &[]
    }

    /// Every type it knows, by name.
    fn types(&self) -> &[KnownType];

    /// How payloads of this channel say which type they are of; nothing if they cannot be of its types.
    /// Asked once a channel.
    fn keys(&self, channel: &Channel) -> Option<KeyOf>;

    /// What it was made from, as a line of text: another one for other types.
    fn fingerprint(&self) -> &str;

    /// A type from its description, which may come from anywhere, for rows with these columns. `Err` says
    /// what is wrong with it.
    fn adopt(
        &self,
        described: &MessageType,
        columns: &Schema,
    ) -> Result<Arc<dyn PayloadType>, String>;
}

/// Turns payloads of one type into Arrow columns, and back.
pub trait PayloadType: fmt::Debug + Send + Sync {
    /// What it is.
    fn message_type(&self) -> &Arc<MessageType>;

    /// Its columns; the same for the whole run.
    fn schema(&self) -> &SchemaRef;

    /// Decodes the payloads of `events` (positions in `batch`, ascending) into whole rows.
    ///
    /// A payload that is not what its type says gives no row; `bad` is told its position and why. Reasons
    /// are few: they hold nothing of the payload.
    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error>;

    /// The same type for payloads that [`decode`](Self::decode) refuses with [`booleans::ODD_BOOLEAN`]: its columns,
    /// and behind them one of the booleans' bytes, of which `encode` makes the same payload again. `None` if that
    /// is what this type is, or if it has no booleans.
    ///
    /// [`booleans::ODD_BOOLEAN`]: crate::booleans::ODD_BOOLEAN
    fn with_raw_booleans(&self) -> Option<Arc<dyn PayloadType>> {
        None
    }

    /// The payloads that decode to these rows, one a row; null for a row that stands for no payload, of
    /// which `bad` is told the number and why.
    ///
    /// `Err` says why none of them can be one: a column is missing or of another type.
    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String>;
}
