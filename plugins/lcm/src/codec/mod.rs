//! Codec `lcm`: LCM messages as Arrow columns and back, using the types declared in `.lcm` files.
//!
//! | member | column |
//! |---|---|
//! | `int8_t` … `int64_t`, `float`, `double`, `boolean` | the same |
//! | `byte` | `UInt8` |
//! | `byte x[n]`, `byte x[8]` | `Binary`, `FixedSizeBinary(8)` |
//! | `string` | `Utf8`; bytes that are not UTF-8 become `\xNN` |
//! | enum | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | struct | `Struct` |
//! | `x[3]`, `x[n]`, `x[n][3]` | `FixedSizeList`, `List`, `List` of `FixedSizeList` |
//! | a struct inside itself | columns down to `depth`; below that `Binary`, the raw bytes |
//! | a struct without members, and arrays of it | none: it has no bytes |
//!
//! Decoding and encoding are inverse: a payload that would not come back byte for byte is not
//! decoded. A boolean is true if its byte is not 0. Messages with booleans other than 0 and 1 also
//! get a column with the original bytes.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::column_types::have_same_values;
use sluice_kit::columns::PayloadPlan;
use sluice_kit::type_library::{MAX_DESCRIPTION_LEN, TypeBudget};
use sluice_kit::{TypePaths, codecs};
use sluice_model::raw::RawColumn;
use sluice_model::{
    Channel, Codec, DeclaredTypes, Encoding, KeyOf, KnownType, MessageType, OptionsError,
    PayloadType, TypeKey, UnusableTypes,
};

use crate::types::library::TypeFile;
use crate::types::{Library, TypeId, fingerprint};

mod shapes;
mod skip;

/// The name in the registry and in type descriptions.
pub(crate) const NAME: &str = "lcm";

/// Options of the codec `lcm`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LcmTypes {
    /// Files that declare types, or names of built-in sets.
    pub types: TypePaths,
    /// How many levels of a type inside itself become columns; deeper levels stay bytes.
    pub depth: Option<u8>,
}

const DEFAULT_DEPTH: u8 = 1;

sluice_model::register! {
    codec "lcm": LcmTypes,
    about: "LCM messages, using types declared in .lcm files",
    sample: include_str!("../../samples/lcm-codec.toml"),
    extensions: &["lcm"],
}

/// The codec for the types of a set of `.lcm` files.
#[derive(Debug)]
pub struct LcmCodec {
    declared: DeclaredTypes,
    depth: usize,
}

impl TryFrom<LcmTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: LcmTypes) -> Result<Self, OptionsError> {
        let texts = options.types.texts(NAME, MAX_FILE_LEN)?;
        let depth = options.depth.unwrap_or(DEFAULT_DEPTH).into();
        Ok(Box::new(LcmCodec::from_files(texts, depth)))
    }
}

/// Type files are read into memory; longer ones are refused.
const MAX_FILE_LEN: usize = 16 << 20;

