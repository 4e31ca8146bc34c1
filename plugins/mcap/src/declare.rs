//! Numbers the schemas and channels of an output, in the order of their first events.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{ChannelId, Channels};

use crate::channel::{StoredChannel, StoredSchema};
use crate::wire::{Append, append_map, op};

/// The numbers of an output.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    schemas: BTreeMap<StoredSchema, u16>,
    channels: BTreeMap<StoredChannel, u16>,
    /// By channel of the run.
    numbers: Arc<Vec<ChannelNumber>>,
    /// All Schema records, and all Channel records, for the summary.
    pub(crate) schema_records: Vec<u8>,
    pub(crate) channel_records: Vec<u8>,
}

/// The number of a channel of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChannelNumber {
    /// It had no event yet.
    #[default]
    Unassigned,
    /// Messages have this number.
    Assigned(u16),
    /// All numbers are taken.
    Exhausted,
}

impl Numbering {
    /// The numbers so far.
    pub(crate) fn numbers(&self) -> Arc<Vec<ChannelNumber>> {
        Arc::clone(&self.numbers)
    }

    pub(crate) fn schemas(&self) -> u16 {
        self.schemas.len() as u16
    }

    pub(crate) fn channels(&self) -> u32 {
        self.channels.len() as u32
    }

    /// The number of a channel. Its declaration is appended to `new` if it is new.
    #[inline]
    pub(crate) fn number(
        &mut self,
        id: ChannelId,
        channels: &Channels,
        new: &mut Vec<u8>,
    ) -> ChannelNumber {
        match self.numbers.get(id.index()) {
            Some(number) if *number != ChannelNumber::Unassigned => *number,
            _ => self.assign(id, channels, new),
        }
    }

    fn assign(&mut self, id: ChannelId, channels: &Channels, new: &mut Vec<u8>) -> ChannelNumber {
        let number = self.declare(id, channels, new);
        let number = number.map_or(ChannelNumber::Exhausted, ChannelNumber::Assigned);
        let numbers = Arc::make_mut(&mut self.numbers);
        if numbers.len() <= id.index() {
            numbers.resize(id.index() + 1, ChannelNumber::Unassigned);
        }
        if let Some(place) = numbers.get_mut(id.index()) {
            *place = number;
        }
        number
    }

    /// The number of a channel that had no event yet; `None` if all are taken.
    fn declare(&mut self, id: ChannelId, channels: &Channels, new: &mut Vec<u8>) -> Option<u16> {
        let channel = channels.get(id);
        let schema = match StoredSchema::from_channel(&channel) {
            Some(schema) => self.schema_number(schema, new)?,
            None => 0,
        };
        self.channel_number(StoredChannel::from_channel(&channel, schema), new)
    }

    /// Declares a channel of another file, which has no events, unless it is declared. Returns
    /// false if all numbers are taken.
    pub(crate) fn declare_silent(
        &mut self,
        channel: &StoredChannel,
        schema: Option<&StoredSchema>,
        new: &mut Vec<u8>,
    ) -> bool {
        let schema = match schema {
            Some(schema) => self.schema_number(schema.clone(), new),
            None => Some(0),
        };
        let Some(schema) = schema else { return false };
        let stored = StoredChannel { schema, ..channel.clone() };
        self.channel_number(stored, new).is_some()
    }

    fn channel_number(&mut self, stored: StoredChannel, new: &mut Vec<u8>) -> Option<u16> {
        if let Some(number) = self.channels.get(&stored) {
            return Some(*number);
        }
        // They begin with 1, and 0 is the last one.
        let count = u16::try_from(self.channels.len()).ok()?;
        let number = count.wrapping_add(1);
        let from = new.len();
        new.record(op::CHANNEL, |out| {
            out.u16(number);
            out.u16(stored.schema);
            out.bytes(&stored.topic);
            out.bytes(stored.encoding.as_bytes());
            append_map(out, &stored.metadata);
        });
        self.channel_records.extend_from_slice(new.get(from..).unwrap_or_default());
        self.channels.insert(stored, number);
        Some(number)
    }

    fn schema_number(&mut self, schema: StoredSchema, new: &mut Vec<u8>) -> Option<u16> {
        if let Some(number) = self.schemas.get(&schema) {
            return Some(*number);
        }
        // 0 stands for none.
        let number = u16::try_from(self.schemas.len() + 1).ok()?;
        let from = new.len();
        new.record(op::SCHEMA, |out| {
            out.u16(number);
            out.bytes(schema.name.as_bytes());
            out.bytes(schema.schema.encoding.as_bytes());
            out.bytes(&schema.schema.data);
        });
        self.schema_records.extend_from_slice(new.get(from..).unwrap_or_default());
        self.schemas.insert(schema, number);
        Some(number)
    }
}
