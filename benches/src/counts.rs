//! Event counts by channel: the output of every benchmark program, and its reference.
//!
//! One line per channel, sorted by name: name, events, bytes of payload, with tabs between them.

use std::collections::BTreeMap;
use std::fmt;

/// Events and bytes of payload by channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountTable(pub BTreeMap<String, ChannelCount>);

/// The counts of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCount {
    /// Its events.
    pub events: u64,
    /// The bytes of their payloads.
    pub bytes: u64,
}

impl CountTable {
    /// Counts events of a channel.
    pub fn add(&mut self, channel: &str, events: u64, bytes: u64) {
        let count = self.0.entry(channel.to_owned()).or_default();
        count.events += events;
        count.bytes += bytes;
    }

    /// All channels together.
    pub fn total(&self) -> ChannelCount {
        let add = |a: ChannelCount, b: &ChannelCount| ChannelCount {
            events: a.events + b.events,
            bytes: a.bytes + b.bytes,
        };
        self.0.values().fold(ChannelCount::default(), add)
    }
}

impl fmt::Display for CountTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, c)| writeln!(f, "{name}\t{}\t{}", c.events, c.bytes))
    }
}
