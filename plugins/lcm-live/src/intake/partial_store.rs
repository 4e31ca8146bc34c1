//! All unfinished messages, within limits on memory, and which one to evict when they are reached.
//!
//! A sender above its share, the limit divided by the number of senders with unfinished messages,
//! gives up its own messages first: the sender of the current fragment, then the one that uses
//! most. There always is one: if nobody exceeded the share, the limit would not be reached. So a
//! sender below its share loses nothing, whatever others send.
//!
//! Every operation takes at most logarithmic time.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::lru::{LruLinks, LruList};
use super::partial::PartialMessage;

/// Unfinished messages. Each has a small id until it is removed.
#[derive(Debug)]
pub(super) struct PartialStore {
    max_bytes: usize,
    max_messages: usize,
    partials: Vec<Option<PartialMessage>>,
    free: Vec<u32>,
    /// Ids by sender and sequence number.
    ids: HashMap<(u32, u32), u32, foldhash::fast::RandomState>,
    all: LruList,
    links: LruLinks,
    /// Usage by sender; each message is also in one of these lists.
    usage: Vec<SenderUsage>,
    sender_links: LruLinks,
    by_bytes: BTreeSet<(usize, u32)>,
    by_messages: BTreeSet<(usize, u32)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct SenderUsage {
    list: LruList,
    bytes: usize,
    messages: usize,
}

impl PartialStore {
    pub(super) fn new(max_bytes: usize, max_messages: usize) -> Self {
        Self {
            max_bytes,
            max_messages: max_messages.max(1),
            partials: Vec::new(),
            free: Vec::new(),
            ids: HashMap::default(),
            all: LruList::default(),
            links: LruLinks::default(),
            usage: Vec::new(),
            sender_links: LruLinks::default(),
            by_bytes: BTreeSet::new(),
            by_messages: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Bytes of memory used.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unfinished messages.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn find(&self, sender: u32, sequence: u32) -> Option<u32> {
        self.ids.get(&(sender, sequence)).copied()
    }

    /// The message longest without a fragment.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.all.oldest()
    }

    /// This sender's message longest without a fragment.
    pub(super) fn oldest_of(&self, sender: u32) -> Option<u32> {
        self.usage.get(sender as usize)?.list.oldest()
    }

    pub(super) fn get(&mut self, id: u32) -> &mut PartialMessage {
        self.partials[id as usize].as_mut().expect("an id belongs to a stored message")
    }

    /// Adds a new message.
    pub(super) fn add(&mut self, partial: PartialMessage) -> u32 {
        let (sender, sequence) = (partial.sender, partial.sequence);
        let id = self.free.pop().unwrap_or_else(|| {
            self.partials.push(None);
            u32::try_from(self.partials.len() - 1).expect("the number of messages is limited")
        });
        self.partials[id as usize] = Some(partial);
        self.ids.insert((sender, sequence), id);
        self.links.push(&mut self.all, id);
        if self.usage.len() <= sender as usize {
            self.usage.resize(sender as usize + 1, SenderUsage::default());
        }
        let holder = &mut self.usage[sender as usize];
        self.sender_links.push(&mut holder.list, id);
        self.update_usage(sender, |holder| holder.messages += 1);
        self.charge(id);
        id
    }

    /// Records that a fragment of a message arrived.
    pub(super) fn touch(&mut self, id: u32, now: u64) {
        let partial = self.get(id);
        partial.touched = now;
        let sender = partial.sender;
        self.links.touch(&mut self.all, id);
        self.sender_links.touch(&mut self.usage[sender as usize].list, id);
    }

    /// Updates the memory charged for a message.
    pub(super) fn charge(&mut self, id: u32) {
        let partial = self.get(id);
        let (sender, before, now) = (partial.sender, partial.charged, partial.memory());
        if before == now {
            return;
        }
        partial.charged = now;
        self.bytes = self.bytes - before + now;
        self.update_usage(sender, |holder| holder.bytes = holder.bytes - before + now);
    }

    pub(super) fn remove(&mut self, id: u32) -> PartialMessage {
        let mut partial =
            self.partials[id as usize].take().expect("an id belongs to a stored message");
        let (sender, charged) = (partial.sender, std::mem::take(&mut partial.charged));
        self.free.push(id);
        self.ids.remove(&(sender, partial.sequence));
        self.links.remove(&mut self.all, id);
        self.sender_links.remove(&mut self.usage[sender as usize].list, id);
        self.bytes -= charged;
        self.update_usage(sender, |holder| {
            holder.messages -= 1;
            holder.bytes -= charged;
        });
        partial
    }

    /// The message to evict before this sender can add one; `None` if there is room.
    pub(super) fn message_to_evict(&self, sender: u32) -> Option<u32> {
        if self.len() < self.max_messages {
            return None;
        }
        let holder = self.usage.get(sender as usize).copied().unwrap_or_default();
        let holders = self.by_messages.len() + usize::from(holder.messages == 0);
        let most = self.by_messages.last().map(|(_, id)| *id);
        self.choose_victim(sender, holder.messages + 1 > self.max_messages / holders.max(1), most)
    }

    /// The message to evict before this sender, which has a message, can use `need` more bytes;
    /// `None` if there is room.
    pub(super) fn bytes_to_evict(&self, sender: u32, need: usize) -> Option<u32> {
        if self.bytes.saturating_add(need) <= self.max_bytes {
            return None;
        }
        let holder = self.usage.get(sender as usize).copied().unwrap_or_default();
        let most = self.by_bytes.last().map(|(_, id)| *id);
        let share = self.max_bytes / self.by_bytes.len().max(1);
        self.choose_victim(sender, holder.bytes.saturating_add(need) > share, most)
    }

    fn choose_victim(&self, sender: u32, above_share: bool, most: Option<u32>) -> Option<u32> {
        let own = self.oldest_of(sender).filter(|_| above_share);
        own.or_else(|| self.oldest_of(most?))
    }

    /// Changes the usage of a sender, and its rank.
    fn update_usage(&mut self, sender: u32, change: impl FnOnce(&mut SenderUsage)) {
        let holder = &mut self.usage[sender as usize];
        let before = *holder;
        change(holder);
        rank(&mut self.by_bytes, sender, before.bytes, holder.bytes);
        rank(&mut self.by_messages, sender, before.messages, holder.messages);
    }
}

/// Moves a sender in a ranking, which contains only senders with usage.
fn rank(ranking: &mut BTreeSet<(usize, u32)>, sender: u32, before: usize, now: usize) {
    if before == now {
        return;
    }
    ranking.remove(&(before, sender));
    if now > 0 {
        ranking.insert((now, sender));
    }
}
