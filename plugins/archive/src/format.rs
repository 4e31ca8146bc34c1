//! The byte formats of archives: those that the program's sources offer, and `arrow`.

use serde::{Deserialize, Deserializer};
use sluice_model::{ByteFormat, Error, Registry};

use crate::arrow::{self, Arrow};

/// The format of this name.
pub fn find_format(name: &str) -> Option<&'static dyn ByteFormat> {
    if name == arrow::NAME { Some(&Arrow) } else { Registry::linked().byte_format(name) }
}

/// The names of all formats, sorted.
pub(crate) fn format_names() -> Vec<&'static str> {
    let mut names = Registry::linked().byte_formats();
    names.push(arrow::NAME);
    names.sort_unstable();
    names
}

/// The message for an unknown format.
pub(crate) fn missing_format(name: &str) -> String {
    format!(
        "this program has no archive format `{name}`; available formats: {}",
        format_names().join(", ")
    )
}

/// The format option of the sink.
#[derive(Clone)]
pub(crate) struct FormatOption {
    name: String,
    format: Option<&'static dyn ByteFormat>,
}

impl FormatOption {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The format; `Err` if it is the default, and the program does not have it.
    pub(crate) fn format(&self) -> Result<&'static dyn ByteFormat, Error> {
        self.format.ok_or_else(|| Error::invalid(missing_format(&self.name)))
    }
}

impl Default for FormatOption {
    fn default() -> Self {
        let name = "lcm-log".to_owned();
        Self { format: find_format(&name), name }
    }
}

impl<'de> Deserialize<'de> for FormatOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let format =
            find_format(&name).ok_or_else(|| serde::de::Error::custom(missing_format(&name)))?;
        Ok(Self { name, format: Some(format) })
    }
}
