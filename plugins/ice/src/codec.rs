//! Codec `ice`: records in Ice encoding 1.0 as Arrow columns and back, by the types that `.ice` files declare.
//! Knows no logs: which interface a channel carries, its source says.
//!
//! | Slice | column |
//! |---|---|
//! | `bool`, `byte` … `double` | `Boolean`, `UInt8`, `Int16`, `Int32`, `Int64`, `Float32`, `Float64` |
//! | `string` | `Utf8`; bytes that are none become `\xNN`, see [`sluice_core::name::escaped`] |
//! | enum | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | struct | `Struct` |
//! | sequence; of `byte` | `List`; `Binary` |
//! | dictionary | `List` of `Struct` with `key` and `value` |
//! | a class, as a member | nullable `Struct` of all that it and those that extend it have; `class` says which it is, where there are several |
//! | what a class adds that nobody declared | `sliced`, `Binary`: empty unless there is such a thing |
//! | instances in another order than their ids | `order`, `List` of `Int32`: empty unless there is such a thing |
//! | an instance that several references lead to | stands at each; `references`, `List` of `Int32`, says which are one |
//!
//! A record of a class says which type it is of. One of a struct does not: of the structs that its channel's
//! interface has, it is the first, in the order of files, of which it is exactly as long as it has to be.
//! Decoding and encoding are inverse: a record that would not come back byte for byte is not decoded. A boolean is
//! true if its byte is not 0; records in which one is another than 0 or 1 have a column with the booleans' bytes, too.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::layout::{self, LengthEncoding, PayloadLayout, WireRules};
use sluice_core::payload_form::{FormType, PayloadForm};
use sluice_core::type_library::TypeBudget;
use sluice_core::{
    Batch, Channel, Codec, Encoding, Error, KeyOf, KnownType, MessageType, OptionsError,
    PayloadType, TypeKey, TypePaths, UnusableTypes, booleans, codecs,
};

use crate::plan::{self, Form, dotted};
use crate::record;
use crate::slice::syntax::Body;
use crate::slice::{Library, TypeFile, TypeId};
use crate::wire::Booleans;

/// Its name in the registry, and in descriptions of types.
pub const NAME: &str = "ice";

/// The key of a channel's metadata that says of which interface its records are: `Laser`.
pub const INTERFACE: &str = "ice.interface";

/// The key of a channel's metadata that is `true` where its records say how that interface is set up.
pub const CONFIG: &str = "ice.config";

/// Options of the codec `ice`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IceTypes {
    /// Files that declare types, or names of sets of types that this program has.
    pub types: TypePaths,
}

sluice_core::register! {
    codec "ice": IceTypes,
    about: "records in Ice encoding 1.0, by the types that .ice files declare",
    sample: include_str!("../samples/ice-codec.toml"),
    extensions: &["ice"],
}

/// The types of a set of `.ice` files.
#[derive(Debug)]
pub struct IceCodec {
    types: Vec<KnownType>,
    mistakes: Vec<String>,
    unusable: Vec<UnusableTypes>,
    made_from: String,
    classes: Arc<Classes>,
    structs: BTreeMap<Role, Candidates>,
}

/// A type and what its records are like; several may have the same name, or serve the same interface.
type Candidates = Vec<(TypeKey, Arc<Form>)>;
/// The versions of a class that are known.
type Versions = Vec<(TypeKey, Option<Arc<Form>>)>;

/// The classes that are known, by the names that records have.
#[derive(Debug, Default)]
struct Classes {
    by_name: HashMap<Vec<u8>, Versions>,
    longest_name: usize,
}

impl Classes {
    /// The versions of the class of this name, which may be noted.
    fn of(&mut self, name: &[u8]) -> &mut Versions {
        self.longest_name = self.longest_name.max(name.len());
        self.by_name.entry(name.to_vec()).or_default()
    }

    /// The versions of the class of this name, if it is known. A name that is too long costs nothing.
    fn find(&self, name: &[u8]) -> Option<&Versions> {
        if name.len() <= self.longest_name { self.by_name.get(name) } else { None }
    }
}

/// What a record is in a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Role {
    interface: String,
    is_config: bool,
}

