//! Maps the type, version and sensor of a message to its channel id. It is called once per event,
//! so it caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use sluice_model::{Channel, ChannelId, Channels, Clock, Encoding, Error, Name};

use crate::hash::{MessageNames, hex};
use crate::layout::sensor;
use crate::wire::{MARKER, MessageHeader};

/// Channel metadata: the type number of its messages.
pub(crate) const TYPE_KEY: &str = "vel.type";
/// Channel metadata: the version of its messages.
pub(crate) const VERSION_KEY: &str = "vel.version";
/// Channel metadata: how deleted messages are marked.
pub(crate) const MARKER_KEY: &str = "vel.marker";

/// Longer sensor names are considered damage: the message then has no sensor.
const MAX_SENSOR_LEN: usize = 1000;
/// With this many slots a few dozen channels rarely collide; channels that do are looked up every
/// time.
const SLOTS: usize = 1024;

/// The name of a message's sensor; empty if it has none or an implausible one.
#[inline]
pub(crate) fn sensor_of((type_id, version): (u32, i32), payload: &[u8]) -> &[u8] {
    let named = sensor(type_id, version, payload).unwrap_or_default();
    if named.len() <= MAX_SENSOR_LEN { named } else { &[] }
}

/// A reader's cache of channel ids, so that it rarely asks the run's table.
#[derive(Debug)]
pub(crate) struct ChannelCache {
    names: Arc<MessageNames>,
    /// The source of messages without a sensor name.
    source: Arc<str>,
    clock: Clock,
    channels: Arc<Channels>,
    cached: HashMap<Box<[u8]>, CachedChannel, foldhash::fast::RandomState>,
    /// The last channel in each slot.
    recent: Vec<Option<CachedChannel>>,
}

#[derive(Clone, Debug)]
struct CachedChannel {
    type_id: u32,
    version: i32,
    marker: u8,
    /// Empty without a sensor.
    sensor: Arc<[u8]>,
    id: ChannelId,
}

impl ChannelCache {
    pub(crate) fn new(
        names: Arc<MessageNames>,
        source: Arc<str>,
        clock: Clock,
        channels: Arc<Channels>,
    ) -> Self {
        let (cached, recent) = (HashMap::default(), vec![None; SLOTS]);
        Self { names, source, clock, channels, cached, recent }
    }

    /// The id of the message's channel.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        header: &MessageHeader,
        payload: &[u8],
    ) -> Result<ChannelId, Error> {
        let sensor = sensor_of((header.type_id, header.version), payload);
        let slot = slot(header, sensor);
        match self.recent.get(slot) {
            Some(Some(known)) if known.matches(header, sensor) => Ok(known.id),
            _ => self.look_up(slot, header, sensor),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        slot: usize,
        header: &MessageHeader,
        sensor: &[u8],
    ) -> Result<ChannelId, Error> {
        let MessageHeader { type_id, version, marker, .. } = *header;
        let fixed = [&type_id.to_le_bytes()[..], &version.to_le_bytes(), &[marker]].concat();
        let key = [&fixed[..], sensor].concat();
        let known = match self.cached.get(&key[..]) {
            Some(known) => known.clone(),
            None => {
                let id = self.channels.intern(self.channel(header, sensor))?;
                let known = CachedChannel { type_id, version, marker, sensor: sensor.into(), id };
                self.cached.insert(key.into(), known.clone());
                known
            }
        };
        let id = known.id;
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some(known);
        }
        Ok(id)
    }

    fn channel(&self, header: &MessageHeader, sensor: &[u8]) -> Channel {
        let number = hex(header.type_id);
        let name = self.names.name(header.type_id).map_or(&number[..], |name| name);
        let source = match sensor {
            [] => Arc::clone(&self.source),
            sensor => Name::from_bytes(sensor).text().into(),
        };
        let mut channel = Channel::new(Name::from_text(name), source, Encoding::Vel);
        channel.clock = self.clock;
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
}

impl CachedChannel {
    #[inline]
    fn matches(&self, header: &MessageHeader, sensor: &[u8]) -> bool {
        (self.type_id, self.version, self.marker) == (header.type_id, header.version, header.marker)
            && *self.sensor == *sensor
    }
}

/// Computes a slot from the type and the sensor name's length and last bytes.
#[inline]
fn slot(header: &MessageHeader, sensor: &[u8]) -> usize {
    let last = sensor.last_chunk::<8>().map_or_else(
        || sensor.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        |bytes| u64::from_le_bytes(*bytes),
    );
    let kind = u64::from(header.type_id) << 32 | u64::from(header.version.cast_unsigned());
    let mixed =
        (kind.rotate_left(17) ^ last ^ sensor.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}
