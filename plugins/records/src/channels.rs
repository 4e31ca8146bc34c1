//! Maps records to channels: by a fixed name, or by the values of fields.

use std::sync::Arc;

use hashbrown::HashMap;
use sluice_kit::Template;
use sluice_model::{
    Channel, ChannelId, Channels, Clock, Encoding, Error, Event, Name, ReadContext,
};

use crate::columns::{self, text};
use crate::format::{RecordFormat, RecordKind};
use crate::naming::{ChannelNaming, NameSource};
use crate::offset::RecordOffset;

/// How many bytes of a record may determine its channel.
pub(crate) const MAX_KEY_LEN: usize = 256;
/// The maximum number of cached channels; a damaged log can contain any number of names.
const MAX_CACHED: usize = 1 << 14;

/// Caches channel ids per reader, so that the run's channels are rarely locked.
#[derive(Debug)]
pub(crate) struct ChannelIds {
    source: Arc<str>,
    channels: Arc<Channels>,
    /// One per kind.
    kinds: Vec<ChannelCache>,
    key: Vec<u8>,
}

#[derive(Debug, Default)]
struct ChannelCache {
    /// The last channel, with the bytes that identify it.
    last: Option<(Box<[u8]>, ChannelId)>,
    by_key: HashMap<Box<[u8]>, ChannelId, foldhash::fast::RandomState>,
}

impl ChannelIds {
    /// An empty cache for records of this format.
    pub(crate) fn new(format: &RecordFormat, context: &ReadContext) -> Self {
        Self {
            source: Arc::clone(&context.source),
            channels: Arc::clone(&context.channels),
            kinds: format.kinds.iter().map(|_| ChannelCache::default()).collect(),
            key: Vec::new(),
        }
    }

    /// The channel of a record of this kind.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        format: &RecordFormat,
        kind: usize,
        record: &[u8],
    ) -> Result<ChannelId, Error> {
        let broken = || Error::internal("a record of a kind that is not described");
        let described = format.kinds.get(kind).ok_or_else(broken)?;
        let cache = self.kinds.get_mut(kind).ok_or_else(broken)?;
        self.key.clear();
        if let ChannelNaming::ByFields { places, .. } = &described.naming {
            for (spot, len) in places {
                self.key.extend(spot.bytes_in(record).iter().take(*len));
            }
        }
        if let Some((key, id)) = &cache.last
            && (self.key.is_empty() || **key == *self.key)
        {
            return Ok(*id);
        }
        let id = match cache.by_key.get(&*self.key) {
            Some(id) => *id,
            None => {
                let name = described.channel_name(record, &self.source)?;
                let channel = described.channel(&name, &self.source, format.clock);
                let id = self.channels.intern(channel)?;
                if cache.by_key.len() >= MAX_CACHED {
                    cache.by_key.clear();
                }
                cache.by_key.insert(self.key.as_slice().into(), id);
                id
            }
        };
        cache.last = Some((self.key.as_slice().into(), id));
        Ok(id)
    }
}

impl RecordKind {
    fn channel(&self, name: &Name, source: &Arc<str>, clock: Clock) -> Channel {
        Channel {
            type_name: Some(Arc::clone(&self.message.name)),
            clock,
            ..Channel::new(name.clone(), Arc::clone(source), Encoding::Unknown)
        }
    }

    /// The channel name of a record.
    fn channel_name(&self, record: &[u8], source: &Arc<str>) -> Result<Name, Error> {
        let (places, name_from) = match &self.naming {
            ChannelNaming::Fixed(name) => return Ok(Name::from_text(name)),
            ChannelNaming::Source => return Ok(Name::from_text(source)),
            ChannelNaming::ByFields { places, name_from } => (places, name_from),
        };
        let (spot, len) = places.first().copied().unwrap_or((RecordOffset::Start(0), 0));
        let bytes = spot.bytes_in(record);
        Ok(match name_from {
            NameSource::Number(word, names) => {
                let number = word.whole(bytes).unwrap_or_default();
                match names.get(&number) {
                    Some(name) => Name::from_text(name),
                    None => Name::from_text(&number.to_string()),
                }
            }
            NameSource::Text => Name::from_bytes(text(bytes.get(..len).unwrap_or_default())),
            NameSource::Template(template) => {
                let name = self.render(template, record, (0, 0))?;
                let wrong = || Error::internal("a channel's name could not be made of its record");
                Name::from_text(&name.ok_or_else(wrong)?)
            }
        })
    }

    /// The template filled in from `record`, for an event with this time and number; `None` if it
    /// uses a value the record does not have.
    pub(crate) fn render(
        &self,
        template: &Template,
        record: &[u8],
        (timestamp, sequence): (i64, i64),
    ) -> Result<Option<String>, Error> {
        let rows = columns::row(self, record)?;
        let channel = Channel::new(Name::from_text(""), "", Encoding::Unknown);
        let event = Event { timestamp, sequence, channel: ChannelId(0), payload: record };
        let mut out = Vec::new();
        let is_whole = template.bind(Some(&rows)).write(&channel, &event, Some(0), &mut out);
        Ok(is_whole.then(|| String::from_utf8_lossy(&out).into_owned()))
    }
}
