//! Maps events to message types: type, version and marker, from the channel or the decoded fields.
//! Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_model::{Batch, Channel, Clock, Encoding, Name};

use crate::channels::{MARKER_KEY, sensor_of, type_of_channel};
use crate::codec::{ABOVE, type_of_key};
use crate::hash::{from_hex, hex, is_built_in, simple_hash};
use crate::wire::MARKER;

/// The codec whose rows know their type.
const CODEC: &str = "vel";

/// A type number and version.
pub(crate) type TypeVersion = (u32, i32);
/// The type of decoded fields, and their version if known.
pub(crate) type DecodedType = (u32, Option<i32>);

/// The type for a channel name: the number it spells, or that of the message it names, also with a
/// sensor name appended.
fn type_of_name(name: &Name) -> u32 {
    let (first, text) = (name.text().split('.').next().unwrap_or_default(), name.text());
    let built_in = Some(simple_hash(first.as_bytes())).filter(|number| is_built_in(*number));
    let of_sensor = from_hex(first).or(built_in).filter(|_| first.len() < text.len());
    of_sensor.or_else(|| from_hex(text)).unwrap_or_else(|| simple_hash(name.as_bytes()))
}

/// How events of a channel are written as messages.
#[derive(Clone, Debug)]
pub(crate) struct ChannelMapping {
    pub(crate) type_id: u32,
    pub(crate) version: i32,
    pub(crate) marker: u8,
    /// The channel name, if the type is its hash.
    pub(crate) hashed_name: Option<Arc<str>>,
    pub(crate) clock: Clock,
    source: Arc<str>,
    /// Whether they were read as VEL messages of another name.
    is_renamed: bool,
    /// Whether they were read as VEL messages.
    was_vel: bool,
    /// Whether they have another encoding.
    is_other_encoding: bool,
}

impl ChannelMapping {
    pub(crate) fn from_channel(channel: &Channel) -> Self {
        let known = type_of_channel(channel);
        // A type without a known name has its number as channel name; that also works if no
        // metadata is kept.
        let hashed = (type_of_name(&channel.name), 0);
        let (type_id, version) = known.unwrap_or(hashed);
        let was_vel = known.is_some() && channel.encoding == Encoding::Vel;
        let is_named = hashed.0 == type_id || channel.name.text() == hex(type_id);
        let marker = channel.metadata.get(MARKER_KEY).and_then(|marker| marker.strip_prefix("0x"));
        let marker = marker.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        Self {
            type_id,
            version,
            marker: marker.unwrap_or(MARKER),
            hashed_name: known.is_none().then(|| channel.name.text().into()),
            clock: channel.clock,
            source: Arc::clone(&channel.source),
            is_renamed: was_vel && !is_named,
            was_vel,
            is_other_encoding: !matches!(channel.encoding, Encoding::Vel | Encoding::Unknown),
        }
    }

    /// The type and version of an event: those of its channel or of its decoded fields. `Err` says
    /// why there are none.
    pub(crate) fn type_of(
        &self,
        decoded: Option<DecodedType>,
    ) -> Result<TypeVersion, &'static str> {
        match decoded.filter(|_| self.hashed_name.is_some()) {
            None => Ok((self.type_id, self.version)),
            Some((type_id, Some(version))) => Ok((type_id, version)),
            // A layout shared by several versions does not tell which one it is.
            Some((_, None)) => Err("the version of this message is unknown"),
        }
    }

    /// Whether the sensor name in a message differs from the source of its channel.
    fn has_other_sensor(&self, type_id: TypeVersion, payload: &[u8]) -> bool {
        let sensor = sensor_of(type_id, payload);
        !sensor.is_empty()
            && *sensor != *self.source.as_bytes()
            && *Name::from_bytes(sensor).text() != *self.source
    }

    /// Adds what is lost of its events, besides their times.
    fn report_losses(&self, is_typed: bool, losses: &mut BTreeSet<&'static str>) {
        if self.is_renamed {
            losses.insert(
                "new names of VEL channels are not written; messages keep the type that they were \
                 read \
                 with",
            );
        }
        if self.hashed_name.is_some() && !is_typed {
            losses.insert(
                "names of channels are written as numbers; give them as `message_names` to read \
                 them \
                 back",
            );
        }
        if !self.was_vel {
            losses
                .insert("event numbers are not written; a reader numbers events by their position");
        }
        if self.is_other_encoding && !is_typed {
            losses.insert("encodings and versions of payloads are not written");
        }
        if !self.was_vel && !is_typed {
            losses.insert(
                "sources of events are not written; messages that carry a sensor's name do",
            );
        }
    }
}

/// What was seen of each channel in a batch, in the order of mappings.
pub(crate) struct BatchUsage(Vec<ChannelUsage>);

/// What was seen of the events of one channel.
#[derive(Clone, Copy, Default)]
struct ChannelUsage {
    /// Some events have decoded fields.
    typed: bool,
    /// Some events have none.
    untyped: bool,
    /// Some events name another sensor than the channel's source.
    moved: bool,
}

impl BatchUsage {
    /// For this many channels.
    pub(crate) fn new(channels: usize) -> Self {
        Self(vec![ChannelUsage::default(); channels])
    }

