//! Codec `ice`: converts records in Ice encoding 1.0 to Arrow columns and back, by the types that
//! `.ice` files declare. Knows no logs: the source says which interface a channel carries.
//!
//! | Slice | column |
//! |---|---|
//! | `bool`, `byte` … `double` | `Boolean`, `UInt8`, `Int16`, `Int32`, `Int64`, `Float32`, `Float64` |
//! | `string` | `Utf8`; invalid bytes become `\xNN`, see [`sluice_io::escape::escaped`] |
//! | enum | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | struct | `Struct` |
//! | sequence; of `byte` | `List`; `Binary` |
//! | dictionary | `List` of `Struct` with `key` and `value` |
//! | a class, as a member | nullable `Struct` with all members of the class and of those that extend it; `class` is the instance's class if there are several |
//! | what an undeclared derived class adds | `sliced`, `Binary`: empty if there is none |
//! | the order of instances, if not that of their ids | `order`, `List` of `Int32`: else empty |
//! | an instance with several references | repeated for each; `references`, `List` of `Int32`, says which are the same |
//!
//! A record of a class contains its type. A record of a struct does not: among the structs of the
//! channel's interface, it is the first, in the order of files, whose length matches exactly.
//!
//! Decoding and encoding are inverse: a record that would not be restored byte for byte is not
//! decoded. A boolean is true if its byte is not 0; records with other booleans than 0 and 1 also
//! have a column with the booleans' bytes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::columns::{LengthEncoding, PayloadPlan, WireRules};
use sluice_kit::type_library::{MAX_DESCRIPTION_LEN, TypeBudget};
use sluice_kit::{TypePaths, codecs};
use sluice_model::raw::RawColumn;
use sluice_model::{
    Batch, Channel, Codec, DeclaredTypes, Encoding, Error, KeyOf, KnownType, MessageType,
    OptionsError, PayloadForm, PayloadType, TypeKey,
};

use crate::plan::{self, TypePlan, dotted};
use crate::record;
use crate::slice::syntax::DeclarationBody;
use crate::slice::{SliceLibrary, TypeFile, TypeId};
use crate::wire::Booleans;

/// The name in the registry and in type descriptions.
pub(crate) const NAME: &str = "ice";

/// The metadata key for the interface of a channel's records: `Laser`.
pub(crate) const INTERFACE: &str = "ice.interface";

/// The metadata key that is `true` if a channel's records are the interface's configuration.
pub(crate) const CONFIG: &str = "ice.config";

/// Options of the codec `ice`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IceTypes {
    /// Files that declare types, or names of built-in sets of types.
    pub(crate) types: TypePaths,
}

sluice_model::register! {
    codec "ice": IceTypes,
    about: "records in Ice encoding 1.0, by the types that .ice files declare",
    sample: include_str!("../samples/ice-codec.toml"),
    extensions: &["ice"],
}

/// The types of a set of `.ice` files.
#[derive(Debug)]
pub struct IceCodec {
    declared: DeclaredTypes,
    classes: Arc<Classes>,
    structs: BTreeMap<Role, Candidates>,
}

/// Types with their plans; several may have the same name or serve the same interface.
type Candidates = Vec<(TypeKey, Arc<TypePlan>)>;
/// The declared versions of a class.
type Versions = Vec<(TypeKey, Option<Arc<TypePlan>>)>;

/// The declared classes by the names in records.
#[derive(Debug, Default)]
struct Classes {
    by_name: HashMap<Vec<u8>, Versions>,
    longest_name: usize,
}

impl Classes {
    /// The versions of the class with this name, for adding one.
    fn versions_mut(&mut self, name: &[u8]) -> &mut Versions {
        self.longest_name = self.longest_name.max(name.len());
        self.by_name.entry(name.to_vec()).or_default()
    }

    /// The versions of the class with this name, if it is declared. Names that are too long cost
    /// nothing.
    fn find(&self, name: &[u8]) -> Option<&Versions> {
        if name.len() <= self.longest_name { self.by_name.get(name) } else { None }
    }
}

/// The role of a record in a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Role {
    interface: String,
    is_config: bool,
}

impl TryFrom<IceTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: IceTypes) -> Result<Self, OptionsError> {
        let texts = options.types.texts(NAME, MAX_FILE)?;
        Ok(Box::new(IceCodec::from_files(texts)))
    }
}

/// The maximum length of a type file, which is read as a whole.
const MAX_FILE: usize = 16 << 20;

