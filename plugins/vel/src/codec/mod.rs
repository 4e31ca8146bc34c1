//! Codec `vel`: VEL messages as Arrow columns and back, by messages declared as lists of fields.
//!
//! Which message a payload is, its channel says (`vel.type`, `vel.version`). A version above those that
//! are declared is decoded by the highest of them, and what is behind its fields is kept as bytes in
//! `tail`. Decoding and encoding are inverse: what would not come back byte for byte stays a payload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::layout::PlainType;
use sluice_core::{
    Channel, Codec, Encoding, KeyOf, KnownType, MessageType, OptionsError, PayloadType, TypeFile,
    TypeKey, TypePaths, UnusableTypes,
};

use crate::channels::{TYPE, VERSION};
use crate::hash;

mod declared;
#[cfg(test)]
mod tests;

pub use declared::{Declared, DeclaredCount, DeclaredField, FieldType, Versions};

/// Its name in the registry, and in descriptions of types.
pub const NAME: &str = "vel";

/// The messages of the Koblenz software: name and text of the files that declare them.
pub const TYPES: &[(&str, &str)] = &[("vel.veltypes", include_str!("../../types/vel.veltypes"))];

/// Options of the codec `vel`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VelTypes {
    /// Files that declare messages, or names of sets of types that this program has.
    pub types: TypePaths,
    /// Messages that no file declares.
    pub messages: Vec<Declared>,
}

sluice_core::register! {
    codec "vel": VelTypes,
    about: "VEL messages, by lists of their fields",
    sample: include_str!("../../samples/vel-codec.toml"),
    extensions: &["veltypes"],
}

sluice_core::register! {
    types "vel": TYPES,
    codec: "vel",
    about: "images, inertial states, laser scans and laser settings of the Koblenz VEL DataLog",
}

/// What a payload is, as this codec numbers it: type, version, and whether the version is above it.
pub fn key(type_id: u32, version: i32, versions: Versions) -> Option<TypeKey> {
    let version =
        u32::try_from(version).ok().filter(|version| u64::from(*version) < RAW_BOOLEANS)?;
    let above = if versions == Versions::Above { ABOVE } else { 0 };
    Some(TypeKey(u64::from(type_id) << 32 | u64::from(version) | above))
}

/// The number of a type's rows that have the bytes of their booleans. No version is as high as that bit.
fn raw_key(key: TypeKey) -> TypeKey {
    TypeKey(key.0 | RAW_BOOLEANS)
}

/// The type and version that a number of this codec stands for; of a version above those that are known,
/// the highest of these.
pub fn of_key(key: TypeKey) -> (u32, i32) {
    ((key.0 >> 32) as u32, (key.0 & !(ABOVE | RAW_BOOLEANS)) as u32 as i32)
}

pub(crate) const ABOVE: u64 = 1 << 31;
/// The bit of rows with the bytes of their booleans.
const RAW_BOOLEANS: u64 = 1 << 30;

/// Declared messages.
#[derive(Debug, Default)]
struct VelCodec {
    types: Vec<KnownType>,
    /// The versions that are declared of each type.
    versions: Arc<BTreeMap<u32, Vec<i32>>>,
    mistakes: Vec<String>,
    unusable: Vec<UnusableTypes>,
    made_from: String,
}

/// A declaration, and where it stands.
struct Placed {
    declared: Declared,
    file: Option<PathBuf>,
    line: usize,
}

impl TryFrom<VelTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: VelTypes) -> Result<Self, OptionsError> {
        let (mut placed, mut mistakes, mut unusable) = (Vec::new(), Vec::new(), Vec::new());
        for TypeFile { path, text } in options.types.texts(NAME, LONGEST_FILE)? {
            match read(&path, &text) {
                Ok(found) => placed.extend(found),
                Err((why, line)) => {
                    mistakes.push(format!("error: {why}: {}:{line}", path.display()));
                    let why = format!("{why} (line {line})");
                    let types = Vec::new();
                    unusable.push(UnusableTypes {
                        file: Some(path),
                        types,
                        why,
                        has_mistake: true,
                    });
                }
            }
        }
        for (at, declared) in options.messages.into_iter().enumerate() {
            let checked = declared.layout(Versions::This).map(drop);
            let checked = checked.and_then(|()| described(&declared, Versions::This).map(drop));
            checked.map_err(|message| OptionsError {
                path: vec!["messages".to_owned(), at.to_string()],
                message: format!("`{}`: {message}", declared.name),
            })?;
            placed.push(Placed { declared, file: None, line: 0 });
        }
        Ok(Box::new(VelCodec::of(placed, mistakes, unusable)))
    }
}

