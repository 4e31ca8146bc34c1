//! Decodes messages of the dataset's types, unless a stage before already has. Knows no codec by
//! name except through the registry.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_kit::{CodecOptions, Codecs, TypePaths};
use sluice_model::{
    Batch, Channel, Channels, Error, KeyOf, OptionsError, PayloadType, PerChannel, Registry, Rows,
    TypeKey,
};

/// Decodes events that are not decoded yet.
pub(crate) struct DatasetDecoder {
    payload_types: HashMap<(usize, TypeKey), PayloadType>,
    codecs: Codecs,
    keys: PerChannel<Arc<[(usize, KeyOf)]>>,
}

/// Decoded events.
pub(crate) struct DecodedEvents {
    /// Their rows, by type. Event numbers are those of the batch.
    pub(crate) rows: Vec<Rows>,
    /// Events of unknown type, or that do not match their type, and why; ascending.
    pub(crate) failed: Vec<(u32, &'static str)>,
}

const UNKNOWN_TYPE: &str =
    "not one of the dataset's types; decode other types with a stage `decode` before";

impl DatasetDecoder {
    /// A decoder of the dataset's own types. Other types need a stage `decode` before.
    pub(crate) fn new(registry: &Registry) -> Result<Self, OptionsError> {
        let types = TypePaths(vec![PathBuf::from("mit-dgc")]);
        // Without this codec only events that are already decoded are found.
        let is_linked = registry.get(sluice_model::PluginKind::Codec, "lcm").is_some();
        let types = if is_linked { types } else { TypePaths::default() };
        let codecs = Codecs::from_paths(registry, &types, &CodecOptions::default())?;
        let mut payload_types = HashMap::new();
        for (place, codec) in codecs.iter().enumerate() {
            for codec_type in codec.types() {
                if let Ok(payload_type) = &codec_type.payload_type {
                    payload_types
                        .insert((place, codec_type.message_type.key), payload_type.clone());
                }
            }
        }
        Ok(Self { payload_types, codecs, keys: PerChannel::default() })
    }

    /// The rows of `events`, which are positions in `batch`, ascending.
    pub(crate) fn decode_rows(
        &self,
        batch: &Batch,
        events: &[u32],
        channels: &Channels,
    ) -> Result<DecodedEvents, Error> {
        let is_selected = |event: u32| events.binary_search(&event).is_ok();
        let rows = batch.rows().iter().filter_map(|rows| rows.pick_events(is_selected)).collect();
        let mut decoded_events = DecodedEvents { rows, failed: Vec::new() };
        let has_rows = batch.decoded_mask();
        let rest: Vec<u32> =
            events.iter().copied().filter(|event| !has_rows[*event as usize]).collect();
        self.decode(batch, &rest, channels, &mut decoded_events)?;
        decoded_events.failed.sort_unstable_by_key(|(event, _)| *event);
        Ok(decoded_events)
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        channels: &Channels,
        decoded_events: &mut DecodedEvents,
    ) -> Result<(), Error> {
        let keys = self.keys.table(channels, |channel| Ok(self.keys_of(channel)))?;
        let mut by_type: BTreeMap<(usize, TypeKey), Vec<u32>> = BTreeMap::new();
        for event in events {
            let channel = batch.channels()[*event as usize] as usize;
            let payload = batch.payload(*event as usize);
            let matched = keys[channel].iter().find_map(|(codec, type_key)| {
                let key = (*codec, type_key(payload)?);
                self.payload_types.contains_key(&key).then_some(key)
            });
            match matched {
                Some(key) => by_type.entry(key).or_default().push(*event),
                None => decoded_events.failed.push((*event, UNKNOWN_TYPE)),
            }
        }
        for (key, events) in by_type {
            let payload_type = &self.payload_types[&key];
            let rows = payload_type.decode_all(batch, &events, &mut decoded_events.failed)?;
            decoded_events.rows.extend(rows);
        }
        Ok(())
    }

    fn keys_of(&self, channel: &Channel) -> Arc<[(usize, KeyOf)]> {
        let keys = self.codecs.iter().enumerate();
        keys.filter_map(|(place, codec)| Some((place, codec.keys(channel)?))).collect()
    }
}