impl IceCodec {
    /// Compiles the types that these files declare.
    pub fn from_files(files: Vec<TypeFile>) -> Self {
        let fingerprint = codecs::fingerprint(NAME, &files);
        let library = SliceLibrary::from_files(files);
        let (mut types, mut budget) = (Vec::new(), TypeBudget::default());
        let (mut classes, mut structs): (Classes, BTreeMap<Role, Candidates>) = Default::default();
        for id in library.ids().filter(|id| library.is_sound(*id)) {
            let is_class = match library.get(id).declaration.body {
                DeclarationBody::Struct(_) => false,
                DeclarationBody::Class { .. } => true,
                _ => continue,
            };
            let (known, plan) = compile_known(&library, id, &mut budget);
            let key = known.message_type.key;
            if is_class {
                add_once(classes.versions_mut(library.name(id).as_bytes()), (key, plan));
            } else if let Some(plan) = plan {
                for role in roles(&library, id) {
                    add_once(structs.entry(role).or_default(), (key, Arc::clone(&plan)));
                }
            }
            types.push(known);
        }
        types.sort_by(|a, b| (&a.message_type.name, &a.file).cmp(&(&b.message_type.name, &b.file)));
        let (mistakes, unusable) = (library.mistakes(), library.unusable(dotted));
        let declared = DeclaredTypes { types, mistakes, unusable, fingerprint };
        Self { declared, classes: Arc::new(classes), structs }
    }
}

/// Adds a type once: several files may declare the same.
fn add_once<T>(all: &mut Vec<(TypeKey, T)>, one: (TypeKey, T)) {
    if !all.iter().any(|(key, _)| *key == one.0) {
        all.push(one);
    }
}

/// The roles that a struct serves: those of the metadata `["log:Laser"]` or `["log:Laser:config"]`
/// in front of it, or else that of its name.
fn roles(library: &SliceLibrary, id: TypeId) -> Vec<Role> {
    let declaration = &library.get(id).declaration;
    let declared = declaration.metadata.iter().filter_map(|text| text.strip_prefix("log:"));
    let mut roles: Vec<Role> = declared
        .map(|role| match role.strip_suffix(":config") {
            Some(interface) => Role { interface: interface.to_owned(), is_config: true },
            None => Role { interface: role.to_owned(), is_config: false },
        })
        .collect();
    let name = declaration.name.rsplit("::").next().unwrap_or_default();
    let ends = [("Data", false), ("Description", true), ("Config", true), ("Geometry", true)];
    if roles.is_empty() {
        roles.extend(ends.into_iter().filter_map(|(end, is_config)| {
            let interface = name.strip_suffix(end).filter(|interface| !interface.is_empty())?;
            Some(Role { interface: interface.to_owned(), is_config })
        }));
    }
    roles
}

/// A compiled type and its description.
struct CompiledType {
    plan: Arc<TypePlan>,
    columns: PayloadPlan,
    text: String,
}

const WIRE: WireRules = WireRules { lengths: LengthEncoding::Size, ..WireRules::LITTLE_ENDIAN };

fn compile(library: &SliceLibrary, id: TypeId) -> Result<CompiledType, String> {
    let plan = plan::compile(library, id)?;
    let columns = PayloadPlan::compile_in_parts(WIRE, &plan.members, &plan.part_starts)?;
    let text = library.text_of(id)?;
    Ok(CompiledType { plan: Arc::new(plan), columns, text })
}

