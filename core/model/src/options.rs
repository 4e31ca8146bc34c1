//! Options: reading them, and types shared by many plugins. Knows nothing of TOML.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::OptionsError;

/// The JSON Schema `format` of options that are paths: relative ones are resolved before a plugin
/// sees them.
pub const PATH_FORMAT: &str = "sluice-path";

/// The JSON Schema `format` of options that name types: paths, or names of built-in sets.
pub const TYPES_FORMAT: &str = "sluice-types";

/// The JSON Schema `format` of channel patterns: a run reports those that matched no channel. If
/// the `propertyNames` of a table have it, its keys are such patterns.
pub const CHANNELS_FORMAT: &str = "sluice-channels";

/// The JSON Schema `format` of patterns of sources, reported likewise.
pub const SOURCES_FORMAT: &str = "sluice-sources";

/// The JSON Schema `format` of fields of decoded messages: a path, a list of paths, or
/// comma-separated paths. A field that no declared type has is an error; one that no event had is
/// reported.
pub const FIELDS_FORMAT: &str = "sluice-fields";

/// The JSON Schema `format` of texts with fields of decoded messages in braces, judged likewise.
pub const TEMPLATE_FORMAT: &str = "sluice-template";

/// Reads a plugin's options from the value of its table.
///
/// `Err` names the key.
pub fn read<T: DeserializeOwned>(options: Value) -> Result<T, OptionsError> {
    serde_path_to_error::deserialize(options).map_err(|error| {
        let path = error.path().iter().filter_map(|segment| match segment {
            serde_path_to_error::Segment::Seq { index } => Some(index.to_string()),
            serde_path_to_error::Segment::Map { key } => Some(key.clone()),
            _ => None,
        });
        OptionsError { path: path.collect(), message: error.inner().to_string() }
    })
}

/// Reads a list, or a single value as a list of one.
pub fn one_or_many<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let listed = match Value::deserialize(deserializer)? {
        Value::Array(list) => list,
        one => vec![one],
    };
    let read = |value| serde_json::from_value(value).map_err(serde::de::Error::custom);
    listed.into_iter().map(read).collect()
}

/// Reads a number that has to be above 0.
pub fn above_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number > 0.0 && number.is_finite() {
        return Ok(Some(number));
    }
    Err(serde::de::Error::custom("expected a number above 0"))
}

/// One input path or several: files, globs, or `-` for standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct InPaths(pub Vec<PathBuf>);

impl<'de> Deserialize<'de> for InPaths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let paths: Vec<PathBuf> = one_or_many(deserializer)?;
        if paths.is_empty() {
            return Err(serde::de::Error::custom("expected a path, found an empty list"));
        }
        if paths.iter().any(|path| path.as_os_str().is_empty()) {
            return Err(serde::de::Error::custom("expected a path, found an empty string"));
        }
        Ok(Self(paths))
    }
}

impl InPaths {
    /// Deserializes paths for a source that needs files or folders: refuses `-`.
    pub fn without_stdin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let paths = Self::deserialize(deserializer)?;
        if paths.0.iter().any(|path| path == Path::new("-")) {
            return Err(serde::de::Error::custom(
                "expected a file or folder, found `-`: standard input can only be read once, from \
                 start to end, and this format needs more; save it first",
            ));
        }
        Ok(paths)
    }
}

impl JsonSchema for InPaths {
    fn schema_name() -> Cow<'static, str> {
        "InPaths".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = json_schema!({ "type": "string", "format": PATH_FORMAT });
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }],
            "description": "a file, a glob, a list of them, or `-` for standard input" })
    }
}

/// An output path, or `-` for standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OutPath(pub PathBuf);

impl OutPath {
    /// Deserializes the path of a sink that writes one file: refuses folders.
    pub fn without_folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = Self::deserialize(deserializer)?;
        if path.is_folder() {
            let path = path.0.display();
            let what = format!("expected a file, found a folder: {path}");
            return Err(serde::de::Error::custom(what));
        }
        Ok(path)
    }

    /// Whether it was written as a folder, with a trailing slash.
    pub fn is_folder(&self) -> bool {
        self.0.as_os_str().as_encoded_bytes().ends_with(b"/")
    }

    /// Whether it stands for standard output.
    pub fn is_stdout(&self) -> bool {
        self.0 == Path::new("-")
    }
}

impl<'de> Deserialize<'de> for OutPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        if path.as_os_str().is_empty() {
            return Err(serde::de::Error::custom("expected a path, found an empty string"));
        }
        // The device would be opened anew, beside what else is printed.
        let is_stdout = ["/dev/stdout", "/dev/fd/1"].iter().any(|name| path == Path::new(name));
        Ok(Self(if is_stdout { PathBuf::from("-") } else { path }))
    }
}

