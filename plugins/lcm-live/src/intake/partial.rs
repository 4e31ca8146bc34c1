//! A partly received message.
//!
//! Fragments in order are appended; an early one waits as a separate copy. So memory grows with the
//! bytes received, not with claimed sizes, and no byte is read that was not received. When all
//! fragments are appended, they cover the payload without gap or overlap.

use std::collections::BTreeMap;

use crate::wire::Fragment;

/// Most bytes allocated at once for data not yet received.
pub(super) const CHUNK_LEN: usize = 4 << 20;
/// Charged per message besides its bytes: its struct and its entries in tables.
const MESSAGE_COST: usize = 512;
/// Charged per early fragment besides its bytes.
const WAITING_COST: usize = 64;
/// Capacity for fragments when the first arrives.
const FIRST_STARTS: usize = 16;

/// A message that is being reassembled.
#[derive(Debug)]
pub(super) struct PartialMessage {
    /// The id of its sender.
    pub(super) sender: u32,
    pub(super) sequence: u32,
    /// Time of the last fragment.
    pub(super) touched: u64,
    /// Datagrams received from its sender by then.
    pub(super) sender_datagrams: u64,
    /// Bytes charged for it.
    pub(super) charged: usize,
    /// The number of the fragment with which its sender was first heard; otherwise 0.
    pub(super) joined_at: u16,
    size: u32,
    count: u16,
    channel: Box<[u8]>,
    /// The offset of each appended fragment; they are the first ones, in order.
    starts: Vec<u32>,
    filled: usize,
    /// The payload up to `filled`, in chunks of [`CHUNK_LEN`] bytes.
    chunks: Vec<Vec<u8>>,
    /// Early fragments with their offsets.
    waiting: BTreeMap<u16, (u32, Box<[u8]>)>,
    waiting_bytes: usize,
    /// Bytes allocated, without the fixed cost.
    allocated: usize,
}

/// The effect of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentResult {
    /// It was new; others are missing.
    Accepted,
    /// It was the last one.
    Complete,
    /// It was received before, byte for byte.
    Duplicate,
    /// It contradicts the others.
    Contradiction,
}

impl PartialMessage {
    /// An empty message with the size and count that this fragment claims.
    pub(super) fn new(sender: u32, fragment: &Fragment<'_>, now: u64) -> Self {
        Self {
            sender,
            sequence: fragment.sequence,
            touched: now,
            sender_datagrams: u64::MAX,
            charged: 0,
            joined_at: 0,
            size: fragment.size,
            count: fragment.count,
            channel: Box::default(),
            starts: Vec::new(),
            filled: 0,
            chunks: Vec::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            allocated: 0,
        }
    }

    /// Bytes of memory used.
    pub(super) fn memory(&self) -> usize {
        MESSAGE_COST + self.allocated
    }

    /// Whether its first fragments were sent before its sender was first heard.
    pub(super) fn has_begun_before(&self) -> bool {
        let first = self.waiting.keys().next();
        self.joined_at > 0
            && self.starts.is_empty()
            && first.is_none_or(|first| *first >= self.joined_at)
    }

    /// Whether its first fragment has arrived, which has the channel.
    pub(super) fn has_channel(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Fragments that have not arrived.
    pub(super) fn missing_fragments(&self) -> u64 {
        let received = self.starts.len() + self.waiting.len();
        usize::from(self.count).saturating_sub(received) as u64
    }

    /// Bytes of memory that adding this fragment takes at most.
    pub(super) fn bytes_needed(&self, fragment: &Fragment<'_>) -> usize {
        if usize::from(fragment.number) != self.starts.len() {
            return fragment.data.len() + WAITING_COST;
        }
        let mut need = 0;
        if self.starts.len() == self.starts.capacity() {
            need += 4 * self.starts.len().max(FIRST_STARTS);
        }
        let (end, room) = (self.filled + fragment.data.len(), self.chunks.len() * CHUNK_LEN);
        if end > room {
            need += (self.size as usize).saturating_sub(room).min(CHUNK_LEN);
        }
        need
    }

    /// Adds a fragment of this message.
    ///
    /// After a contradiction the message is unusable.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>) -> FragmentResult {
        if (fragment.size, fragment.count) != (self.size, self.count) {
            return FragmentResult::Contradiction;
        }
        if let Some(same) = self.matches_received(fragment) {
            return if same { FragmentResult::Duplicate } else { FragmentResult::Contradiction };
        }
        if usize::from(fragment.number) > self.starts.len() {
            return self.buffer_early(fragment);
        }
        if let Some(channel) = fragment.channel {
            self.channel = channel.into();
        }
        if !self.append(fragment.offset, fragment.data) || !self.append_waiting() {
            return FragmentResult::Contradiction;
        }
        match (self.starts.len() == usize::from(self.count), self.filled == self.size as usize) {
            (true, true) => FragmentResult::Complete,
            (true, false) => FragmentResult::Contradiction,
            (false, _) => FragmentResult::Accepted,
        }
    }

