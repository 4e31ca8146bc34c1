//! Templates: text with values of an event in braces, such as `{utime} {pos[0]:.6}`.
//!
//! | in braces | value |
//! |---|---|
//! | `pos[0]`, `legs[2].angle` | a field of the decoded event, by its path |
//! | `ranges[*]` | all elements of a list, separated by spaces; `m[*][*]` for nested lists |
//! | `channel`, `source` | the channel and the source of the event |
//! | `sequence` | its sequence number |
//! | `timestamp_ns`, `timestamp` | its time in nanoseconds, or as RFC 3339 |
//! | `` `channel` `` | the field of that name |
//!
//! A colon introduces a number format as in C's `printf`: `{pos[0]:.6}` has six decimals,
//! `{utime:016}` is padded with zeros, `{x:12.3}` with spaces. A semicolon introduces the separator
//! of elements, up to the brace: `{ranges[*]:.3;,}`. `{{` and `}}` are literal braces. Other values
//! accept a width, too, in characters, and are padded with spaces.
//!
//! Integers and times are whole numbers in their unit. Floats without a format are written with the
//! shortest digits that parse to the same number, or as `nan`, `inf` and `-inf`. Control characters
//! in text are escaped; binary is base64, and structs and lists are JSON.

mod binding;
mod decimals;
mod language;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use sluice_model::options::TEMPLATE_FORMAT;
use sluice_model::{FieldPath, Rows};

pub use binding::{BoundTemplate, MAX_TEXT};

use language::{TemplateError, TemplatePart};

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<TemplatePart>,
}

impl Template {
    /// Parses a template. `Err` says what is wrong with it, and at which character.
    pub fn parse(text: &str) -> Result<Self, String> {
        match language::parse(text) {
            Ok(parts) => Ok(Self { text: text.to_owned(), parts }),
            Err(TemplateError { at, what }) => {
                let character = text.get(..at).unwrap_or(text).chars().count() + 1;
                Err(format!("`{text}` is not a template: at character {character}: {what}"))
            }
        }
    }

    /// The fields it uses, in order.
    pub fn fields(&self) -> impl Iterator<Item = &FieldPath> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Field(inserted) => Some(&inserted.path),
            _ => None,
        })
    }

    /// Binds the template to the rows of one type, or to events that are not decoded.
    ///
    /// Call it once per batch and type: it resolves each field. A field that the type does not
    /// have, or that has no text form, is missing in every event.
    pub fn bind(&self, rows: Option<&Rows>) -> BoundTemplate<'_> {
        BoundTemplate::new(&self.parts, rows)
    }
}

impl fmt::Display for Template {
    /// Its source text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": TEMPLATE_FORMAT,
            "description": "a text with fields in braces, such as `{utime} {pos[0]:.6}`" })
    }
}
