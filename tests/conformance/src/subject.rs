//! What a trial of a source is about: the source, its samples and its options.

use std::ops::Range;
use std::time::Duration;

use serde_json::Value;
use sluice_model::{Plugin, Registry};

/// How well a format detects damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integrity {
    /// Any bytes are events, as in lines of text: damage is only reported where nothing can be
    /// read.
    Nothing,
    /// The framing of events is checked, their content is not: a changed byte may change its own
    /// event and no other.
    #[default]
    Framed,
    /// Every changed byte is detected: no event is ever altered.
    Checksummed,
}

/// A source under test.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SourceTrial {
    pub(crate) plugin: String,
    pub(crate) options: Value,
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) events: Option<usize>,
    pub(crate) integrity: Integrity,
    pub(crate) reads: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) header: usize,
    pub(crate) footer: usize,
    pub(crate) frames: Vec<Range<usize>>,
    pub(crate) whole_or_nothing: bool,
    pub(crate) is_read: bool,
    pub(crate) patience: Duration,
    pub(crate) memory: u64,
}

/// A source and its trial.
pub(crate) struct TrialSubject<'t> {
    pub(crate) trial: &'t SourceTrial,
    pub(crate) plugin: &'t Plugin,
    pub(crate) registry: &'t Registry,
}

/// A file of the sample.
pub(crate) struct SampleFile<'t> {
    pub(crate) place: usize,
    pub(crate) name: &'t str,
    pub(crate) bytes: &'t [u8],
}
