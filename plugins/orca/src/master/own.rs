//! What our own writer says of a subfile in a comment of the master, beyond what the format's columns hold.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_core::Clock;

use super::words;
use crate::percent;
use crate::subfile::Prefix;

/// What our own writer says in a comment before a header line: `# sluice config_records=1 …`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// How many records are configuration.
    pub config_records: u64,
    /// What stands before each record.
    pub prefix: Prefix,
    /// The channel's name.
    pub channel: Vec<u8>,
    /// The channel's source.
    pub source: String,
    /// The type of the payloads.
    pub type_name: Option<String>,
    /// What times count from.
    pub clock: Clock,
    /// The interface, where the header line has another word for it or is of no objects.
    pub interface: Option<String>,
    /// Whether it is not to be played, where the header line has no column for that.
    pub is_disabled: bool,
    /// What else is known of the channel.
    pub metadata: BTreeMap<String, String>,
}

impl Own {
    /// What comments of ours begin with, behind the `#`.
    pub(crate) const WORD: &'static str = "sluice";
    /// What stands before the keys of what else is known of the channel.
    const METADATA: &'static [u8] = b"metadata.";

    pub(super) fn parse(comment: &[u8]) -> Option<Self> {
        let mut words = words(comment);
        if words.next()? != Self::WORD.as_bytes() {
            return None;
        }
        let mut own = Self::default();
        for word in words {
            let Some(equals) = memchr::memchr(b'=', word) else { continue };
            let (key, value) = word.split_at_checked(equals)?;
            let value = percent::decoded(value.get(1..)?);
            let text = || String::from_utf8(value.clone()).ok();
            match key {
                b"config_records" => own.config_records = text()?.parse().ok()?,
                b"prefix" => own.prefix = Prefix::from_word(&text()?)?,
                b"source" => own.source = text()?,
                b"type" => own.type_name = Some(text()?),
                b"clock" if value == b"relative" => own.clock = Clock::Relative,
                b"channel" => own.channel = value,
                b"interface" => own.interface = Some(text()?),
                b"enabled" => own.is_disabled = value == b"0",
                key => {
                    let key = key.strip_prefix(Self::METADATA).map(percent::decoded);
                    if let Some((key, value)) =
                        key.and_then(|k| String::from_utf8(k).ok()).zip(text())
                    {
                        own.metadata.insert(key, value);
                    }
                }
            }
        }
        Some(own)
    }

    /// The comment, with its end.
    pub(crate) fn to_line(&self) -> String {
        let mut line = format!(
            "# {} config_records={} prefix={} channel={} source={}",
            Self::WORD,
            self.config_records,
            self.prefix.word(),
            percent::encoded(&self.channel),
            percent::encoded(self.source.as_bytes()),
        );
        if let Some(name) = &self.type_name {
            line += &format!(" type={}", percent::encoded(name.as_bytes()));
        }
        if self.clock == Clock::Relative {
            line += " clock=relative";
        }
        if let Some(interface) = &self.interface {
            line += &format!(" interface={}", percent::encoded(interface.as_bytes()));
        }
        if self.is_disabled {
            line += " enabled=0";
        }
        for (key, value) in &self.metadata {
            let (key, value) =
                (percent::encoded(key.as_bytes()), percent::encoded(value.as_bytes()));
            line += &format!(" metadata.{key}={value}");
        }
        line + "\n"
    }
}
