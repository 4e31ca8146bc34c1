//! What a message is written as: type, version and marker, from what an event's channel or its decoded
//! fields say. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::{Batch, Channel, Clock, Encoding, Name};

use crate::channels::{MARKED, TYPE, VERSION, sensor_of};
use crate::codec::{ABOVE, of_key};
use crate::hash::{from_hex, hex, is_built_in, simple_hash};
use crate::wire::MARKER;

/// The codec whose rows say of which type they are.
const CODEC: &str = "vel";

/// A type, and a version of it.
pub(crate) type TypeId = (u32, i32);
/// The type that decoded fields are of, and the version, where they tell it.
pub(crate) type Decoded = (u32, Option<i32>);

/// The type that a channel's name stands for: the number that it is, or that of the message it names, also where the
/// sensor's name is behind that.
fn type_of_name(name: &Name) -> u32 {
    let (first, text) = (name.text().split('.').next().unwrap_or_default(), name.text());
    let built_in = Some(simple_hash(first.as_bytes())).filter(|number| is_built_in(*number));
    let of_sensor = from_hex(first).or(built_in).filter(|_| first.len() < text.len());
    of_sensor.or_else(|| from_hex(text)).unwrap_or_else(|| simple_hash(name.as_bytes()))
}

/// How events of a channel are written.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) type_id: u32,
    pub(crate) version: i32,
    pub(crate) marker: u8,
    /// The channel's name, where the type is made of it.
    pub(crate) hashed: Option<Arc<str>>,
    pub(crate) clock: Clock,
    source: Arc<str>,
    /// Whether they were VEL messages of another name before.
    is_renamed: bool,
    /// Whether they were VEL messages before.
    is_own: bool,
    /// Whether they are known to be something else.
    is_foreign: bool,
}

impl Kind {
    pub(crate) fn of(channel: &Channel) -> Self {
        let said = |key: &str| channel.metadata.get(key).map(String::as_str);
        let known = said(TYPE).and_then(from_hex).zip(said(VERSION).and_then(|v| v.parse().ok()));
        // A number for which no name was known is the channel's name, also where nothing else of it is kept.
        let hashed = (type_of_name(&channel.name), 0);
        let (type_id, version) = known.unwrap_or(hashed);
        let is_own = known.is_some() && channel.encoding == Encoding::Vel;
        let is_named = hashed.0 == type_id || channel.name.text() == hex(type_id);
        let marker = said(MARKED).and_then(|marker| marker.strip_prefix("0x"));
        let marker = marker.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        Self {
            type_id,
            version,
            marker: marker.unwrap_or(MARKER),
            hashed: known.is_none().then(|| channel.name.text().into()),
            clock: channel.clock,
            source: Arc::clone(&channel.source),
            is_renamed: is_own && !is_named,
            is_own,
            is_foreign: !matches!(channel.encoding, Encoding::Vel | Encoding::Unknown),
        }
    }

    /// The type and version of an event: its channel's, or those of its decoded fields. `Err` says why
    /// there are none.
    pub(crate) fn type_of(&self, decoded: Option<Decoded>) -> Result<TypeId, &'static str> {
        match decoded.filter(|_| self.hashed.is_some()) {
            None => Ok((self.type_id, self.version)),
            Some((type_id, Some(version))) => Ok((type_id, version)),
            // A layout that several versions share says of none which it is.
            Some((_, None)) => Err("the version of this message is not known"),
        }
    }

    /// Whether a message names another sensor than the source of its channel.
    fn is_moved(&self, type_id: TypeId, payload: &[u8]) -> bool {
        let sensor = sensor_of(type_id, payload);
        !sensor.is_empty()
            && *sensor != *self.source.as_bytes()
            && *Name::from_bytes(sensor).text() != *self.source
    }

    /// What of its events a log does not keep, beside their times.
    fn say_losses(&self, is_typed: bool, losses: &mut BTreeSet<&'static str>) {
        if self.is_renamed {
            losses.insert(
                "new names of VEL channels are not written; messages keep the type that they were read \
                 with",
            );
        }
        if self.hashed.is_some() && !is_typed {
            losses.insert(
                "names of channels are written as numbers; give them as `message_names` to read them \
                 back",
            );
        }
        if !self.is_own {
            losses
                .insert("numbers of events are not written; a reader numbers them by their place");
        }
        if self.is_foreign && !is_typed {
            losses.insert("how payloads are encoded, and their versions, are not written");
        }
        if !self.is_own && !is_typed {
            losses.insert(
                "sources of events are not written; messages that carry a sensor's name do",
            );
        }
    }
}

/// The channels of which a batch has events, in the order of their kinds.
pub(crate) struct Met(Vec<Seen>);

/// What was seen of the events of one channel.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Some have decoded fields.
    typed: bool,
    /// Some have none.
    untyped: bool,
    /// Some name another sensor than the channel's source.
    moved: bool,
}

