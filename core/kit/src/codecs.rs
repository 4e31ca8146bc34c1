//! The codecs of a run, made from the files and built-in sets that declare its types. Parses no
//! type file itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_io::files::{self, FileChoice, Input};
use sluice_model::options::{self, TYPES_FORMAT};
use sluice_model::registry::{type_set, type_sets};
use sluice_model::{
    Channel, Codec, Error, KnownType, OptionsError, Plugin, PluginFactory, PluginKind, Registry,
    UnusableTypes,
};

use crate::suggestion::nearest;

/// A file that declares types.
#[derive(Clone, Debug)]
pub struct TypeFile {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

/// The [fingerprint](sluice_model::DeclaredTypes::fingerprint) of a codec made from these files.
pub fn fingerprint(codec: &str, files: &[TypeFile]) -> String {
    let mut hash = blake3::Hasher::new();
    for file in files {
        hash.update(&(file.text.len() as u64).to_be_bytes()).update(file.text.as_bytes());
    }
    format!("{codec} types, blake3 {}", hash.finalize().to_hex())
}

/// Where types come from: files, globs, folders, and names of built-in sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TypePaths(pub Vec<PathBuf>);

impl TypePaths {
    /// All built-in sets.
    pub fn built_in() -> Self {
        Self(type_sets().into_iter().map(|set| PathBuf::from(set.name)).collect())
    }

    /// Reads every file, for a codec of that name whose files are at most `longest` bytes long.
    /// Bytes that are not UTF-8 are replaced: comments may be in any encoding.
    ///
    /// `Err` names the path that cannot be read, or is not a file of types.
    pub fn texts(&self, codec: &str, longest: usize) -> Result<Vec<TypeFile>, OptionsError> {
        let mut all = Vec::new();
        for (at, path) in self.0.iter().enumerate() {
            let texts = texts(path, codec, longest);
            all.extend(texts.map_err(|e| OptionsError::in_entry("types", at, e.to_string()))?);
        }
        Ok(all)
    }
}

fn texts(path: &Path, codec: &str, longest: usize) -> Result<Vec<TypeFile>, Error> {
    if let Some(set) = type_set(path).filter(|set| set.codec == codec) {
        let file = |(name, text): &(&str, &str)| TypeFile {
            path: Path::new(set.name).join(name),
            text: (*text).to_owned(),
        };
        return Ok(set.files.iter().map(file).collect());
    }
    let bytes = files::read_small(path, longest)?;
    if bytes.len() > longest {
        return Err(Error::invalid(format!("longer than any file of types: {}", path.display())));
    }
    if bytes.contains(&0) {
        let what = "it contains zero bytes, so it is probably a log, not a file of types";
        return Err(Error::invalid(format!("{what}: {}", path.display())));
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(vec![TypeFile { path: path.to_owned(), text }])
}

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

/// Options of codecs besides the files. Each codec is given those that it has.
#[derive(Clone, Debug, Default)]
pub struct CodecOptions {
    /// How often a recursive type is expanded inside itself.
    pub depth: Option<u8>,
    /// Types declared by options, in the language of the codec that accepts them.
    pub messages: Vec<Value>,
}

impl CodecOptions {
    fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let depth = self.depth.map(|depth| ("depth", json!(depth)));
        let messages = (!self.messages.is_empty()).then(|| ("messages", json!(self.messages)));
        depth.into_iter().chain(messages)
    }
}

/// The name of the set of types that channels declare themselves ([`Channel::schema`]).
///
/// [`Channel::schema`]: sluice_model::Channel::schema
pub const EMBEDDED_TYPES: &str = "embedded";

sluice_model::register! {
    types "embedded": &[],
    codec: "",
    about: "the types that the log itself declares for its channels",
}

/// The name of the same set for logs that need not declare any type: without other types, channels
/// that declare none are not decoded, and nothing is reported of them.
pub const EMBEDDED_IF_ANY: &str = "embedded-if-any";

sluice_model::register! {
    types "embedded-if-any": &[],
    codec: "",
    about: "the types that the log itself declares for its channels, if it declares any",
}

/// Whether the types that channels declare themselves are used.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum EmbeddedUse {
    #[default]
    Unused,
    /// Used where a channel declares one.
    IfAny,
    /// Used, and every channel is expected to declare one.
    Expected,
}

impl EmbeddedUse {
    /// The use that a set of this name asks for.
    fn of_set(name: &Path) -> Option<Self> {
        match name.to_str()? {
            EMBEDDED_TYPES => Some(Self::Expected),
            EMBEDDED_IF_ANY => Some(Self::IfAny),
            _ => None,
        }
    }
}

