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

    /// The type of values that are of both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Object(mut properties), Self::Object(others)) => {
                for (name, shape) in others {
                    match properties.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = known.clone().and(shape),
                        None => properties.push((name, shape)),
                    }
                }
                Self::Object(properties)
            }
            (Self::List(item), Self::List(other)) => Self::List(Box::new(item.and(*other))),
            (Self::Number, Self::Integer) | (Self::Integer, Self::Number) => Self::Integer,
            (Self::Text, Self::Bytes) | (Self::Bytes, Self::Text) => Self::Bytes,
            (shape, other) if shape == other => shape,
            _ => Self::Any,
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
        self.known_shape(schema, depth).unwrap_or(JsonShape::Any)
    }

    /// What a schema says of the columns of a value, if anything: all that it consists of applies.
    fn known_shape(&mut self, schema: &'s Value, depth: usize) -> Option<JsonShape> {
        self.columns += 1;
        let schema = schema.as_object()?;
        if depth > MAX_DEPTH || self.columns > MAX_COLUMNS {
            return Some(JsonShape::Any);
        }
        let mut parts = Vec::new();
        parts.extend(schema.get("$ref").and_then(|to| self.referred(to, depth)));
        let bases = elements(schema, "allOf");
        parts.extend(bases.filter_map(|base| self.known_shape(base, depth + 1)));
        parts.extend(self.own_shape(schema, depth));
        for choices in ["anyOf", "oneOf"] {
            parts.extend(self.choice(elements(schema, choices), depth));
        }
        parts.into_iter().reduce(JsonShape::and)
    }

    /// The shape by the type and the properties of a schema.
    fn own_shape(&mut self, schema: &'s Map<String, Value>, depth: usize) -> Option<JsonShape> {
        Some(match type_of(schema)? {
            "boolean" => JsonShape::Bool,
            "integer" => JsonShape::Integer,
            "number" => JsonShape::Number,
            "string" if says(schema, "contentEncoding", "base64") => JsonShape::Bytes,
            "string" => JsonShape::Text,
            "array" => {
                let items = schema.get("items").filter(|items| items.is_object())?;
                JsonShape::List(Box::new(self.shape(items, depth + 1)))
            }
            "object" => {
                let properties = schema.get("properties")?.as_object()?;
                let each = properties.iter();
                let each = each.map(|(name, of)| (name.clone(), self.shape(of, depth + 1)));
                JsonShape::Object(Some(each.collect()).filter(|all: &Vec<_>| !all.is_empty())?)
            }
            _ => JsonShape::Any,
        })
    }

    /// The shape of the only choice that is not null. Several leave it open, unless none of them
    /// says anything of the type.
    fn choice(
        &mut self,
        choices: impl Iterator<Item = &'s Value>,
        depth: usize,
    ) -> Option<JsonShape> {
        let choices: Vec<&Value> = choices.filter(|choice| !is_null(choice)).collect();
        match choices[..] {
            [choice] => self.known_shape(choice, depth + 1),
            _ => choices.iter().any(|choice| has_type(choice)).then_some(JsonShape::Any),
        }
    }

    /// The shape of the part of the whole that `$ref` names.
    fn referred(&mut self, to: &Value, depth: usize) -> Option<JsonShape> {
        let root = self.root;
        let part = to.as_str().and_then(|to| root.pointer(to.strip_prefix('#')?));
        // What is in another file is unknown.
        part.map_or(Some(JsonShape::Any), |part| self.known_shape(part, depth + 1))
    }
}

/// Whether a schema may say something of the type.
fn has_type(schema: &Value) -> bool {
    let words = ["type", "properties", "$ref", "allOf", "anyOf", "oneOf"];
    words.iter().any(|word| schema.get(word).is_some())
}

/// The schemas in a list of a schema.
fn elements<'s>(schema: &'s Map<String, Value>, key: &str) -> impl Iterator<Item = &'s Value> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn says(schema: &Map<String, Value>, key: &str, word: &str) -> bool {
    schema.get(key).and_then(Value::as_str) == Some(word)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// The only type besides `null` that a schema allows, or no name if it allows several.
fn type_of(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type") {
        Some(Value::String(word)) => Some(word),
        Some(Value::Array(words)) => {
            let mut words = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
            let first = words.next()?;
            Some(if words.next().is_some() { "" } else { first })
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
    fn all_parts_of_a_type_have_columns() {
        let names = |schema: Value| match shape(schema) {
            JsonShape::Object(all) => {
                all.into_iter().map(|(name, shape)| format!("{name} {shape:?}")).collect()
            }
            other => vec![format!("{other:?}")],
        };
        let base = json!({ "base": { "type": "object", "properties": {
            "id": { "type": "integer" }, "x": {} } } });
        let own = json!({ "speed": { "type": "number" }, "x": { "type": "string" } });
        let refer = json!({ "$ref": "#/$defs/base" });
        let inherits = json!({ "allOf": [refer], "properties": own, "$defs": base });
        let refers =
            json!({ "$ref": "#/$defs/base", "type": "object", "properties": own, "$defs": base });
        let two =
            json!({ "type": "object", "allOf": [refer, { "properties": own }], "$defs": base });
        for schema in [inherits, refers, two] {
            assert_eq!(names(schema), ["id Integer", "x Any", "speed Number"]);
        }
        // What says nothing of the type displaces nothing.
        let limited = json!({ "properties": {
            "a": { "type": "integer", "allOf": [{ "minimum": 3 }] },
            "b": { "type": "string", "anyOf": [{ "maxLength": 3 }, { "const": "other" }] },
            "c": { "type": "number", "oneOf": [{ "type": "integer" }] },
        }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] });
        assert_eq!(names(limited), ["a Integer", "b Text", "c Integer"]);
        // What may be one of several, or is in another file, has no columns: some would be lost.
        let other = json!({ "properties": { "z": { "type": "number" } } });
        let either = json!({ "properties": own, "oneOf": [{ "properties": own }, other] });
        let elsewhere = json!({ "allOf": [{ "$ref": "base.json" }, { "properties": own }] });
        assert_eq!([names(either), names(elsewhere)], [["Any"], ["Any"]]);
        let wrong = json!({ "properties": { "a": { "allOf": [{ "type": "string" }, refer] } },
            "$defs": base });
        assert_eq!(names(wrong), ["a Any"]);
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
    fn choices_take_no_columns() {
        let node = json!({ "anyOf": [{ "type": "object", "properties": {
            "left": { "$ref": "#/$defs/node" }, "right": { "$ref": "#/$defs/node" } } },
            { "type": "number" }] });
        let names: Vec<Value> = (0..25).map(|n| json!({ "const": n, "title": "t" })).collect();
        let named = json!({ "type": "integer", "oneOf": names });
        let mut properties: Map<String, Value> =
            (0..100).map(|n| (format!("n{n}"), named.clone())).collect();
        for name in ["a", "b", "c"] {
            properties.insert(name.to_owned(), json!({ "$ref": "#/$defs/node" }));
        }
        let schema = json!({ "properties": properties, "$defs": { "node": node } });
        let JsonShape::Object(all) = shape(schema) else { panic!("it has properties") };
        assert_eq!((&all[0].1, &all[100].1), (&JsonShape::Integer, &JsonShape::Any));
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
