//! Messages of the dataset's types, as decoded rows, whether a stage before has decoded them or not.
//! Knows no codec by name: it asks those that are linked.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_core::codec::PayloadType;
use sluice_core::{
    Batch, Channel, Channels, CodecOptions, Codecs, Error, KeyOf, OptionsError, PerChannel,
    Registry, Rows, TypeKey, TypePaths, booleans,
};

/// Decodes what nobody has decoded yet.
pub(crate) struct Messages {
    forms: HashMap<(usize, TypeKey), Arc<dyn PayloadType>>,
    codecs: Codecs,
    keys: PerChannel<Arc<[(usize, KeyOf)]>>,
}

/// What was found of some events.
pub(crate) struct Found {
    /// Their rows, by type. Their numbers of events are those of the batch.
    pub(crate) rows: Vec<Rows>,
    /// Events that are of no known type, or not what their type says, and why; ascending.
    pub(crate) bad: Vec<(u32, &'static str)>,
}

const UNKNOWN: &str =
    "a payload of none of the dataset's types; decode it before, if it has others";

impl Messages {
    /// The messages of the dataset's own types. Of others, those that were decoded before.
    pub(crate) fn of_dataset() -> Result<Self, OptionsError> {
        let types = TypePaths(vec![PathBuf::from("mit-dgc")]);
        let registry = Registry::linked();
        // Without the codec of these types there is still what was decoded elsewhere.
        let is_linked = registry.get(sluice_core::PluginKind::Codec, "lcm").is_some();
        let types = if is_linked { types } else { TypePaths::default() };
        let codecs = Codecs::from_paths(&registry, &types, &CodecOptions::default())?;
        let mut forms = HashMap::new();
        for (place, codec) in codecs.iter().enumerate() {
            for known in codec.types() {
                if let Ok(form) = &known.payload_type {
                    forms.insert((place, known.message_type.key), Arc::clone(form));
                }
            }
        }
        Ok(Self { forms, codecs, keys: PerChannel::default() })
    }

    /// The rows of `events` (positions in `batch`, ascending).
    pub(crate) fn rows(
        &self,
        batch: &Batch,
        events: &[u32],
        channels: &Channels,
    ) -> Result<Found, Error> {
        let (mut found, mut rest) = (Found { rows: Vec::new(), bad: Vec::new() }, Vec::new());
        let mut decoded = vec![false; if batch.rows().is_empty() { 0 } else { batch.len() }];
        for rows in batch.rows() {
            rows.events.iter().for_each(|event| decoded[*event as usize] = true);
            let is_asked = |row: &u32| events.binary_search(&rows.events[*row as usize]).is_ok();
            let asked: Vec<u32> = (0..rows.events.len() as u32).filter(is_asked).collect();
            match asked.len() {
                0 => {}
                len if len == rows.events.len() => found.rows.push(rows.clone()),
                _ => found.rows.push(rows.pick(&asked)),
            }
        }
        rest.extend(
            events.iter().filter(|event| !decoded.get(**event as usize).is_some_and(|d| *d)),
        );
        self.decode(batch, &rest, channels, &mut found)?;
        found.bad.sort_unstable_by_key(|(event, _)| *event);
        Ok(found)
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        channels: &Channels,
        found: &mut Found,
    ) -> Result<(), Error> {
        let keys = self.keys.table(channels, |channel| Ok(self.keys_of(channel)))?;
        let mut by_type: BTreeMap<(usize, TypeKey), Vec<u32>> = BTreeMap::new();
        for event in events {
            let channel = batch.channels()[*event as usize] as usize;
            let payload = batch.payload(*event as usize);
            let known = keys[channel].iter().find_map(|(codec, key_of)| {
                let key = (*codec, key_of(payload)?);
                self.forms.contains_key(&key).then_some(key)
            });
            match known {
                Some(key) => by_type.entry(key).or_default().push(*event),
                None => found.bad.push((*event, UNKNOWN)),
            }
        }
        for (key, events) in by_type {
            let form = &*self.forms[&key];
            found.rows.extend(booleans::decode(form, batch, &events, &mut found.bad)?);
        }
        Ok(())
    }

    fn keys_of(&self, channel: &Channel) -> Arc<[(usize, KeyOf)]> {
        let keys = self.codecs.iter().enumerate();
        keys.filter_map(|(place, codec)| Some((place, codec.keys(channel)?))).collect()
    }
}
