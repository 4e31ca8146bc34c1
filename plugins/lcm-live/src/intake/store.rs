//! All unfinished messages, within the limits of memory, and who has to give up one when there is no room.
//!
//! A sender that holds more than its share, the limit divided by the senders that hold something, gives up
//! its own before anyone else does: first the one whose fragment has just come, then whoever holds most.
//! There always is one: if nobody held more than a share, there would be room. So a sender that holds less
//! than its share loses nothing, whatever the others send.
//!
//! Every operation takes logarithmic time at most.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::order::{Ends, Links};
use super::partial::Partial;

/// Unfinished messages; each has a small number until it is removed.
#[derive(Debug)]
pub(super) struct Store {
    max_bytes: usize,
    max_messages: usize,
    partials: Vec<Option<Partial>>,
    free: Vec<u32>,
    /// By the number of the sender and the sequence number.
    known: HashMap<(u32, u32), u32, foldhash::fast::RandomState>,
    all: Ends,
    links: Links,
    /// What each sender holds; each message is in one of these lists, too.
    holders: Vec<Holder>,
    own_links: Links,
    by_bytes: BTreeSet<(usize, u32)>,
    by_messages: BTreeSet<(usize, u32)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    list: Ends,
    bytes: usize,
    messages: usize,
}

impl Store {
    pub(super) fn new(max_bytes: usize, max_messages: usize) -> Self {
        Self {
            max_bytes,
            max_messages: max_messages.max(1),
            partials: Vec::new(),
            free: Vec::new(),
            known: HashMap::default(),
            all: Ends::default(),
            links: Links::default(),
            holders: Vec::new(),
            own_links: Links::default(),
            by_bytes: BTreeSet::new(),
            by_messages: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Bytes of memory taken.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unfinished messages.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn find(&self, sender: u32, sequence: u32) -> Option<u32> {
        self.known.get(&(sender, sequence)).copied()
    }

    /// The message not touched for the longest time.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.all.oldest()
    }

    /// The message of this sender not touched for the longest time.
    pub(super) fn oldest_of(&self, sender: u32) -> Option<u32> {
        self.holders.get(sender as usize)?.list.oldest()
    }

    pub(super) fn get(&mut self, id: u32) -> &mut Partial {
        self.partials[id as usize].as_mut().expect("only messages that are here have numbers")
    }

    /// Adds a message that is not here yet.
    pub(super) fn add(&mut self, partial: Partial) -> u32 {
        let (sender, sequence) = (partial.sender, partial.sequence);
        let id = self.free.pop().unwrap_or_else(|| {
            self.partials.push(None);
            u32::try_from(self.partials.len() - 1).expect("the number of messages is limited")
        });
        self.partials[id as usize] = Some(partial);
        self.known.insert((sender, sequence), id);
        self.links.push(&mut self.all, id);
        if self.holders.len() <= sender as usize {
            self.holders.resize(sender as usize + 1, Holder::default());
        }
        let holder = &mut self.holders[sender as usize];
        self.own_links.push(&mut holder.list, id);
        self.hold(sender, |holder| holder.messages += 1);
        self.charge(id);
        id
    }

    /// Notes that a fragment of a message has come.
    pub(super) fn touch(&mut self, id: u32, now: u64) {
        let partial = self.get(id);
        partial.touched = now;
        let sender = partial.sender;
        self.links.touch(&mut self.all, id);
        self.own_links.touch(&mut self.holders[sender as usize].list, id);
    }

    /// Takes into account what a message has allocated or freed.
    pub(super) fn charge(&mut self, id: u32) {
        let partial = self.get(id);
        let (sender, before, now) = (partial.sender, partial.charged, partial.memory());
        if before == now {
            return;
        }
        partial.charged = now;
        self.bytes = self.bytes - before + now;
        self.hold(sender, |holder| holder.bytes = holder.bytes - before + now);
    }

    pub(super) fn remove(&mut self, id: u32) -> Partial {
        let mut partial =
            self.partials[id as usize].take().expect("only messages that are here have numbers");
        let (sender, charged) = (partial.sender, std::mem::take(&mut partial.charged));
        self.free.push(id);
        self.known.remove(&(sender, partial.sequence));
        self.links.remove(&mut self.all, id);
        self.own_links.remove(&mut self.holders[sender as usize].list, id);
        self.bytes -= charged;
        self.hold(sender, |holder| {
            holder.messages -= 1;
            holder.bytes -= charged;
        });
        partial
    }

    /// Which message has to go before there is room for one more of this sender.
    pub(super) fn surplus_message(&self, sender: u32) -> Option<u32> {
        if self.len() < self.max_messages {
            return None;
        }
        let holder = self.holders.get(sender as usize).copied().unwrap_or_default();
        let holders = self.by_messages.len() + usize::from(holder.messages == 0);
        let most = self.by_messages.last().map(|(_, id)| *id);
        self.surplus(sender, holder.messages + 1 > self.max_messages / holders.max(1), most)
    }

    /// Which message has to go before there is room for so many bytes more of this sender, who has a message.
    pub(super) fn surplus_bytes(&self, sender: u32, need: usize) -> Option<u32> {
        if self.bytes.saturating_add(need) <= self.max_bytes {
            return None;
        }
        let holder = self.holders.get(sender as usize).copied().unwrap_or_default();
        let most = self.by_bytes.last().map(|(_, id)| *id);
        let share = self.max_bytes / self.by_bytes.len().max(1);
        self.surplus(sender, holder.bytes.saturating_add(need) > share, most)
    }

    fn surplus(&self, sender: u32, above_share: bool, most: Option<u32>) -> Option<u32> {
        let own = self.oldest_of(sender).filter(|_| above_share);
        own.or_else(|| self.oldest_of(most?))
    }

    /// Changes what a sender holds, and its rank by it.
    fn hold(&mut self, sender: u32, change: impl FnOnce(&mut Holder)) {
        let holder = &mut self.holders[sender as usize];
        let before = *holder;
        change(holder);
        rank(&mut self.by_bytes, sender, before.bytes, holder.bytes);
        rank(&mut self.by_messages, sender, before.messages, holder.messages);
    }
}

/// Moves a sender in a ranking that has only those who hold something.
fn rank(ranking: &mut BTreeSet<(usize, u32)>, sender: u32, before: usize, now: usize) {
    if before == now {
        return;
    }
    ranking.remove(&(before, sender));
    if now > 0 {
        ranking.insert((now, sender));
    }
}