/// Codecs with the types they were made from.
#[derive(Default)]
pub struct Codecs {
    all: Vec<(&'static str, Arc<dyn Codec>)>,
    /// The files that were named individually, not found in a folder or by a glob.
    named: HashSet<PathBuf>,
    /// Whether the types that channels declare themselves are used.
    embedded: EmbeddedUse,
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|(name, _)| name)).finish()
    }
}

impl Codecs {
    /// Makes the codecs of a registry from files and sets of types. Each codec gets the files of
    /// its own kind, and those options that it has.
    ///
    /// Errors in the files are kept in the codecs: see [`refusal`](Self::refusal). `Err` if a file
    /// cannot be read, or no codec knows its kind.
    pub fn from_paths(
        registry: &Registry,
        types: &TypePaths,
        options: &CodecOptions,
    ) -> Result<Self, OptionsError> {
        let plugins: Vec<&Plugin> =
            registry.iter().filter(|p| p.kind() == PluginKind::Codec).collect();
        let mut files: Vec<Vec<PathBuf>> = vec![Vec::new(); plugins.len()];
        let (mut named, mut embedded) = (HashSet::new(), EmbeddedUse::Unused);
        for (at, path) in types.0.iter().enumerate() {
            if let Some(asked) = EmbeddedUse::of_set(path) {
                embedded = embedded.max(asked);
                continue;
            }
            let wrong = |message: String| OptionsError::in_entry("types", at, message);
            for file in expanded(path, &plugins).map_err(|e| wrong(e.to_string()))? {
                let place = plugins.iter().position(|plugin| reads(plugin, &file));
                let place = place.ok_or_else(|| wrong(unknown(&file, &plugins)))?;
                if file == *path {
                    named.insert(file.clone());
                }
                if !files[place].contains(&file) {
                    files[place].push(file);
                }
            }
        }
        let made = plugins.into_iter().zip(files);
        let made = made.map(|(plugin, files)| {
            Ok((plugin.name, make_once(registry, plugin, &files, options)?))
        });
        Ok(Self { all: made.collect::<Result<_, _>>()?, named, embedded })
    }

    /// Whether the types that channels declare themselves are among these types.
    pub fn has_embedded(&self) -> bool {
        self.embedded != EmbeddedUse::Unused
    }

    /// Whether nobody expects a type for this channel: with [`EMBEDDED_IF_ANY`], if it declares
    /// none, and the other types are for other encodings.
    pub fn expects_none(&self, channel: &Channel) -> bool {
        let is_optional = self.embedded == EmbeddedUse::IfAny && !channel.may_declare_type();
        let mut others = self.iter().filter(|codec| !codec.types().is_empty());
        is_optional && others.all(|codec| codec.keys(channel).is_none())
    }

    /// The type that a channel declares itself, if such types are used and a codec knows its
    /// language.
    pub fn embedded(&self, channel: &Channel) -> Option<KnownType> {
        let all = self.has_embedded().then(|| self.iter());
        all.into_iter().flatten().find_map(|codec| codec.embedded(channel))
    }

    /// The codecs, by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Codec> {
        self.all.iter().map(|(_, codec)| &**codec)
    }

    /// The codec of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Codec> {
        self.all.iter().find(|(known, _)| *known == name).map(|(_, codec)| &**codec)
    }

    /// All types of all codecs.
    pub fn types(&self) -> impl Iterator<Item = &KnownType> {
        self.iter().flat_map(Codec::types)
    }

    /// All errors in the files as one text; `None` if there are none.
    pub fn mistakes(&self) -> Option<String> {
        let all: Vec<&str> = self.iter().flat_map(Codec::mistakes).map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("the types have mistakes\n\n{}", all.join("\n\n")))
    }

    /// Why these types cannot be used at all: all errors as one text, if a file that was named
    /// individually has one, or if no type is usable. Errors in other files of a folder or glob
    /// only affect the types that depend on them: see [`unusable`](Self::unusable).
    pub fn refusal(&self) -> Option<String> {
        let is_named = |unusable: &UnusableTypes| {
            let file = unusable.file.as_ref();
            unusable.has_mistake && file.is_none_or(|file| self.named.contains(file))
        };
        let is_named = self.iter().flat_map(|codec| &codec.declared().unusable).any(is_named);
        let is_expected = self.embedded == EmbeddedUse::Expected;
        let is_empty = !is_expected && self.types().next().is_none();
        if is_named || is_empty { self.mistakes() } else { None }
    }

    /// The types that cannot be used, one line each; after a hundred only their number.
    pub fn unusable(&self) -> Vec<String> {
        const MAX_SHOWN: usize = 100;
        let all: Vec<&UnusableTypes> =
            self.iter().flat_map(|codec| &codec.declared().unusable).collect();
        let more = all.len().saturating_sub(MAX_SHOWN);
        let lines = all.into_iter().take(MAX_SHOWN).map(UnusableTypes::to_string);
        lines.chain((more > 0).then(|| format!("and {more} more like these"))).collect()
    }
}