    /// Channel and payload of a complete message.
    ///
    /// A payload of at most [`CHUNK_LEN`] bytes is not copied. The chunks of a longer one are freed
    /// one by one, so that it is not in memory twice.
    pub(super) fn into_parts(mut self) -> (Box<[u8]>, Vec<u8>) {
        if self.chunks.len() <= 1 {
            return (self.channel, self.chunks.pop().unwrap_or_default());
        }
        let mut payload = Vec::with_capacity(self.filled);
        for chunk in self.chunks {
            payload.extend_from_slice(&chunk);
        }
        (self.channel, payload)
    }

    /// Whether this fragment equals the one received with its number; `None` if none was.
    fn matches_received(&self, fragment: &Fragment<'_>) -> Option<bool> {
        if let Some((offset, data)) = self.waiting.get(&fragment.number) {
            return Some(*offset == fragment.offset && **data == *fragment.data);
        }
        let number = usize::from(fragment.number);
        let start = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).map_or(self.filled, |next| *next as usize);
        let same_channel = fragment.channel.is_none_or(|channel| *channel == *self.channel);
        let same_range = fragment.offset == start && start as usize + fragment.data.len() == end;
        Some(same_channel && same_range && self.contains_at(start as usize, fragment.data))
    }

    fn contains_at(&self, mut at: usize, mut data: &[u8]) -> bool {
        while let Some(chunk) = self.chunks.get(at / CHUNK_LEN).filter(|_| !data.is_empty()) {
            let chunk = &chunk[at % CHUNK_LEN..];
            let (here, rest) = data.split_at(data.len().min(chunk.len()));
            if !chunk.starts_with(here) {
                return false;
            }
            at += here.len();
            data = rest;
        }
        true
    }

    fn buffer_early(&mut self, fragment: &Fragment<'_>) -> FragmentResult {
        let len = fragment.data.len();
        // More bytes than the message has: some overlap.
        if self.filled + self.waiting_bytes + len > self.size as usize {
            return FragmentResult::Contradiction;
        }
        self.waiting.insert(fragment.number, (fragment.offset, fragment.data.into()));
        self.waiting_bytes += len;
        self.allocated += len + WAITING_COST;
        FragmentResult::Accepted
    }

    /// Appends early fragments that are next; `false` if one does not fit there.
    fn append_waiting(&mut self) -> bool {
        while let Some(first) = self.waiting.first_entry()
            && usize::from(*first.key()) == self.starts.len()
        {
            let (offset, data) = first.remove();
            self.waiting_bytes -= data.len();
            self.allocated -= data.len() + WAITING_COST;
            if !self.append(offset, &data) {
                return false;
            }
        }
        true
    }

    /// Appends the next fragment; `false` if it does not start where the last one ended.
    fn append(&mut self, offset: u32, mut data: &[u8]) -> bool {
        if offset as usize != self.filled {
            return false;
        }
        if self.starts.len() == self.starts.capacity() {
            let more = self.starts.len().max(FIRST_STARTS);
            self.starts.reserve_exact(more);
            self.allocated += 4 * more;
        }
        self.starts.push(offset);
        while !data.is_empty() {
            let at = self.filled % CHUNK_LEN;
            if at == 0 {
                let len = (self.size as usize - self.filled).min(CHUNK_LEN);
                self.chunks.push(Vec::with_capacity(len));
                self.allocated += len;
            }
            let Some(chunk) = self.chunks.last_mut() else { return false };
            let (here, rest) = data.split_at(data.len().min(CHUNK_LEN - at));
            chunk.extend_from_slice(here);
            self.filled += here.len();
            data = rest;
        }
        true
    }
}