impl TryFrom<IceTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: IceTypes) -> Result<Self, OptionsError> {
        let texts = options.types.texts(NAME, LONGEST_FILE)?;
        Ok(Box::new(IceCodec::of(texts)))
    }
}

/// A type file is read whole; none is longer than this.
const LONGEST_FILE: usize = 16 << 20;

impl IceCodec {
    /// The types that these files declare.
    pub fn of(files: Vec<TypeFile>) -> Self {
        let made_from = codecs::fingerprint(NAME, &files);
        let library = Library::of(files);
        let (mut types, mut budget) = (Vec::new(), TypeBudget::default());
        let (mut classes, mut structs): (Classes, BTreeMap<Role, Candidates>) = Default::default();
        for id in library.ids().filter(|id| library.is_sound(*id)) {
            let is_class = match library.get(id).declaration.body {
                Body::Struct(_) => false,
                Body::Class { .. } => true,
                _ => continue,
            };
            let (known, form) = known(&library, id, &mut budget);
            let key = known.message_type.key;
            if is_class {
                add(classes.of(library.name(id).as_bytes()), (key, form));
            } else if let Some(form) = form {
                for role in roles(&library, id) {
                    add(structs.entry(role).or_default(), (key, Arc::clone(&form)));
                }
            }
            types.push(known);
        }
        types.sort_by(|a, b| (&a.message_type.name, &a.file).cmp(&(&b.message_type.name, &b.file)));
        let (mistakes, unusable) = (library.mistakes(), library.unusable());
        Self { types, mistakes, unusable, made_from, classes: Arc::new(classes), structs }
    }
}

/// Adds a type, once: files may declare the same.
fn add<T>(all: &mut Vec<(TypeKey, T)>, one: (TypeKey, T)) {
    if !all.iter().any(|(key, _)| *key == one.0) {
        all.push(one);
    }
}

