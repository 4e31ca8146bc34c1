//! Codec `protobuf`: messages of the types that channels declare by descriptor sets.
//!
//! | field | column |
//! |---|---|
//! | numbers, `bool` | the same |
//! | enum | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | `string`, `bytes` | `Utf8`, `Binary` |
//! | message | nullable `Struct`; `Binary` if it is inside itself |
//! | repeated | `List` |
//! | map | `List` of `Struct` with `key` and `value` |
//! | optional, proto2, member of a oneof | nullable |
//!
//! Decoding and encoding are inverse. Messages with unknown fields, or written in another order or
//! form than most writers use, keep their bytes in a hidden column beside their fields.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::{TypePaths, codecs};
use sluice_model::cast::as_fields;
use sluice_model::raw::RawColumn;
use sluice_model::{
    Batch, Channel, Codec, DeclaredTypes, Encoding, Error, KeyOf, KnownType, MessageType,
    OptionsError, PayloadForm, PayloadType, TypeKey,
};

use crate::decode::{Strictness, decode};
use crate::descriptor::DescriptorSet;
use crate::encode::RowWriter;
use crate::plan::{MessagePlan, compile_message};
use crate::wire::PayloadFault;

/// The name in the registry and in type descriptions.
pub(crate) const NAME: &str = "protobuf";
/// The language of the declarations, as logs name it.
pub(crate) const SCHEMA_ENCODING: &str = "protobuf";

/// The longest descriptor set that is read.
const MAX_SET: usize = 16 << 20;
/// The longest description of a type, which is a descriptor set in base64.
const MAX_TEXT: usize = 1 << 20;
/// The most types that are kept for other channels.
const MAX_CACHED: usize = 1_000;

const UNFIT: PayloadFault = "a value does not fit its field";
const TOO_LONG: PayloadFault = "the messages of a batch would take more than 2 GiB";

/// Options of the codec `protobuf`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProtobufTypes {
    /// Files that declare types. None: channels declare theirs themselves.
    pub(crate) types: TypePaths,
}

sluice_model::register! {
    codec "protobuf": ProtobufTypes,
    about: "protobuf messages, by the descriptor sets that logs store for their channels",
    sample: include_str!("../samples/protobuf.toml"),
}

impl TryFrom<ProtobufTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(options: ProtobufTypes) -> Result<Self, OptionsError> {
        let texts = options.types.texts(NAME, MAX_SET)?;
        let fingerprint = codecs::fingerprint(NAME, &texts);
        let declared = DeclaredTypes { fingerprint, ..DeclaredTypes::default() };
        Ok(Box::new(ProtobufCodec { declared, ..ProtobufCodec::default() }))
    }
}

/// Knows the types that channels declare.
#[derive(Debug, Default)]
pub struct ProtobufCodec {
    /// Only a fingerprint: no file declares types.
    declared: DeclaredTypes,
    cached: Mutex<TypeCache>,
}

/// Types by the address of the shared set that declares them, and their name. The set is kept, so
/// that no other takes its address.
type TypeCache = HashMap<(usize, String), (Arc<[u8]>, KnownType)>;

impl Codec for ProtobufCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, _: &Channel) -> Option<KeyOf> {
        None
    }

    fn embedded(&self, channel: &Channel) -> Option<KnownType> {
        let schema = channel.schema.as_ref()?;
        if channel.encoding != Encoding::Protobuf || &*schema.encoding != SCHEMA_ENCODING {
            return None;
        }
        let name = channel.type_name.as_deref().unwrap_or_default();
        let place = (schema.data.as_ptr().addr(), name.to_owned());
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = cached.get(&place) {
            return Some(known.clone());
        }
        let known = declared(name, &schema.data);
        if cached.len() < MAX_CACHED {
            cached.insert(place, (Arc::clone(&schema.data), known.clone()));
        }
        Some(known)
    }

    fn adopt(&self, described: &MessageType, _columns: &Schema) -> Result<PayloadType, String> {
        if described.text.len() > MAX_TEXT {
            return Err("its description is too long".to_owned());
        }
        let set = BASE64_STANDARD.decode(described.text.as_bytes());
        let set = set.map_err(|_| "its description is no descriptor set in base64")?;
        let key = key_of(&described.name, &set);
        if ![key, RawColumn::Payload.key(key)].contains(&described.key) {
            return Err("its description does not match its number".to_owned());
        }
        let form = ProtobufForm::parse(&described.name, &set)?;
        let base = Arc::new(MessageType { key, ..described.clone() });
        Ok(payload_type(base, form).with_key(described.key))
    }
}

