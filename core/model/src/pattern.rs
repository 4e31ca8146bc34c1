//! Patterns of names: globs and regular expressions, as pipeline files and the command line spell
//! them.

use std::borrow::Cow;

use globset::GlobBuilder;
use regex::Regex;
use regex::bytes::{Regex as BytesRegex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_io::escape::{escaped, printable_sentence};

use crate::options::CHANNELS_FORMAT;

/// A pattern of names: a glob (`POSE`, `CAM_*`, `BROOM_{L,R}`), or `re:` and a regular expression
/// that must match the whole name (`re:CAM_[0-9]+`). Both match characters, of names that are not
/// UTF-8 those of their [text](crate::Name::text). `\xNN` in a glob is such a byte, if its digits
/// are lower-case. A glob also matches the name that is spelled like it: `L[0]` matches `L0` and
/// `L[0]`, `L\[0\]` only `L[0]`.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// The text itself.
    Name,
    /// A glob as a regular expression.
    Glob(BytesRegex),
    Regex(Regex),
}

/// What makes a pattern more than a name.
const GLOB_CHARACTERS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

impl Pattern {
    /// Parses a pattern. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = match text.strip_prefix("re:") {
            Some(regex) => Matcher::Regex(whole_name_regex(regex)?),
            // Most patterns are names, for which nothing needs to be compiled.
            None if !text.contains(GLOB_CHARACTERS) => Matcher::Name,
            None => Matcher::Glob(glob(text).map_err(|e| format!("`{text}` is not a glob: {e}"))?),
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
            Matcher::Glob(glob) => self.text == name || glob.is_match(name.as_bytes()),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// A regular expression that must match the whole name. `Err` says what is wrong with it, in one
/// line.
pub fn whole_name_regex(text: &str) -> Result<Regex, String> {
    let refused = |reason: String| {
        format!("`{}` is not a regular expression: {reason}", printable_sentence(text))
    };
    // First as it is: `A)|(B` is invalid, but would be valid in parentheses.
    Regex::new(text).map_err(|error| refused(reason(&error)))?;
    Regex::new(&format!("^(?:{text})$")).map_err(|error| {
        refused(match error {
            regex::Error::CompiledTooBig(_) => reason(&error),
            _ => "it ends with a comment, which `re:` cannot have".to_owned(),
        })
    })
}

/// What is wrong with a regular expression, and where, unless it has several lines.
fn reason(error: &regex::Error) -> String {
    if let regex::Error::CompiledTooBig(limit) = error {
        return format!("it needs more than {} MiB of memory", limit >> 20);
    }
    let text = error.to_string();
    let Some((drawing, reason)) = text.rsplit_once("error: ") else { return text };
    // Below a title and the expression, which is indented by four, carets mark the place.
    let carets = drawing.lines().nth(2).and_then(|line| line.strip_prefix("    "));
    match carets.filter(|line| line.chars().all(|c| matches!(c, ' ' | '^'))) {
        Some(line) => {
            format!("{reason}, at character {}", line.trim_end_matches('^').len() + 1)
        }
        None => reason.to_owned(),
    }
}

fn glob(text: &str) -> Result<BytesRegex, String> {
    // The backslash of `\xNN` is one of the name, not an escape of the `x`.
    let literal = escaped(text.as_bytes()).replace(r"\x5c", r"\\");
    // A `*` also matches `/`: channel names are not paths.
    let glob = GlobBuilder::new(&literal).literal_separator(false).build();
    let glob = glob.map_err(|e| e.kind().to_string())?;
    // Over bytes, it compiles ten times as fast, and means the same without `?` and `[…]`.
    let is_over_bytes = !text.contains(['?', '[']);
    let regex =
        if is_over_bytes { glob.regex().into() } else { Cow::Owned(over_characters(glob.regex())) };
    RegexBuilder::new(&regex).dot_matches_new_line(true).build().map_err(|e| e.to_string())
}

/// A regular expression of globset, which is over bytes, over characters. Characters that are not
/// ASCII are in it as the escaped bytes of their UTF-8.
fn over_characters(regex: &str) -> String {
    let mut rest = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let mut text = Vec::with_capacity(rest.len());
    while let Some((before, escape)) = rest.split_once('\\') {
        text.extend(before.as_bytes());
        let hex = escape.strip_prefix('x').and_then(|hex| hex.split_at_checked(2));
        let byte = hex.and_then(|(hex, after)| Some((u8::from_str_radix(hex, 16).ok()?, after)));
        rest = match byte {
            Some((byte, after)) => {
                text.push(byte);
                after
            }
            None => {
                let len = escape.chars().next().map_or(0, char::len_utf8);
                let (escaped, after) = escape.split_at(len);
                text.push(b'\\');
                text.extend(escaped.as_bytes());
                after
            }
        };
    }
    text.extend(rest.as_bytes());
    String::from_utf8_lossy(&text).into_owned()
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
    fn mistakes_in_regular_expressions_are_one_line_with_their_place() {
        for (text, mistake) in [
            ("(", "unclosed group, at character 1"),
            (
                "é[z-a]",
                "invalid character class range, the start must be <= the end, at character 3",
            ),
            (
                "CAM(?!_X).*",
                "look-around, including look-ahead and look-behind, is not supported, \
                 at character 4",
            ),
            (r"CAM\1", "backreferences are not supported, at character 4"),
            ("(?P<n>a)(?P<n>b)", "duplicate capture group name, at character 13"),
            // Valid in the parentheses that make it match whole names.
            ("A)|(B", "unopened group, at character 2"),
            ("(?x)A # all", "it ends with a comment, which `re:` cannot have"),
            ("a{9999}{9999}", "it needs more than 10 MiB of memory"),
        ] {
            let expected = format!("`{text}` is not a regular expression: {mistake}");
            assert_eq!(Pattern::parse(&format!("re:{text}")).unwrap_err(), expected);
        }
        let of_lines = Pattern::parse("re:a\n(").unwrap_err();
        assert_eq!(of_lines, r"`a\n(` is not a regular expression: unclosed group");
    }

    #[test]
    fn globs_count_characters() {
        let names = ["é", "日", "a", "\u{10ffff}", "", "éé", "aé", "\n"];
        let matched = |pattern: &str| -> Vec<&str> {
            let pattern = Pattern::parse(pattern).unwrap();
            names.into_iter().filter(|name| pattern.matches(name)).collect()
        };
        assert_eq!(matched("?"), ["é", "日", "a", "\u{10ffff}", "\n"]);
        assert_eq!(matched("?"), matched("re:(?s:.)"));
        assert_eq!(matched("??"), ["éé", "aé"]);
        assert_eq!(matched("[é日]"), ["é", "日"]);
        assert_eq!(matched("[é-ï]"), ["é"]);
        assert_eq!(matched("[!é]"), ["日", "a", "\u{10ffff}", "\n"]);
        assert_eq!(matched("{é,[a-b]}*"), ["é", "a", "éé", "aé"]);
        assert_eq!(matched("?é"), ["éé", "aé"]);
        assert_eq!(matched("*"), names);
        let matches = |pattern: &str, name: &str| Pattern::parse(pattern).unwrap().matches(name);
        assert!(matches(r"\\xc3?", r"\xc3é") && !matches(r"\\xc3?", "éa"));
        assert!(matches("[.]^$(a|b)+?", ".^$(a|b)+é") && !matches("[.]?", "aa"));
    }

    #[test]
    fn names_that_are_not_utf8_match_by_their_text() {
        let name = crate::Name::from_bytes(b"CAM\xff\xc3\xa9");
        assert_eq!(name.text(), r"CAM\xffé");
        let is_match = |pattern: &str| Pattern::parse(pattern).unwrap().matches(name.text());
        for pattern in ["*", "CAM*", "*é", "CAM????é", r"CAM\\xffé", "re:CAM.{5}", r"re:CAM\\xff."]
        {
            assert!(is_match(pattern), "{pattern}");
        }
        assert!(!is_match("CAM?") && !is_match("re:CAM."));
    }

    #[test]
    fn globs_name_bytes_that_are_not_utf8_by_their_escapes() {
        let names = ["A\\xe9", "Axe9", "B\\xe9", "\\xff\\xfe", "\\xffB", "xffB", "\\", "A\\xE9"];
        let matched = |pattern: &str| -> Vec<&str> {
            let pattern = Pattern::parse(pattern).unwrap();
            names.into_iter().filter(|name| pattern.matches(name)).collect()
        };
        assert_eq!(matched(r"A\xe9"), [r"A\xe9"]);
        assert_eq!(matched(r"*\xe9"), [r"A\xe9", r"B\xe9"]);
        assert_eq!(matched(r"?\xe9"), [r"A\xe9", r"B\xe9"]);
        assert_eq!(matched(r"{A,B}\xe9"), [r"A\xe9", r"B\xe9"]);
        assert_eq!(matched(r"{A\xe9,\xff*}"), [r"A\xe9", r"\xff\xfe", r"\xffB"]);
        assert_eq!(matched(r"\xff*"), [r"\xff\xfe", r"\xffB"]);
        // The backslash may be escaped, and escapes of anything else are those of globs.
        assert_eq!(matched(r"A\\xe9*"), [r"A\xe9"]);
        assert_eq!(matched(r"\\"), [r"\"]);
        assert_eq!(matched(r"\xffB\*"), Vec::<&str>::new());
        assert_eq!(matched(r"\Axe9"), ["Axe9"]);
        assert!(Pattern::parse(r"\x5cxe9*").unwrap().matches(r"\x5cxe9"));
    }

    #[test]
    fn a_name_spelled_like_a_glob_is_matched_by_it_and_alone_by_escapes() {
        let matches = |pattern: &str, name: &str| Pattern::parse(pattern).unwrap().matches(name);
        assert!(matches("L[0]", "L[0]") && matches("L[0]", "L0"));
        assert!(matches(r"L\[0\]", "L[0]") && !matches(r"L\[0\]", "L0"));
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
