//! Codec `lcm`: LCM messages as Arrow columns and back, by the types that `.lcm` files declare.
//!
//! | member | column |
//! |---|---|
//! | `int8_t` … `int64_t`, `float`, `double`, `boolean` | as it is |
//! | `byte` | `UInt8` |
//! | `byte x[n]`, `byte x[8]` | `Binary`, `FixedSizeBinary(8)` |
//! | `string` | `Utf8`; bytes that are none become `\xNN`, see [`sluice_core::name::escaped`] |
//! | enum | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | struct | `Struct` |
//! | `x[3]`, `x[n]`, `x[n][3]` | `FixedSizeList`, `List`, `List` of `FixedSizeList` |
//! | a struct inside of itself | columns as deep as `depth` says; below that `Binary`, the bytes as they lie in the message |
//! | a struct without members, and arrays of it | none: it has no bytes |
//!
//! Decoding and encoding are inverse: a payload that would not come back byte for byte is not decoded. A boolean is
//! true if its byte is not 0; messages in which one is another than 0 or 1 have a column with the booleans' bytes, too.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, Channel, Codec, Encoding, Error, KeyOf, KnownType, MessageType, OptionsError,
    PayloadType, Payloads, Rows, TypeKey, TypePaths, UnusableTypes,
};
use sluice_core::{booleans, codecs};

use crate::types::library::TypeFile;
use crate::types::{Library, TypeId, fingerprint};

mod columns;
mod decode;
mod encode;
mod plan;
mod raw_booleans;
mod wire;

use plan::Plan;
use raw_booleans::RawBooleans;

/// Its name in the registry, and in descriptions of types.
pub const NAME: &str = "lcm";

/// Options of the codec `lcm`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LcmTypes {
    /// Files that declare types, or names of sets of types that this program has.
    pub types: TypePaths,
    /// How often a type that holds itself is taken apart inside itself; what is below stays bytes.
    pub depth: Option<u8>,
}

const USUAL_DEPTH: u8 = 1;

sluice_core::register! {
    codec "lcm": LcmTypes,
    about: "LCM messages, by the types that .lcm files declare",
    sample: include_str!("../../samples/lcm-codec.toml"),
    extensions: &["lcm"],
}

/// The types of a set of `.lcm` files.
#[derive(Debug)]
pub struct LcmCodec {
    types: Vec<KnownType>,
    mistakes: Vec<String>,
    unusable: Vec<UnusableTypes>,
    depth: usize,
    made_from: String,
}

impl TryFrom<LcmTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: LcmTypes) -> Result<Self, OptionsError> {
        let texts = options.types.texts(NAME, LONGEST_FILE)?;
        let depth = options.depth.unwrap_or(USUAL_DEPTH).into();
        Ok(Box::new(LcmCodec::of(texts, depth)))
    }
}

/// A type file is read whole; none is longer than this.
const LONGEST_FILE: usize = 16 << 20;

impl LcmCodec {
    /// The types that these files declare. Types that hold themselves are taken apart `depth` times.
    pub fn of(files: Vec<TypeFile>, depth: usize) -> Self {
        let made_from = codecs::made_from(NAME, &files);
        let library = Arc::new(Library::of(files));
        let (mut mistakes, mut unusable) = (library.mistakes(), library.unusable());
        let (mut types, mut room) = (Vec::new(), Room::default());
        let fingerprints = fingerprint::fingerprints(&library);
        for (id, fingerprint) in library.ids().zip(fingerprints) {
            if !library.is_sound(id) {
                continue;
            }
            match fingerprint {
                Ok(fingerprint) => {
                    types.push(known(&library, id, TypeKey(fingerprint), depth, &mut room));
                }
                Err(reason) => {
                    let (name, file) = (library.name(id), library.file_of(id));
                    let line = library.get(id).line;
                    mistakes.push(format!("error: `{name}`: {reason}: {}:{line}", file.display()));
                    let why = format!("{reason} (line {line})");
                    UnusableTypes::add(&mut unusable, Some(file), name, (why, true));
                }
            }
        }
        types.sort_by(|a, b| (&a.described.name, &a.file).cmp(&(&b.described.name, &b.file)));
        Self { types, mistakes, unusable, depth, made_from }
    }
}

/// What the plans and descriptions of all types together may still take: a small file can declare types that
/// hold each other's columns over and over.
struct Room {
    columns: usize,
    text: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { columns: 300_000, text: 32 << 20 }
    }
}

const NO_ROOM: &str = "the types given have too many columns together; give fewer files";

impl Room {
    /// The plan of a type and its description.
    fn take(
        &mut self,
        library: &Library,
        id: TypeId,
        depth: usize,
    ) -> Result<(Plan, String), String> {
        if self.columns == 0 || self.text == 0 {
            return Err(NO_ROOM.to_owned());
        }
        let plan = plan::compile(library, id, depth)?;
        let text = library.text_of(id).unwrap_or_default();
        self.columns = self.columns.saturating_sub(plan.slots.len());
        self.text = self.text.saturating_sub(text.len());
        Ok((plan, text))
    }
}