/// A types file is read whole; none is longer than this.
const LONGEST_FILE: usize = 1 << 20;

/// What a types file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    #[serde(default)]
    messages: Vec<toml::Spanned<Declared>>,
}

/// The messages that a file declares, or what is wrong with it and in which line.
fn read(path: &Path, text: &str) -> Result<Vec<Placed>, (String, usize)> {
    let line_of = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let file: FileForm = toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(span.start));
        (e.message().to_owned(), line)
    })?;
    let placed = file.messages.into_iter().map(|found| Placed {
        line: line_of(found.span().start),
        declared: found.into_inner(),
        file: Some(path.to_owned()),
    });
    Ok(placed.collect())
}

impl VelCodec {
    fn of(mut placed: Vec<Placed>, mistakes: Vec<String>, unusable: Vec<UnusableTypes>) -> Self {
        let mut codec = Self { mistakes, unusable, ..Self::default() };
        let mut hash = blake3::Hasher::new();
        placed.sort_by(|a, b| {
            (&a.declared.name, a.declared.version).cmp(&(&b.declared.name, b.declared.version))
        });
        let (mut known, mut named) = (BTreeMap::new(), BTreeMap::new());
        // Which of several declarations is the right one nobody knows, nor what newer versions are like.
        let mut clashing: BTreeMap<u32, String> = BTreeMap::new();
        for place in &placed {
            hash.update(description(&place.declared).as_bytes());
            let (id, version) = (place.declared.type_id(), place.declared.version);
            let same_number = *named.entry(id).or_insert(place);
            let same_version = *known.entry((id, version)).or_insert(place);
            if let Some(what) = clash(place, same_number, same_version) {
                codec.mistakes.push(format!("error: {what}"));
                clashing.entry(id).or_insert(what);
            }
        }
        for place in &placed {
            if let Some(what) = clashing.get(&place.declared.type_id()) {
                codec.give_up(place, what);
            }
        }
        known.retain(|(id, _), _| !clashing.contains_key(id));
        codec.made_from = format!("{NAME} types, blake3 {}", hash.finalize().to_hex());
        let mut versions: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        known.keys().for_each(|(id, version)| versions.entry(*id).or_default().push(*version));
        for ((id, version), place) in known {
            codec.add(place, Versions::This);
            if versions.get(&id).and_then(|all| all.last()) == Some(&version) {
                codec.add(place, Versions::Above);
            }
        }
        codec.types.sort_by(|a, b| a.message_type.name.cmp(&b.message_type.name));
        codec.versions = Arc::new(versions);
        codec
    }

    /// Notes that a declaration cannot be used.
    fn give_up(&mut self, place: &Placed, why: &str) {
        let (file, name) = (place.file.as_deref(), &place.declared.name);
        UnusableTypes::add(&mut self.unusable, file, name, (why.to_owned(), true));
    }

    fn add(&mut self, place: &Placed, versions: Versions) {
        let Placed { declared, file, line } = place;
        let mistake =
            |what: String| format!("error: `{}`: {what}: {}", declared.name, place.place());
        let (described, layout) = (described(declared, versions), declared.layout(versions));
        // What is wrong with a declaration is said once, of its first form.
        let wrong = [described.as_ref().err(), layout.as_ref().err()];
        if versions == Versions::This {
            for what in wrong.into_iter().flatten() {
                self.mistakes.push(mistake(what.clone()));
                self.give_up(place, &format!("{what} (line {line})"));
            }
        }
        if let (Ok(described), Ok(layout)) = (described, layout) {
            let described = Arc::new(described);
            let raw = raw_key(described.key);
            let form = PlainType::new(Arc::clone(&described), layout).with_raw_booleans_as(raw);
            let form = Ok(Arc::new(form) as _);
            self.types.push(KnownType {
                message_type: described,
                file: file.clone(),
                line: *line,
                payload_type: form,
            });
        }
    }
}

