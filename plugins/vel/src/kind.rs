//! What a message is written as: type, version and marker, from what an event's channel or its decoded
//! fields say. Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::{Batch, Channel, ChannelId, Clock, Encoding};

use crate::channels::{MARKED, TYPE, VERSION};
use crate::hash::{from_hex, simple_hash};
use crate::wire::MARKER;

/// The codec whose rows say of which type they are.
const CODEC: &str = "vel";
/// What of a row's type key is the version; the bit above says something of the columns.
const VERSION_BITS: u64 = 0x7fff_ffff;

/// How events of a channel are written.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) type_id: u32,
    pub(crate) version: i32,
    pub(crate) marker: u8,
    /// The channel's name, where the type is made of it.
    pub(crate) hashed: Option<Arc<str>>,
    pub(crate) clock: Clock,
    /// Whether they were VEL messages before.
    is_own: bool,
    /// Whether they are known to be something else.
    is_foreign: bool,
}

impl Kind {
    pub(crate) fn of(channel: &Channel) -> Self {
        let said = |key: &str| channel.metadata.get(key).map(String::as_str);
        let known = said(TYPE).and_then(from_hex).zip(said(VERSION).and_then(|v| v.parse().ok()));
        let hashed = (simple_hash(channel.name.as_bytes()), 0);
        let (type_id, version) = known.unwrap_or(hashed);
        let marker = said(MARKED).and_then(|marker| marker.strip_prefix("0x"));
        let marker = marker.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        Self {
            type_id,
            version,
            marker: marker.unwrap_or(MARKER),
            hashed: known.is_none().then(|| channel.name.text().into()),
            clock: channel.clock,
            is_own: known.is_some() && channel.encoding == Encoding::Vel,
            is_foreign: !matches!(channel.encoding, Encoding::Vel | Encoding::Unknown),
        }
    }

    /// The type and version of an event: its channel's, or those of its decoded fields.
    pub(crate) fn type_of(&self, decoded: Option<(u32, i32)>) -> (u32, i32) {
        let own = (self.type_id, self.version);
        if self.hashed.is_some() { decoded.unwrap_or(own) } else { own }
    }

    /// What of its events a log does not keep, beside their times.
    fn say_losses(&self, is_typed: bool, losses: &mut BTreeSet<&'static str>) {
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

/// The channels of which a batch has events; for each, whether with decoded fields and without.
pub(crate) struct Met(Vec<(bool, bool)>);

impl Met {
    /// For so many channels.
    pub(crate) fn of(channels: usize) -> Self {
        Self(vec![(false, false); channels])
    }

    #[inline]
    pub(crate) fn add(&mut self, channel: ChannelId, is_typed: bool) {
        if let Some((typed, untyped)) = self.0.get_mut(channel.index()) {
            *if is_typed { typed } else { untyped } = true;
        }
    }

    /// How the events' channels are written.
    pub(crate) fn channels<'k>(&self, kinds: &'k [Kind]) -> impl Iterator<Item = &'k Kind> {
        let met = kinds.iter().zip(&self.0).filter(|(_, (typed, untyped))| *typed || *untyped);
        met.map(|(kind, _)| kind)
    }

    /// What of the events a log does not keep, beside their times.
    pub(crate) fn say_losses(&self, kinds: &[Kind], losses: &mut BTreeSet<&'static str>) {
        for (kind, (typed, untyped)) in kinds.iter().zip(&self.0) {
            if *typed {
                kind.say_losses(true, losses);
            }
            if *untyped {
                kind.say_losses(false, losses);
            }
        }
    }

    /// The names that are written as numbers, by these.
    pub(crate) fn hashed(&self, kinds: &[Kind]) -> Hashed {
        let mut hashed = Hashed::new();
        for (kind, (_, untyped)) in kinds.iter().zip(&self.0) {
            if let (true, Some(name)) = (*untyped, &kind.hashed) {
                hashed.entry(kind.type_id).or_default().insert(Arc::clone(name));
            }
        }
        hashed
    }
}

/// Names by the numbers that are written in their place.
pub(crate) type Hashed = BTreeMap<u32, BTreeSet<Arc<str>>>;

/// The types and versions of the events that were decoded as VEL messages; empty if there are none.
pub(crate) fn decoded_types(batch: &Batch) -> Vec<Option<(u32, i32)>> {
    let mut types = Vec::new();
    for rows in batch.rows().iter().filter(|rows| *rows.message.codec == *CODEC) {
        types.resize(batch.len(), None);
        let key = rows.message.key.0;
        let (type_id, version) = ((key >> 32) as u32, (key & VERSION_BITS) as i32);
        for event in &rows.events {
            if let Some(slot) = types.get_mut(*event as usize) {
                *slot = Some((type_id, version));
            }
        }
    }
    types
}
