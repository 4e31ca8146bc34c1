//! Codec `{{name}}`: decodes payloads to columns, and encodes them again.
//!
//! The payload format is a sample. Replace it with yours: only `CHANNELS` and `fields` depend on
//! it.
//!
//! | field | bytes, little-endian |
//! |---|---|
//! | `count` | 4, unsigned |
//! | `acceleration` | three floats of 4 |
//! | `temperature` | 2, signed |

use std::sync::Arc;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::TypePaths;
use sluice_kit::columns::{FieldShape, NumberType, PayloadField, PayloadPlan, WireRules};
use sluice_model::{
    Channel, Codec, DeclaredTypes, KeyOf, KnownType, MessageType, OptionsError, PayloadType,
    TypeKey, register,
};

/// Decodes {{name}} payloads.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Payloads {
    /// Files that declare types. Unused: the type is built in.
    // Every codec has this option, and gets the files that it can read.
    #[serde(default)]
    pub types: TypePaths,
}

register! {
    codec "{{name}}": Payloads,
    about: "{{name}} payloads as columns",
    sample: include_str!("../samples/{{name}}.toml"),
}

/// Channels whose names start with this have our payloads.
const CHANNELS: &str = "IMU";
/// The name of the type.
const TYPE: &str = "{{name}}.sample";
/// Identifies the type within this codec. If the layout changes, use another number.
const KEY: TypeKey = TypeKey(1);

/// The fields of a payload, in order.
fn fields() -> Vec<PayloadField> {
    let three = FieldShape::Fixed(Box::new(FieldShape::Number(NumberType::F32)), 3);
    vec![
        PayloadField::new("count", FieldShape::Number(NumberType::U32)),
        PayloadField::new("acceleration", three),
        PayloadField::new("temperature", FieldShape::Number(NumberType::I16)),
    ]
}

struct SampleCodec {
    declared: DeclaredTypes,
}

impl TryFrom<Payloads> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: Payloads) -> Result<Self, OptionsError> {
        // The rules say how numbers, booleans, lengths and enums are written.
        let plan = PayloadPlan::compile(WireRules::LITTLE_ENDIAN, &fields());
        let plan = plan.map_err(|message| OptionsError {
            path: Vec::new(),
            message,
        })?;
        let message_type = MessageType {
            name: TYPE.into(),
            key: KEY,
            codec: "{{name}}".into(),
            text: "".into(),
        };
        let message_type = Arc::new(message_type);
        // The plan decodes and encodes. A payload that would not be restored byte for byte is not
        // decoded.
        let payload_type = PayloadType::new(Arc::clone(&message_type), plan);
        let known = KnownType {
            message_type,
            file: None,
            line: 0,
            payload_type: Ok(payload_type),
        };
        let declared = DeclaredTypes {
            types: vec![known],
            // `--resume` replaces outputs made with other types: change this when the types change.
            fingerprint: "{{name}} types, version 1".to_owned(),
            ..DeclaredTypes::default()
        };
        Ok(Box::new(SampleCodec { declared }))
    }
}

impl Codec for SampleCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    // Identifies the type of a payload: here by its channel. A format may also inspect the payload.
    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if !channel.name.text().starts_with(CHANNELS) {
            return None;
        }
        Some(Arc::new(|_| Some(KEY)))
    }

    // Tables name the type of their rows, so that payloads can be restored from them.
    fn adopt(&self, described: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        let ours = |known: &&KnownType| *known.message_type == *described;
        match self.types().iter().find(ours) {
            Some(known) => known.payload_type.clone(),
            None => Err(format!("no type of {{name}} is {}", described.name)),
        }
    }
}
