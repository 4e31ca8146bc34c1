//! Resolves channel names to numbers, fast: called once per event.

use std::sync::Arc;

use sluice_model::{Channel, ChannelId, Channels, Encoding, Error, Name};

/// The slots for each channel, so that rarely three share two: these need a lookup each time.
const SLOTS_PER_CHANNEL: usize = 32;
/// The slots of a reader that meets its first channels.
const MIN_SLOTS: usize = 64;
/// The most slots of a reader that has made few lookups. More take longer to set up than they save
/// in the few thousand events of a split; who goes on has a slot for each lookup.
const FEW_SLOTS: usize = 1 << 12;
const MAX_SLOTS: usize = 1 << 18;

/// A reader's own cache of channel numbers, so that it rarely accesses the shared table.
///
/// A name has two slots, so that two names with the same first one do not displace each other in
/// turn.
#[derive(Debug)]
pub struct ChannelIds {
    source: Arc<str>,
    encoding: Encoding,
    channels: Arc<Channels>,
    /// The last name in each slot, as many as a power of two.
    recent: Vec<Option<(Name, ChannelId)>>,
    lookups: usize,
}

impl ChannelIds {
    /// For the channels of this source, all of this encoding.
    pub fn new(source: Arc<str>, encoding: Encoding, channels: Arc<Channels>) -> Self {
        Self { source, encoding, channels, recent: vec![None; MIN_SLOTS], lookups: 0 }
    }

    /// The number of the channel of that name.
    #[inline]
    pub fn resolve(&mut self, name: &[u8]) -> Result<ChannelId, Error> {
        let slot = self.slot(name);
        match self.in_slot(slot, name) {
            Some(id) => Ok(id),
            None => self.look_up(slot, name),
        }
    }

    /// The number of the channel of that name, made by `make` if it is not among the last ones. The
    /// name may be any bytes that tell a channel from all others of this reader.
    #[inline]
    pub fn resolve_with(
        &mut self,
        name: &[u8],
        make: impl FnOnce(Name, Arc<str>) -> Channel,
    ) -> Result<ChannelId, Error> {
        let slot = self.slot(name);
        if let Some(id) = self.in_slot(slot, name).or_else(|| self.in_second_slot(slot, name)) {
            return Ok(id);
        }
        let key = Name::from_bytes(name);
        let id = self.channels.intern(make(key.clone(), Arc::clone(&self.source)))?;
        self.remember(name, key, id);
        Ok(id)
    }

    #[inline]
    fn in_slot(&self, slot: usize, name: &[u8]) -> Option<ChannelId> {
        match self.recent.get(slot) {
            Some(Some((known, id))) if is_same_name(known.as_bytes(), name) => Some(*id),
            _ => None,
        }
    }

    /// Looks into the other slot of a name with this first one. Rarely needed, and never inlined:
    /// it would cost the loops over events more than it saves.
    #[cold]
    fn in_second_slot(&self, slot: usize, name: &[u8]) -> Option<ChannelId> {
        self.in_slot(slot ^ 1, name)
    }

    #[cold]
    fn look_up(&mut self, slot: usize, name: &[u8]) -> Result<ChannelId, Error> {
        if let Some(id) = self.in_second_slot(slot, name) {
            return Ok(id);
        }
        let (id, key) = self.channels.intern_plain(name, &self.source, &self.encoding)?;
        self.remember(name, key, id);
        Ok(id)
    }

    fn remember(&mut self, name: &[u8], key: Name, id: ChannelId) {
        self.lookups += 1;
        let few = (self.channels.len() * SLOTS_PER_CHANNEL).min(FEW_SLOTS);
        let slots = few.max(self.lookups).min(MAX_SLOTS).next_power_of_two();
        if slots > self.recent.len() {
            self.recent = vec![None; slots];
        }
        self.cache(name, key, id);
    }

    fn cache(&mut self, name: &[u8], key: Name, id: ChannelId) {
        let slot = self.slot(name);
        if let Some(displaced) = self.recent[slot].replace((key, id)) {
            self.recent[slot ^ 1] = Some(displaced);
        }
    }

    /// Hashes the length and both ends of a name: channels mostly differ there.
    #[inline]
    fn slot(&self, name: &[u8]) -> usize {
        let head = name.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let tail = match name.last_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => name.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mixed =
            (head.rotate_left(23) ^ tail ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.recent.len() - 1)
    }
}

/// Whether two names are the same. Names are mostly so short that a call of the system's
/// comparison would take longer than this.
#[inline]
pub fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk(), b.last_chunk()) {
        (Some(head), Some(tail), Some(other_head), Some(other_tail)) if a.len() <= 16 => {
            a.len() == b.len() && head == other_head && tail == other_tail
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn slots_come_with_lookups() {
        let channels = Arc::new(Channels::default());
        let new_ids = || ChannelIds::new("log".into(), Encoding::Lcm, Arc::clone(&channels));
        let mut ids = new_ids();
        let names: Vec<String> = (0..10_000).map(|n| format!("CHANNEL_{n}")).collect();
        for _ in 0..3 {
            for (n, name) in names.iter().enumerate() {
                assert_eq!(ids.resolve(name.as_bytes()).unwrap().index(), n);
            }
        }
        assert!(ids.recent.len() > 10_000 && ids.recent.len() <= 2 * ids.lookups);
        let mut others = new_ids();
        others.resolve(b"CHANNEL_7").unwrap();
        assert_eq!(others.recent.len(), FEW_SLOTS);
    }

    #[test]
    fn names_of_one_slot_or_of_neighbours_are_both_cached() {
        let new_ids = || ChannelIds::new("log".into(), Encoding::Lcm, Arc::default());
        let names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        for distance in [0, 1] {
            let mut ids = new_ids();
            let slots: Vec<usize> = names.iter().map(|name| ids.slot(name.as_bytes())).collect();
            let partner = |b: usize| slots[..b].iter().position(|a| *a == slots[b] ^ distance);
            let (a, b) = (1..names.len()).find_map(|b| Some((partner(b)?, b))).unwrap();
            for (id, at) in [(7, a), (8, b)] {
                ids.cache(names[at].as_bytes(), Name::from_text(&names[at]), ChannelId(id));
            }
            for (id, at) in [(7, a), (8, b)] {
                assert_eq!(ids.resolve(names[at].as_bytes()).unwrap(), ChannelId(id), "{distance}");
            }
        }
    }
}
