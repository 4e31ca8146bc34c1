//! Patterns of names: globs and regular expressions, as pipeline files and the command line spell
//! them.

use std::borrow::Cow;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::CHANNELS_FORMAT;

/// A pattern of names: a glob (`POSE`, `CAM_*`, `BROOM_{L,R}`), or `re:` and a regular expression
/// that must match the whole name (`re:CAM_[0-9]+`).
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// The text itself.
    Name,
    Glob(GlobMatcher),
    Regex(Regex),
}

/// What makes a pattern more than a name.
const GLOB_CHARACTERS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

impl Pattern {
    /// Parses a pattern. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = match text.strip_prefix("re:") {
            Some(regex) => Matcher::Regex(
                Regex::new(&format!("^(?:{regex})$"))
                    .map_err(|e| format!("`{regex}` is not a regular expression: {e}"))?,
            ),
            // Most patterns are names, for which nothing needs to be compiled.
            None if !text.contains(GLOB_CHARACTERS) => Matcher::Name,
            None => Matcher::Glob(
                // A `*` also matches `/`: channel names are not paths.
                GlobBuilder::new(text)
                    .literal_separator(false)
                    .build()
                    .map_err(|e| format!("`{text}` is not a glob: {}", e.kind()))?
                    .compile_matcher(),
            ),
        };
        Ok(Self { text: text.to_owned(), matcher: form })
    }

    /// The name, if it is a plain name without special characters.
    pub fn as_name(&self) -> Option<&str> {
        matches!(self.matcher, Matcher::Name).then_some(&self.text)
    }

    /// Its source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Name => self.text == name,
            // A literal name matches even if it contains special characters.
            Matcher::Glob(glob) => self.text == name || glob.is_match(name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Patterns are equal if their source texts are.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": CHANNELS_FORMAT,
            "description": "a glob, or `re:` and a regular expression" })
    }
}

/// A list of patterns, of which one has to match. A pipeline file may give one as a plain string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patterns(pub Vec<Pattern>);

impl Patterns {
    /// Whether one of them matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::options::one_or_many(deserializer).map(Self)
    }
}

impl JsonSchema for Patterns {
    fn schema_name() -> Cow<'static, str> {
        "Patterns".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Pattern>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_and_regexes_match_whole_names() {
        let matches = |pattern: &str, name: &str| Pattern::parse(pattern).unwrap().matches(name);
        assert!(matches("CAM_*", "CAM_THUMB_RFC") && !matches("CAM_*", "XCAM_"));
        assert!(matches("*", "/unitree/ultrasonic") && matches("BROOM_{L,R}", "BROOM_R"));
        assert!(matches("re:A|B", "A") && !matches("re:A|B", "AX"));
        assert!(matches("odd[1]", "odd[1]") && Pattern::parse("odd[name").is_err());
        assert!(Pattern::parse("re:(").unwrap_err().contains("not a regular expression"));
    }

    #[test]
    fn only_plain_names_are_names() {
        let is_name = |text: &str| Pattern::parse(text).unwrap().as_name() == Some(text);
        assert!(is_name("POSE") && is_name("/a/b.c"));
        assert!(!["CAM_*", "re:POSE", "A{,B}", "A?"].into_iter().any(is_name));
    }

    #[test]
    fn one_pattern_may_stand_without_a_list() {
        let one: Patterns = serde_json::from_str("\"A*\"").unwrap();
        let two: Patterns = serde_json::from_str("[\"A*\", \"B\"]").unwrap();
        assert!(one.matches("AB") && two.matches("B") && !two.matches("C"));
    }
}
