//! Which declarations were made before damage, and may be of another file than the messages behind
//! it: files that were appended to each other use the same numbers. Knows no contents.
//!
//! Costs as much as declarations and messages are behind damage, not what is declared before it.

use std::collections::BTreeSet;

/// The numbers of declarations behind damage; those of all others are unsure.
#[derive(Clone, Debug, Default)]
pub(crate) struct BeforeDamage {
    has_damage: bool,
    schemas: BTreeSet<u16>,
    channels: BTreeSet<u16>,
    /// Channels, and their schemas, that messages have had while these were unsure.
    used: BTreeSet<(u16, u16)>,
}

impl BeforeDamage {
    /// Damage follows what is declared.
    pub(crate) fn start(&mut self) {
        self.has_damage = true;
        let (schemas, channels) =
            (std::mem::take(&mut self.schemas), std::mem::take(&mut self.channels));
        for channel in channels {
            let used = self.used.range((channel, 0)..=(channel, u16::MAX)).copied();
            let sure = used.filter(|(_, schema)| *schema == 0 || schemas.contains(schema));
            for pair in sure.collect::<Vec<_>>() {
                self.used.remove(&pair);
            }
        }
    }

    pub(crate) fn has_schema(&self, id: u16) -> bool {
        self.has_damage && !self.schemas.contains(&id)
    }

    pub(crate) fn has_channel(&self, id: u16) -> bool {
        self.has_damage && !self.channels.contains(&id)
    }

    /// The schema is declared, as before or for the first time.
    pub(crate) fn confirm_schema(&mut self, id: u16) {
        if self.has_damage {
            self.schemas.insert(id);
        }
    }

    /// The channel is declared, as before or for the first time.
    pub(crate) fn confirm_channel(&mut self, id: u16) {
        if self.has_damage {
            self.channels.insert(id);
        }
    }

    /// Takes note of messages with this channel, which has this schema; 0 for none.
    pub(crate) fn note_use(&mut self, channel: u16, schema: u16) {
        if self.is_unsure(channel, schema) {
            self.used.insert((channel, schema));
        }
    }

    /// Whether messages had channels that are unsure.
    pub(crate) fn is_used(&self) -> bool {
        self.used.iter().any(|(channel, schema)| self.is_unsure(*channel, *schema))
    }

    fn is_unsure(&self, channel: u16, schema: u16) -> bool {
        self.has_channel(channel) || schema != 0 && self.has_schema(schema)
    }
}
