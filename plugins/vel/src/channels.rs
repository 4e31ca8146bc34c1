//! Maps the type, version and sensor of a message to its channel id.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_kit::KeyedChannelIds;
use sluice_model::{Channel, ChannelId, Channels, Clock, Encoding, Error, Name};

use crate::hash::{MessageNames, from_hex, hex};
use crate::layout::sensor;
use crate::wire::{MARKER, MessageHeader};

/// Channel metadata: the type number of its messages.
pub(crate) const TYPE_KEY: &str = "vel.type";
/// Channel metadata: the version of its messages.
pub(crate) const VERSION_KEY: &str = "vel.version";
/// Channel metadata: how deleted messages are marked.
pub(crate) const MARKER_KEY: &str = "vel.marker";

/// The type number and version of a channel's messages.
pub(crate) fn type_of_channel(channel: &Channel) -> Option<(u32, i32)> {
    let type_id = from_hex(channel.metadata.get(TYPE_KEY)?)?;
    Some((type_id, channel.metadata.get(VERSION_KEY)?.parse().ok()?))
}

/// Longer sensor names are considered damage: the message then has no sensor.
const MAX_SENSOR_LEN: usize = 1000;

/// The name of a message's sensor; empty if it has none or an implausible one.
#[inline]
pub(crate) fn sensor_of((type_id, version): (u32, i32), payload: &[u8]) -> &[u8] {
    let named = sensor(type_id, version, payload).unwrap_or_default();
    if named.len() <= MAX_SENSOR_LEN { named } else { &[] }
}

/// The ids of a reader's channels.
#[derive(Debug)]
pub(crate) struct MessageChannels {
    names: Arc<MessageNames>,
    clock: Clock,
    /// By what distinguishes the channels of messages; of this source without a sensor name.
    ids: KeyedChannelIds,
    /// Kept for its memory.
    key: Vec<u8>,
}

impl MessageChannels {
    pub(crate) fn new(
        names: Arc<MessageNames>,
        source: Arc<str>,
        clock: Clock,
        channels: Arc<Channels>,
    ) -> Self {
        let ids = KeyedChannelIds::new(source, channels);
        Self { names, clock, ids, key: Vec::new() }
    }

    /// The id of the message's channel.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        header: &MessageHeader,
        payload: &[u8],
    ) -> Result<ChannelId, Error> {
        let MessageHeader { type_id, version, marker, .. } = *header;
        let sensor = sensor_of((type_id, version), payload);
        let Self { names, clock, ids, key } = self;
        key.clear();
        key.extend_from_slice(&type_id.to_le_bytes());
        key.extend_from_slice(&version.to_le_bytes());
        key.push(marker);
        key.extend_from_slice(sensor);
        ids.resolve(key, |_, source| channel(names, *clock, header, sensor, source))
    }
}

fn channel(
    names: &MessageNames,
    clock: Clock,
    header: &MessageHeader,
    sensor: &[u8],
    without_sensor: Arc<str>,
) -> Channel {
    let number = hex(header.type_id);
    let name = names.name(header.type_id).map_or(&number[..], |name| name);
    let source = match sensor {
        [] => without_sensor,
        sensor => Name::from_bytes(sensor).text().into(),
    };
    let mut channel = Channel::new(Name::from_text(name), source, Encoding::Vel);
    channel.clock = clock;
    channel.type_name = Some(format!("{name}.v{}", header.version).into());
    channel.metadata = BTreeMap::from([
        (TYPE_KEY.to_owned(), number.clone()),
        (VERSION_KEY.to_owned(), header.version.to_string()),
    ]);
    if header.marker != MARKER {
        channel.metadata.insert(MARKER_KEY.to_owned(), format!("{:#04x}", header.marker));
    }
    channel
}
