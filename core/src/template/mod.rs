//! Templates: text with braces in which values of an event stand, such as `{utime} {pos[0]:.6}`. Knows
//! neither lines nor files: what a template's text is for is the sink's business.
//!
//! | in braces | is |
//! |---|---|
//! | `pos[0]`, `legs[2].angle` | a field of the decoded event, by its path |
//! | `ranges[*]` | all elements of a list, with a blank between; `m[*][*]` those of lists in a list |
//! | `channel`, `source` | where the event is from |
//! | `sequence` | its number |
//! | `timestamp_ns`, `timestamp` | its time, in nanoseconds, or as RFC 3339 has it |
//! | `` `channel` `` | the field of that name |
//!
//! Behind a colon stands how numbers are written, as C's `printf` takes it: `{pos[0]:.6}` with six decimals,
//! `{utime:016}` with zeros in front up to that width, `{x:12.3}` with blanks. Behind a semicolon stands what
//! separates elements, up to the brace: `{ranges[*]:.3;,}`. `{{` and `}}` are braces. What is no number takes a
//! width, too, counted in characters, and is filled up with blanks.
//!
//! Integers and times are whole numbers of their unit. Floats without a format are the shortest digits that
//! read back as the same number; `nan`, `inf` and `-inf` are words. Texts stand as they are, but for control
//! characters, which are spelled out; binary is base64, and what has members or elements is JSON.

mod binding;
mod decimals;
mod language;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{FieldPath, Rows};

pub use binding::{BoundTemplate, MAX_TEXT};

use language::{TemplateError, TemplatePart};

/// A text with places in it that values of an event are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<TemplatePart>,
}

impl Template {
    /// Reads a template. `Err` says what is wrong with it, and at which character.
    pub fn parse(text: &str) -> Result<Self, String> {
        match language::parse(text) {
            Ok(parts) => Ok(Self { text: text.to_owned(), parts }),
            Err(TemplateError { at, what }) => {
                let character = text.get(..at).unwrap_or(text).chars().count() + 1;
                Err(format!("`{text}` is no template: at character {character}: {what}"))
            }
        }
    }

    /// The fields whose values it has, in order.
    pub fn fields(&self) -> impl Iterator<Item = &FieldPath> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Field(inserted) => Some(&inserted.path),
            _ => None,
        })
    }

    /// The template for events of one type, of which these are the rows; or for events that are not decoded.
    ///
    /// Finds each field once, so this is called once a batch and type. A field that the type does not have,
    /// or whose values have no form as text, is missing in every event.
    pub fn bind(&self, rows: Option<&Rows>) -> BoundTemplate<'_> {
        BoundTemplate::new(&self.parts, rows)
    }
}

impl fmt::Display for Template {
    /// As [`Template::parse`] was given it.
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
        json_schema!({ "type": "string",
            "description": "a text with fields in braces, such as `{utime} {pos[0]:.6}`" })
    }
}
