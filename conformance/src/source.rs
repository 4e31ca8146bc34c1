//! Trials of sources.

use serde_json::Value;

use crate::Finding;
use crate::finding::expect_none;

/// How well a format tells what is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integrity {
    /// Any bytes are events, such as lines of text.
    Nothing,
    /// What holds events together is checked, what is in them is not.
    #[default]
    Framed,
    /// Every changed byte is noticed.
    Checksummed,
}

/// A source to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SourceTrial {
    plugin: String,
    options: Value,
    files: Vec<(String, Vec<u8>)>,
    integrity: Integrity,
}

/// Tries the source that is registered under this name.
pub fn source(plugin: &str) -> SourceTrial {
    let (plugin, options) = (plugin.to_owned(), Value::Object(serde_json::Map::new()));
    SourceTrial { plugin, options, files: Vec::new(), integrity: Integrity::default() }
}

impl SourceTrial {
    /// A file to read, sound and with some events. The first one is what the option `path` names; others
    /// lie beside it.
    pub fn sample(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), bytes.into()));
        self
    }

    /// Options beside `path`.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// How well the format tells what is damaged.
    pub fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Fails the test if a promise is not kept.
    ///
    /// # Panics
    ///
    /// If one is not, with all that are not.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }
}
