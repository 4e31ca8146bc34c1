//! The comments that our own sink writes for what the format's columns cannot hold.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_io::escape::percent_decoded;
use sluice_model::Clock;

use super::{encoded_word, words};
use crate::subfile::RecordPrefix;

/// A comment of our own sink before a header line: `# sluice config_records=1 …`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriterComment {
    /// The number of configuration records.
    pub(crate) config_records: u64,
    /// The prefix of each record.
    pub(crate) prefix: RecordPrefix,
    /// The channel's name.
    pub(crate) channel: Vec<u8>,
    /// The channel's source.
    pub(crate) source: String,
    /// The type of the payloads.
    pub(crate) type_name: Option<String>,
    /// The epoch of times.
    pub(crate) clock: Clock,
    /// The interface, if the header line has another word for it or the records are not objects.
    pub(crate) interface: Option<String>,
    /// Whether it is disabled, if the header line has no column for that.
    pub(crate) is_disabled: bool,
    /// The remaining metadata of the channel.
    pub(crate) metadata: BTreeMap<String, String>,
}

impl WriterComment {
    /// The first word of our comments.
    pub(crate) const TAG: &'static str = "sluice";
    /// The prefix of keys of the remaining metadata.
    const METADATA: &'static [u8] = b"metadata.";

    pub(super) fn parse(comment: &[u8]) -> Option<Self> {
        let mut words = words(comment);
        if words.next()? != Self::TAG.as_bytes() {
            return None;
        }
        let mut parsed = Self::default();
        for word in words {
            let Some(equals) = memchr::memchr(b'=', word) else { continue };
            let (key, value) = word.split_at_checked(equals)?;
            let value = percent_decoded(value.get(1..)?);
            let text = || String::from_utf8(value.clone()).ok();
            match key {
                b"config_records" => parsed.config_records = text()?.parse().ok()?,
                b"prefix" => parsed.prefix = RecordPrefix::from_word(&text()?)?,
                b"source" => parsed.source = text()?,
                b"type" => parsed.type_name = Some(text()?),
                b"clock" if value == b"relative" => parsed.clock = Clock::Relative,
                b"channel" => parsed.channel = value,
                b"interface" => parsed.interface = Some(text()?),
                b"enabled" => parsed.is_disabled = value == b"0",
                key => {
                    let key = key.strip_prefix(Self::METADATA).map(percent_decoded);
                    if let Some((key, value)) =
                        key.and_then(|k| String::from_utf8(k).ok()).zip(text())
                    {
                        parsed.metadata.insert(key, value);
                    }
                }
            }
        }
        Some(parsed)
    }

    /// The comment with its line break.
    pub(crate) fn to_line(&self) -> String {
        let mut line = format!(
            "# {} config_records={} prefix={} channel={} source={}",
            Self::TAG,
            self.config_records,
            self.prefix.word(),
            encoded_word(&self.channel),
            encoded_word(self.source.as_bytes()),
        );
        if let Some(name) = &self.type_name {
            line += &format!(" type={}", encoded_word(name.as_bytes()));
        }
        if self.clock == Clock::Relative {
            line += " clock=relative";
        }
        if let Some(interface) = &self.interface {
            line += &format!(" interface={}", encoded_word(interface.as_bytes()));
        }
        if self.is_disabled {
            line += " enabled=0";
        }
        for (key, value) in &self.metadata {
            // A key ends at the first `=`.
            let key = encoded_word(key.as_bytes()).replace('=', "%3D");
            let value = encoded_word(value.as_bytes());
            line += &format!(" metadata.{key}={value}");
        }
        line + "\n"
    }
}
