//! Codec `vel`: VEL messages as Arrow columns and back, using declared lists of fields.
//!
//! The channel of a payload tells its message type (`vel.type`, `vel.version`). A version above the
//! declared ones is decoded by the highest of them, with the rest as bytes in `tail`. Decoding and
//! encoding are inverse: a payload that would not come back byte for byte is not decoded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::columns::PayloadPlan;
use sluice_kit::type_library::MAX_DESCRIPTION_LEN;
use sluice_kit::{TypeFile, TypePaths};
use sluice_model::raw::RawColumn;
use sluice_model::{
    Channel, Codec, DeclaredTypes, Encoding, KeyOf, KnownType, MessageType, OptionsError,
    PayloadType, TypeKey, UnusableTypes,
};

use crate::channels::type_of_channel;
use crate::hash;

mod declared;
#[cfg(test)]
mod tests;

pub(crate) use declared::{DeclaredMessage, Versions};

/// The name in the registry and in type descriptions.
pub(crate) const NAME: &str = "vel";

/// The messages of the Koblenz software: names and texts of the files that declare them.
pub(crate) const TYPES: &[(&str, &str)] =
    &[("vel.veltypes", include_str!("../../types/vel.veltypes"))];

/// Options of the codec `vel`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VelTypes {
    /// Files that declare messages, or names of built-in sets.
    pub types: TypePaths,
    /// Further messages, declared inline.
    pub messages: Vec<DeclaredMessage>,
}

sluice_model::register! {
    codec "vel": VelTypes,
    about: "VEL messages, using declared lists of fields",
    sample: include_str!("../../samples/vel-codec.toml"),
    extensions: &["veltypes"],
}

sluice_model::register! {
    types "vel": TYPES,
    codec: "vel",
    encoding: Encoding::Vel,
    about: "images, inertial states, laser scans and laser settings of the Koblenz VEL DataLog",
}

/// The key of a type: its number, version, and whether it covers later versions.
pub(crate) fn type_key(type_id: u32, version: i32, versions: Versions) -> Option<TypeKey> {
    let version =
        u32::try_from(version).ok().filter(|version| u64::from(*version) < RAW_BOOLEANS)?;
    let above = if versions == Versions::Above { ABOVE } else { 0 };
    Some(TypeKey(u64::from(type_id) << 32 | u64::from(version) | above))
}

/// The key of rows with raw booleans. Versions stay below that bit.
fn raw_key(key: TypeKey) -> TypeKey {
    TypeKey(key.0 | RAW_BOOLEANS)
}

/// The type and version of a key; for later versions, the highest declared version.
pub(crate) fn type_of_key(key: TypeKey) -> (u32, i32) {
    ((key.0 >> 32) as u32, (key.0 & !(ABOVE | RAW_BOOLEANS)) as u32 as i32)
}

pub(crate) const ABOVE: u64 = 1 << 31;
/// The bit of rows with raw booleans.
const RAW_BOOLEANS: u64 = 1 << 30;

/// Declared messages.
#[derive(Debug, Default)]
struct VelCodec {
    declared: DeclaredTypes,
    /// The declared versions of each type.
    versions: Arc<BTreeMap<u32, Vec<i32>>>,
}

/// A declaration and its position.
struct LocatedMessage {
    declared: DeclaredMessage,
    file: Option<PathBuf>,
    line: usize,
}

