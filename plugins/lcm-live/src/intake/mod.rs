//! Reassembles messages from datagrams, and accounts for every message received or lost.
//!
//! It has no socket, thread or clock: its behaviour depends only on the datagrams and times passed
//! to it. [`wire`] decides whether a single datagram is malformed.
//!
//! # Losses
//!
//! A sender numbers its messages. Accounting starts with the first number received; each later
//! number up to the newest is a message received, unfinished, or lost for exactly one reason: see
//! [`SenderStats`]. A skipped number is missing until it arrives late. A message whose first
//! fragments were sent before anything else was received from its sender is not lost.
//!
//! A program that restarts, rarely on the same port, counts from 0 again. A sender is considered
//! restarted when
//!
//! - the number 0 arrives again, or long after greater numbers that were the first from it;
//! - after a second of silence, a number arrives that is not newer than all others, or far ahead;
//! - two numbers arrive that are far from all others (4096 behind or 2^24 ahead) and close to each
//!   other.
//!
//! Its window then starts over, and the jump counts as no loss.
//!
//! Relays that forward several programs through one socket, and simple programs, repeat numbers: a
//! repeated number is that of a duplicate only if its message, or its first fragment, has the same
//! contents. A message that was given up has fragments that may still arrive, and cannot be told
//! from those of another message with its number: another one is received only after a second of
//! silence, or if the sender uses this number again and again.
//!
//! If the numbers of a sender jump to and fro between distant places, it has several numberings:
//! see [`numberings`]. From then on, until a second of silence, none of its numbers is missing or
//! late.
//!
//! # Fragments
//!
//! A message is delivered when every byte of it has arrived once: the fragments, in the order of
//! their numbers, must be contiguous. A repeated fragment must be identical. A message whose
//! fragments contradict each other is given up at once, and its further fragments are ignored.

mod counts;
mod lru;
mod message;
mod numberings;
mod partial;
mod partial_store;
mod repetition;
mod senders;
mod sequence;
mod window_bits;

use std::hash::BuildHasher;
use std::net::SocketAddrV4;
use std::num::NonZeroU32;
use std::time::Duration;

pub use counts::{IntakeCounts, LossReason, SenderStats};
pub use message::{LiveMessage, MessagePayload};

use crate::wire::{self, Datagram, Fragment};
use partial::{FragmentResult, PartialMessage};
use partial_store::PartialStore;
use repetition::Reuse;
use senders::SenderTable;
use sequence::{DatagramHint, Digest, SequenceStatus};

/// After this silence no older datagram can still arrive, in nanoseconds.
const SILENCE_NANOS: u64 = 1_000_000_000;

/// After this many other datagrams of its sender, no fragment of a message can still arrive.
const MAX_OVERTAKING: u64 = 512;

/// Limits on memory and senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Bytes of memory for unfinished messages of all senders; at most one chunk of 4 MiB more is
    /// used.
    ///
    /// One message of 256 MiB needs 257 MiB.
    pub bytes: usize,
    /// Unfinished messages of all senders.
    pub messages: usize,
    /// An unfinished message is given up this long after its last fragment.
    pub age: Duration,
    /// Senders that are tracked.
    pub senders: usize,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self { bytes: 288 << 20, messages: 4096, age: Duration::from_secs(2), senders: 1024 }
    }
}

/// Reassembles messages: see the module.
#[derive(Debug)]
pub struct Intake {
    age: u64,
    max_bytes: usize,
    counts: IntakeCounts,
    missing_datagrams: u64,
    senders: SenderTable,
    store: PartialStore,
}

impl Intake {
    /// An intake that has received nothing yet.
    pub fn new(limits: IntakeLimits) -> Self {
        Self {
            age: u64::try_from(limits.age.as_nanos()).unwrap_or(u64::MAX),
            max_bytes: limits.bytes,
            counts: IntakeCounts::default(),
            missing_datagrams: 0,
            senders: SenderTable::new(limits.senders),
            store: PartialStore::new(limits.bytes, limits.messages),
        }
    }