fn known(
    library: &Arc<Library>,
    id: TypeId,
    key: TypeKey,
    depth: usize,
    room: &mut Room,
) -> KnownType {
    let (name, codec) = (library.name(id).into(), NAME.into());
    let (plan, text) = match room.take(library, id, depth) {
        Ok((plan, text)) => (Ok(plan), text.into()),
        // Only what can be decoded has rows that need a description.
        Err(reason) => (Err(reason), Arc::default()),
    };
    let described = Arc::new(MessageType { name, key, codec, text });
    let (of, library_of) = (Arc::clone(&described), Arc::clone(library));
    let compiled = |plan| {
        let plan = Arc::new(plan);
        Arc::new(Compiled { described: of, library: library_of, plan }) as _
    };
    let form: Result<Arc<dyn PayloadType>, String> = plan.map(compiled);
    let (file, line) = (Some(library.file_of(id).to_owned()), library.get(id).line);
    KnownType { described, file, line, form }
}

/// Descriptions come out of files that anybody may have written; none of ours is longer.
const LONGEST_DESCRIPTION: usize = 1 << 20;
/// How deep types that hold themselves may have been taken apart in rows.
const DEEPEST: usize = 64;

impl Codec for LcmCodec {
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
        let may_be = matches!(channel.encoding, Encoding::Lcm | Encoding::Unknown);
        may_be.then(|| Arc::new(fingerprint_of) as KeyOf)
    }

    fn made_from(&self) -> &str {
        &self.made_from
    }

    fn adopt(
        &self,
        described: &MessageType,
        columns: &Schema,
    ) -> Result<Arc<dyn PayloadType>, String> {
        if described.text.len() > LONGEST_DESCRIPTION {
            return Err("its description is longer than any of ours".to_owned());
        }
        let path = PathBuf::from(format!("the description of {}", described.name));
        let text = described.text.to_string();
        let library = Arc::new(Library::of(vec![TypeFile { path, text }]));
        if let Some(mistake) = library.mistakes().into_iter().next() {
            return Err(mistake);
        }
        let fingerprints = fingerprint::fingerprints(&library);
        let named = library.ids().zip(fingerprints);
        let mut named = named.filter(|(id, _)| library.name(*id) == &*described.name);
        let found = named.find_map(|(id, fingerprint)| {
            let key = TypeKey(fingerprint.ok()?);
            let is_it = [key, booleans::key_of(key)].contains(&described.key);
            is_it.then_some((id, key))
        });
        let (id, key) = found.ok_or("its description does not give its fingerprint")?;
        let plan = plan_for(&library, id, self.depth, columns)?;
        let base = Arc::new(MessageType { key, ..described.clone() });
        let form = Compiled { described: base, library, plan: Arc::new(plan) };
        let raw = form.with_raw_booleans().filter(|_| key != described.key);
        Ok(raw.unwrap_or_else(|| Arc::new(form)))
    }
}

/// The fingerprint that a message begins with.
pub fn fingerprint_of(payload: &[u8]) -> Option<TypeKey> {
    payload.first_chunk().map(|bytes| TypeKey(u64::from_be_bytes(*bytes)))
}

/// The plan of a type taken apart as deep as these columns are; `usual` if no depth gives just these.
fn plan_for(library: &Library, id: TypeId, usual: usize, columns: &Schema) -> Result<Plan, String> {
    let plan = plan::compile(library, id, usual)?;
    let fits = |plan: &Plan| {
        plan.schema.fields().iter().all(|field| {
            let found = columns.field_with_name(field.name());
            found.is_ok_and(|found| found.data_type().equals_datatype(field.data_type()))
        })
    };
    if fits(&plan) {
        return Ok(plan);
    }
    let mut before: Option<SchemaRef> = None;
    for depth in 0..=DEEPEST {
        let other = plan::compile(library, id, depth)?;
        if fits(&other) {
            return Ok(other);
        }
        // Deeper down it is the same: it does not hold itself, or there would be too many columns.
        if before.replace(Arc::clone(&other.schema)).is_some_and(|before| before == other.schema) {
            break;
        }
    }
    Ok(plan)
}

/// A type and its plan.
struct Compiled {
    described: Arc<MessageType>,
    library: Arc<Library>,
    plan: Arc<Plan>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.described.name, self.described.key)
    }
}

impl PayloadType for Compiled {
    fn described(&self) -> &Arc<MessageType> {
        &self.described
    }

    fn schema(&self) -> &SchemaRef {
        &self.plan.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<Rows, Error> {
        let decoder = decode::Decoder::new(&self.plan, &self.library);
        let decoded = decoder.decode(batch, events, bad);
        let (events, columns) = decoded.map_err(|e| Error::broken(e.to_string()))?;
        let message = Arc::clone(&self.described);
        Ok(Rows { message, payloads: Payloads::Kept, events, columns })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
    ) -> Result<BinaryArray, String> {
        encode::encode(&self.plan, &self.library, self.described.key.0, columns, bad)
    }

    fn with_raw_booleans(&self) -> Option<Arc<dyn PayloadType>> {
        let (library, plan) = (Arc::clone(&self.library), Arc::clone(&self.plan));
        Some(Arc::new(RawBooleans::new(&self.described, library, plan)))
    }
}