impl Placed {
    fn place(&self) -> String {
        match &self.file {
            Some(file) => format!("{}:{}", file.display(), self.line),
            None => "`messages`".to_owned(),
        }
    }
}

/// What is wrong with a declaration beside the first of its number, and the first of its version.
fn clash(place: &Placed, same_number: &Placed, same_version: &Placed) -> Option<String> {
    let Declared { name, version, .. } = &place.declared;
    let places = |other: &Placed| format!("{} and {}", place.place(), other.place());
    if same_number.declared.name != *name {
        let (other, number) = (&same_number.declared.name, hash::hex(place.declared.type_id()));
        let places = places(same_number);
        return Some(format!(
            "`{name}` and `{other}` have the same number {number}; leave one of them out: {places}"
        ));
    }
    (same_version.declared != place.declared).then(|| {
        let places = places(same_version);
        format!(
            "version {version} of `{name}` is declared in two ways; leave one of them out: {places}"
        )
    })
}

fn description(declared: &Declared) -> String {
    serde_json::to_string(declared).unwrap_or_default()
}

fn described(declared: &Declared, versions: Versions) -> Result<MessageType, String> {
    let Declared { name, version, .. } = declared;
    let key = key(declared.type_id(), *version, versions)
        .ok_or("a version is 0 or more, and below 1073741824")?;
    let above = if versions == Versions::Above { "+" } else { "" };
    Ok(MessageType {
        name: format!("{name}.v{version}{above}").into(),
        key,
        codec: NAME.into(),
        text: description(declared).into(),
    })
}

/// The type and version that a channel's messages are of.
fn type_of(channel: &Channel) -> Option<(u32, i32)> {
    let said = |key: &str| channel.metadata.get(key).map(String::as_str);
    said(TYPE).and_then(hash::from_hex).zip(said(VERSION).and_then(|version| version.parse().ok()))
}

/// Descriptions come out of files that anybody may have written; none of ours is longer.
const LONGEST_DESCRIPTION: usize = 1 << 20;

impl Codec for VelCodec {
    fn mistakes(&self) -> &[String] {
        &self.mistakes
    }

    fn unusable(&self) -> &[UnusableTypes] {
        &self.unusable
    }

    fn types(&self) -> &[KnownType] {
        &self.types
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if channel.encoding != Encoding::Vel {
            return None;
        }
        let key = type_of(channel).and_then(|(id, version)| {
            let highest = self.versions.get(&id).and_then(|all| all.last());
            match highest {
                Some(highest) if version > *highest => key(id, *highest, Versions::Above),
                _ => key(id, version, Versions::This),
            }
        });
        Some(Arc::new(move |_| key))
    }

    fn fingerprint(&self) -> &str {
        &self.made_from
    }

    fn adopt(&self, message: &MessageType, _: &Schema) -> Result<Arc<dyn PayloadType>, String> {
        if message.text.len() > LONGEST_DESCRIPTION {
            return Err("its description is longer than any of ours".to_owned());
        }
        let declared: Declared = serde_json::from_str(&message.text)
            .map_err(|e| format!("its description cannot be read: {e}"))?;
        for versions in [Versions::This, Versions::Above] {
            let found = described(&declared, versions)?;
            let is_raw = message.key == raw_key(found.key);
            if (is_raw || message.key == found.key) && message.name == found.name {
                let (layout, raw) = (declared.layout(versions)?, raw_key(found.key));
                let form = PlainType::new(Arc::new(found), layout).with_raw_booleans_as(raw);
                let raw = form.with_raw_booleans().filter(|_| is_raw);
                return Ok(raw.unwrap_or_else(|| Arc::new(form)));
            }
        }
        Err("its description is that of another message".to_owned())
    }
}
