//! Resolves channel names to numbers, fast: called once per event.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_model::{Channel, ChannelId, Channels, Encoding, Error, Name, ReadContext};

/// The slots for each channel, so that rarely three share two: these need a lookup each time.
const SLOTS_PER_CHANNEL: usize = 32;
/// The slots of a reader that meets its first channels.
const MIN_SLOTS: usize = 64;
/// The most slots of a reader that has made few lookups. More take longer to set up than they save
/// in the few thousand events of a split; who goes on has a slot for each lookup, up to a few for
/// each channel.
const FEW_SLOTS: usize = 1 << 12;
const MAX_SLOTS_PER_CHANNEL: usize = 4;
/// The most slots that wait for the next reader.
const MAX_KEPT_SLOTS: usize = 1 << 19;

/// A reader's own cache of the numbers of channels that differ by their names only, so that it
/// rarely accesses the shared table.
#[derive(Debug)]
pub struct ChannelIds {
    source: Arc<str>,
    encoding: Encoding,
    channels: Arc<Channels>,
    cache: NameCache,
    /// Where the next reader finds the cache.
    kept: Option<Arc<KeptNames>>,
}

/// A reader's own cache of the numbers of channels that are told apart by any bytes, not just a
/// name.
#[derive(Debug)]
pub struct KeyedChannelIds {
    source: Arc<str>,
    channels: Arc<Channels>,
    cache: NameCache,
}

/// The names that were resolved last, and their numbers.
///
/// A name has two slots, so that two names with the same first one do not displace each other in
/// turn.
#[derive(Debug)]
struct NameCache {
    /// The last name in each slot.
    slots: Vec<Option<KnownName>>,
    /// The bits of a hash that its slot does without.
    shift: u32,
    lookups: usize,
}

#[derive(Clone, Debug)]
struct KnownName {
    ends: NameEnds,
    id: ChannelId,
    /// The whole name, unless its ends are all of it.
    whole: Box<[u8]>,
}

/// The length of a name, and its first and last bytes: up to [`NameEnds::ALL`] bytes, they are all
/// of it. Names are mostly that short, and then compared without calling the system's comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameEnds {
    head: u64,
    tail: u64,
    len: u32,
}

/// What the readers of a run have resolved, for those of the next splits.
#[derive(Debug, Default)]
pub struct KeptNames {
    /// Those of the run: the numbers of others mean something else.
    channels: Arc<Channels>,
    caches: Mutex<Vec<KeptCache>>,
}

#[derive(Debug)]
struct KeptCache {
    source: Arc<str>,
    encoding: Encoding,
    names: NameCache,
}

impl ChannelIds {
    /// For channels of this encoding.
    pub fn new(encoding: Encoding, context: &ReadContext) -> Self {
        let (source, channels) = (Arc::clone(&context.source), Arc::clone(&context.channels));
        let kept = context.run.shared::<KeptNames>();
        let kept = Arc::ptr_eq(&kept.channels, &channels).then_some(kept);
        let cache = kept.as_ref().and_then(|kept| kept.take(&source, &encoding));
        Self { source, encoding, channels, cache: cache.unwrap_or_default(), kept }
    }

    /// The number of the channel of that name.
    #[inline]
    pub fn resolve(&mut self, name: &[u8]) -> Result<ChannelId, Error> {
        let ends = NameEnds::of(name);
        let slot = self.cache.slot(ends, name);
        match self.cache.in_slot(slot, ends, name) {
            Some(id) => Ok(id),
            None => self.look_up(slot, ends, name),
        }
    }

    #[cold]
    fn look_up(&mut self, slot: usize, ends: NameEnds, name: &[u8]) -> Result<ChannelId, Error> {
        if let Some(id) = self.cache.in_second_slot(slot, ends, name) {
            return Ok(id);
        }
        let id = self.channels.intern_plain(name, &self.source, &self.encoding)?;
        self.cache.remember(name, id, &self.channels);
        Ok(id)
    }
}

impl KeyedChannelIds {
    /// For channels of this source.
    pub fn new(source: Arc<str>, channels: Arc<Channels>) -> Self {
        Self { source, channels, cache: NameCache::default() }
    }