/// Whether a codec of the registry finds types in a file, regardless of its name.
pub fn declares_types(registry: &Registry, file: &Path) -> bool {
    let codecs = registry.iter().filter(|plugin| plugin.kind() == PluginKind::Codec);
    let files = [file.to_owned()];
    codecs.into_iter().any(|plugin| {
        make(registry, plugin, &files, &CodecOptions::default()).is_ok_and(|codec| {
            let is_named = |unusable: &UnusableTypes| !unusable.types.is_empty();
            !codec.types().is_empty() || codec.declared().unusable.iter().any(is_named)
        })
    })
}

/// A built-in set as a constructor of codecs reads it, by the constructor's address.
type BuiltInTypes = (usize, &'static str);

/// The codecs of single built-in sets without options. Their text never changes, and parsing it
/// takes longer than all else that starts a run.
static BUILT_IN: Mutex<BTreeMap<BuiltInTypes, Arc<dyn Codec>>> = Mutex::new(BTreeMap::new());

/// The codec of these files: that of a built-in set is made once in a process.
fn make_once(
    registry: &Registry,
    plugin: &Plugin,
    files: &[PathBuf],
    given: &CodecOptions,
) -> Result<Arc<dyn Codec>, OptionsError> {
    let make = || make(registry, plugin, files, given).map(Arc::from);
    let ([file], None) = (files, given.values().next()) else { return make() };
    let (Some(set), PluginFactory::Codec(constructor)) = (type_set(file), plugin.make) else {
        return make();
    };
    let key = (constructor as usize, set.name);
    let lock = || BUILT_IN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().get(&key).cloned();
    match known {
        Some(codec) => Ok(codec),
        // Two threads may both make it: nothing depends on which one stays.
        None => make().inspect(|codec| drop(lock().insert(key, Arc::clone(codec)))),
    }
}

fn make(
    registry: &Registry,
    plugin: &Plugin,
    files: &[PathBuf],
    given: &CodecOptions,
) -> Result<Box<dyn Codec>, OptionsError> {
    if let Some(file) = files.iter().find(|file| file.to_str().is_none()) {
        let message = format!("the name of {} is not UTF-8; rename it", file.display());
        return Err(OptionsError::at("types", message));
    }
    let mut options = serde_json::Map::from_iter([("types".to_owned(), json!(files))]);
    let mut given = given.values().peekable();
    // Most have none, and the schema of the options is made for their names.
    let names = if given.peek().is_some() { plugin.option_names() } else { Vec::new() };
    for (name, value) in given {
        if names.iter().any(|known| known == name) {
            options.insert(name.to_owned(), value);
        }
    }
    registry.codec(plugin.name, options.into())
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

/// The files and sets that one path means.
fn expanded(path: &Path, plugins: &[&Plugin]) -> Result<Vec<PathBuf>, Error> {
    if type_set(path).is_some() {
        return Ok(vec![path.to_owned()]);
    }
    if files::is_folder(path) {
        let is_read = |file: &Path| plugins.iter().any(|plugin| reads(plugin, file));
        let choose = |file: &Path| match is_read(file) {
            true => FileChoice::Take,
            false => FileChoice::Skip,
        };
        let mut found = Vec::new();
        for Input { path, .. } in files::below(path, |_| true, choose)? {
            if is_text(&path)? {
                found.push(path);
            }
        }
        let none = || Error::refused(format!("no file below {} declares types", path.display()));
        return if found.is_empty() { Err(none()) } else { Ok(found) };
    }
    let inputs = files::expand(&[path.to_owned()]).map_err(|error| match near_set(path) {
        Some(near) if error.is_missing() => error.with_detail(&near),
        _ => error,
    })?;
    Ok(inputs.into_iter().map(|input| input.path).collect())
}

/// The built-in set with the most similar name.
fn near_set(path: &Path) -> Option<String> {
    let name = path.to_str().filter(|name| !name.contains(['/', '*', '.']))?;
    let sets: Vec<&str> = type_sets().iter().map(|set| set.name).collect();
    Some(format!("did you mean the built-in types `{}`?", nearest(name, &sets)?))
}

/// Logs may have the extension of type files and lie next to them, but contain zero bytes.
fn is_text(path: &Path) -> Result<bool, Error> {
    Ok(!files::head(path, 1024)?.contains(&0))
}
