//! From the type, version and sensor of a message to its channel's number, fast: asked once an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use sluice_core::{Channel, ChannelId, Channels, Clock, Encoding, Error, Name};

use crate::hash::{MessageNames, hex};
use crate::shape::sensor;
use crate::wire::{Header, MARKER};

/// The metadata of channels that says of which type their messages are.
pub(crate) const TYPE: &str = "vel.type";
/// The metadata of channels that says of which version their messages are.
pub(crate) const VERSION: &str = "vel.version";
/// The metadata of channels of deleted messages that says how they are marked.
pub(crate) const MARKED: &str = "vel.marker";

/// Sensor names above this length are damage that nothing else tells: the message has no sensor then.
const LONGEST_SENSOR: usize = 1000;
/// So many that a few dozen channels rarely share one: those that do are looked up again and again.
const SLOTS: usize = 1024;

/// The name of the sensor that a message comes from; empty if there is none that can be believed.
#[inline]
pub(crate) fn sensor_of((type_id, version): (u32, i32), payload: &[u8]) -> &[u8] {
    let named = sensor(type_id, version, payload).unwrap_or_default();
    if named.len() <= LONGEST_SENSOR { named } else { &[] }
}

/// A reader's own memory of channels, so that it rarely asks the run's.
#[derive(Debug)]
pub(crate) struct Ids {
    names: Arc<MessageNames>,
    /// The source of messages that name no sensor.
    source: Arc<str>,
    clock: Clock,
    channels: Arc<Channels>,
    known: HashMap<Box<[u8]>, Known, foldhash::fast::RandomState>,
    /// The channel met last in each slot.
    recent: Vec<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    type_id: u32,
    version: i32,
    marker: u8,
    /// Empty where there is none.
    sensor: Arc<[u8]>,
    id: ChannelId,
}

impl Ids {
    pub(crate) fn new(
        names: Arc<MessageNames>,
        source: Arc<str>,
        clock: Clock,
        channels: Arc<Channels>,
    ) -> Self {
        let (known, recent) = (HashMap::default(), vec![None; SLOTS]);
        Self { names, source, clock, channels, known, recent }
    }

    /// The number of the channel that a message is on.
    #[inline]
    pub(crate) fn of(&mut self, header: &Header, payload: &[u8]) -> Result<ChannelId, Error> {
        let sensor = sensor_of((header.type_id, header.version), payload);
        let slot = slot(header, sensor);
        match self.recent.get(slot) {
            Some(Some(known)) if known.is_of(header, sensor) => Ok(known.id),
            _ => self.look_up(slot, header, sensor),
        }
    }

    #[cold]
    fn look_up(&mut self, slot: usize, header: &Header, sensor: &[u8]) -> Result<ChannelId, Error> {
        let Header { type_id, version, marker, .. } = *header;
        let fixed = [&type_id.to_le_bytes()[..], &version.to_le_bytes(), &[marker]].concat();
        let key = [&fixed[..], sensor].concat();
        let known = match self.known.get(&key[..]) {
            Some(known) => known.clone(),
            None => {
                let id = self.channels.intern(self.channel(header, sensor))?;
                let known = Known { type_id, version, marker, sensor: sensor.into(), id };
                self.known.insert(key.into(), known.clone());
                known
            }
        };
        let id = known.id;
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some(known);
        }
        Ok(id)
    }

    fn channel(&self, header: &Header, sensor: &[u8]) -> Channel {
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
            (TYPE.to_owned(), number.clone()),
            (VERSION.to_owned(), header.version.to_string()),
        ]);
        if header.marker != MARKER {
            channel.metadata.insert(MARKED.to_owned(), format!("{:#04x}", header.marker));
        }
        channel
    }
}

impl Known {
    #[inline]
    fn is_of(&self, header: &Header, sensor: &[u8]) -> bool {
        (self.type_id, self.version, self.marker) == (header.type_id, header.version, header.marker)
            && *self.sensor == *sensor
    }
}

/// A slot from the type and both ends of the sensor's name.
#[inline]
fn slot(header: &Header, sensor: &[u8]) -> usize {
    let last = sensor.last_chunk::<8>().map_or_else(
        || sensor.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        |bytes| u64::from_le_bytes(*bytes),
    );
    let kind = u64::from(header.type_id) << 32 | u64::from(header.version.cast_unsigned());
    let mixed =
        (kind.rotate_left(17) ^ last ^ sensor.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}
