//! The byte formats of archives: those that the program's sources offer, and `arrow`.

use serde::{Deserialize, Deserializer};
use sluice_model::{ByteFormat, Error, OptionsError, Registry};

use crate::arrow::{self, Arrow};

/// The default format.
pub(crate) const DEFAULT_FORMAT: &str = "lcm-log";

/// The format of this name.
pub fn find_format(name: &str, registry: &Registry) -> Option<&'static dyn ByteFormat> {
    if name == arrow::NAME { Some(&Arrow) } else { registry.byte_format(name) }
}

/// The names of all formats, sorted.
pub(crate) fn format_names(registry: &Registry) -> Vec<&'static str> {
    let mut names = registry.byte_formats();
    names.push(arrow::NAME);
    names.sort_unstable();
    names
}

/// The message for an unknown format.
pub(crate) fn missing_format(name: &str, registry: &Registry) -> String {
    format!(
        "this program has no archive format `{name}`; available formats: {}",
        format_names(registry).join(", ")
    )
}

/// The format option of the sink: a name until it is [resolved](Self::resolved).
#[derive(Clone, Default)]
pub(crate) struct FormatOption {
    /// `None` for the default.
    name: Option<String>,
    format: Option<&'static dyn ByteFormat>,
    /// What to report if the program lacks the default format and it is needed.
    missing: String,
}

impl FormatOption {
    /// The option with its format; `Err` if a format was named that the program does not have.
    pub(crate) fn resolved(self, registry: &Registry) -> Result<Self, OptionsError> {
        let format = find_format(self.name(), registry);
        let missing = missing_format(self.name(), registry);
        if format.is_none() && self.name.is_some() {
            return Err(OptionsError::at("format", missing));
        }
        Ok(Self { format, missing, ..self })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_FORMAT)
    }

    /// The format; `Err` if it is the default, and the program does not have it.
    pub(crate) fn format(&self) -> Result<&'static dyn ByteFormat, Error> {
        self.format.ok_or_else(|| Error::invalid(self.missing.clone()))
    }
}

impl<'de> Deserialize<'de> for FormatOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { name: Some(String::deserialize(deserializer)?), ..Self::default() })
    }
}
