//! The channels of a run: each is interned once, and has a number. Reads no log.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sluice_io::error::FEWER_CHANNELS;
use sluice_io::escape::escaped;

use crate::{Channel, ChannelId, Clock, EmbeddedSchema, Encoding, Error, Name};

/// Every channel of a run, each once. Shared by all threads; lookups are cheap, insertions are
/// rare.
#[derive(Debug)]
pub struct Channels {
    inner: RwLock<InternTable>,
    hasher: RandomState,
    limit: usize,
}

#[derive(Debug, Default)]
struct InternTable {
    /// The total length of their strings.
    bytes: usize,
    /// Shared with those who look at all of them; copied if one is added meanwhile.
    list: Arc<Vec<Arc<Channel>>>,
    index: HashTable<IndexedChannel>,
}

/// A channel in the index. Its hash tells it from nearly all others, so that those are not visited.
#[derive(Clone, Copy, Debug)]
struct IndexedChannel {
    hash: u64,
    id: ChannelId,
}

/// What distinguishes channels: the fields of [`Channel`], borrowed.
#[derive(PartialEq, Eq, Hash)]
struct ChannelKey<'c> {
    name: &'c str,
    source: &'c str,
    encoding: &'c Encoding,
    type_name: Option<&'c str>,
    schema: Option<&'c EmbeddedSchema>,
    clock: Clock,
    metadata: &'c BTreeMap<String, String>,
}

impl<'c> ChannelKey<'c> {
    fn of(channel: &'c Channel) -> Self {
        let Channel { name, source, encoding, type_name, schema, clock, metadata } = channel;
        Self {
            name: name.text(),
            source,
            encoding,
            type_name: type_name.as_deref(),
            schema: schema.as_ref(),
            clock: *clock,
            metadata,
        }
    }

    /// The key of a [new](Channel::new) channel.
    fn plain(name: &'c str, source: &'c str, encoding: &'c Encoding) -> Self {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let (type_name, schema, clock) = (None, None, Clock::Utc);
        Self { name, source, encoding, type_name, schema, clock, metadata: &NONE }
    }
}

impl InternTable {
    fn find(&self, hash: u64, key: &ChannelKey<'_>) -> Option<ChannelId> {
        let is_same = |known: &IndexedChannel| {
            known.hash == hash && ChannelKey::of(&self.list[known.id.index()]) == *key
        };
        self.index.find(hash, is_same).map(|known| known.id)
    }

    fn push(&mut self, channel: Channel, hash: u64, id: ChannelId) {
        Arc::make_mut(&mut self.list).push(Arc::new(channel));
        self.index.insert_unique(hash, IndexedChannel { hash, id }, |known| known.hash);
    }
}

impl Default for Channels {
    fn default() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }
}

impl Channels {
    /// The most channels a run may have: a damaged log can invent any number.
    ///
    /// Tables, reports and manifests need up to five kilobytes per channel, which has to fit into
    /// the memory of an ordinary run.
    pub const DEFAULT_LIMIT: usize = 1 << 16;

    /// The most bytes of names, sources and other strings of all channels.
    pub const MAX_BYTES: usize = 32 << 20;

    /// An empty table that takes at most `limit` channels.
    pub fn with_limit(limit: usize) -> Self {
        Self { inner: RwLock::default(), hasher: RandomState::default(), limit }
    }

    /// Returns the number of `channel`, adding it if it is new.
    ///
    /// `Err` if that would exceed the limit of channels or of their total length.
    pub fn intern(&self, channel: Channel) -> Result<ChannelId, Error> {
        let key = ChannelKey::of(&channel);
        let hash = self.hasher.hash_one(&key);
        let found = self.read(|inner| inner.find(hash, &key));
        found.map_or_else(|| self.add(channel, hash), Ok)
    }

