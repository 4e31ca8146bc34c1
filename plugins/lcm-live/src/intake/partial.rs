//! One message of which some fragments have come.
//!
//! Fragments in order are appended; one that comes before its turn waits as a copy of its own. So memory is
//! taken by bytes that have come, not by sizes that were claimed, and no byte is ever read that did not come.
//! When all have had their turn, they cover the payload without a hole or an overlap.

use std::collections::BTreeMap;

use crate::wire::Fragment;

/// The most that is allocated at once for bytes that have not come yet.
pub(super) const PIECE: usize = 4 << 20;
/// Charged for a message besides its bytes: what it takes here and in the tables it is in.
const MESSAGE_COST: usize = 512;
/// Charged for a waiting fragment besides its bytes.
const WAITING_COST: usize = 64;
/// Fragments that there is room for when the first comes.
const FIRST_STARTS: usize = 16;

/// A message in the making.
#[derive(Debug)]
pub(super) struct Partial {
    /// The number of its sender.
    pub(super) sender: u32,
    pub(super) sequence: u32,
    /// When the last fragment came.
    pub(super) touched: u64,
    /// How many datagrams had been heard of its sender then.
    pub(super) heard: u64,
    /// Bytes of memory that it has been charged for.
    pub(super) charged: usize,
    size: u32,
    count: u16,
    channel: Box<[u8]>,
    /// Where each fragment begins that was appended; they are the first ones, in order.
    starts: Vec<u32>,
    filled: usize,
    /// The payload up to `filled`, in pieces of [`PIECE`] bytes.
    pieces: Vec<Vec<u8>>,
    /// Fragments before their turn, with their offsets.
    waiting: BTreeMap<u16, (u32, Box<[u8]>)>,
    waiting_bytes: usize,
    /// Bytes allocated, but for the fixed cost.
    allocated: usize,
}

/// What a fragment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It was new; others are to come.
    Yes,
    /// It was the last one.
    Complete,
    /// It is here already, byte for byte.
    Duplicate,
    /// It and the others cannot be of one message.
    Contradiction,
}

impl Partial {
    /// A message without any fragment, as this fragment of it says it is.
    pub(super) fn new(sender: u32, fragment: &Fragment<'_>, now: u64) -> Self {
        Self {
            sender,
            sequence: fragment.sequence,
            touched: now,
            heard: u64::MAX,
            charged: 0,
            size: fragment.size,
            count: fragment.count,
            channel: Box::default(),
            starts: Vec::new(),
            filled: 0,
            pieces: Vec::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            allocated: 0,
        }
    }

    /// Bytes of memory it takes.
    pub(super) fn memory(&self) -> usize {
        MESSAGE_COST + self.allocated
    }

    /// Bytes of memory that adding this fragment will take, at most.
    pub(super) fn need(&self, fragment: &Fragment<'_>) -> usize {
        if usize::from(fragment.number) != self.starts.len() {
            return fragment.data.len() + WAITING_COST;
        }
        let mut need = 0;
        if self.starts.len() == self.starts.capacity() {
            need += 4 * self.starts.len().max(FIRST_STARTS);
        }
        let (end, room) = (self.filled + fragment.data.len(), self.pieces.len() * PIECE);
        if end > room {
            need += (self.size as usize).saturating_sub(room).min(PIECE);
        }
        need
    }

    /// Takes a fragment of this sequence number.
    ///
    /// After a contradiction the message is good for nothing.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>) -> Added {
        if (fragment.size, fragment.count) != (self.size, self.count) {
            return Added::Contradiction;
        }
        if let Some(same) = self.compare(fragment) {
            return if same { Added::Duplicate } else { Added::Contradiction };
        }
        if usize::from(fragment.number) > self.starts.len() {
            return self.keep_waiting(fragment);
        }
        if let Some(channel) = fragment.channel {
            self.channel = channel.into();
        }
        if !self.append(fragment.offset, fragment.data) || !self.append_waiting() {
            return Added::Contradiction;
        }
        match (self.starts.len() == usize::from(self.count), self.filled == self.size as usize) {
            (true, true) => Added::Complete,
            (true, false) => Added::Contradiction,
            (false, _) => Added::Yes,
        }
    }

    /// Channel and payload of a complete message.
    ///
    /// A payload of at most [`PIECE`] bytes is not copied. The pieces of a longer one are freed one by one,
    /// so that it is not in memory twice.
    pub(super) fn into_parts(mut self) -> (Box<[u8]>, Vec<u8>) {
        if self.pieces.len() <= 1 {
            return (self.channel, self.pieces.pop().unwrap_or_default());
        }
        let mut payload = Vec::with_capacity(self.filled);
        for piece in self.pieces {
            payload.extend_from_slice(&piece);
        }
        (self.channel, payload)
    }

    /// Whether this fragment is the one of its number that has come; `None` if none has.
    fn compare(&self, fragment: &Fragment<'_>) -> Option<bool> {
        if let Some((offset, data)) = self.waiting.get(&fragment.number) {
            return Some(*offset == fragment.offset && **data == *fragment.data);
        }
        let number = usize::from(fragment.number);
        let start = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).map_or(self.filled, |next| *next as usize);
        let same_channel = fragment.channel.is_none_or(|channel| *channel == *self.channel);
        let same_range = fragment.offset == start && start as usize + fragment.data.len() == end;
        Some(same_channel && same_range && self.holds(start as usize, fragment.data))
    }

    fn holds(&self, mut at: usize, mut data: &[u8]) -> bool {
        while let Some(piece) = self.pieces.get(at / PIECE).filter(|_| !data.is_empty()) {
            let piece = &piece[at % PIECE..];
            let (here, rest) = data.split_at(data.len().min(piece.len()));
            if !piece.starts_with(here) {
                return false;
            }
            at += here.len();
            data = rest;
        }
        true
    }

    fn keep_waiting(&mut self, fragment: &Fragment<'_>) -> Added {
        let len = fragment.data.len();
        // More than the whole: some of them overlap.
        if self.filled + self.waiting_bytes + len > self.size as usize {
            return Added::Contradiction;
        }
        self.waiting.insert(fragment.number, (fragment.offset, fragment.data.into()));
        self.waiting_bytes += len;
        self.allocated += len + WAITING_COST;
        Added::Yes
    }

    /// Appends those whose turn has come; `false` if one does not belong there.
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

    /// Appends the next fragment; `false` if it does not begin where the last one ended.
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
            let at = self.filled % PIECE;
            if at == 0 {
                let len = (self.size as usize - self.filled).min(PIECE);
                self.pieces.push(Vec::with_capacity(len));
                self.allocated += len;
            }
            let Some(piece) = self.pieces.last_mut() else { return false };
            let (here, rest) = data.split_at(data.len().min(PIECE - at));
            piece.extend_from_slice(here);
            self.filled += here.len();
            data = rest;
        }
        true
    }
}
