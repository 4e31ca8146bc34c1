//! Codecs `ros1` and `ros2`: ROS messages as Arrow columns and back, by the declarations that logs
//! store for their channels, or by `.msg` files.
//!
//! | member | column |
//! |---|---|
//! | `bool`, `int8` … `uint64`, `float32`, `float64` | the same |
//! | `byte`, `char` | `UInt8`; `byte` of ROS 1 `Int8` |
//! | `string` | `Utf8`; bytes that are not UTF-8 become `\xNN` |
//! | `uint8[]`, `uint8[8]` | `Binary`, `FixedSizeBinary(8)` |
//! | `x[3]`, `x[]`, `x[<=3]` | `FixedSizeList`, `List` |
//! | another type | `Struct` |
//! | `time`, `duration` | `Struct` of `sec` and `nanosec`; of `sec` and `nsec` in ROS 1 |
//! | a type without members | one `UInt8` in ROS 2; none in ROS 1 |
//!
//! Decoding and encoding are inverse. What columns do not say, such as the byte order, other
//! padding than zeros, and bytes behind the last field, is kept in a further column.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::type_library::{MAX_DESCRIPTION_LEN, TypeBudget, TypeId};
use sluice_kit::{TypeFile, TypePaths, codecs};
use sluice_model::{
    Channel, Codec, DeclaredTypes, EmbeddedSchema, Encoding, KeyOf, KnownType, MessageType,
    OptionsError, PayloadType, TypeKey, raw::RawColumn,
};

use crate::types::Generation;
use crate::types::library::Library;
use crate::types::shapes;
use crate::types::text::{separator, short_name};

mod difference;
mod form;
#[cfg(test)]
mod tests;
mod wire;

use wire::Plans;

/// Options of the codec `ros1`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ros1Types {
    /// Files that declare types of ROS 1.
    pub types: TypePaths,
}

/// Options of the codec `ros2`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ros2Types {
    /// Files that declare types, in folders as ROS packages have them: `std_msgs/msg/Header.msg`.
    pub types: TypePaths,
}

sluice_model::register! {
    codec "ros1": Ros1Types,
    about: "ROS 1 messages, using the types that bags and MCAP files declare",
    sample: include_str!("../../samples/ros1-codec.toml"),
    extensions: &[],
}

sluice_model::register! {
    codec "ros2": Ros2Types,
    about: "ROS 2 messages (CDR), using the types that MCAP and .msg files declare",
    sample: include_str!("../../samples/ros2-codec.toml"),
    extensions: &["msg"],
}

impl TryFrom<Ros1Types> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: Ros1Types) -> Result<Self, OptionsError> {
        RosCodec::from_paths(&options.types, Generation::Ros1)
    }
}

impl TryFrom<Ros2Types> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: Ros2Types) -> Result<Self, OptionsError> {
        RosCodec::from_paths(&options.types, Generation::Ros2)
    }
}

/// Type files are read into memory; longer ones are refused.
const MAX_FILE_LEN: usize = 1 << 20;

/// The codec of a generation.
struct RosCodec {
    generation: Generation,
    declared: DeclaredTypes,
    /// By name, without `msg`.
    keys: BTreeMap<String, TypeKey>,
    embedded: Mutex<EmbeddedTypes>,
}

/// The types that channels have declared: many channels have the same.
#[derive(Default)]
struct EmbeddedTypes {
    known: HashMap<TypeKey, KnownType>,
    budget: TypeBudget,
}

impl RosCodec {
    fn from_paths(
        types: &TypePaths,
        generation: Generation,
    ) -> Result<Box<dyn Codec>, OptionsError> {
        let mut files = types.texts(generation.codec(), MAX_FILE_LEN)?;
        // Almost any words are a declaration: only its name makes a file one.
        files.retain(|file| file.path.extension().is_some_and(|e| e.eq_ignore_ascii_case("msg")));
        Ok(Box::new(Self::from_files(files, generation)))
    }