    /// The number of the channel of that key, made by `make` if it is not among the last ones.
    #[inline]
    pub fn resolve(
        &mut self,
        key: &[u8],
        make: impl FnOnce(Name, Arc<str>) -> Channel,
    ) -> Result<ChannelId, Error> {
        let ends = NameEnds::of(key);
        let slot = self.cache.slot(ends, key);
        let known = self.cache.in_slot(slot, ends, key);
        if let Some(id) = known.or_else(|| self.cache.in_second_slot(slot, ends, key)) {
            return Ok(id);
        }
        let channel = make(Name::from_bytes(key), Arc::clone(&self.source));
        let id = self.channels.intern(channel)?;
        self.cache.remember(key, id, &self.channels);
        Ok(id)
    }
}

impl Drop for ChannelIds {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            let (source, encoding) = (Arc::clone(&self.source), self.encoding.clone());
            kept.keep(KeptCache { source, encoding, names: std::mem::take(&mut self.cache) });
        }
    }
}

impl KeptNames {
    /// For readers that resolve names to these channels.
    pub fn of(channels: &Arc<Channels>) -> Self {
        Self { channels: Arc::clone(channels), caches: Mutex::default() }
    }

    fn take(&self, source: &str, encoding: &Encoding) -> Option<NameCache> {
        let mut caches = self.caches();
        let is_same = |kept: &KeptCache| *kept.source == *source && kept.encoding == *encoding;
        let place = caches.iter().rposition(is_same)?;
        Some(caches.swap_remove(place).names)
    }

    /// Keeps a cache instead of the oldest ones.
    fn keep(&self, cache: KeptCache) {
        let mut caches = self.caches();
        caches.push(cache);
        let mut slots: usize = caches.iter().map(|kept| kept.names.slots.len()).sum();
        while slots > MAX_KEPT_SLOTS {
            slots -= caches.remove(0).names.slots.len();
        }
    }

    fn caches(&self) -> MutexGuard<'_, Vec<KeptCache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for NameCache {
    fn default() -> Self {
        Self::with_slots(MIN_SLOTS, 0)
    }
}

impl NameCache {
    /// An empty one with at least this many slots.
    fn with_slots(slots: usize, lookups: usize) -> Self {
        let slots = slots.next_power_of_two().max(MIN_SLOTS);
        Self { slots: vec![None; slots], shift: u64::BITS - slots.ilog2(), lookups }
    }

    #[inline]
    fn in_slot(&self, slot: usize, ends: NameEnds, name: &[u8]) -> Option<ChannelId> {
        match self.slots.get(slot) {
            Some(Some(known)) if known.ends == ends && ends.is_all_or(&known.whole, name) => {
                Some(known.id)
            }
            _ => None,
        }
    }

    /// Looks into the other slot of a name with this first one. Rarely needed, and never inlined:
    /// it would cost the loops over events more than it saves.
    #[cold]
    fn in_second_slot(&self, slot: usize, ends: NameEnds, name: &[u8]) -> Option<ChannelId> {
        self.in_slot(slot ^ 1, ends, name)
    }

    fn remember(&mut self, name: &[u8], id: ChannelId, channels: &Channels) {
        self.lookups += 1;
        if self.lookups.is_power_of_two() {
            let all = channels.len();
            let few = (all * SLOTS_PER_CHANNEL).min(FEW_SLOTS);
            let slots = (2 * self.lookups).min(all * MAX_SLOTS_PER_CHANNEL).max(few);
            if slots > self.slots.len() {
                *self = Self::with_slots(slots, self.lookups);
            }
        }
        self.put(name, id);
    }

    fn put(&mut self, name: &[u8], id: ChannelId) {
        let ends = NameEnds::of(name);
        let slot = self.slot(ends, name);
        let whole = if ends.is_all() { Box::default() } else { name.into() };
        if let Some(displaced) = self.slots[slot].replace(KnownName { ends, id, whole }) {
            self.slots[slot ^ 1] = Some(displaced);
        }
    }

    #[inline]
    fn slot(&self, ends: NameEnds, name: &[u8]) -> usize {
        (ends.hash(name) >> self.shift) as usize
    }
}

impl NameEnds {
    /// The longest name whose ends are all of it.
    const ALL: u32 = 16;

