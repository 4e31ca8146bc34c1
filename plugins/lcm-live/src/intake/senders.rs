//! Everyone who was heard, within a limit.

use std::net::SocketAddrV4;

use hashbrown::HashMap;

use super::Sender;
use super::books::Books;
use super::order::{Ends, Links};

/// Senders by address and port; each has a small number until it is replaced.
#[derive(Debug)]
pub(super) struct Senders {
    limit: usize,
    known: HashMap<u64, u32, foldhash::fast::RandomState>,
    slots: Vec<Slot>,
    /// Who sent the last datagram: most often the next comes from there, too.
    last: Option<(SocketAddrV4, u32)>,
    links: Links,
    /// Those of whom one datagram came: anyone can make up many of them.
    once: Ends,
    /// All others.
    often: Ends,
}

/// A sender with its books.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sender: Sender,
    pub(super) books: Books,
}

impl Senders {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            known: HashMap::default(),
            slots: Vec::new(),
            last: None,
            links: Links::default(),
            once: Ends::default(),
            often: Ends::default(),
        }
    }

    #[inline]
    pub(super) fn find(&mut self, address: SocketAddrV4) -> Option<u32> {
        match self.last {
            Some((last, id)) if last == address => Some(id),
            _ => {
                let id = *self.known.get(&key(address))?;
                self.last = Some((address, id));
                Some(id)
            }
        }
    }

    /// Who has to go before another can be added.
    pub(super) fn surplus(&self) -> Option<u32> {
        if self.slots.len() < self.limit {
            return None;
        }
        self.once.oldest().or(self.often.oldest())
    }

    /// Adds a sender that is not known, in place of `surplus` if there is one.
    pub(super) fn add(&mut self, address: SocketAddrV4, surplus: Option<u32>, now: u64) -> u32 {
        let slot = Slot { sender: Sender::new(address, now), books: Books::new() };
        let id = match surplus {
            Some(id) => {
                self.forget(id);
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("the number of senders is limited")
            }
        };
        self.known.insert(key(address), id);
        self.links.push(&mut self.once, id);
        self.last = Some((address, id));
        id
    }

    fn forget(&mut self, id: u32) {
        let sender = &self.slots[id as usize].sender;
        self.known.remove(&key(sender.address));
        let list = if sender.datagrams > 1 { &mut self.often } else { &mut self.once };
        self.links.remove(list, id);
    }

    /// Counts a datagram, and gives how many nanoseconds nothing was heard before it.
    #[inline]
    pub(super) fn hear(&mut self, id: u32, bytes: usize, now: u64) -> u64 {
        let sender = &mut self.slots[id as usize].sender;
        let silence = now.saturating_sub(sender.heard);
        sender.heard = sender.heard.max(now);
        sender.datagrams += 1;
        sender.bytes += bytes as u64;
        match sender.datagrams {
            1 => {}
            2 => {
                self.links.remove(&mut self.once, id);
                self.links.push(&mut self.often, id);
            }
            _ => self.links.touch(&mut self.often, id),
        }
        silence
    }

    #[inline]
    pub(super) fn slot(&mut self, id: u32) -> &mut Slot {
        &mut self.slots[id as usize]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Sender> {
        self.slots.iter().map(|slot| &slot.sender)
    }
}

#[inline]
fn key(address: SocketAddrV4) -> u64 {
    u64::from(address.ip().to_bits()) << 16 | u64::from(address.port())
}
