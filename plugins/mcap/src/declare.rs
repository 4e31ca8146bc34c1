//! Numbers the schemas and channels of an output, in the order of their first events.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_io::escape::printable;
use sluice_model::{Channel, ChannelId, Channels, Error};

use crate::channel::{StoredChannel, StoredSchema};
use crate::wire::{Append, append_map, op};

/// Why a channel cannot be declared.
pub(crate) const NO_NUMBERS: &str = "MCAP has numbers for 65536 channels and 65535 schemas only";

/// The numbers of an output.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    schemas: BTreeMap<StoredSchema, u16>,
    channels: BTreeMap<StoredChannel, u16>,
    /// By channel of the run; `None` for one that had no event yet.
    numbers: Arc<Vec<Option<u16>>>,
    /// All Schema records, and all Channel records, for the summary.
    pub(crate) schema_records: Vec<u8>,
    pub(crate) channel_records: Vec<u8>,
}

impl Numbering {
    /// The numbers so far.
    pub(crate) fn numbers(&self) -> Arc<Vec<Option<u16>>> {
        Arc::clone(&self.numbers)
    }

    pub(crate) fn schemas(&self) -> u16 {
        self.schemas.len() as u16
    }

    pub(crate) fn channels(&self) -> u32 {
        self.channels.len() as u32
    }

    /// Gives a channel a number. Its declaration is appended to `new` if it is new.
    ///
    /// `Err` if all numbers are taken.
    #[inline]
    pub(crate) fn number(
        &mut self,
        id: ChannelId,
        channels: &Channels,
        new: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match self.numbers.get(id.index()) {
            Some(Some(_)) => Ok(()),
            _ => self.assign(id, channels, new),
        }
    }

    fn assign(
        &mut self,
        id: ChannelId,
        channels: &Channels,
        new: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let channel = channels.get(id);
        let number = self.declare(&channel, new).ok_or_else(|| {
            Error::refused(format!(
                "{NO_NUMBERS}, and none is left for the channel `{}`: write several files, each \
                 with fewer channels (--channel), or of a shorter time range (--start, --end)",
                printable(channel.name.text())
            ))
        })?;
        let numbers = Arc::make_mut(&mut self.numbers);
        numbers.resize(numbers.len().max(id.index() + 1), None);
        numbers[id.index()] = Some(number);
        Ok(())
    }

    /// The number of a channel that had no event yet; `None` if all are taken.
    fn declare(&mut self, channel: &Channel, new: &mut Vec<u8>) -> Option<u16> {
        let schema = match StoredSchema::from_channel(channel) {
            Some(schema) => self.schema_number(schema, new)?,
            None => 0,
        };
        self.channel_number(StoredChannel::from_channel(channel, schema), new)
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