    #[inline]
    fn of(name: &[u8]) -> Self {
        let (head, tail) =
            Self::eight(name).or_else(|| Self::four(name)).unwrap_or_else(|| Self::three(name));
        Self { head, tail, len: name.len() as u32 }
    }

    /// The first and last eight bytes.
    #[inline]
    fn eight(name: &[u8]) -> Option<(u64, u64)> {
        Some((u64::from_le_bytes(*name.first_chunk()?), u64::from_le_bytes(*name.last_chunk()?)))
    }

    /// The first and last four bytes.
    #[inline]
    fn four(name: &[u8]) -> Option<(u64, u64)> {
        let (head, tail) = (name.first_chunk()?, name.last_chunk()?);
        Some((u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into()))
    }

    /// Up to three bytes: the first, and the others.
    #[inline]
    fn three(name: &[u8]) -> (u64, u64) {
        match *name {
            [first, second, .., last] => (first.into(), u64::from(second) << 8 | u64::from(last)),
            [first, second] => (first.into(), second.into()),
            [first] => (first.into(), 0),
            [] => (0, 0),
        }
    }

    #[inline]
    fn is_all(self) -> bool {
        self.len <= Self::ALL
    }

    /// Whether two names with these ends are the same.
    #[inline]
    fn is_all_or(self, known: &[u8], name: &[u8]) -> bool {
        self.is_all() || *known == *name
    }

    /// A hash whose high bits depend on all bytes of the name: channels are often numbered, and
    /// differ in one digit.
    #[inline]
    fn hash(self, name: &[u8]) -> u64 {
        let ends = self.head.rotate_left(23) ^ self.tail ^ u64::from(self.len);
        mixed(if self.is_all() { ends } else { with_middle(ends, name) })
    }
}

/// The hash of a name's ends, and what is between them.
#[inline(never)]
fn with_middle(ends: u64, name: &[u8]) -> u64 {
    let words = name.as_chunks::<8>().0.iter().skip(1);
    words.fold(ends, |sum, word| mixed(sum) ^ u64::from_le_bytes(*word))
}

/// A product of which each bit of the word changes the high ones.
#[inline]
fn mixed(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether two names are the same.
#[inline]
pub fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    let ends = NameEnds::of(a);
    a.len() == b.len() && ends == NameEnds::of(b) && ends.is_all_or(a, b)
}

#[cfg(test)]
mod tests {
    use sluice_model::RunHandle;

    use super::*;

    #[test]
    fn names_are_the_same_if_all_their_bytes_are() {
        let (name, copy) = (b"a name of many bytes", b"a name of many bytes".to_vec());
        for len in 0..=name.len() {
            let one = &name[..len];
            assert!(is_same_name(one, &copy[..len]));
            assert!(len == 0 || !is_same_name(one, &one[1..]) && !is_same_name(&one[1..], one));
            for at in 0..len {
                let mut other = one.to_vec();
                other[at] ^= 1;
                assert!(!is_same_name(one, &other), "byte {at} of {len}");
            }
        }
    }

    impl NameCache {
        fn known(&self, name: &[u8]) -> Option<ChannelId> {
            self.in_slot(self.first_slot(name), NameEnds::of(name), name)
        }

        fn first_slot(&self, name: &[u8]) -> usize {
            self.slot(NameEnds::of(name), name)
        }
    }

    fn context(channels: &Arc<Channels>) -> ReadContext {
        let kept = Arc::new(KeptNames::of(channels));
        let run = RunHandle::default().sharing(&kept);
        let channels = Arc::clone(channels);
        ReadContext { channels, run, ..ReadContext::standalone("log") }
    }

    fn new_ids() -> ChannelIds {
        ChannelIds::new(Encoding::Lcm, &ReadContext::standalone("log"))
    }