    fn from_files(files: Vec<TypeFile>, generation: Generation) -> Self {
        let fingerprint = codecs::fingerprint(generation.codec(), &files);
        let library = Library::from_files(files, generation);
        let (mistakes, unusable) =
            (library.types.mistakes(), library.types.unusable(str::to_owned));
        let (mut types, mut budget) = (Vec::new(), TypeBudget::default());
        for id in library.types.ids() {
            // The same type of another file is used just as well.
            let is_it = library.find(library.types.name(id)) == Some(id);
            if is_it && library.types.is_sound(id) {
                let file = Some(library.types.file_of(id).to_owned());
                let known = known_type(&library, id, generation, &mut budget);
                types.push(KnownType { file, line: library.types.get(id).line, ..known });
            }
        }
        types.sort_by(|a, b| a.message_type.name.cmp(&b.message_type.name));
        let key =
            |known: &KnownType| (short_name(&known.message_type.name), known.message_type.key);
        let keys = types.iter().map(key).collect();
        let embedded = Mutex::default();
        let declared = DeclaredTypes { types, mistakes, unusable, fingerprint };
        Self { generation, declared, keys, embedded }
    }

    /// The key of the type of that name which files declare. Some recorders put a prefix before
    /// packages.
    fn key_of(&self, name: &str) -> Option<TypeKey> {
        let name = short_name(name);
        let mut rest = name.as_str();
        loop {
            if let Some(key) = self.keys.get(rest) {
                return Some(*key);
            }
            (_, rest) = rest.split_once('/').filter(|(_, shorter)| shorter.contains('/'))?;
        }
    }

    /// The type of that name which files declare.
    fn type_of_file(&self, name: &str) -> Option<&KnownType> {
        let key = self.key_of(name)?;
        self.declared.types.iter().find(|known| known.message_type.key == key)
    }

    /// The types of a text in a log, and those that it lacks, as files declare them: recorders
    /// leave out what they do not find.
    fn completed_library(&self, name: &str, text: &str) -> Library {
        let library = Library::from_text(name, text, self.generation);
        let mut completed = text.to_owned();
        for lacking in library.undeclared() {
            let Some(of_file) = self.type_of_file(&lacking) else { continue };
            completed.push('\n');
            completed += &separator(&lacking);
            completed += &of_file.message_type.text;
            if completed.len() > MAX_DESCRIPTION_LEN {
                return library;
            }
        }
        if completed == text {
            return library;
        }
        // Of types that both declare, those of the log come first.
        Library::from_text(name, &completed, self.generation)
    }

