//! What a JSON Schema says of the columns of its values. Decodes nothing.
//!
//! Schemas are untrusted: references lead in circles, and small ones expand to many columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use serde_json::{Map, Value};

/// The most columns of a type, including nested ones.
const MAX_COLUMNS: usize = 2_000;

/// How deep types may nest; deeper values stay JSON text.
const MAX_DEPTH: usize = 24;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonShape {
    /// A boolean.
    Bool,
    /// An integer of 64 bits.
    Integer,
    /// A number.
    Number,
    /// A string.
    Text,
    /// A string of base64.
    Bytes,
    /// Anything, kept as JSON text.
    Any,
    /// An array of values of one type.
    List(Box<JsonShape>),
    /// An object with these properties.
    Object(Vec<(String, JsonShape)>),
}

impl JsonShape {
    /// The type that a JSON Schema describes; what it cannot say in columns is [`JsonShape::Any`].
    ///
    /// `Err` if the type has too many columns.
    pub(crate) fn from_schema(schema: &Value) -> Result<Self, String> {
        let mut reader = SchemaReader { root: schema, columns: 0 };
        let shape = reader.shape(schema, 0);
        if reader.columns > MAX_COLUMNS {
            return Err(format!("it has more than {MAX_COLUMNS} columns"));
        }
        Ok(shape)
    }

    /// The fields of a row of this type; a value that is no object is the field `value`.
    pub(crate) fn fields(&self) -> Fields {
        match self {
            Self::Object(properties) => fields(properties),
            other => Fields::from(vec![field("value", other)]),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Text | Self::Any => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::List(item) => DataType::List(Arc::new(field("item", item))),
            Self::Object(properties) => DataType::Struct(fields(properties)),
        }
    }
}

fn fields(properties: &[(String, JsonShape)]) -> Fields {
    properties.iter().map(|(name, shape)| field(name, shape)).collect()
}

fn field(name: &str, shape: &JsonShape) -> Field {
    Field::new(name, shape.data_type(), true)
}

struct SchemaReader<'s> {
    root: &'s Value,
    columns: usize,
}

impl<'s> SchemaReader<'s> {
    fn shape(&mut self, schema: &'s Value, depth: usize) -> JsonShape {
        self.columns += 1;
        let Some(schema) = schema.as_object() else { return JsonShape::Any };
        if depth > MAX_DEPTH || self.columns > MAX_COLUMNS {
            return JsonShape::Any;
        }
        if let Some(other) = self.stands_for(schema) {
            return self.shape(other, depth + 1);
        }
        match type_of(schema) {
            Some("boolean") => JsonShape::Bool,
            Some("integer") => JsonShape::Integer,
            Some("number") => JsonShape::Number,
            Some("string") if says(schema, "contentEncoding", "base64") => JsonShape::Bytes,
            Some("string") => JsonShape::Text,
            Some("array") => match schema.get("items") {
                Some(items @ Value::Object(_)) => {
                    JsonShape::List(Box::new(self.shape(items, depth + 1)))
                }
                _ => JsonShape::Any,
            },
            Some("object") => self.object(schema, depth),
            _ => JsonShape::Any,
        }
    }

    fn object(&mut self, schema: &'s Map<String, Value>, depth: usize) -> JsonShape {
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|all| !all.is_empty()) else {
            return JsonShape::Any;
        };
        let each = properties.iter();
        JsonShape::Object(
            each.map(|(name, of)| (name.clone(), self.shape(of, depth + 1))).collect(),
        )
    }

    /// The schema that this one refers to: the only one that is not null.
    fn stands_for(&self, schema: &'s Map<String, Value>) -> Option<&'s Value> {
        if let Some(Value::String(reference)) = schema.get("$ref") {
            return self.root.pointer(reference.strip_prefix('#')?);
        }
        let choices = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema.get(*word))?;
        let mut values = choices.as_array()?.iter().filter(|choice| !is_null(choice));
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }
}

fn says(schema: &Map<String, Value>, key: &str, word: &str) -> bool {
    schema.get(key).and_then(Value::as_str) == Some(word)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// The only type besides `null` that a schema allows.
fn type_of(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type") {
        Some(Value::String(word)) => Some(word),
        Some(Value::Array(words)) => {
            let mut words = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
            let first = words.next()?;
            words.next().is_none().then_some(first)
        }
        // Both words are often left out where it is clear what is meant.
        Some(_) => None,
        None if schema.contains_key("properties") => Some("object"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(schema: Value) -> JsonShape {
        JsonShape::from_schema(&schema).unwrap()
    }

    #[test]
    fn types_of_values_become_columns() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": { "type": "integer" },
                "x": { "type": ["number", "null"] },
                "label": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
                "image": { "type": "string", "contentEncoding": "base64" },
                "on": { "type": "boolean" },
                "points": { "type": "array", "items": { "$ref": "#/$defs/p" } },
                "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
                "open": { "type": "object" },
            },
            "$defs": { "p": { "properties": { "x": { "type": "number" } } } },
        });
        let point = JsonShape::Object(vec![("x".into(), JsonShape::Number)]);
        let wanted = [
            ("n", JsonShape::Integer),
            ("x", JsonShape::Number),
            ("label", JsonShape::Text),
            ("image", JsonShape::Bytes),
            ("on", JsonShape::Bool),
            ("points", JsonShape::List(Box::new(point))),
            ("either", JsonShape::Any),
            ("open", JsonShape::Any),
        ];
        let wanted = wanted.map(|(name, shape)| (name.to_owned(), shape));
        assert_eq!(shape(schema), JsonShape::Object(wanted.to_vec()));
    }

    #[test]
    fn a_type_that_holds_itself_ends_as_text() {
        let schema = json!({ "properties": { "next": { "$ref": "#" } } });
        let mut at = &shape(schema);
        let mut depth = 0;
        while let JsonShape::Object(properties) = at {
            (at, depth) = (&properties[0].1, depth + 1);
        }
        assert!(*at == JsonShape::Any && depth > 5);
    }

    #[test]
    fn a_type_that_expands_to_many_columns_is_refused() {
        let two = |to: &str| {
            let to = json!({ "$ref": format!("#/$defs/{to}") });
            json!({ "properties": { "a": to, "b": to } })
        };
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let defs: Map<String, Value> =
            names.windows(2).map(|pair| (pair[0].clone(), two(&pair[1]))).collect();
        let schema = json!({ "$ref": "#/$defs/0", "$defs": defs });
        assert!(JsonShape::from_schema(&schema).unwrap_err().contains("columns"));
    }

    #[test]
    fn what_is_no_schema_is_any_value() {
        for schema in [json!(true), json!({}), json!([]), json!({ "$ref": "other.json" })] {
            assert_eq!(shape(schema), JsonShape::Any);
        }
    }
}
