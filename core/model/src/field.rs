//! Paths to values in decoded messages, such as `pos[0]` or `legs[2].angle`, and their values in
//! Arrow columns.
//!
//! A path is a name, followed by any number of `.name` and `[index]`. An index counts from 0, a
//! negative one from the end. Names of letters, digits, `_`, `-` and non-ASCII characters are
//! written as they are; other names are quoted with backquotes (`` `odd name`.x ``), in which two
//! backquotes stand for one.

mod columns;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use schemars::{JsonSchema, Schema as OptionSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::FIELDS_FORMAT;

/// A path to a value in a decoded message, starting with the name of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    column: Arc<str>,
    steps: Vec<PathStep>,
}

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathStep {
    /// The member of that name.
    Name(Arc<str>),
    /// The element at that index; a negative one counts from the end.
    Index(i64),
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The byte offset of the error.
    pub at: usize,
    /// What is wrong.
    pub what: String,
}

/// How a `-` after an unquoted name is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DashRule {
    /// As part of the name.
    InNames,
    /// As the end of the path: it may be a minus.
    EndsNames,
}

impl FieldPath {
    /// The path to a whole column.
    pub fn column(name: impl Into<Arc<str>>) -> Self {
        Self { column: name.into(), steps: Vec::new() }
    }

    /// Extends the path by a step.
    pub fn then(&self, step: PathStep) -> Self {
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Self { column: Arc::clone(&self.column), steps }
    }

    /// The name of the column it begins with.
    pub fn first(&self) -> &str {
        &self.column
    }

    /// The steps behind the column it begins with.
    pub fn steps(&self) -> &[PathStep] {
        &self.steps
    }

    /// The names it consists of; `None` if it contains an index.
    pub fn members(&self) -> Option<Vec<&str>> {
        let names = self.steps.iter().map(|step| match step {
            PathStep::Name(name) => Some(&**name),
            PathStep::Index(_) => None,
        });
        std::iter::once(Some(&*self.column)).chain(names).collect()
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for FieldPath {
    fn schema_name() -> Cow<'static, str> {
        "FieldPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> OptionSchema {
        json_schema!({ "type": "string", "format": FIELDS_FORMAT,
            "description": "a field, such as `pos[0]` or `legs[2].angle`" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    #[test]
    fn options_read_paths_from_strings() {
        let paths: Vec<FieldPath> = serde_json::from_str(r#"["pos[0]", "utime"]"#).unwrap();
        assert_eq!(serde_json::to_string(&paths).unwrap(), r#"["pos[0]","utime"]"#);
        assert!(serde_json::from_str::<FieldPath>("\"a[\"").is_err());
    }
}