impl LcmCodec {
    /// The codec for the types that `files` declare. Recursive types become columns down to `depth`
    /// levels inside themselves.
    pub fn from_files(files: Vec<TypeFile>, depth: usize) -> Self {
        let made_from = codecs::fingerprint(NAME, &files);
        let library = Arc::new(Library::from_files(files));
        let (mut mistakes, mut unusable) = (library.mistakes(), library.unusable(str::to_owned));
        let (mut types, mut budget) = (Vec::new(), TypeBudget::default());
        let fingerprints = fingerprint::fingerprints(&library);
        for (id, fingerprint) in library.ids().zip(fingerprints) {
            if !library.is_sound(id) {
                continue;
            }
            match fingerprint {
                Ok(fingerprint) => {
                    types.push(known_type(&library, id, TypeKey(fingerprint), depth, &mut budget));
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
        let declared = DeclaredTypes { types, mistakes, unusable, fingerprint: made_from };
        Self { declared, depth }
    }
}

/// The plan of a type, and its description.
fn compile_type(
    library: &Arc<Library>,
    id: TypeId,
    depth: usize,
    budget: &mut TypeBudget,
) -> Result<(PayloadPlan, String), String> {
    budget.check()?;
    let plan = shapes::compile(library, id, depth)?;
    let mut text = library.description(id, true);
    if text.len() > MAX_DESCRIPTION_LEN {
        budget.spend(0, text.len());
        text = library.description(id, false);
    }
    budget.spend(plan.column_count(), text.len());
    if text.len() > MAX_DESCRIPTION_LEN {
        // Nobody would read it: rows without a description are encoded by declared types.
        text.clear();
    }
    Ok((plan, text))
}

fn known_type(
    library: &Arc<Library>,
    id: TypeId,
    key: TypeKey,
    depth: usize,
    budget: &mut TypeBudget,
) -> KnownType {
    let (name, codec) = (library.name(id).into(), NAME.into());
    let (plan, text) = match compile_type(library, id, depth, budget) {
        Ok((plan, text)) => (Ok(plan), text.into()),
        // Only decoded rows need a description.
        Err(reason) => (Err(reason), Arc::default()),
    };
    let described = Arc::new(MessageType { name, key, codec, text });
    let form = plan.map(|plan| form_type(Arc::clone(&described), plan));
    let (file, line) = (Some(library.file_of(id).to_owned()), library.get(id).line);
    KnownType { message_type: described, file, line, payload_type: form }
}

/// Most levels of a recursive type tried for the columns of existing rows.
const MAX_DEPTH: usize = 64;

impl Codec for LcmCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        let may_be = matches!(channel.encoding, Encoding::Lcm | Encoding::Unknown);
        may_be.then(|| Arc::new(fingerprint_of) as KeyOf)
    }

    fn adopt(&self, described: &MessageType, columns: &Schema) -> Result<PayloadType, String> {
        if described.text.len() > MAX_DESCRIPTION_LEN {
            return Err("the description is longer than 1 MiB".to_owned());
        }
        let path = PathBuf::from(format!("description of {}", described.name));
        let text = described.text.to_string();
        let library = Arc::new(Library::from_files(vec![TypeFile { path, text }]));
        if let Some(mistake) = library.mistakes().into_iter().next() {
            return Err(mistake);
        }
        let fingerprints = fingerprint::fingerprints(&library);
        let named = library.ids().zip(fingerprints);
        let mut named = named.filter(|(id, _)| library.name(*id) == &*described.name);
        let found = named.find_map(|(id, fingerprint)| {
            let key = TypeKey(fingerprint.ok()?);
            let is_it = [key, RawColumn::Booleans.key(key)].contains(&described.key);
            is_it.then_some((id, key))
        });
        let (id, key) = found.ok_or("the description does not have the fingerprint")?;
        let plan = plan_for_columns(&library, id, self.depth, columns)?;
        let base = Arc::new(MessageType { key, ..described.clone() });
        Ok(form_type(base, plan).with_key(described.key))
    }
}

/// The fingerprint at the start of a message.
pub fn fingerprint_of(payload: &[u8]) -> Option<TypeKey> {
    payload.first_chunk().map(|bytes| TypeKey(u64::from_be_bytes(*bytes)))
}

/// The plan at the depth of these columns, or at depth `default_depth` if there is none.
fn plan_for_columns(
    library: &Arc<Library>,
    id: TypeId,
    default_depth: usize,
    columns: &Schema,
) -> Result<PayloadPlan, String> {
    let plan = shapes::compile(library, id, default_depth)?;
    let fits = |plan: &PayloadPlan| {
        plan.schema().fields().iter().all(|field| {
            let found = columns.field_with_name(field.name());
            found.is_ok_and(|found| have_same_values(field.data_type(), found.data_type()))
        })
    };
    if fits(&plan) {
        return Ok(plan);
    }
    let mut before: Option<SchemaRef> = None;
    for depth in 0..=MAX_DEPTH {
        let other = shapes::compile(library, id, depth)?;
        if fits(&other) {
            return Ok(other);
        }
        // Greater depths change nothing: the type is not recursive, or has too many columns.
        if before
            .replace(Arc::clone(other.schema()))
            .is_some_and(|before| before == *other.schema())
        {
            break;
        }
    }
    Ok(plan)
}

/// Combines a description and a plan into a payload type.
fn form_type(described: Arc<MessageType>, plan: PayloadPlan) -> PayloadType {
    let key = described.key;
    PayloadType::new(described, plan.with_header(&key.0.to_be_bytes()))
        .with_raw_column(RawColumn::Booleans, RawColumn::Booleans.key(key))
}