impl TryFrom<VelTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: VelTypes) -> Result<Self, OptionsError> {
        let (mut placed, mut types) = (Vec::new(), DeclaredTypes::default());
        for TypeFile { path, text } in options.types.texts(NAME, MAX_FILE_LEN)? {
            match read_declarations(&path, &text) {
                Ok(found) => placed.extend(found),
                Err((why, line)) => {
                    types.mistakes.push(format!("error: {why}: {}:{line}", path.display()));
                    types.unusable.push(UnusableTypes {
                        file: Some(path),
                        types: Vec::new(),
                        why: format!("{why} (line {line})"),
                        has_mistake: true,
                    });
                }
            }
        }
        for (at, declared) in options.messages.into_iter().enumerate() {
            let checked = declared.plan(Versions::This).map(drop);
            let checked = checked.and_then(|()| message_type(&declared, Versions::This).map(drop));
            checked.map_err(|message| {
                let message = format!("`{}`: {message}", declared.name);
                OptionsError::in_entry("messages", at, message)
            })?;
            placed.push(LocatedMessage { declared, file: None, line: 0 });
        }
        Ok(Box::new(VelCodec::from_declarations(placed, types)))
    }
}

/// Type files are read into memory; longer ones are refused.
const MAX_FILE_LEN: usize = 1 << 20;

/// The contents of a types file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypesFile {
    #[serde(default)]
    messages: Vec<toml::Spanned<DeclaredMessage>>,
}

/// Parses the declarations of a file. `Err` has the mistake and its line.
fn read_declarations(path: &Path, text: &str) -> Result<Vec<LocatedMessage>, (String, usize)> {
    let line_of = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let file: TypesFile = toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(span.start));
        (e.message().to_owned(), line)
    })?;
    let placed = file.messages.into_iter().map(|found| LocatedMessage {
        line: line_of(found.span().start),
        declared: found.into_inner(),
        file: Some(path.to_owned()),
    });
    Ok(placed.collect())
}

impl VelCodec {
    /// The codec of these declarations, and of the mistakes found so far.
    fn from_declarations(mut placed: Vec<LocatedMessage>, declared: DeclaredTypes) -> Self {
        let mut codec = Self { declared, ..Self::default() };
        let mut hash = blake3::Hasher::new();
        placed.sort_by(|a, b| {
            (&a.declared.name, a.declared.version).cmp(&(&b.declared.name, b.declared.version))
        });
        let (mut known, mut named) = (BTreeMap::new(), BTreeMap::new());
        // With conflicting declarations nobody knows which one is right, nor what newer versions
        // look like.
        let mut clashing: BTreeMap<u32, String> = BTreeMap::new();
        for place in &placed {
            hash.update(description(&place.declared).as_bytes());
            let (id, version) = (place.declared.type_id(), place.declared.version);
            let same_number = *named.entry(id).or_insert(place);
            let same_version = *known.entry((id, version)).or_insert(place);
            if let Some(what) = clash(place, same_number, same_version) {
                codec.declared.mistakes.push(format!("error: {what}"));
                clashing.entry(id).or_insert(what);
            }
        }
        for place in &placed {
            if let Some(what) = clashing.get(&place.declared.type_id()) {
                codec.mark_unusable(place, what);
            }
        }
        known.retain(|(id, _), _| !clashing.contains_key(id));
        codec.declared.fingerprint = format!("{NAME} types, blake3 {}", hash.finalize().to_hex());
        let mut versions: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        known.keys().for_each(|(id, version)| versions.entry(*id).or_default().push(*version));
        for ((id, version), place) in known {
            codec.add(place, Versions::This);
            if versions.get(&id).and_then(|all| all.last()) == Some(&version) {
                codec.add(place, Versions::Above);
            }
        }
        codec.declared.types.sort_by(|a, b| a.message_type.name.cmp(&b.message_type.name));
        codec.versions = Arc::new(versions);
        codec
    }

    /// Records that a declaration cannot be used.
    fn mark_unusable(&mut self, place: &LocatedMessage, why: &str) {
        let (file, name) = (place.file.as_deref(), &place.declared.name);
        UnusableTypes::add(&mut self.declared.unusable, file, name, (why.to_owned(), true));
    }