    /// The type of that name which a log declares.
    fn embedded_type(&self, name: &str, language: &str, data: &[u8]) -> Result<KnownType, String> {
        if language == "omgidl" {
            return Err("its type is declared in `omgidl`, which is not supported".to_owned());
        }
        if data.len() > MAX_DESCRIPTION_LEN {
            return Err("its declaration is longer than 1 MiB".to_owned());
        }
        let text = String::from_utf8_lossy(data);
        // Bags of ROS 1 declare every type. Recorders of ROS 2 leave out those that they do not
        // find.
        let may_be_empty = language != "ros2idl"
            && (self.generation == Generation::Ros1 || name.ends_with("/Empty"));
        if is_blank(data) && !may_be_empty {
            return Err("the log does not declare its type".to_owned());
        }
        let library = if language == "ros2idl" {
            Library::from_idl(name, &text)
        } else if text.lines().any(|line| line.trim() == "---") {
            return Err("its declaration is of a service, not of a message".to_owned());
        } else {
            self.completed_library(name, &text)
        };
        let first = library.first()?;
        let mut embedded = self.embedded.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known_type(&library, first, self.generation, &mut embedded.budget))
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

fn known_type(
    library: &Library,
    id: TypeId,
    generation: Generation,
    budget: &mut TypeBudget,
) -> KnownType {
    let name = library.types.name(id);
    let text = library.description(id);
    let described = Arc::new(message_type(name, text.as_str(), generation));
    let compiled = budget.check().and_then(|()| {
        let plans = Plans::compile(generation, &shapes::fields(library, id, generation)?)?;
        budget.spend(plans.exact.column_count(), text.len());
        Ok(plans)
    });
    let compiled = compiled.map(|plans| payload_type(Arc::clone(&described), plans));
    KnownType { message_type: described, file: None, line: 0, payload_type: compiled }
}

fn payload_type(described: Arc<MessageType>, plans: Plans) -> PayloadType {
    let raw = RawColumn::Difference.key(described.key);
    PayloadType::new(described, plans).with_raw_column(RawColumn::Difference, raw)
}

fn message_type(name: &str, text: &str, generation: Generation) -> MessageType {
    let codec = generation.codec();
    let key = TypeKey::from_parts([codec.as_bytes(), name.as_bytes(), text.as_bytes()]);
    MessageType { name: name.into(), key, codec: codec.into(), text: text.into() }
}

impl Codec for RosCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if channel.encoding != self.generation.encoding() {
            return None;
        }
        let name = channel.type_name.as_deref();
        let unknown = || Some(TypeKey::from_parts([short_name(name?).as_bytes()]));
        let key = name.and_then(|name| self.key_of(name)).or_else(unknown);
        Some(Arc::new(move |_| key))
    }

    fn embedded(&self, channel: &Channel) -> Option<KnownType> {
        let schema = channel.schema.as_ref()?;
        let is_ours = channel.encoding == self.generation.encoding()
            && self.generation.languages().contains(&&*schema.encoding);
        let name = channel.type_name.as_deref().filter(|_| is_ours)?;
        let key = TypeKey::from_parts([name.as_bytes(), schema.encoding.as_bytes(), &*schema.data]);
        let lock = || self.embedded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().known.get(&key) {
            return Some(known.clone());
        }
        let known = self.embedded_type(name, &schema.encoding, &schema.data);
        let known = known.unwrap_or_else(|why| {
            let described = Arc::new(message_type(name, "", self.generation));
            KnownType { message_type: described, file: None, line: 0, payload_type: Err(why) }
        });
        // A declaration that cannot be read must not keep one of a file from being used. One that
        // can, but uses unknown types, may be of another message.
        let is_read = Some(&&*schema.encoding) == self.generation.languages().first()
            && !is_blank(&schema.data);
        let of_file = self.type_of_file(name).filter(|_| known.payload_type.is_err() && !is_read);
        let known = of_file.cloned().unwrap_or(known);
        // Threads that made the same type at once use the same one.
        Some(lock().known.entry(key).or_insert(known).clone())
    }

    fn declaration(&self, described: &MessageType, channel: &Channel) -> Option<EmbeddedSchema> {
        let is_ours = channel.encoding == self.generation.encoding() && !described.text.is_empty();
        let language = self.generation.languages().first().filter(|_| is_ours)?;
        Some(EmbeddedSchema {
            encoding: (*language).into(),
            data: described.text.as_bytes().into(),
        })
    }

    fn adopt(&self, described: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        if described.text.len() > MAX_DESCRIPTION_LEN {
            return Err("the description is longer than 1 MiB".to_owned());
        }
        let library = Library::from_text(&described.name, &described.text, self.generation);
        let first = library.first()?;
        let base = message_type(&described.name, &library.description(first), self.generation);
        if ![base.key, RawColumn::Difference.key(base.key)].contains(&described.key) {
            return Err("the description is of another message".to_owned());
        }
        let fields = shapes::fields(&library, first, self.generation)?;
        let plans = Plans::compile(self.generation, &fields)?;
        Ok(payload_type(Arc::new(base), plans).with_key(described.key))
    }
}

impl Generation {
    fn encoding(self) -> Encoding {
        match self {
            Self::Ros1 => Encoding::Ros1,
            Self::Ros2 => Encoding::Cdr,
        }
    }

    /// The languages in which logs declare types of its messages.
    fn languages(self) -> &'static [&'static str] {
        match self {
            Self::Ros1 => &["ros1msg"],
            Self::Ros2 => &["ros2msg", "ros2idl", "omgidl"],
        }
    }
}
