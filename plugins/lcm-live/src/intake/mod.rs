//! Makes messages of datagrams, and keeps the books: what came, what did not, and why.
//!
//! It has no socket, thread or clock: datagrams and the time are given to it. What it does depends on these
//! alone. Whether a datagram is wrong in itself is decided by [`wire`].
//!
//! # What is lost
//!
//! A sender numbers its messages. Its books begin with the first number heard of it; each number up to the
//! newest is then a message received, one still unfinished, or one that is lost for one reason: see
//! [`Sender`]. A number that is skipped is missing until it comes late.
//!
//! A sender counts from the beginning when its program is started again, which seldom happens on the same
//! port. It is taken for begun anew when
//!
//! - the number 0 comes again, or comes long after greater ones that were the first heard of it;
//! - a number comes again, or one far from all others, after a second of silence;
//! - two numbers come that are far from all others (4096 behind or 2^24 ahead) and near to each other.
//!
//! Its books are then closed and others begun. Nothing is missing for the jump.
//!
//! # What fragments must be like
//!
//! A message is delivered when every byte of it has come once: the fragments, put in order by their numbers,
//! must lie one behind the other. One that comes twice must be the same byte for byte. A message whose
//! fragments contradict each other is given up at once; what else comes of it is passed over.

mod books;
mod counts;
mod order;
mod partial;
mod senders;
mod store;

use std::net::SocketAddrV4;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

pub use counts::{Counts, Loss, Sender};

use crate::wire::{self, Datagram, Fragment};
use books::{Hint, Note};
use partial::{Added, Partial};
use senders::Senders;
use store::Store;

/// After such a silence no older datagram is on the way any more, in nanoseconds.
const SILENCE: u64 = 1_000_000_000;

/// After so many other datagrams of its sender no fragment of a message is on the way any more.
const OVERTAKEN: u64 = 512;

/// How much may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for unfinished messages of all senders; at most one piece of 4 MiB more is taken.
    ///
    /// One message of [`MAX_PAYLOAD_LEN`](wire::MAX_PAYLOAD_LEN) needs 257 MiB.
    pub bytes: usize,
    /// Unfinished messages of all senders.
    pub messages: usize,
    /// How long after its last fragment an unfinished message is given up at the latest.
    pub age: Duration,
    /// Senders whose books are kept.
    pub senders: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 288 << 20, messages: 4096, age: Duration::from_secs(2), senders: 1024 }
    }
}

/// A message as its sender sent it.
#[derive(Debug)]
pub struct Message<'m> {
    /// Address and port of the sender.
    pub from: SocketAddrV4,
    /// The sender's number of it.
    pub sequence: u32,
    /// The channel, any bytes but NUL; may be empty.
    pub channel: &'m [u8],
    /// The payload.
    pub payload: Payload<'m>,
}

/// A payload; dereferences to its bytes.
#[derive(Debug)]
pub enum Payload<'m> {
    /// It stands in the datagram just taken.
    Borrowed(&'m [u8]),
    /// It was made of fragments.
    Owned(Bytes),
}

impl Deref for Payload<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Datagrams go in, messages come out: see the module.
#[derive(Debug)]
pub struct Intake {
    age: u64,
    max_bytes: usize,
    counts: Counts,
    senders: Senders,
    store: Store,
}