fn key_of(name: &str, set: &[u8]) -> TypeKey {
    TypeKey::from_parts([name.as_bytes(), set])
}

/// The type of this name that a descriptor set declares.
fn declared(name: &str, set: &[u8]) -> KnownType {
    let key = key_of(name, set);
    let text = BASE64_STANDARD.encode(set);
    // Rows describe their type only if that is not too long; without it, they only decode.
    let text = if text.len() <= MAX_TEXT { text } else { String::new() };
    let described = MessageType { name: name.into(), key, codec: NAME.into(), text: text.into() };
    let message_type = Arc::new(described);
    let form = match name {
        "" => Err("the channel does not name its type".to_owned()),
        name => ProtobufForm::parse(name, set),
    };
    let payload_type = form.map(|form| payload_type(Arc::clone(&message_type), form));
    KnownType { message_type, file: None, line: 0, payload_type }
}

fn payload_type(described: Arc<MessageType>, form: ProtobufForm) -> PayloadType {
    let raw = RawColumn::Payload.key(described.key);
    PayloadType::new(described, form).with_raw_column(RawColumn::Payload, raw)
}

/// Decodes and encodes the messages of a plan.
pub(crate) struct ProtobufForm {
    plan: MessagePlan,
    schema: SchemaRef,
}

impl fmt::Debug for ProtobufForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.schema.fmt(f)
    }
}

impl ProtobufForm {
    pub(crate) fn new(plan: MessagePlan) -> Self {
        let schema = plan.schema();
        Self { plan, schema }
    }

    fn parse(name: &str, set: &[u8]) -> Result<Self, String> {
        if set.len() > MAX_SET {
            return Err(format!("its descriptor is longer than {} MiB", MAX_SET >> 20));
        }
        Ok(Self::new(compile_message(&DescriptorSet::parse(set)?, name)?))
    }

    pub(crate) fn plan(&self) -> &MessagePlan {
        &self.plan
    }

    /// The messages of rows whose columns have exactly the types of the plan.
    pub(crate) fn write_rows(
        &self,
        columns: &RecordBatch,
        unfit: &[bool],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<BinaryArray, String> {
        let writer = RowWriter::new(&self.plan, columns)?;
        let mut messages = BinaryBuilder::with_capacity(columns.num_rows(), 0);
        let mut message = Vec::new();
        for row in 0..columns.num_rows() {
            message.clear();
            let is_unfit = unfit.get(row).copied().unwrap_or_default();
            let written = if is_unfit { Err(UNFIT) } else { writer.write(row, &mut message) };
            let len = messages.values_slice().len() + message.len();
            match written.and_then(|()| i32::try_from(len).map(drop).map_err(|_| TOO_LONG)) {
                Ok(()) => messages.append_value(&message),
                Err(reason) => {
                    messages.append_null();
                    bad.push((row as u32, reason));
                }
            }
        }
        Ok(messages.finish())
    }
}

impl PayloadForm for ProtobufForm {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let strictness = if raw.is_some() { Strictness::Any } else { Strictness::Canonical };
        let payloads = events.iter().map(|event| batch.payload(*event as usize));
        let mut decoded = Vec::with_capacity(events.len());
        let columns = decode(&self.plan, &self.schema, payloads, strictness, |at, outcome| {
            let Some(event) = events.get(at) else { return };
            match outcome {
                Ok(()) => decoded.push(*event),
                Err(reason) => bad.push((*event, reason)),
            }
        });
        let columns = columns.map_err(|e| Error::internal(e.to_string()))?;
        Ok((decoded, columns))
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        _: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        let mut unfit = vec![false; columns.num_rows()];
        let cast = as_fields(columns, self.schema.fields(), &mut unfit)?;
        // A null in the wrong place is found when its row is written.
        let fields = self.schema.fields().iter().zip(&cast).map(|(field, column)| {
            let field = field.as_ref().clone().with_data_type(column.data_type().clone());
            Arc::new(field.with_nullable(true))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(columns.num_rows()));
        let columns = RecordBatch::try_new_with_options(schema, cast, &options);
        self.write_rows(&columns.map_err(|e| e.to_string())?, &unfit, bad)
    }
}