/// The key of a type: the start of a hash of its description.
fn key_of_text(text: &str) -> TypeKey {
    let hash = blake3::hash(text.as_bytes());
    TypeKey(hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

fn compile_known(
    library: &SliceLibrary,
    id: TypeId,
    budget: &mut TypeBudget,
) -> (KnownType, Option<Arc<TypePlan>>) {
    let (name, codec) = (dotted(library.name(id)).into(), NAME.into());
    let (file, line) = (Some(library.file_of(id).to_owned()), library.get(id).line);
    match budget.check().and_then(|()| compile(library, id)) {
        Ok(CompiledType { plan, columns, text }) => {
            budget.spend(plan.columns, text.len());
            let key = key_of_text(&text);
            let described = Arc::new(MessageType { name, key, codec, text: text.into() });
            let payloads = payload_type(Arc::clone(&described), Arc::clone(&plan), columns);
            (
                KnownType { message_type: described, file, line, payload_type: Ok(payloads) },
                Some(plan),
            )
        }
        Err(reason) => {
            // Without a description, its position serves as its identity.
            let place = format!("{} {} {line}", library.name(id), library.file_of(id).display());
            let key = key_of_text(&place);
            let described = Arc::new(MessageType { name, key, codec, text: Arc::default() });
            (KnownType { message_type: described, file, line, payload_type: Err(reason) }, None)
        }
    }
}

impl Codec for IceCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if !matches!(channel.encoding, Encoding::Ice | Encoding::Unknown) {
            return None;
        }
        let role = channel.metadata.get(INTERFACE).map(|interface| Role {
            interface: interface.clone(),
            is_config: channel.metadata.get(CONFIG).is_some_and(|config| config == "true"),
        });
        let structs = role.and_then(|role| self.structs.get(&role)).cloned().unwrap_or_default();
        let classes = Arc::clone(&self.classes);
        Some(Arc::new(move |record| {
            key_of_class(&classes, record).or_else(|| key_of_struct(&structs, record))
        }))
    }

    fn adopt(&self, described: &MessageType, _columns: &Schema) -> Result<PayloadType, String> {
        if described.text.len() > MAX_DESCRIPTION_LEN {
            return Err("its description is too long".to_owned());
        }
        let path = PathBuf::from(format!("the description of {}", described.name));
        let library =
            SliceLibrary::from_files(vec![TypeFile { path, text: described.text.to_string() }]);
        if let Some(mistake) = library.mistakes().into_iter().next() {
            return Err(mistake);
        }
        let is_it = |id: &TypeId| dotted(library.name(*id)) == *described.name;
        let id = library.ids().find(is_it).ok_or("its description does not declare it")?;
        let CompiledType { plan, columns, text } = compile(&library, id)?;
        let key = key_of_text(&text);
        if ![key, RawColumn::Booleans.key(key)].contains(&described.key) {
            return Err("its description does not match its number".to_owned());
        }
        let base = Arc::new(MessageType { key, ..described.clone() });
        Ok(payload_type(base, plan, columns).with_key(described.key))
    }
}

/// The most derived declared class of a record's first instance.
fn key_of_class(classes: &Classes, record: &[u8]) -> Option<TypeKey> {
    let names = record::first_instance_classes(record)?;
    let versions = names.into_iter().find_map(|name| classes.find(name))?;
    let plans = versions.iter().map(|(key, plan)| (*key, plan.as_deref()));
    first_match(plans, record).or(versions.first().map(|(key, _)| *key))
}

/// The first struct that matches a record. A single candidate is not tried: decoding reports why it
/// does not match.
fn key_of_struct(structs: &Candidates, record: &[u8]) -> Option<TypeKey> {
    first_match(structs.iter().map(|(key, plan)| (*key, Some(&**plan))), record)
}

/// The first type that matches a record, with booleans other than 0 and 1 as the last resort. A
/// single candidate is not tried.
fn first_match<'f>(
    plans: impl ExactSizeIterator<Item = (TypeKey, Option<&'f TypePlan>)> + Clone,
    record: &[u8],
) -> Option<TypeKey> {
    if plans.len() == 1 {
        return plans.map(|(key, _)| key).next();
    }
    [Booleans::ZeroOrOne, Booleans::Any].into_iter().find_map(|booleans| {
        let fits = |plan: &TypePlan| record::matches_plan(&plan.root, record, booleans);
        let mut fitting = plans.clone().filter(|(_, plan)| plan.is_some_and(fits));
        fitting.next().map(|(key, _)| key)
    })
}

/// The payload type with this description, whose records have this plan and these columns.
fn payload_type(
    described: Arc<MessageType>,
    plan: Arc<TypePlan>,
    columns: PayloadPlan,
) -> PayloadType {
    let raw = RawColumn::Booleans.key(described.key);
    PayloadType::new(described, RecordForm { plan, columns })
        .with_raw_column(RawColumn::Booleans, raw)
}

/// Decodes and encodes the records of a type.
struct RecordForm {
    plan: Arc<TypePlan>,
    /// The columns of its linear form.
    columns: PayloadPlan,
}

impl PayloadForm for RecordForm {
    fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let root = &self.plan.root;
        let lens = events.iter().map(|event| batch.payload_len(*event as usize));
        let total_len = lens.map(|len| record::linear_len(root, len)).sum();
        let unfolded = record::UnfoldedForms::new(root, events.len());
        let mut forms = record::LinearForms::new(&unfolded);
        let next =
            |event, later: &mut Vec<_>| forms.next(root, batch.payload(event as usize), later);
        self.columns.decode_parts(events, total_len, next, bad, raw)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let mut linear = Vec::new();
        self.columns.encode(columns, bad, |rows, row, out| {
            linear.clear();
            rows.write(row, raw, &mut linear)?;
            record::from_linear(&self.plan.root, &linear, out)
        })
    }
}