    /// The number of the [new](Channel::new) channel of this name, source and encoding. Like
    /// [`Self::intern`], but without making a channel if there is one already.
    pub fn intern_plain(
        &self,
        name: &[u8],
        source: &Arc<str>,
        encoding: &Encoding,
    ) -> Result<ChannelId, Error> {
        let text = escaped(name);
        let key = ChannelKey::plain(&text, source, encoding);
        let hash = self.hasher.hash_one(&key);
        let found = self.read(|inner| inner.find(hash, &key));
        let new = || Channel::new(Name::from_bytes(name), Arc::clone(source), encoding.clone());
        found.map_or_else(|| self.add(new(), hash), Ok)
    }

    /// Adds a channel, unless another thread has added it meanwhile.
    #[cold]
    fn add(&self, channel: Channel, hash: u64) -> Result<ChannelId, Error> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = inner.find(hash, &ChannelKey::of(&channel)) {
            return Ok(id);
        }
        let id = u32::try_from(inner.list.len()).ok().filter(|id| (*id as usize) < self.limit);
        let id = ChannelId(id.ok_or_else(|| Error::too_many_channels(self.limit))?);
        inner.bytes = inner.bytes.saturating_add(channel.len());
        if inner.bytes > Self::MAX_BYTES {
            return Err(Error::refused(format!(
                "names of channels are longer than {} MiB together: the input is damaged, or \
                 gives every event its own channel; {FEWER_CHANNELS}",
                Self::MAX_BYTES >> 20
            )));
        }
        inner.push(channel, hash, id);
        Ok(id)
    }

    /// The channel of that number.
    ///
    /// # Panics
    ///
    /// If the number belongs to another table.
    pub fn get(&self, id: ChannelId) -> Arc<Channel> {
        self.read(|inner| inner.list.get(id.index()).cloned())
            .expect("a channel's number is used with the table that gave it")
    }

    /// The current number of channels.
    pub fn len(&self) -> usize {
        self.read(|inner| inner.list.len())
    }

    /// Whether there is no channel yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes no more channels.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// All channels there are now, by number.
    pub fn all(&self) -> Arc<Vec<Arc<Channel>>> {
        self.read(|inner| Arc::clone(&inner.list))
    }

    /// The numbers of all channels, ordered by source and name.
    pub fn by_name(&self) -> Vec<ChannelId> {
        let all = self.all();
        let mut ids: Vec<ChannelId> = (0..all.len() as u32).map(ChannelId).collect();
        ids.sort_by_key(|id| {
            let channel = &all[id.index()];
            (&channel.source, channel.name.text())
        });
        ids
    }

    /// The channels from number `from` on, in the order of their numbers.
    pub fn since(&self, from: usize) -> Vec<Arc<Channel>> {
        self.read(|inner| inner.list.get(from..).unwrap_or_default().to_vec())
    }

    fn read<T>(&self, look: impl FnOnce(&InternTable) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A set of channels of a run: one bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSet(Vec<u64>);

impl ChannelSet {
    /// Adds a channel; returns whether it was not in the set.
    #[inline]
    pub fn insert(&mut self, id: ChannelId) -> bool {
        let (place, bit) = (id.index() / 64, 1 << (id.index() % 64));
        if place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        let is_new = self.0[place] & bit == 0;
        self.0[place] |= bit;
        is_new
    }

    /// Adds all channels of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| *ours |= *theirs);
    }

    /// Its channels, by number.
    pub fn iter(&self) -> impl Iterator<Item = ChannelId> {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        let places = self.0.iter().zip((0..).step_by(64));
        places.flat_map(move |(word, first)| bits(*word).map(move |bit| ChannelId(first + bit)))
    }
}

impl FromIterator<ChannelId> for ChannelSet {
    fn from_iter<I: IntoIterator<Item = ChannelId>>(ids: I) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

/// A value for every channel of a run, computed when a channel first appears.
///
/// Stages use it to decide once per channel rather than once per event. Not for stages that intern
/// channels while computing values: their new channels would be processed in turn.
#[derive(Debug)]
pub struct PerChannel<T>(RwLock<Arc<Vec<T>>>);

impl<T> Default for PerChannel<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> PerChannel<T> {
    /// The table, extended to every channel that is in `channels` now.
    pub fn table(
        &self,
        channels: &Channels,
        mut value: impl FnMut(&Channel) -> Result<T, Error>,
    ) -> Result<Arc<Vec<T>>, Error> {
        let known = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if known.len() >= channels.len() {
            return Ok(known);
        }
        let mut longer = Vec::clone(&known);
        for channel in channels.since(known.len()) {
            longer.push(value(&channel)?);
        }
        let longer = Arc::new(longer);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&longer);
        Ok(longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str) -> Channel {
        Channel::new(Name::from_text(name), "log", Encoding::Lcm)
    }

