//! Resolves channel names to numbers, fast: called once per event.

use std::sync::Arc;

use hashbrown::HashMap;
use sluice_model::{Channel, ChannelId, Channels, Encoding, Error, Name};

/// Enough that a few dozen channels rarely collide: colliding ones need a lookup each time.
const SLOTS: usize = 2048;

/// A reader's own cache of channel numbers, so that it rarely accesses the shared table.
#[derive(Debug)]
pub struct ChannelIds {
    source: Arc<str>,
    encoding: Encoding,
    channels: Arc<Channels>,
    known: HashMap<Arc<[u8]>, ChannelId, foldhash::fast::RandomState>,
    /// The last name in each slot: most logs have fewer channels than there are slots.
    recent: Vec<Option<(Arc<[u8]>, ChannelId)>>,
}

impl ChannelIds {
    /// For the channels of this source, all of this encoding.
    pub fn new(source: Arc<str>, encoding: Encoding, channels: Arc<Channels>) -> Self {
        Self { source, encoding, channels, known: HashMap::default(), recent: vec![None; SLOTS] }
    }

    /// Whether the channel of that name has been resolved before.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.known.contains_key(name)
    }

    /// The number of channels resolved so far.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no channel has been resolved yet.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The number of the channel of that name.
    #[inline]
    pub fn resolve(&mut self, name: &[u8]) -> Result<ChannelId, Error> {
        let encoding = self.encoding.clone();
        self.resolve_with(name, |name, source| Channel::new(name, source, encoding))
    }

    /// The number of the channel of that name, made by `make` if it is new.
    #[inline]
    pub fn resolve_with(
        &mut self,
        name: &[u8],
        make: impl FnOnce(Name, Arc<str>) -> Channel,
    ) -> Result<ChannelId, Error> {
        let slot = slot(name);
        match self.recent.get(slot) {
            Some(Some((known, id))) if is_same_name(known, name) => Ok(*id),
            _ => self.look_up(slot, name, make),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        slot: usize,
        name: &[u8],
        make: impl FnOnce(Name, Arc<str>) -> Channel,
    ) -> Result<ChannelId, Error> {
        let known = self.known.get_key_value(name).map(|(name, id)| (Arc::clone(name), *id));
        let (name, id) = match known {
            Some(known) => known,
            None => {
                let (source, shared) = (Arc::clone(&self.source), Arc::from(name));
                let id = self.channels.intern(make(Name::from_bytes(name), source))?;
                self.known.insert(Arc::clone(&shared), id);
                (shared, id)
            }
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some((name, id));
        }
        Ok(id)
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

/// Hashes the length and both ends of a name: channels mostly differ there.
#[inline]
fn slot(name: &[u8]) -> usize {
    let head = name.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let tail = match name.last_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => name.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    let mixed =
        (head.rotate_left(23) ^ tail ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
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
}
