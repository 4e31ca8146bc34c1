//! The tracked senders, up to a limit.

use std::net::SocketAddrV4;

use hashbrown::HashMap;

use super::SenderStats;
use super::lru::{LruLinks, LruList};
use super::recent::RecentMessages;
use super::sequence::SequenceWindow;

/// Senders by address and port. Each has a small id until it is replaced.
#[derive(Debug)]
pub(super) struct SenderTable {
    limit: usize,
    ids: HashMap<u64, u32, foldhash::fast::RandomState>,
    slots: Vec<SenderSlot>,
    /// The sender of the last datagram: most often the next one is from it, too.
    last: Option<(SocketAddrV4, u32)>,
    links: LruLinks,
    /// Senders of a single datagram: anyone can forge many of them.
    heard_once: LruList,
    /// All other senders.
    heard_often: LruList,
}

/// A sender, its window of sequence numbers, and its last messages.
#[derive(Debug)]
pub(super) struct SenderSlot {
    pub(super) sender: SenderStats,
    pub(super) window: SequenceWindow,
    pub(super) recent: RecentMessages,
    /// Datagrams of its longest message so far.
    pub(super) longest: u16,
}

impl SenderTable {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            ids: HashMap::default(),
            slots: Vec::new(),
            last: None,
            links: LruLinks::default(),
            heard_once: LruList::default(),
            heard_often: LruList::default(),
        }
    }

    #[inline]
    pub(super) fn find(&mut self, address: SocketAddrV4) -> Option<u32> {
        match self.last {
            Some((last, id)) if last == address => Some(id),
            _ => {
                let id = *self.ids.get(&key(address))?;
                self.last = Some((address, id));
                Some(id)
            }
        }
    }

    /// The sender to replace before another can be added; `None` while there is room.
    pub(super) fn eviction_candidate(&self) -> Option<u32> {
        if self.slots.len() < self.limit {
            return None;
        }
        self.heard_once.oldest().or(self.heard_often.oldest())
    }

    /// Adds an unknown sender, replacing `surplus` if given.
    pub(super) fn add(&mut self, address: SocketAddrV4, surplus: Option<u32>, now: u64) -> u32 {
        let (sender, window) = (SenderStats::new(address, now), SequenceWindow::new());
        let slot = SenderSlot { sender, window, recent: RecentMessages::default(), longest: 1 };
        let id = match surplus {
            Some(id) => {
                self.evict(id);
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("the number of senders is limited")
            }
        };
        self.ids.insert(key(address), id);
        self.links.push(&mut self.heard_once, id);
        self.last = Some((address, id));
        id
    }

    fn evict(&mut self, id: u32) {
        let sender = &self.slots[id as usize].sender;
        self.ids.remove(&key(sender.address));
        let list = if sender.datagrams > 1 { &mut self.heard_often } else { &mut self.heard_once };
        self.links.remove(list, id);
    }

    /// Counts a datagram. Returns the silence before it, in nanoseconds.
    #[inline]
    pub(super) fn record(&mut self, id: u32, bytes: usize, now: u64) -> u64 {
        let sender = &mut self.slots[id as usize].sender;
        let silence = now.saturating_sub(sender.last_heard);
        sender.last_heard = sender.last_heard.max(now);
        sender.datagrams += 1;
        sender.bytes += bytes as u64;
        match sender.datagrams {
            1 => {}
            2 => {
                self.links.remove(&mut self.heard_once, id);
                self.links.push(&mut self.heard_often, id);
            }
            _ => self.links.touch(&mut self.heard_often, id),
        }
        silence
    }

    #[inline]
    pub(super) fn slot(&mut self, id: u32) -> &mut SenderSlot {
        &mut self.slots[id as usize]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SenderStats> {
        self.slots.iter().map(|slot| &slot.sender)
    }
}

#[inline]
fn key(address: SocketAddrV4) -> u64 {
    u64::from(address.ip().to_bits()) << 16 | u64::from(address.port())
}