    #[test]
    fn a_channel_is_interned_once() {
        let channels = Channels::default();
        let pose = channels.intern(channel("POSE")).unwrap();
        assert_eq!(channels.intern(channel("POSE")).unwrap(), pose);
        assert_ne!(channels.intern(channel("GPS")).unwrap(), pose);
        assert_eq!(channels.get(pose).name.text(), "POSE");
    }

    #[test]
    fn a_plain_channel_is_found_without_being_made() {
        let (channels, source) = (Channels::default(), Arc::from("log"));
        let typed = Channel { type_name: Some("pose_t".into()), ..channel("POSE") };
        let typed = channels.intern(typed).unwrap();
        let other =
            channels.intern(Channel { encoding: Encoding::Vel, ..channel("POSE") }).unwrap();
        for name in [&b"POSE"[..], b"\xff", b"a\\x5c"] {
            let plain = Channel::new(Name::from_bytes(name), "log", Encoding::Lcm);
            let id = channels.intern_plain(name, &source, &Encoding::Lcm).unwrap();
            assert_eq!(channels.intern(plain.clone()).unwrap(), id);
            assert_eq!(channels.intern_plain(name, &source, &Encoding::Lcm).unwrap(), id);
            assert_eq!(*channels.get(id), plain);
            assert_eq!(channels.get(id).name.as_bytes(), name);
            assert!(id != typed && id != other);
        }
        assert_eq!(channels.len(), 5);
    }

    #[test]
    fn channels_stay_as_they_were_seen() {
        let channels = Channels::default();
        channels.intern(channel("B")).unwrap();
        let before = channels.all();
        channels.intern(channel("A")).unwrap();
        assert_eq!((before.len(), channels.all().len()), (1, 2));
        assert_eq!(channels.by_name(), [ChannelId(1), ChannelId(0)]);
    }

    #[test]
    fn a_set_of_channels_has_each_once() {
        let ids = [200, 3, 64, 63, 3].map(ChannelId);
        let mut set: ChannelSet = ids.into_iter().collect();
        assert!(!set.insert(ChannelId(64)) && set.insert(ChannelId(0)));
        set.add(&[ChannelId(500)].into_iter().collect());
        let listed: Vec<u32> = set.iter().map(|id| id.0).collect();
        assert_eq!(listed, [0, 3, 63, 64, 200, 500]);
    }

    #[test]
    fn more_channels_than_the_limit_are_refused() {
        let channels = Channels::with_limit(1);
        channels.intern(channel("A")).unwrap();
        assert!(
            channels.intern(channel("B")).unwrap_err().to_string().contains("more than 1 channel")
        );
        channels.intern(channel("A")).unwrap();
    }

    #[test]
    fn names_are_only_so_long_together() {
        let channels = Channels::default();
        let long = |n: usize| channels.intern(channel(&format!("{n}{}", "x".repeat(5 << 20))));
        assert!((0..3).all(|n| long(n).is_ok()));
        assert!(long(3).unwrap_err().to_string().contains("longer than 32 MiB"));
    }

    #[test]
    fn a_table_by_channel_grows_with_the_channels() {
        let (channels, lengths) = (Channels::default(), PerChannel::default());
        channels.intern(channel("A")).unwrap();
        let length = |c: &Channel| Ok(c.name.text().len());
        assert_eq!(*lengths.table(&channels, length).unwrap(), vec![1]);
        channels.intern(channel("BCD")).unwrap();
        assert_eq!(*lengths.table(&channels, length).unwrap(), vec![1, 3]);
    }
}
