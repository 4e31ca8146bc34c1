//! Trials of sources: what is tried, and in which order. What each thing shows is judged elsewhere.

use std::time::Duration;

use serde_json::Value;
use sluice_core::PluginKind;

use crate::finding::expect_none;
use crate::isolation::Isolation;
use crate::reading_trial::Subject;
use crate::{Finding, options, private};

/// How well a format tells what is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integrity {
    /// Any bytes are events, such as lines of text: damage is only told where nothing can be read.
    Nothing,
    /// What holds events together is checked, what is in them is not: a changed byte may change the event
    /// it is in, and no other.
    #[default]
    Framed,
    /// Every changed byte is noticed: what is given has been there before.
    Checksummed,
}

/// A source to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SourceTrial {
    pub(crate) plugin: String,
    pub(crate) options: Value,
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) integrity: Integrity,
    pub(crate) reads: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) header: usize,
    pub(crate) footer: usize,
    pub(crate) whole_or_nothing: bool,
    is_read: bool,
    patience: Duration,
    memory: u64,
}

/// Tries the source that is registered under this name.
///
/// A source that reads files needs a [`sample`](SourceTrial::sample). One that makes its events up needs
/// none, and one that is live says [`unread`](SourceTrial::unread).
pub fn source(plugin: &str) -> SourceTrial {
    SourceTrial {
        plugin: plugin.to_owned(),
        options: Value::Object(serde_json::Map::new()),
        files: Vec::new(),
        integrity: Integrity::default(),
        reads: Vec::new(),
        seed: 1,
        header: 0,
        footer: 0,
        whole_or_nothing: false,
        is_read: true,
        patience: Duration::from_mins(1),
        memory: 256 << 20,
    }
}

impl SourceTrial {
    /// A file to read, sound and with some events. The first one is what the option `path` names, if
    /// `options` do not say otherwise; others lie beside it. All of them are damaged, one at a time.
    ///
    /// Small ones are tried most thoroughly: up to 512 bytes, every byte is cut off behind; up to 8 KiB
    /// where the variable `SLUICE_CI=all` asks for the long form, which makes five times as many changes.
    pub fn sample(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), bytes.into()));
        self
    }

    /// Options beside `path`. A relative `path` is one beside the samples, and `${DIR}` stands for their
    /// folder anywhere.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// How well the format tells what is damaged: decides what damaged samples may give.
    pub fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// Formats of others that it is right to be sure of, by the names that findings call them.
    pub fn reads(mut self, formats: &[&str]) -> Self {
        self.reads = formats.iter().map(|&format| format.to_owned()).collect();
        self
    }

    /// How many bytes at the front of the first file all events depend on, if that is more than what stands
    /// before the first event: an event that gives others their times, say. What is changed or cut off
    /// there may change any event.
    pub fn header(mut self, bytes: usize) -> Self {
        self.header = bytes;
        self
    }

    /// How many bytes at the back of the files say what lies in front of them, such as an index. What is
    /// changed there may cost events, which is told; where it is cut off, it may not.
    pub fn footer(mut self, bytes: usize) -> Self {
        self.footer = bytes;
        self
    }

    /// A damaged file of this format gives nothing, or an error: what says where events lie stands in one
    /// place, such as a footer. Of any other format, what lies in front of damage is to be given.
    pub fn whole_or_nothing(mut self) -> Self {
        self.whole_or_nothing = true;
        self
    }

    /// Reads nothing: what it receives cannot be given to it here. Options and sample are still tried.
    pub fn unread(mut self) -> Self {
        self.is_read = false;
        self
    }

    /// How long a case may take before it is taken to hang. A minute, if nothing is said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How much memory reading may take beyond what was used before. 256 MiB, if nothing is said.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Another number gives other damage of the same kinds.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// All promises that are not kept. The same every time, if the plugin is.
    ///
    /// The test that calls this is run again by its name, in a process of its own for what may crash: it
    /// has to come here again without having done harm.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = private::registry();
        let Some(plugin) = registry.get(PluginKind::Source, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Source, &self.plugin)];
        };
        let subject = Subject { trial: self, plugin, registry: &registry };
        let mut findings = options::findings(plugin, &subject.options_anywhere(), &registry);
        if self.is_read {
            let (patience, memory) = (self.patience, self.memory);
            let isolation = Isolation { plugin: &self.plugin, patience, memory };
            findings.extend(isolation.run(&|cases| subject.try_all(cases)));
        }
        findings
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
