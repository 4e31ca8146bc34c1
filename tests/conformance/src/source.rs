//! Trials of sources: the options of a trial.

use std::ops::Range;
use std::time::Duration;

use serde_json::Value;
use sluice_model::PluginKind;

use crate::finding::expect_none;
use crate::isolation::Isolation;
use crate::subject::{Integrity, SourceTrial, TrialSubject};
use crate::{Finding, kit_plugins, options};

/// Tests the source registered under this name.
///
/// A source that reads files needs a [`sample`](SourceTrial::sample). A source that makes up its
/// events needs none, and a live source is declared [`unread`](SourceTrial::unread).
pub fn source(plugin: &str) -> SourceTrial {
    SourceTrial {
        plugin: plugin.to_owned(),
        options: Value::Object(serde_json::Map::new()),
        files: Vec::new(),
        events: None,
        integrity: Integrity::default(),
        reads: Vec::new(),
        seed: 1,
        header: 0,
        footer: 0,
        frames: Vec::new(),
        whole_or_nothing: false,
        is_read: true,
        patience: Duration::from_mins(1),
        memory: 256 << 20,
    }
}

impl SourceTrial {
    /// Adds a valid file with some events. The option `path` names the first one, unless `options`
    /// say otherwise; others are next to it. All of them are damaged, one at a time.
    ///
    /// Small files are tested most thoroughly: up to 512 bytes, they are truncated after every
    /// byte; up to 8 KiB with `SLUICE_CI=all`, which also makes five times as many changes.
    pub fn sample(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), bytes.into()));
        self
    }

    /// Sets the options besides `path`. A relative `path` is relative to the samples; `${DIR}` is
    /// their folder.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Sets the number of events in the samples. Without it, a source that never returns one of
    /// them goes unnoticed: the kit knows only what the source returns.
    pub fn events(mut self, count: usize) -> Self {
        self.events = Some(count);
        self
    }

    /// Sets how well the format detects damage, which decides what damaged samples may yield.
    pub fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// Declares other formats that it recognises rightly, by the names in findings.
    pub fn reads(mut self, formats: &[&str]) -> Self {
        self.reads = formats.iter().map(|&format| format.to_owned()).collect();
        self
    }

    /// Sets the number of leading bytes of the first file that all events depend on, if that is
    /// more than what precedes the first event: for example an event that defines the time base.
    /// Changes and truncations there may affect any event.
    pub fn header(mut self, bytes: usize) -> Self {
        self.header = bytes;
        self
    }

    /// Sets the number of trailing bytes that describe what precedes them, such as an index.
    /// Changes there may lose events if that is reported; truncation there may not.
    pub fn footer(mut self, bytes: usize) -> Self {
        self.footer = bytes;
        self
    }

    /// Sets the frames of the first file: bytes with a common checksum, rising. A change in a frame
    /// may lose all its events; a truncated one, which nothing can verify, may yield some.
    pub fn frames(mut self, frames: Vec<Range<usize>>) -> Self {
        self.frames = frames;
        self
    }

    /// Declares that a damaged file yields nothing or an error, because one place, such as a
    /// footer, locates all events. Other formats must yield what precedes the damage.
    pub fn whole_or_nothing(mut self) -> Self {
        self.whole_or_nothing = true;
        self
    }

    /// Declares that the source cannot be read here, because it is live. Options and sample are
    /// still checked.
    pub fn unread(mut self) -> Self {
        self.is_read = false;
        self
    }

    /// Sets the timeout of a case. The default is a minute.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the memory that reading may use in addition to what is in use. The default is 256 MiB.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the random seed of the damage.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Lists all broken promises. Deterministic, if the plugin is.
    ///
    /// The calling test is started again by its name in a child process: up to here it must be
    /// harmless to repeat.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = kit_plugins::registry();
        let Some(plugin) = registry.get(PluginKind::Source, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Source, &self.plugin)];
        };
        let subject = TrialSubject { trial: self, plugin, registry: &registry };
        let mut findings = options::findings(plugin, &subject.options_anywhere(), &registry);
        if self.is_read {
            let (patience, memory) = (self.patience, self.memory);
            let isolation = Isolation { plugin: &self.plugin, patience, memory };
            findings.extend(isolation.run(&|cases| subject.try_all(cases)));
        }
        findings
    }

    /// Fails the test if a promise is broken.
    ///
    /// # Panics
    ///
    /// If any promise is broken, with the list of all of them.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }
}
