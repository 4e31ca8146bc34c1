//! Codec `json`: types that channels declare as JSON Schema.

use std::sync::Arc;

use arrow_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_kit::TypePaths;
use sluice_kit::type_library::MAX_DESCRIPTION_LEN;
use sluice_model::raw::RawColumn;
use sluice_model::{
    Channel, Codec, DeclaredTypes, EmbeddedSchema, Encoding, KeyOf, KnownType, MessageType,
    OptionsError, PayloadType, TypeKey, schemars,
};

use crate::form::JsonForm;
use crate::schema::JsonShape;

/// The name in the registry and in type descriptions.
const NAME: &str = "json";

/// The language of its declarations, as logs name it.
const LANGUAGE: &str = "jsonschema";

/// The schema that every value meets, as JSON text. Without a text, rows would not say of which
/// type they are.
const ANY_VALUE: &str = "{}";

/// Options of the codec `json`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct JsonTypes {
    /// Nothing: types of JSON messages come from the log itself (`embedded`).
    pub(crate) types: TypePaths,
}

sluice_model::register! {
    codec "json": JsonTypes,
    about: "JSON messages, by the JSON Schema that the log stores",
    sample: include_str!("../samples/json-codec.toml"),
}

struct JsonCodec {
    /// Only a fingerprint: no file declares types.
    declared: DeclaredTypes,
}

impl TryFrom<JsonTypes> for Box<dyn Codec> {
    type Error = OptionsError;

    fn try_from(_: JsonTypes) -> Result<Self, OptionsError> {
        let declared = DeclaredTypes { fingerprint: NAME.to_owned(), ..DeclaredTypes::default() };
        Ok(Box::new(JsonCodec { declared }))
    }
}

impl Codec for JsonCodec {
    fn declared(&self) -> &DeclaredTypes {
        &self.declared
    }

    fn keys(&self, _: &Channel) -> Option<KeyOf> {
        None
    }

    fn embedded(&self, channel: &Channel) -> Option<KnownType> {
        if channel.encoding != Encoding::Json {
            return None;
        }
        let text = match &channel.schema {
            // An empty text says as little as none.
            Some(EmbeddedSchema { encoding, data })
                if &**encoding == LANGUAGE && !data.trim_ascii().is_empty() =>
            {
                String::from_utf8_lossy(data).into_owned()
            }
            Some(_) | None => ANY_VALUE.to_owned(),
        };
        let key = TypeKey::from_parts([NAME.as_bytes(), text.as_bytes()]);
        let described = MessageType {
            codec: NAME.into(),
            text: text.into(),
            ..MessageType::named(channel.type_name.as_deref().unwrap_or(NAME), key)
        };
        let payload_type = message_type(&described);
        Some(KnownType { message_type: Arc::new(described), file: None, line: 0, payload_type })
    }

    fn adopt(&self, wanted: &MessageType, _: &Schema) -> Result<PayloadType, String> {
        message_type(wanted)
    }
}

/// The type with this description, whose text is a JSON Schema. It has the key of the description:
/// that of the plain type, or of its rows with a raw column.
pub fn message_type(described: &MessageType) -> Result<PayloadType, String> {
    let text = &*described.text;
    if text.len() > MAX_DESCRIPTION_LEN {
        return Err(format!("its schema is longer than {} MiB", MAX_DESCRIPTION_LEN >> 20));
    }
    let schema: Value =
        serde_json::from_str(text).map_err(|error| format!("its schema is not JSON: {error}"))?;
    let shape = JsonShape::from_schema(&schema)?;
    let plain = TypeKey::from_parts([NAME.as_bytes(), text.as_bytes()]);
    let base = Arc::new(MessageType { key: plain, ..described.clone() });
    let raw = RawColumn::Payload.key(plain);
    let form = PayloadType::new(base, JsonForm::new(shape));
    Ok(form.with_raw_column(RawColumn::Payload, raw).with_key(described.key))
}