    fn add(&mut self, place: &LocatedMessage, versions: Versions) {
        let LocatedMessage { declared, file, line } = place;
        let mistake =
            |what: String| format!("error: `{}`: {what}: {}", declared.name, place.location());
        let (described, plan) = (message_type(declared, versions), declared.plan(versions));
        // A mistake in a declaration is reported once.
        let wrong = [described.as_ref().err(), plan.as_ref().err()];
        if versions == Versions::This {
            for what in wrong.into_iter().flatten() {
                self.declared.mistakes.push(mistake(what.clone()));
                self.mark_unusable(place, &format!("{what} (line {line})"));
            }
        }
        if let (Ok(described), Ok(plan)) = (described, plan) {
            let described = Arc::new(described);
            self.declared.types.push(KnownType {
                message_type: Arc::clone(&described),
                file: file.clone(),
                line: *line,
                payload_type: Ok(payload_type(described, plan)),
            });
        }
    }
}

impl LocatedMessage {
    fn location(&self) -> String {
        match &self.file {
            Some(file) => format!("{}:{}", file.display(), self.line),
            None => "`messages`".to_owned(),
        }
    }
}

/// The conflict with the first declaration of the same number or version, if any.
fn clash(
    place: &LocatedMessage,
    same_number: &LocatedMessage,
    same_version: &LocatedMessage,
) -> Option<String> {
    let DeclaredMessage { name, version, .. } = &place.declared;
    let places = |other: &LocatedMessage| format!("{} and {}", place.location(), other.location());
    if same_number.declared.name != *name {
        let (other, number) = (&same_number.declared.name, hash::hex(place.declared.type_id()));
        let places = places(same_number);
        return Some(format!(
            "`{name}` and `{other}` have the same number {number}; remove one of them: {places}"
        ));
    }
    (same_version.declared != place.declared).then(|| {
        let places = places(same_version);
        format!(
            "version {version} of `{name}` has conflicting declarations; remove one of them: \
             {places}"
        )
    })
}

fn description(declared: &DeclaredMessage) -> String {
    serde_json::to_string(declared).unwrap_or_default()
}

fn message_type(declared: &DeclaredMessage, versions: Versions) -> Result<MessageType, String> {
    let DeclaredMessage { name, version, .. } = declared;
    let key = type_key(declared.type_id(), *version, versions)
        .ok_or("a version has to be from 0 to 1073741823")?;
    let above = if versions == Versions::Above { "+" } else { "" };
    Ok(MessageType {
        name: format!("{name}.v{version}{above}").into(),
        key,
        codec: NAME.into(),
        text: description(declared).into(),
    })
}

/// The payload type of these messages, which have this plan.
fn payload_type(message: Arc<MessageType>, plan: PayloadPlan) -> PayloadType {
    let raw = raw_key(message.key);
    PayloadType::new(message, plan).with_raw_column(RawColumn::Booleans, raw)
}

impl Codec for VelCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if channel.encoding != Encoding::Vel {
            return None;
        }
        let key = type_of_channel(channel).and_then(|(id, version)| {
            let highest = self.versions.get(&id).and_then(|all| all.last());
            match highest {
                Some(highest) if version > *highest => type_key(id, *highest, Versions::Above),
                _ => type_key(id, version, Versions::This),
            }
        });
        Some(Arc::new(move |_| key))
    }

    fn adopt(&self, message: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        if message.text.len() > MAX_DESCRIPTION_LEN {
            return Err("the description is longer than 1 MiB".to_owned());
        }
        let declared: DeclaredMessage = serde_json::from_str(&message.text)
            .map_err(|e| format!("the description cannot be parsed: {e}"))?;
        for versions in [Versions::This, Versions::Above] {
            let found = message_type(&declared, versions)?;
            let is_raw = message.key == raw_key(found.key);
            if (is_raw || message.key == found.key) && message.name == found.name {
                let plan = declared.plan(versions)?;
                return Ok(payload_type(Arc::new(found), plan).with_key(message.key));
            }
        }
        Err("the description is of another message".to_owned())
    }
}