    /// Takes a datagram, and delivers the message that it completes, if any.
    ///
    /// `now` is in nanoseconds of a monotonic clock. `wants` is asked about the channel once it is
    /// known; messages it refuses are counted, but neither kept nor delivered. A message in one
    /// datagram of a known sender needs no allocation.
    #[inline]
    pub fn take(
        &mut self,
        datagram: &[u8],
        from: SocketAddrV4,
        now: u64,
        wants: impl Fn(&[u8]) -> bool,
        deliver: impl FnOnce(LiveMessage<'_>),
    ) {
        self.counts.datagrams += 1;
        self.counts.bytes += datagram.len() as u64;
        match wire::parse(datagram) {
            Ok(Datagram::Short { sequence, channel, payload }) => {
                let (sender, after_silence) = self.record_datagram(from, datagram.len(), now);
                let digest = digest_of((channel, payload), None);
                if self.admit_short(sender, sequence, (digest, after_silence))
                    && self.count_message(sender, wants(channel))
                {
                    let payload = MessagePayload::Borrowed(payload);
                    deliver(LiveMessage { from, sequence, channel, payload });
                }
            }
            Ok(Datagram::Fragment(fragment)) => {
                let (sender, after_silence) = self.record_datagram(from, datagram.len(), now);
                let Some(whole) = self.add_fragment(sender, &fragment, after_silence, now, wants)
                else {
                    return;
                };
                let sequence = whole.sequence;
                let (channel, payload) = whole.into_parts();
                let payload = MessagePayload::Owned(payload.into());
                deliver(LiveMessage { from, sequence, channel: &channel, payload });
            }
            Err(reject) => *self.counts.rejected.entry(reject).or_default() += 1,
        }
    }

    /// Gives up messages without a new fragment for too long. Call it regularly.
    pub fn expire(&mut self, now: u64) {
        while let Some(id) = self.store.oldest()
            && now.saturating_sub(self.store.get(id).touched) > self.age
        {
            self.give_up(id, LossReason::Expired);
        }
    }

    /// Gives up all unfinished messages, at the end.
    pub fn finish(&mut self) {
        while let Some(id) = self.store.oldest() {
            self.give_up(id, LossReason::Ended);
        }
    }

    /// Totals since the start.
    pub fn counts(&self) -> &IntakeCounts {
        &self.counts
    }

    /// The most datagrams that the losses so far may stand for; it never decreases.
    ///
    /// How many fragments a message of which nothing came had is unknown: at most as many as the
    /// longest one of its sender, as far as that is known.
    pub fn missing_datagrams(&self) -> u64 {
        self.missing_datagrams
    }

    /// The tracked senders, in an order that depends only on the datagrams.
    pub fn senders(&self) -> impl Iterator<Item = &SenderStats> {
        self.senders.all()
    }

    /// Messages that may still be completed.
    pub fn unfinished(&self) -> usize {
        self.store.len()
    }

    /// Bytes of memory used by unfinished messages.
    pub fn memory(&self) -> usize {
        self.store.bytes()
    }

    /// The id of a sender, and whether it was silent for long before this datagram.
    #[inline]
    fn record_datagram(&mut self, from: SocketAddrV4, bytes: usize, now: u64) -> (u32, bool) {
        let id = match self.senders.find(from) {
            Some(id) => id,
            None => self.add_sender(from, now),
        };
        (id, self.senders.record(id, bytes, now) > SILENCE_NANOS)
    }

    #[cold]
    fn add_sender(&mut self, from: SocketAddrV4, now: u64) -> u32 {
        let surplus = self.senders.eviction_candidate();
        if let Some(surplus) = surplus {
            self.give_up_all_of(surplus, None, LossReason::Forgotten);
            self.counts.forgotten += 1;
        }
        self.senders.add(from, surplus, now)
    }

    /// Whether a message in one datagram is new.
    #[inline]
    fn admit_short(
        &mut self,
        sender: u32,
        sequence: u32,
        (digest, after_silence): (Digest, bool),
    ) -> bool {
        let hint = DatagramHint { starts_message: true, after_silence };
        let is_new = self.admit((sender, sequence), digest, hint);
        // A message cannot be sent both in one datagram and in fragments.
        if !is_new && let Some(id) = self.store.find(sender, sequence) {
            self.give_up(id, LossReason::Contradictory);
        }
        is_new
    }

    /// Records the sequence number of a message; `false` if it was seen before.
    #[inline]
    fn admit(&mut self, (id, sequence): (u32, u32), digest: Digest, hint: DatagramHint) -> bool {
        let slot = self.senders.slot(id);
        let note = slot.window.record(sequence, hint);
        if note == (SequenceStatus::New { skipped: 0 }) {
            slot.window.set_digest(sequence, digest);
            slot.sender.sent += 1;
            return true;
        }
        self.apply_status((id, sequence), digest, hint.after_silence, note)
    }

    #[inline(never)]
    fn apply_status(
        &mut self,
        (id, sequence): (u32, u32),
        digest: Digest,
        after_silence: bool,
        note: SequenceStatus,
    ) -> bool {
        let is_unfinished = self.store.find(id, sequence).is_some();
        let window = &mut self.senders.slot(id).window;
        if !matches!(note, SequenceStatus::Seen | SequenceStatus::Settled) {
            window.set_digest(sequence, digest);
        } else if !is_unfinished
            && let Some(reuse) = window.reuse(sequence, digest, (false, after_silence))
            && self.count_reuse(id, reuse)
        {
            return true;
        }
        let skipped = match note {
            SequenceStatus::New { skipped } => skipped,
            SequenceStatus::Earlier { skipped } => {
                self.counts.late += 1;
                skipped
            }
            SequenceStatus::Restart { skipped, after } => {
                self.give_up_all_of(id, after, LossReason::Restarted);
                self.counts.restarts += 1;
                self.senders.slot(id).sender.restarts += 1;
                skipped
            }
            SequenceStatus::Stray => 0,
            SequenceStatus::Mixed { retracted } => {
                self.counts.missing -= self.senders.slot(id).sender.retract(retracted);
                self.counts.mixed += 1;
                0
            }
            SequenceStatus::Late => {
                self.counts.late += 1;
                self.counts.missing -= 1;
                self.senders.slot(id).sender.missing -= 1;
                return true;
            }
            SequenceStatus::Seen => {
                self.counts.duplicates += 1;
                return false;
            }
            SequenceStatus::Settled => {
                self.counts.passed_over += 1;
                return false;
            }
        };
        let skipped = u64::from(skipped);
        self.counts.missing += skipped;
        let slot = self.senders.slot(id);
        self.missing_datagrams += skipped * u64::from(slot.longest);
        let sender = &mut slot.sender;
        sender.missing += skipped;
        sender.sent += skipped + 1;
        true
    }

    /// Counts another message with a number that was seen; `true` if it can be received.
    fn count_reuse(&mut self, sender: u32, reuse: Reuse) -> bool {
        let lost = u64::from(reuse.lost);
        let count = lost + u64::from(reuse.accepted);
        self.counts.reused += count;
        if lost > 0 {
            *self.counts.incomplete.entry(LossReason::Contradictory).or_default() += lost;
        }
        let sender = &mut self.senders.slot(sender).sender;
        sender.sent += count;
        sender.incomplete += lost;
        reuse.accepted
    }

    /// Counts a complete message; `true` if it is to be delivered.
    #[inline]
    fn count_message(&mut self, sender: u32, wanted: bool) -> bool {
        self.senders.slot(sender).sender.messages += 1;
        match wanted {
            true => self.counts.messages += 1,
            false => self.counts.unwanted += 1,
        }
        wanted
    }

    /// Adds a fragment to its message. Returns the message if it is now complete.
    fn add_fragment(
        &mut self,
        sender: u32,
        fragment: &Fragment<'_>,
        after_silence: bool,
        now: u64,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<PartialMessage> {
        let known = self.store.find(sender, fragment.sequence);
        let hint = DatagramHint { starts_message: fragment.number == 0, after_silence };
        let slot = self.senders.slot(sender);
        slot.longest = slot.longest.max(fragment.count);
        let digest = fragment.channel.and_then(|channel| {
            digest_of((channel, fragment.data), Some((fragment.size, fragment.count)))
        });
        if known.is_none() && !self.admit((sender, fragment.sequence), digest, hint) {
            return None;
        }
        // A first fragment may contradict another one.
        let is_first = known.is_none_or(|id| !self.store.get(id).has_channel());
        if is_first && !fragment.channel.is_none_or(wants) {
            if let Some(id) = known {
                self.remove_partial(id);
            }
            let window = &mut self.senders.slot(sender).window;
            window.set_digest(fragment.sequence, digest);
            window.settle(fragment.sequence);
            self.count_message(sender, false);
            return None;
        }
        let id = match known {
            Some(id) => id,
            None => self.start_partial(sender, fragment, now)?,
        };
        self.store.touch(id, now);
        self.store.get(id).sender_datagrams = self.senders.slot(sender).sender.datagrams;
        if !self.evict_for(sender, id, fragment) {
            return None;
        }
        let added = self.store.get(id).add(fragment);
        let is_taken = matches!(added, FragmentResult::Accepted | FragmentResult::Complete);
        if is_taken && digest.is_some() {
            self.senders.slot(sender).window.set_digest(fragment.sequence, digest);
        }
        match added {
            FragmentResult::Accepted => self.store.charge(id),
            FragmentResult::Duplicate => self.counts.duplicates += 1,
            FragmentResult::Contradiction => {
                self.give_up(id, LossReason::Contradictory);
                let window = &mut self.senders.slot(sender).window;
                let reuse = window.reuse(fragment.sequence, digest, (true, after_silence));
                reuse.map(|reuse| self.count_reuse(sender, reuse));
            }
            FragmentResult::Complete => {
                self.count_message(sender, true);
                return Some(self.remove_partial(id));
            }
        }
        None
    }

    /// Starts a newly admitted message; `None` if it can never be completed.
    fn start_partial(&mut self, sender: u32, fragment: &Fragment<'_>, now: u64) -> Option<u32> {
        if fragment.size as usize > self.max_bytes {
            self.count_loss(sender, fragment.sequence, LossReason::TooLarge);
            return None;
        }
        self.expire_overtaken(sender);
        while let Some(surplus) = self.store.message_to_evict(sender) {
            self.give_up(surplus, LossReason::Evicted);
        }
        let mut partial = PartialMessage::new(sender, fragment, now);
        let of_sender = &mut self.senders.slot(sender).sender;
        of_sender.unfinished += 1;
        if of_sender.datagrams == 1 {
            partial.joined_at = fragment.number;
        }
        Some(self.store.add(partial))
    }

    /// Gives up messages of a sender without a new fragment for so long that their memory is better
    /// used for current ones: it is still in the cores' caches, and new memory would have to be
    /// requested.
    fn expire_overtaken(&mut self, sender: u32) {
        let datagrams = self.senders.slot(sender).sender.datagrams;
        while let Some(id) = self.store.oldest_of(sender)
            && datagrams.saturating_sub(self.store.get(id).sender_datagrams) > MAX_OVERTAKING
        {
            self.give_up(id, LossReason::Expired);
        }
    }

    /// Evicts messages until a fragment fits; `false` if its own message was evicted.
    fn evict_for(&mut self, sender: u32, id: u32, fragment: &Fragment<'_>) -> bool {
        let need = self.store.get(id).bytes_needed(fragment);
        while let Some(surplus) = self.store.bytes_to_evict(sender, need) {
            self.give_up(surplus, LossReason::Evicted);
            if surplus == id {
                return false;
            }
        }
        true
    }

    fn give_up_all_of(&mut self, sender: u32, except: Option<u32>, loss: LossReason) {
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

    /// Drops an unfinished message and ignores its further fragments.
    fn give_up(&mut self, id: u32, loss: LossReason) {
        let partial = self.remove_partial(id);
        if loss == LossReason::Expired && partial.has_begun_before() {
            self.counts.begun_before += 1;
            self.senders.slot(partial.sender).sender.sent -= 1;
            self.senders.slot(partial.sender).window.give_up(partial.sequence);
            return;
        }
        self.missing_datagrams += partial.missing_fragments();
        self.count_loss(partial.sender, partial.sequence, loss);
    }

    fn remove_partial(&mut self, id: u32) -> PartialMessage {
        let partial = self.store.remove(id);
        self.senders.slot(partial.sender).sender.unfinished -= 1;
        partial
    }

    fn count_loss(&mut self, sender: u32, sequence: u32, loss: LossReason) {
        *self.counts.incomplete.entry(loss).or_default() += 1;
        let slot = self.senders.slot(sender);
        slot.sender.incomplete += 1;
        slot.window.give_up(sequence);
    }
}

/// A hash of channel and payload, or of the first fragment of a message with this size and count.
#[inline]
fn digest_of(contents: (&[u8], &[u8]), fragments: Option<(u32, u16)>) -> Digest {
    let hash = foldhash::fast::FixedState::default().hash_one((contents, fragments));
    Some(NonZeroU32::new(hash as u32).unwrap_or(NonZeroU32::MIN))
}

#[cfg(test)]
mod tests;
