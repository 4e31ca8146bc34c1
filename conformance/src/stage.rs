//! Trials of stages.

use serde_json::Value;

use crate::Finding;
use crate::finding::expect_none;

/// A stage to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct StageTrial {
    plugin: String,
    options: Value,
}

/// Tries the stage that is registered under this name.
pub fn stage(plugin: &str) -> StageTrial {
    StageTrial { plugin: plugin.to_owned(), options: Value::Object(serde_json::Map::new()) }
}

impl StageTrial {
    /// Options.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
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