impl Intake {
    /// An intake that has heard nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            age: u64::try_from(limits.age.as_nanos()).unwrap_or(u64::MAX),
            max_bytes: limits.bytes,
            counts: Counts::default(),
            senders: Senders::new(limits.senders),
            store: Store::new(limits.bytes, limits.messages),
        }
    }

    /// Takes a datagram and delivers the message that is whole with it, if there is one.
    ///
    /// `now` is in nanoseconds of a clock that never steps back. `wants` is asked for the channel once it is
    /// known; what it refuses is counted, but neither kept nor delivered. Nothing is allocated for a message
    /// of one datagram of a known sender.
    #[inline]
    pub fn take(
        &mut self,
        datagram: &[u8],
        from: SocketAddrV4,
        now: u64,
        wants: impl Fn(&[u8]) -> bool,
        deliver: impl FnOnce(Message<'_>),
    ) {
        self.counts.datagrams += 1;
        self.counts.bytes += datagram.len() as u64;
        match wire::parse(datagram) {
            Ok(Datagram::Short { sequence, channel, payload }) => {
                let (sender, after_silence) = self.hear(from, datagram.len(), now);
                if self.admit_short(sender, sequence, after_silence)
                    && self.receive(sender, wants(channel))
                {
                    let payload = Payload::Borrowed(payload);
                    deliver(Message { from, sequence, channel, payload });
                }
            }
            Ok(Datagram::Fragment(fragment)) => {
                let (sender, after_silence) = self.hear(from, datagram.len(), now);
                let Some(whole) = self.put(sender, &fragment, after_silence, now, wants) else {
                    return;
                };
                let sequence = whole.sequence;
                let (channel, payload) = whole.into_parts();
                let payload = Payload::Owned(payload.into());
                deliver(Message { from, sequence, channel: &channel, payload });
            }
            Err(reject) => *self.counts.rejected.entry(reject).or_default() += 1,
        }
    }

    /// Gives up messages of which no fragment has come for too long. To be called every now and then.
    pub fn expire(&mut self, now: u64) {
        while let Some(id) = self.store.oldest()
            && now.saturating_sub(self.store.get(id).touched) > self.age
        {
            self.give_up(id, Loss::Expired);
        }
    }

    /// Gives up all unfinished messages: nothing more will come.
    pub fn finish(&mut self) {
        while let Some(id) = self.store.oldest() {
            self.give_up(id, Loss::Ended);
        }
    }

    /// Totals since the beginning.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Everyone heard and not forgotten, in an order that depends on the datagrams only.
    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.senders.all()
    }

    /// Messages of which more may come.
    pub fn unfinished(&self) -> usize {
        self.store.len()
    }

    /// Bytes of memory that unfinished messages take.
    pub fn memory(&self) -> usize {
        self.store.bytes()
    }

    /// The number of a sender, and whether it was silent for long before.
    #[inline]
    fn hear(&mut self, from: SocketAddrV4, bytes: usize, now: u64) -> (u32, bool) {
        let id = match self.senders.find(from) {
            Some(id) => id,
            None => self.meet(from, now),
        };
        (id, self.senders.hear(id, bytes, now) > SILENCE)
    }

    #[cold]
    fn meet(&mut self, from: SocketAddrV4, now: u64) -> u32 {
        let surplus = self.senders.surplus();
        if let Some(surplus) = surplus {
            self.give_up_all_of(surplus, None, Loss::Forgotten);
            self.counts.forgotten += 1;
        }
        self.senders.add(from, surplus, now)
    }

    /// Whether a message of one datagram is to be received; it is not if it was before.
    #[inline]
    fn admit_short(&mut self, sender: u32, sequence: u32, after_silence: bool) -> bool {
        let is_new = self.admit(sender, sequence, Hint { begins: true, after_silence });
        // A message cannot be whole in one datagram and in fragments as well.
        if !is_new && let Some(id) = self.store.find(sender, sequence) {
            self.give_up(id, Loss::Contradictory);
        }
        is_new
    }

    /// Enters a number into the books; `false` if it is in them already.
    #[inline]
    fn admit(&mut self, id: u32, sequence: u32, hint: Hint) -> bool {
        let slot = self.senders.slot(id);
        let note = slot.books.note(sequence, hint);
        if note == (Note::New { skipped: 0 }) {
            slot.sender.sent += 1;
            return true;
        }
        self.enter(id, note)
    }

    #[inline(never)]
    fn enter(&mut self, id: u32, note: Note) -> bool {
        let skipped = match note {
            Note::New { skipped } => skipped,
            Note::Earlier { skipped } => {
                self.counts.late += 1;
                skipped
            }
            Note::Restart { skipped, after } => {
                self.give_up_all_of(id, after, Loss::Restarted);
                self.counts.restarts += 1;
                self.senders.slot(id).sender.restarts += 1;
                skipped
            }
            Note::Stray => 0,
            Note::Late => {
                self.counts.late += 1;
                self.counts.missing -= 1;
                self.senders.slot(id).sender.missing -= 1;
                return true;
            }
            Note::Seen => {
                self.counts.duplicates += 1;
                return false;
            }
            Note::Settled => {
                self.counts.passed_over += 1;
                return false;
            }
        };
        let skipped = u64::from(skipped);
        self.counts.missing += skipped;
        let sender = &mut self.senders.slot(id).sender;
        sender.missing += skipped;
        sender.sent += skipped + 1;
        true
    }

    /// Counts a whole message; `true` if it is to be delivered.
    #[inline]
    fn receive(&mut self, sender: u32, wanted: bool) -> bool {
        self.senders.slot(sender).sender.messages += 1;
        match wanted {
            true => self.counts.messages += 1,
            false => self.counts.unwanted += 1,
        }
        wanted
    }

    /// Puts a fragment to the others of its message; the message, if it is whole now.
    fn put(
        &mut self,
        sender: u32,
        fragment: &Fragment<'_>,
        after_silence: bool,
        now: u64,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<Partial> {
        let known = self.store.find(sender, fragment.sequence);
        let hint = Hint { begins: fragment.number == 0, after_silence };
        if known.is_none() && !self.admit(sender, fragment.sequence, hint) {
            return None;
        }
        if !fragment.channel.is_none_or(wants) {
            if let Some(id) = known {
                self.take_out(id);
            }
            self.senders.slot(sender).books.settle(fragment.sequence);
            self.receive(sender, false);
            return None;
        }
        let id = match known {
            Some(id) => id,
            None => self.begin(sender, fragment, now)?,
        };
        self.store.touch(id, now);
        self.store.get(id).heard = self.senders.slot(sender).sender.datagrams;
        if !self.make_room(sender, id, fragment) {
            return None;
        }
        let added = self.store.get(id).add(fragment);
        match added {
            Added::Yes => self.store.charge(id),
            Added::Duplicate => self.counts.duplicates += 1,
            Added::Contradiction => self.give_up(id, Loss::Contradictory),
            Added::Complete => {
                self.receive(sender, true);
                return Some(self.take_out(id));
            }
        }
        None
    }

    /// A place for a message that has just been admitted; `None` if it cannot ever be finished.
    fn begin(&mut self, sender: u32, fragment: &Fragment<'_>, now: u64) -> Option<u32> {
        if fragment.size as usize > self.max_bytes {
            self.lose(sender, fragment.sequence, Loss::TooLarge);
            return None;
        }
        self.give_up_overtaken(sender);
        while let Some(surplus) = self.store.surplus_message(sender) {
            self.give_up(surplus, Loss::Crowded);
        }
        self.senders.slot(sender).sender.unfinished += 1;
        Some(self.store.add(Partial::new(sender, fragment, now)))
    }

    /// Gives up messages of a sender of which nothing has come for so long that the memory they take is better
    /// used for those that come: it is still in the cores' caches, and anew it would have to be asked for.
    fn give_up_overtaken(&mut self, sender: u32) {
        let heard = self.senders.slot(sender).sender.datagrams;
        while let Some(id) = self.store.oldest_of(sender)
            && heard.saturating_sub(self.store.get(id).heard) > OVERTAKEN
        {
            self.give_up(id, Loss::Expired);
        }
    }

    /// Makes room for what a fragment needs; `false` if its own message had to go for that.
    fn make_room(&mut self, sender: u32, id: u32, fragment: &Fragment<'_>) -> bool {
        let need = self.store.get(id).need(fragment);
        while let Some(surplus) = self.store.surplus_bytes(sender, need) {
            self.give_up(surplus, Loss::Crowded);
            if surplus == id {
                return false;
            }
        }
        true
    }

    fn give_up_all_of(&mut self, sender: u32, except: Option<u32>, loss: Loss) {
        let mut kept = None;
        while let Some(id) = self.store.oldest_of(sender) {
            if Some(self.store.get(id).sequence) == except {
                kept = Some(self.store.remove(id));
            } else {
                self.give_up(id, loss);
            }
        }
        if let Some(kept) = kept {
            self.store.add(kept);
        }
    }

    /// Drops an unfinished message and passes over what else comes of it.
    fn give_up(&mut self, id: u32, loss: Loss) {
        let partial = self.take_out(id);
        self.lose(partial.sender, partial.sequence, loss);
    }

    fn take_out(&mut self, id: u32) -> Partial {
        let partial = self.store.remove(id);
        self.senders.slot(partial.sender).sender.unfinished -= 1;
        partial
    }

    fn lose(&mut self, sender: u32, sequence: u32, loss: Loss) {
        *self.counts.incomplete.entry(loss).or_default() += 1;
        let slot = self.senders.slot(sender);
        slot.sender.incomplete += 1;
        slot.books.settle(sequence);
    }
}

#[cfg(test)]
mod tests;