    /// Adds an event of the channel with this mapping, which has the index `at`.
    #[inline]
    pub(crate) fn add(
        &mut self,
        (at, mapping): (usize, &ChannelMapping),
        type_id: TypeVersion,
        payload: &[u8],
        is_typed: bool,
    ) {
        let Some(seen) = self.0.get_mut(at) else { return };
        *if is_typed { &mut seen.typed } else { &mut seen.untyped } = true;
        if !seen.moved && (is_typed || mapping.was_vel) {
            seen.moved = mapping.has_other_sensor(type_id, payload);
        }
    }

    /// The mappings of the channels in the batch.
    pub(crate) fn channels<'k>(
        &self,
        mappings: &'k [ChannelMapping],
    ) -> impl Iterator<Item = &'k ChannelMapping> {
        let usage = mappings.iter().zip(&self.0).filter(|(_, seen)| seen.typed || seen.untyped);
        usage.map(|(mapping, _)| mapping)
    }

    /// Adds what is lost of the events, besides their times.
    pub(crate) fn report_losses(
        &self,
        mappings: &[ChannelMapping],
        losses: &mut BTreeSet<&'static str>,
    ) {
        for (mapping, seen) in mappings.iter().zip(&self.0) {
            if seen.typed {
                mapping.report_losses(true, losses);
            }
            if seen.untyped {
                mapping.report_losses(false, losses);
            }
            if seen.moved {
                losses.insert(
                    "sources of VEL messages are not written; messages keep the name of the \
                     sensor that \
                     is in their payload",
                );
            }
        }
    }

    /// The names written as numbers, by number.
    pub(crate) fn hashed(&self, mappings: &[ChannelMapping]) -> HashedNames {
        let mut hashed = HashedNames::new();
        for (mapping, seen) in mappings.iter().zip(&self.0) {
            if let (true, Some(name)) = (seen.untyped, &mapping.hashed_name) {
                hashed.entry(mapping.type_id).or_default().insert(Arc::clone(name));
            }
        }
        hashed
    }
}

/// Names by the numbers written in their place.
pub(crate) type HashedNames = BTreeMap<u32, BTreeSet<Arc<str>>>;

/// The types of events that were decoded as VEL messages; empty if there are none.
pub(crate) fn decoded_types(batch: &Batch) -> Vec<Option<DecodedType>> {
    let mut types = Vec::new();
    for rows in batch.rows().iter().filter(|rows| *rows.message.codec == *CODEC) {
        types.resize(batch.len(), None);
        let key = rows.message.key;
        let (type_id, version) = type_of_key(key);
        let version = (key.0 & ABOVE == 0).then_some(version);
        for event in &rows.events {
            if let Some(slot) = types.get_mut(*event as usize) {
                *slot = Some((type_id, version));
            }
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::{TYPE_KEY, VERSION_KEY};

    fn channel(name: &str, source: &str) -> Channel {
        let mut channel = Channel::new(Name::from_text(name), source, Encoding::Vel);
        channel.metadata.insert(TYPE_KEY.to_owned(), hex(simple_hash(b"IMUStateM")));
        channel.metadata.insert(VERSION_KEY.to_owned(), "102".to_owned());
        channel
    }

    fn losses(channel: &Channel, payload: &[u8]) -> Vec<&'static str> {
        let (mapping, mut losses) = (ChannelMapping::from_channel(channel), BTreeSet::new());
        let (type_id, mut usage) = (mapping.type_of(None).unwrap(), BatchUsage::new(1));
        usage.add((0, &mapping), type_id, payload, false);
        usage.report_losses(&[mapping], &mut losses);
        losses.into_iter().collect()
    }

    #[test]
    fn fields_of_no_certain_version_are_written_only_where_the_channel_names_one() {
        let known = ChannelMapping::from_channel(&channel("IMUStateM", "imu"));
        let unknown =
            ChannelMapping::from_channel(&Channel::new(Name::from_text("x"), "imu", Encoding::Vel));
        assert_eq!(known.type_of(Some((7, None))), Ok((simple_hash(b"IMUStateM"), 102)));
        assert_eq!(unknown.type_of(Some((7, Some(3)))), Ok((7, 3)));
        assert!(unknown.type_of(Some((7, None))).unwrap_err().contains("version"));
    }

    #[test]
    fn names_and_sources_that_are_not_those_of_the_messages_are_reported() {
        let payload = [&b"\x01\0\0\0b\x04\0\0\0im\xff\\"[..], &[0; 28]].concat();
        for (name, source, says) in [
            ("IMUStateM", "im\\xff\\", None),
            ("0x00018D07", "im\\xff\\", None),
            ("ATTITUDE", "im\\xff\\", Some("new names")),
            ("IMUStateM", "front", Some("sources of VEL")),
        ] {
            let found = losses(&channel(name, source), &payload);
            assert_eq!(found.len(), usize::from(says.is_some()), "{name} {source}: {found:?}");
            assert!(found.iter().all(|loss| loss.contains(says.unwrap())), "{found:?}");
        }
        // Without a sensor in the payload, a source is the name of the file.
        assert!(losses(&channel("IMUStateM", "front"), b"").is_empty());
    }
}
