//! Codecs: which type a payload has, and payloads of one type as Arrow columns and back. Knows no format.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::SchemaRef;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::options::{self, TYPES_FORMAT};
use crate::registry::{type_set, type_sets};
use crate::{Batch, Channel, Error, Kind, Make, OptionsError, Plugin, Registry, Rows, files};

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
    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
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

/// Where types come from: files, globs, folders, and names of sets that the program has built in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TypePaths(pub Vec<PathBuf>);

impl<'de> Deserialize<'de> for TypePaths {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        options::one_or_many(deserializer).map(Self)
    }
}

impl JsonSchema for TypePaths {
    fn schema_name() -> Cow<'static, str> {
        "TypePaths".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = json_schema!({ "type": "string", "format": TYPES_FORMAT });
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }],
            "description": "files, globs, folders, or names of built-in sets of types" })
    }
}

/// Codecs with the types they were made from.
#[derive(Default)]
pub struct Codecs(Vec<(&'static str, Box<dyn Codec>)>);

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Codecs {
    /// The codecs of a registry, made from files and sets of types; each gets those of its own kind, and
    /// `depth` if it has such an option.
    ///
    /// Mistakes in the files stand in the codecs. `Err` is a file that cannot be read, or that no codec
    /// knows.
    pub fn of(
        registry: &Registry,
        types: &TypePaths,
        depth: Option<u8>,
    ) -> Result<Self, OptionsError> {
        let plugins: Vec<&Plugin> = registry.iter().filter(|p| p.kind() == Kind::Codec).collect();
        let mut files: Vec<Vec<PathBuf>> = vec![Vec::new(); plugins.len()];
        for (at, path) in types.0.iter().enumerate() {
            let wrong = |message: String| OptionsError {
                path: vec!["types".to_owned(), at.to_string()],
                message,
            };
            for file in expanded(path, &plugins).map_err(|e| wrong(e.to_string()))? {
                let place = plugins.iter().position(|plugin| reads(plugin, &file));
                let place = place.ok_or_else(|| wrong(unknown(&file, &plugins)))?;
                if !files[place].contains(&file) {
                    files[place].push(file);
                }
            }
        }
        let made = plugins.into_iter().zip(files);
        let made = made.map(|(plugin, files)| Ok((plugin.name, make(plugin, &files, depth)?)));
        made.collect::<Result<_, _>>().map(Self)
    }

    /// The codecs, by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Codec> {
        self.0.iter().map(|(_, codec)| &**codec)
    }

    /// The codec of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Codec> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, codec)| &**codec)
    }

    /// All types of all codecs.
    pub fn types(&self) -> impl Iterator<Item = &KnownType> {
        self.iter().flat_map(Codec::types)
    }

    /// Every mistake in the files as one text; nothing if there is none.
    pub fn mistakes(&self) -> Option<String> {
        let all: Vec<&str> = self.iter().flat_map(Codec::mistakes).map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("the types have mistakes\n\n{}", all.join("\n\n")))
    }
}

fn make(
    plugin: &Plugin,
    files: &[PathBuf],
    depth: Option<u8>,
) -> Result<Box<dyn Codec>, OptionsError> {
    let mut options = serde_json::Map::from_iter([("types".to_owned(), json!(files))]);
    if let Some(depth) = depth.filter(|_| plugin.option_names().contains(&"depth".to_owned())) {
        options.insert("depth".to_owned(), json!(depth));
    }
    match plugin.make {
        Make::Codec(make) => make(options.into()),
        _ => Err(OptionsError { path: Vec::new(), message: "this is no codec".to_owned() }),
    }
}

fn reads(plugin: &Plugin, file: &Path) -> bool {
    if let Some(set) = type_set(file) {
        return set.codec == plugin.name;
    }
    let extension = file.extension().map(|e| e.to_string_lossy().into_owned());
    extension.is_some_and(|found| plugin.extensions.iter().any(|e| e.eq_ignore_ascii_case(&found)))
}

fn unknown(file: &Path, plugins: &[&Plugin]) -> String {
    let extensions = plugins.iter().flat_map(|plugin| plugin.extensions).map(|e| format!(".{e}"));
    let mut known: Vec<String> = extensions.collect();
    known.extend(type_sets().into_iter().map(|set| set.name.to_owned()));
    format!(
        "{} declares no types that this program can read; it knows {}",
        file.display(),
        known.join(", ")
    )
}

/// The files and sets that one path stands for.
fn expanded(path: &Path, plugins: &[&Plugin]) -> Result<Vec<PathBuf>, Error> {
    if type_set(path).is_some() {
        return Ok(vec![path.to_owned()]);
    }
    if path.is_dir() {
        let mut found = Vec::new();
        below(path, plugins, 0, &mut found)?;
        found.sort();
        let none = || Error::refused(format!("no file below {} declares types", path.display()));
        return if found.is_empty() { Err(none()) } else { Ok(found) };
    }
    let inputs = files::expand(&[path.to_owned()])?;
    Ok(inputs.into_iter().map(|input| input.path).collect())
}

/// Folders nest no deeper; links can make them go round.
const DEEPEST_FOLDER: usize = 32;

fn below(
    folder: &Path,
    plugins: &[&Plugin],
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    if depth == DEEPEST_FOLDER {
        return Ok(());
    }
    let list = |e| Error::io("list", folder, e);
    for entry in std::fs::read_dir(folder).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if path.is_dir() {
            below(&path, plugins, depth + 1, found)?;
        } else if plugins.iter().any(|plugin| reads(plugin, &path)) {
            found.push(path);
        }
    }
    Ok(())
}

/// What is said of a type wherever its rows go: enough to make their payloads again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageType {
    /// Its full name.
    pub name: Arc<str>,
    /// As its codec numbers it.
    pub key: TypeKey,
    /// The name of its codec; empty where nobody knows it.
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
}

/// A type that its codec knows.
#[derive(Clone, Debug)]
pub struct KnownType {
    /// What it is.
    pub described: Arc<MessageType>,
    /// The file that declares it, where there is one.
    pub file: Option<PathBuf>,
    /// The line of its declaration.
    pub line: usize,
    /// Reads and makes its payloads; nothing if it has none of its own, or `unfit` says why not.
    pub form: Option<Arc<dyn PayloadType>>,
    /// Why its payloads cannot be decoded although its declaration is right.
    pub unfit: Option<String>,
}

/// Knows the types of one kind of payload.
///
/// It is made from files that declare types. Mistakes in these do not keep it from being made, so that
/// all of them can be told; stages refuse a codec that has some.
pub trait Codec: Send + Sync {
    /// The mistakes in the files it was made from: with file, line, column and what to do.
    fn mistakes(&self) -> &[String];

    /// Every type it knows, by name.
    fn types(&self) -> &[KnownType];

    /// Whether payloads of this channel may be of its types. Asked once a channel.
    fn may_read(&self, channel: &Channel) -> bool;

    /// The number of the payload's type, known or not; nothing if it has none. Asked once an event.
    fn key_of(&self, payload: &[u8]) -> Option<TypeKey>;

    /// A type from its description, which may come from anywhere. `Err` says what is wrong with it.
    fn adopt(&self, described: &MessageType) -> Result<Arc<dyn PayloadType>, String>;
}

/// Turns payloads of one type into Arrow columns, and back.
pub trait PayloadType: fmt::Debug + Send + Sync {
    /// What it is.
    fn described(&self) -> &Arc<MessageType>;

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
