//! Codec `{{name}}`: payloads as columns, and back.
//!
//! The payloads are made up. Put yours in their place: `CHANNELS` and `fields` are all that knows them.
//!
//! | field | bytes, little-endian |
//! |---|---|
//! | `count` | a whole number of 4 |
//! | `acceleration` | three numbers of 4 with a point |
//! | `temperature` | a whole number of 2, which may be below 0 |

use std::sync::Arc;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::layout::{
    FieldShape, LayoutField, LengthEncoding, NumberType, PayloadLayout, PlainType, WireRules,
};
use sluice_core::{
    Channel, Codec, KeyOf, KnownType, MessageType, OptionsError, PayloadType, TypeKey, TypePaths,
    register,
};

/// Knows {{name}} payloads.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Payloads {
    /// Files that declare types. There are none: this codec knows its types by itself.
    // Every codec is given the files that are its own, so every codec has this option.
    #[serde(default)]
    pub types: TypePaths,
}

register! {
    codec "{{name}}": Payloads,
    about: "{{name}} payloads as columns",
    sample: include_str!("../samples/{{name}}.toml"),
}

/// Payloads of channels whose names begin like this are of our type.
const CHANNELS: &str = "IMU";
/// What the type is called.
const TYPE: &str = "{{name}}.sample";
/// The number that tells it from other types of this codec. Another layout is another type: give it another number.
const KEY: TypeKey = TypeKey(1);

/// What a payload is made of, from front to back.
fn fields() -> Vec<LayoutField> {
    let three = FieldShape::Fixed(Box::new(FieldShape::NumberType(NumberType::F32)), 3);
    vec![
        LayoutField::new("count", FieldShape::NumberType(NumberType::U32)),
        LayoutField::new("acceleration", three),
        LayoutField::new("temperature", FieldShape::NumberType(NumberType::I16)),
    ]
}

struct Known {
    types: Vec<KnownType>,
}

impl TryFrom<Payloads> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: Payloads) -> Result<Self, OptionsError> {
        // How booleans and lengths would be written, if there were any.
        let wire = WireRules {
            booleans: 1,
            lengths: LengthEncoding::U32,
        };
        let layout = PayloadLayout::new(wire, &fields()).map_err(|message| OptionsError {
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
        // Decoding and encoding come from the layout. They are inverse: a payload that would not come back byte for
        // byte stays as it is.
        let payload_type = PlainType::new(Arc::clone(&message_type), layout);
        let known = KnownType {
            message_type,
            file: None,
            line: 0,
            payload_type: Ok(Arc::new(payload_type)),
        };
        Ok(Box::new(Known { types: vec![known] }))
    }
}

impl Codec for Known {
    fn mistakes(&self) -> &[String] {
        &[]
    }

    fn types(&self) -> &[KnownType] {
        &self.types
    }

    // Which type a payload is of: here its channel says so. A format may also look into the payload.
    fn keys(&self, channel: &Channel) -> Option<KeyOf> {
        if !channel.name.text().starts_with(CHANNELS) {
            return None;
        }
        Some(Arc::new(|_| Some(KEY)))
    }

    // Outputs that were made by other types are made again: change this when the types change.
    fn fingerprint(&self) -> &str {
        "{{name}} types, version 1"
    }

    // Tables say what their rows were made from, so that payloads can be made of them again.
    fn adopt(&self, described: &MessageType, _: &Schema) -> Result<Arc<dyn PayloadType>, String> {
        let ours = |known: &&KnownType| *known.message_type == *described;
        match self.types.iter().find(ours) {
            Some(known) => known.payload_type.clone(),
            None => Err(format!("no type of {{name}} is {}", described.name)),
        }
    }
}