    #[test]
    fn names_that_differ_anywhere_are_spread_over_the_slots() {
        let long = |n: u32| format!("/robot/{n:05}/sensors/camera/image");
        let short: fn(u32) -> String = |n| format!("{n:x}");
        for name in [short, |n| format!("C{n:05}"), |n| format!("STATUS_{n:05}"), long] {
            let cache = NameCache::with_slots(1 << 14, 0);
            let mut load = vec![0; 1 << 14];
            (0..10_000).for_each(|n| load[cache.first_slot(name(n).as_bytes())] += 1);
            let most = load.iter().max().unwrap();
            let crowded = load.iter().filter(|names| **names > 2).count();
            assert!(*most < 10 && crowded < 700, "{}: {most}, {crowded}", name(0));
        }
    }

    #[test]
    fn slots_come_with_lookups() {
        let context = ReadContext::standalone("log");
        let mut ids = ChannelIds::new(Encoding::Lcm, &context);
        let names: Vec<String> = (0..10_000).map(|n| format!("CHANNEL_{n}")).collect();
        for _ in 0..3 {
            for (n, name) in names.iter().enumerate() {
                assert_eq!(ids.resolve(name.as_bytes()).unwrap().index(), n);
            }
        }
        let NameCache { slots, lookups, .. } = &ids.cache;
        assert!(slots.len() > 10_000 && slots.len() <= 2 * lookups);
        let mut others = ChannelIds::new(Encoding::Lcm, &context);
        others.resolve(b"CHANNEL_7").unwrap();
        assert_eq!(others.cache.slots.len(), FEW_SLOTS);
    }

    #[test]
    fn names_of_one_slot_or_of_neighbours_are_both_cached() {
        let names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        for distance in [0, 1] {
            let mut ids = new_ids();
            let slots: Vec<usize> =
                names.iter().map(|name| ids.cache.first_slot(name.as_bytes())).collect();
            let partner = |b: usize| slots[..b].iter().position(|a| *a == slots[b] ^ distance);
            let (a, b) = (1..names.len()).find_map(|b| Some((partner(b)?, b))).unwrap();
            for (id, at) in [(7, a), (8, b)] {
                ids.cache.put(names[at].as_bytes(), ChannelId(id));
            }
            for (id, at) in [(7, a), (8, b)] {
                assert_eq!(ids.resolve(names[at].as_bytes()).unwrap(), ChannelId(id), "{distance}");
            }
        }
    }

    #[test]
    fn the_next_reader_of_a_source_knows_the_names() {
        let channels = Arc::new(Channels::default());
        let context = context(&channels);
        let pose = ChannelIds::new(Encoding::Lcm, &context).resolve(b"POSE").unwrap();
        let next = ChannelIds::new(Encoding::Lcm, &context);
        assert_eq!(next.cache.known(b"POSE"), Some(pose));
        // Nobody has left a second one.
        assert_eq!(ChannelIds::new(Encoding::Lcm, &context).cache.known(b"POSE"), None);
        drop(next);
        assert_eq!(ChannelIds::new(Encoding::Vel, &context).cache.known(b"POSE"), None);
        let other = ReadContext { source: "other".into(), ..context.clone() };
        assert_eq!(ChannelIds::new(Encoding::Lcm, &other).cache.known(b"POSE"), None);
        assert_eq!(ChannelIds::new(Encoding::Lcm, &context).cache.known(b"POSE"), Some(pose));
    }

    #[test]
    fn names_of_another_table_of_channels_are_not_kept() {
        let context = context(&Arc::default());
        let apart = ReadContext { channels: Arc::default(), ..context.clone() };
        apart.channels.intern(Channel::new(Name::from_text("GPS"), "log", Encoding::Lcm)).unwrap();
        let id = ChannelIds::new(Encoding::Lcm, &apart).resolve(b"POSE").unwrap();
        assert_eq!(id, ChannelId(1));
        let ids = ChannelIds::new(Encoding::Lcm, &context);
        assert_eq!(ids.cache.known(b"POSE"), None);
    }

    #[test]
    fn kept_names_are_bounded() {
        let kept = KeptNames::default();
        for n in 0..20 {
            let names = NameCache::with_slots(MAX_KEPT_SLOTS / 8, n);
            kept.keep(KeptCache { source: n.to_string().into(), encoding: Encoding::Lcm, names });
        }
        let sources: Vec<_> = kept.caches().iter().map(|kept| kept.source.to_string()).collect();
        assert_eq!(sources, ["12", "13", "14", "15", "16", "17", "18", "19"]);
    }
}
