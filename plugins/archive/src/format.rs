//! Which byte formats an archive may hold: those that sources of the program offer, and `arrow`.

use serde::{Deserialize, Deserializer};
use sluice_core::{ByteFormat, Error, Registry};

use crate::arrow::{self, Arrow};

/// The format of that name.
pub fn find(name: &str) -> Option<&'static dyn ByteFormat> {
    if name == arrow::NAME { Some(&Arrow) } else { Registry::linked().byte_format(name) }
}

/// The names of all formats, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names = Registry::linked().byte_formats();
    names.push(arrow::NAME);
    names.sort_unstable();
    names
}

/// Why there is no format of that name.
pub fn missing(name: &str) -> String {
    format!("an archive cannot hold `{name}` in this program; it can hold: {}", names().join(", "))
}

/// The format that an archive is to hold.
#[derive(Clone)]
pub struct Chosen {
    name: String,
    format: Option<&'static dyn ByteFormat>,
}

impl Chosen {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format itself; `Err` where it was not asked for, and the program does not have it.
    pub fn format(&self) -> Result<&'static dyn ByteFormat, Error> {
        self.format.ok_or_else(|| Error::invalid(missing(&self.name)))
    }
}

impl Default for Chosen {
    fn default() -> Self {
        let name = "lcm-log".to_owned();
        Self { format: find(&name), name }
    }
}

impl<'de> Deserialize<'de> for Chosen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let format = find(&name).ok_or_else(|| serde::de::Error::custom(missing(&name)))?;
        Ok(Self { name, format: Some(format) })
    }
}
