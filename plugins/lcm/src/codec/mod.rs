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

use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::payload_form::FormType;
use sluice_core::type_library::TypeBudget;
use sluice_core::{
    Channel, Codec, Encoding, KeyOf, KnownType, MessageType, OptionsError, PayloadType, TypeKey,
    TypePaths, UnusableTypes,
};
use sluice_core::{booleans, codecs};

use crate::types::library::TypeFile;
use crate::types::{Library, TypeId, fingerprint};

mod columns;
mod decode;
mod encode;
mod form;
mod plan;
mod raw_booleans;
mod wire;

use form::Compiled;
use plan::Plan;

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
        let made_from = codecs::fingerprint(NAME, &files);
        let library = Arc::new(Library::of(files));
        let (mut mistakes, mut unusable) = (library.mistakes(), library.unusable());
        let (mut types, mut budget) = (Vec::new(), TypeBudget::default());
        let fingerprints = fingerprint::fingerprints(&library);
        for (id, fingerprint) in library.ids().zip(fingerprints) {
            if !library.is_sound(id) {
                continue;
            }
            match fingerprint {
                Ok(fingerprint) => {
                    types.push(known(&library, id, TypeKey(fingerprint), depth, &mut budget));
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
        types.sort_by(|a, b| (&a.message_type.name, &a.file).cmp(&(&b.message_type.name, &b.file)));
        Self { types, mistakes, unusable, depth, made_from }
    }
}

/// The plan of a type and its description.
fn make(
    library: &Library,
    id: TypeId,
    depth: usize,
    budget: &mut TypeBudget,
) -> Result<(Plan, String), String> {
    budget.check()?;
    let plan = plan::compile(library, id, depth)?;
    let text = library.text_of(id).unwrap_or_default();
    budget.spend(plan.slots.len(), text.len());
    Ok((plan, text))
}

fn known(
    library: &Arc<Library>,
    id: TypeId,
    key: TypeKey,
    depth: usize,
    budget: &mut TypeBudget,
) -> KnownType {
    let (name, codec) = (library.name(id).into(), NAME.into());
    let (plan, text) = match make(library, id, depth, budget) {
        Ok((plan, text)) => (Ok(plan), text.into()),
        // Only what can be decoded has rows that need a description.
        Err(reason) => (Err(reason), Arc::default()),
    };
    let described = Arc::new(MessageType { name, key, codec, text });
    let form = plan.map(|plan| Arc::new(compiled(Arc::clone(&described), library, plan)) as _);
    let (file, line) = (Some(library.file_of(id).to_owned()), library.get(id).line);
    KnownType { message_type: described, file, line, payload_type: form }
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

    fn fingerprint(&self) -> &str {
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
            let is_it = [key, booleans::raw_key(key)].contains(&described.key);
            is_it.then_some((id, key))
        });
        let (id, key) = found.ok_or("its description does not give its fingerprint")?;
        let plan = plan_for(&library, id, self.depth, columns)?;
        let base = Arc::new(MessageType { key, ..described.clone() });
        let form = compiled(base, &library, plan);
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

/// The type that is described like this, and has this plan.
fn compiled(described: Arc<MessageType>, library: &Arc<Library>, plan: Plan) -> FormType<Compiled> {
    let (key, library) = (described.key, Arc::clone(library));
    let form = Compiled { fingerprint: key.0, library, plan };
    FormType::new(described, form).with_raw_booleans_as(booleans::raw_key(key))
}