impl Met {
    /// For so many channels.
    pub(crate) fn of(channels: usize) -> Self {
        Self(vec![Seen::default(); channels])
    }

    /// Takes an event of the channel that is written as `kinds[at]`, that is to say `kind`.
    #[inline]
    pub(crate) fn add(
        &mut self,
        (at, kind): (usize, &Kind),
        type_id: TypeId,
        payload: &[u8],
        is_typed: bool,
    ) {
        let Some(seen) = self.0.get_mut(at) else { return };
        *if is_typed { &mut seen.typed } else { &mut seen.untyped } = true;
        if !seen.moved && (is_typed || kind.is_own) {
            seen.moved = kind.is_moved(type_id, payload);
        }
    }

    /// How the events' channels are written.
    pub(crate) fn channels<'k>(&self, kinds: &'k [Kind]) -> impl Iterator<Item = &'k Kind> {
        let met = kinds.iter().zip(&self.0).filter(|(_, seen)| seen.typed || seen.untyped);
        met.map(|(kind, _)| kind)
    }

    /// What of the events a log does not keep, beside their times.
    pub(crate) fn say_losses(&self, kinds: &[Kind], losses: &mut BTreeSet<&'static str>) {
        for (kind, seen) in kinds.iter().zip(&self.0) {
            if seen.typed {
                kind.say_losses(true, losses);
            }
            if seen.untyped {
                kind.say_losses(false, losses);
            }
            if seen.moved {
                losses.insert(
                    "sources of VEL messages are not written; messages keep the name of the sensor that \
                     is in their payload",
                );
            }
        }
    }

    /// The names that are written as numbers, by these.
    pub(crate) fn hashed(&self, kinds: &[Kind]) -> Hashed {
        let mut hashed = Hashed::new();
        for (kind, seen) in kinds.iter().zip(&self.0) {
            if let (true, Some(name)) = (seen.untyped, &kind.hashed) {
                hashed.entry(kind.type_id).or_default().insert(Arc::clone(name));
            }
        }
        hashed
    }
}

/// Names by the numbers that are written in their place.
pub(crate) type Hashed = BTreeMap<u32, BTreeSet<Arc<str>>>;

/// The types and versions of the events that were decoded as VEL messages; empty if there are none.
pub(crate) fn decoded_types(batch: &Batch) -> Vec<Option<Decoded>> {
    let mut types = Vec::new();
    for rows in batch.rows().iter().filter(|rows| *rows.message.codec == *CODEC) {
        types.resize(batch.len(), None);
        let key = rows.message.key;
        let (type_id, version) = of_key(key);
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

    fn channel(name: &str, source: &str) -> Channel {
        let mut channel = Channel::new(Name::from_text(name), source, Encoding::Vel);
        channel.metadata.insert(TYPE.to_owned(), hex(simple_hash(b"IMUStateM")));
        channel.metadata.insert(VERSION.to_owned(), "102".to_owned());
        channel
    }

    fn losses(channel: &Channel, payload: &[u8]) -> Vec<&'static str> {
        let (kind, mut losses) = (Kind::of(channel), BTreeSet::new());
        let (type_id, mut met) = (kind.type_of(None).unwrap(), Met::of(1));
        met.add((0, &kind), type_id, payload, false);
        met.say_losses(&[kind], &mut losses);
        losses.into_iter().collect()
    }

    #[test]
    fn fields_of_no_certain_version_are_written_only_where_the_channel_names_one() {
        let known = Kind::of(&channel("IMUStateM", "imu"));
        let unknown = Kind::of(&Channel::new(Name::from_text("x"), "imu", Encoding::Vel));
        assert_eq!(known.type_of(Some((7, None))), Ok((simple_hash(b"IMUStateM"), 102)));
        assert_eq!(unknown.type_of(Some((7, Some(3)))), Ok((7, 3)));
        assert!(unknown.type_of(Some((7, None))).unwrap_err().contains("version"));
    }

    #[test]
    fn names_and_sources_that_are_not_those_of_the_messages_are_told() {
        let payload = [&b"\x01\0\0\0b\x04\0\0\0im\xff\\"[..], &[0; 28]].concat();
        for (name, source, says) in [
            ("IMUStateM", "im\\xff\\", None),
            ("0x00018D07", "im\\xff\\", None),
            ("ATTITUDE", "im\\xff\\", Some("new names")),
            ("IMUStateM", "front", Some("sources of VEL")),
        ] {
            let told = losses(&channel(name, source), &payload);
            assert_eq!(told.len(), usize::from(says.is_some()), "{name} {source}: {told:?}");
            assert!(told.iter().all(|loss| loss.contains(says.unwrap())), "{told:?}");
        }
        // Without a sensor in the payload, a source is the name of the file.
        assert!(losses(&channel("IMUStateM", "front"), b"").is_empty());
    }
}