/// What records of a struct may be: as `["log:Laser"]` or `["log:Laser:config"]` in front of it say, else as
/// its name does.
fn roles(library: &Library, id: TypeId) -> Vec<Role> {
    let declaration = &library.get(id).declaration;
    let said = declaration.metadata.iter().filter_map(|text| text.strip_prefix("log:"));
    let mut roles: Vec<Role> = said
        .map(|said| match said.strip_suffix(":config") {
            Some(interface) => Role { interface: interface.to_owned(), is_config: true },
            None => Role { interface: said.to_owned(), is_config: false },
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

/// What a type is compiled to, and its description.
struct Compiled {
    form: Arc<Form>,
    layout: PayloadLayout,
    text: String,
}

const WIRE: WireRules = WireRules { booleans: 1, lengths: LengthEncoding::Size };

fn compile(library: &Library, id: TypeId) -> Result<Compiled, String> {
    let form = plan::compile(library, id)?;
    let layout = PayloadLayout::new(WIRE, &form.members)?;
    let text = library.text_of(id)?;
    Ok(Compiled { form: Arc::new(form), layout, text })
}

/// The number of a type: the beginning of a hash over its description.
fn key_of_text(text: &str) -> TypeKey {
    let hash = blake3::hash(text.as_bytes());
    TypeKey(hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

fn known(library: &Library, id: TypeId, budget: &mut TypeBudget) -> (KnownType, Option<Arc<Form>>) {
    let (name, codec) = (dotted(library.name(id)).into(), NAME.into());
    let (file, line) = (Some(library.file_of(id).to_owned()), library.get(id).line);
    match budget.check().and_then(|()| compile(library, id)) {
        Ok(Compiled { form, layout, text }) => {
            budget.spend(form.columns, text.len());
            let key = key_of_text(&text);
            let described = Arc::new(MessageType { name, key, codec, text: text.into() });
            let payloads = payload_type(Arc::clone(&described), Arc::clone(&form), layout);
            (
                KnownType {
                    message_type: described,
                    file,
                    line,
                    payload_type: Ok(Arc::new(payloads)),
                },
                Some(form),
            )
        }
        Err(reason) => {
            // It has no description that a number could be made of; its place tells it from others.
            let place = format!("{} {} {line}", library.name(id), library.file_of(id).display());
            let key = key_of_text(&place);
            let described = Arc::new(MessageType { name, key, codec, text: Arc::default() });
            (KnownType { message_type: described, file, line, payload_type: Err(reason) }, None)
        }
    }
}

/// Descriptions come out of files that anybody may have written; none of ours is longer.
const LONGEST_DESCRIPTION: usize = 1 << 20;

impl Codec for IceCodec {
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
            class_of(&classes, record).or_else(|| struct_of(&structs, record))
        }))
    }

    fn fingerprint(&self) -> &str {
        &self.made_from
    }

    fn adopt(
        &self,
        described: &MessageType,
        _columns: &Schema,
    ) -> Result<Arc<dyn PayloadType>, String> {
        if described.text.len() > LONGEST_DESCRIPTION {
            return Err("its description is longer than any of ours".to_owned());
        }
        let path = PathBuf::from(format!("the description of {}", described.name));
        let library = Library::of(vec![TypeFile { path, text: described.text.to_string() }]);
        if let Some(mistake) = library.mistakes().into_iter().next() {
            return Err(mistake);
        }
        let is_it = |id: &TypeId| dotted(library.name(*id)) == *described.name;
        let id = library.ids().find(is_it).ok_or("its description does not declare it")?;
        let Compiled { form, layout, text } = compile(&library, id)?;
        let key = key_of_text(&text);
        if ![key, booleans::raw_key(key)].contains(&described.key) {
            return Err("its description does not give its number".to_owned());
        }
        let base = Arc::new(MessageType { key, ..described.clone() });
        let payloads = payload_type(base, form, layout);
        let raw = payloads.with_raw_booleans().filter(|_| key != described.key);
        Ok(raw.unwrap_or_else(|| Arc::new(payloads)))
    }
}

/// The most derived class that is known of a record's first instance.
fn class_of(classes: &Classes, record: &[u8]) -> Option<TypeKey> {
    let names = record::classes(record)?;
    let versions = names.into_iter().find_map(|name| classes.find(name))?;
    let forms = versions.iter().map(|(key, form)| (*key, form.as_deref()));
    first_that_fits(forms, record).or(versions.first().map(|(key, _)| *key))
}

/// The first struct that a record can be. Where there is only one, decoding it says why it is not.
fn struct_of(structs: &Candidates, record: &[u8]) -> Option<TypeKey> {
    first_that_fits(structs.iter().map(|(key, form)| (*key, Some(&**form))), record)
}

/// The first type that a record can be, if need be with booleans that are neither 0 nor 1. An only one is not tried.
fn first_that_fits<'f>(
    forms: impl ExactSizeIterator<Item = (TypeKey, Option<&'f Form>)> + Clone,
    record: &[u8],
) -> Option<TypeKey> {
    if forms.len() == 1 {
        return forms.map(|(key, _)| key).next();
    }
    [Booleans::ZeroOrOne, Booleans::Any].into_iter().find_map(|booleans| {
        let fits = |form: &Form| record::is_of(&form.top, record, booleans);
        let mut fitting = forms.clone().filter(|(_, form)| form.is_some_and(fits));
        fitting.next().map(|(key, _)| key)
    })
}

/// The type that is described like this. Its records have this form, and their linear forms this layout.
fn payload_type(
    described: Arc<MessageType>,
    form: Arc<Form>,
    layout: PayloadLayout,
) -> FormType<RecordForm> {
    let raw = booleans::raw_key(described.key);
    FormType::new(described, RecordForm { form, layout }).with_raw_booleans_as(raw)
}

/// How records of a type are read and made.
struct RecordForm {
    form: Arc<Form>,
    layout: PayloadLayout,
}

impl PayloadForm for RecordForm {
    fn schema(&self) -> &SchemaRef {
        self.layout.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, &'static str)>,
        mut raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let mut scratch = Vec::new();
        layout::decode(&self.layout, batch, events, bad, |rows, record| {
            let linear = record::linear_of(&self.form.top, record, &mut scratch)?;
            rows.push_keeping(linear, raw.as_deref_mut())
        })
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, &'static str)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let mut linear = Vec::new();
        layout::encode(&self.layout, columns, bad, |columns, row, out| {
            linear.clear();
            columns.write_keeping(row, raw, &mut linear)?;
            record::record_of(&self.form.top, &linear, out)
        })
    }
}
