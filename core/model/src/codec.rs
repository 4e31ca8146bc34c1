//! Codecs: the types they know, and which type a payload has. Knows no format.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use sluice_io::escape::printable;

use crate::{Channel, EmbeddedSchema, MessageType, PayloadType, TypeKey};

/// A type known to a codec.
#[derive(Clone, Debug)]
pub struct KnownType {
    /// Its description.
    pub message_type: Arc<MessageType>,
    /// The file that declares it, if any.
    pub file: Option<PathBuf>,
    /// The line of its declaration.
    pub line: usize,
    /// Decodes and encodes its payloads; or why that is impossible although the declaration is
    /// valid.
    pub payload_type: Result<PayloadType, String>,
}

/// Types of one file that cannot be used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableTypes {
    /// The file that declares them; `None` if options do.
    pub file: Option<PathBuf>,
    /// Their names; empty if the file cannot be parsed that far.
    pub types: Vec<String>,
    /// The reason, on one line.
    pub why: String,
    /// Whether the error is in this file. Otherwise its types use others that cannot be used.
    pub has_mistake: bool,
}

impl UnusableTypes {
    /// Adds a type, merged with the last entry if file and reason are the same.
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

/// The types that the files of a codec declare.
#[derive(Clone, Debug, Default)]
pub struct DeclaredTypes {
    /// All usable types, sorted by name.
    pub types: Vec<KnownType>,
    /// The errors in the files, rendered with file, line, column and advice.
    pub mistakes: Vec<String>,
    /// The types that cannot be used because of these errors and are not among `types`, by file,
    /// with at least one entry per file that has an error.
    pub unusable: Vec<UnusableTypes>,
    /// One line of text that identifies the types: outputs made with another fingerprint are made
    /// again.
    pub fingerprint: String,
}

/// Returns the key of a payload's type, known or not; `None` if it has none. Called once per event.
pub type KeyOf = Arc<dyn Fn(&[u8]) -> Option<TypeKey> + Send + Sync>;

/// Knows the types of one encoding, and which type a payload has.
///
/// # How it is used
///
/// A codec is made once per run, from the files that declare types. Errors in these files do not
/// prevent that: [`DeclaredTypes`] lists all of them, and types they do not affect can be used.
/// Afterwards a codec never changes; all methods are called from any thread.
///
/// [`keys`](Self::keys) is called once per channel. The [`KeyOf`] it returns is called once per
/// event, so it must not allocate or lock. [`types`](Self::types) maps its keys to
/// [`PayloadType`]s, which decode and encode.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_schema::Schema;
/// use sluice_kit::columns::{FieldShape, NumberType, PayloadField, PayloadPlan, WireRules};
/// use sluice_model::{
///     Channel, Codec, DeclaredTypes, Encoding, KeyOf, KnownType, MessageType, Name, PayloadType,
///     TypeKey,
/// };
///
/// /// Knows one type: a little-endian counter, on channels called `COUNT…`.
/// struct Counters {
///     declared: DeclaredTypes,
/// }
///
/// impl Counters {
///     fn new() -> Result<Self, String> {
///         let count = PayloadField::new("count", FieldShape::Number(NumberType::U32));
///         let plan = PayloadPlan::compile(WireRules::LITTLE_ENDIAN, &[count])?;
///         let message_type = Arc::new(MessageType::named("counter", TypeKey(1)));
///         let payload_type = PayloadType::new(Arc::clone(&message_type), plan);
///         let known =
///             KnownType { message_type, file: None, line: 0, payload_type: Ok(payload_type) };
///         let fingerprint = "counters, version 1".to_owned();
///         let types = vec![known];
///         Ok(Self { declared: DeclaredTypes { types, fingerprint, ..DeclaredTypes::default() } })
///     }
/// }
///
/// impl Codec for Counters {
///     fn declared(&self) -> &DeclaredTypes {
///         &self.declared
///     }
///
///     fn keys(&self, channel: &Channel) -> Option<KeyOf> {
///         let is_ours = channel.name.text().starts_with("COUNT");
///         is_ours.then(|| Arc::new(|_: &[u8]| Some(TypeKey(1))) as KeyOf)
///     }
///
///     fn adopt(&self, wanted: &MessageType, _: &Schema) -> Result<PayloadType, String> {
///         let known = self.types().iter().find(|known| *known.message_type == *wanted);
///         let known = known.ok_or_else(|| format!("unknown type `{}`", wanted.name))?;
///         known.payload_type.clone()
///     }
/// }
///
/// let codec = Counters::new()?;
/// let channel = Channel::new(Name::from_text("COUNT_A"), "robot", Encoding::Unknown);
/// let key_of = codec.keys(&channel).ok_or("the channel is not ours")?;
/// assert_eq!(key_of(&7u32.to_le_bytes()), Some(TypeKey(1)));
/// # Ok::<(), String>(())
/// ```
pub trait Codec: Send + Sync {
    /// The types of the files it was made from.
    fn declared(&self) -> &DeclaredTypes;

    /// Its [`DeclaredTypes::types`].
    fn types(&self) -> &[KnownType] {
        &self.declared().types
    }

    /// Its [`DeclaredTypes::mistakes`].
    fn mistakes(&self) -> &[String] {
        &self.declared().mistakes
    }

    /// Returns a function that identifies the types of this channel's payloads; `None` if they
    /// cannot be of its types. Called once per channel.
    fn keys(&self, channel: &Channel) -> Option<KeyOf>;

    /// The type of a channel's payloads, made from the declaration that the log stores
    /// ([`Channel::schema`]). `None` if the channel has none, or not in a language of this codec;
    /// what cannot be decoded although it is declared says why in [`KnownType::payload_type`].
    ///
    /// Called once per channel, possibly on several threads. The declaration may be untrusted.
    fn embedded(&self, channel: &Channel) -> Option<KnownType> {
        let _ = channel;
        None
    }

    /// The declaration of one of its types, in a language in which logs store it for a channel
    /// like this one: the inverse of [`embedded`](Self::embedded). `None` if there is no such
    /// language, or the channel's payloads cannot be of its types.
    fn declaration(&self, described: &MessageType, channel: &Channel) -> Option<EmbeddedSchema> {
        let _ = (described, channel);
        None
    }

    /// Makes a type from its description, which may be untrusted, for rows with these columns.
    /// `Err` says why that is impossible.
    fn adopt(&self, described: &MessageType, columns: &Schema) -> Result<PayloadType, String>;
}