impl JsonSchema for OutPath {
    fn schema_name() -> Cow<'static, str> {
        "OutPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": PATH_FORMAT,
            "description": "a file, or `-` for standard output" })
    }
}

/// How a log is read if only a time window of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Read all headers, but skip payloads outside the window. Times need not be sorted.
    Headers,
    /// Read everything.
    Off,
    /// Search for the window, trusting the user that times are sorted up to ten seconds.
    Sorted,
}

impl Seek {
    const SORTED: &str = "sorted";
}

impl<'de> Deserialize<'de> for Seek {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(true) => Ok(Self::Headers),
            Value::Bool(false) => Ok(Self::Off),
            Value::String(word) if word == Self::SORTED => Ok(Self::Sorted),
            other => Err(serde::de::Error::custom(format!(
                "expected true, false or \"{}\", found {other}",
                Self::SORTED
            ))),
        }
    }
}

impl Serialize for Seek {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Headers => true.serialize(serializer),
            Self::Off => false.serialize(serializer),
            Self::Sorted => Self::SORTED.serialize(serializer),
        }
    }
}

impl JsonSchema for Seek {
    fn schema_name() -> Cow<'static, str> {
        "Seek".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "const": Self::SORTED }] })
    }
}

/// A number of bytes: a whole number, or text such as `512MiB` or `1.5 GB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Parses a size. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size: write 1048576, 512MiB, 1.5GB or 64KiB");
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at_checked(split).ok_or_else(wrong)?;
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        let (lower, letters) = (unit.trim().to_ascii_lowercase(), ["k", "m", "g", "t", "p"]);
        let power = |suffix: &str, base: f64| {
            let letter = lower.strip_suffix(suffix)?;
            let power = letters.iter().position(|l| *l == letter)? + 1;
            Some(base.powi(i32::try_from(power).ok()?))
        };
        let scale = match lower.as_str() {
            "" | "b" => 1.0,
            _ => power("ib", 1024.0)
                .or_else(|| power("i", 1024.0))
                .or_else(|| power("b", 1000.0))
                .or_else(|| power("", 1024.0))
                .ok_or_else(wrong)?,
        };
        let bytes = (number * scale).round();
        // Above 2^53 a float cannot count single bytes.
        if bytes < 9.0e15 { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }

    /// Parses a size above 0. `Err` says what is wrong with it.
    pub fn parse_positive(text: &str) -> Result<Self, String> {
        Self::parse(text)?.positive()
    }

    /// Deserializes an option that has to be above 0.
    pub fn above_zero<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        Self::deserialize(deserializer)?.positive().map(Some).map_err(serde::de::Error::custom)
    }

    /// This size, if it is above 0. `Err` says that it has to be.
    pub fn positive(self) -> Result<Self, String> {
        if self.0 > 0 { Ok(self) } else { Err("expected a size above 0".to_owned()) }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size such as 1048576 or \"512MiB\"")]
        enum RawByteSize {
            Bytes(u64),
            Text(String),
        }
        match RawByteSize::deserialize(deserializer)? {
            RawByteSize::Bytes(bytes) => Ok(Self(bytes)),
            RawByteSize::Text(text) => Self::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "description": "bytes: 1048576 or \"512MiB\""
        })
    }
}

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.into_iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) if self.0.is_multiple_of(size) => {
                write!(f, "{}{unit}", self.0 / size)
            }
            Some((unit, size)) => write!(f, "{:.1}{unit}", self.0 as f64 / size as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestOptions {
        #[expect(dead_code, reason = "only read")]
        path: InPaths,
        #[serde(default)]
        #[expect(dead_code, reason = "only read")]
        sizes: Vec<ByteSize>,
    }

    #[test]
    fn errors_name_the_key_at_fault() {
        let error =
            read::<TestOptions>(json!({ "path": "a", "sizes": [1, "2 bananas"] })).unwrap_err();
        assert_eq!(error.path, ["sizes", "1"]);
        assert!(error.message.contains("not a size"), "{error}");
        assert_eq!(read::<TestOptions>(json!({ "path": [] })).unwrap_err().path, ["path"]);
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        let size = |text: &str| ByteSize::parse(text).map(|size| size.0);
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("1.5 GB"), Ok(1_500_000_000));
        assert_eq!((size("64k"), size("7")), (Ok(65536), Ok(7)));
        assert!(size("lots").is_err() && size("-1").is_err() && size("1e30").is_err());
        assert_eq!(ByteSize(512 << 20).to_string(), "512MiB");
    }
}
