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
//! - the number 0 arrives again, or long after greater numbers that were the first from it, unless
//!   it may be a duplicate: of equal contents, soon after the first one, and no 1 is next;
//! - after a second of silence, a number arrives that is not newer than all others, or far ahead;
//! - two numbers arrive that are far from all others (4096 behind or 2^24 ahead) and close to each
//!   other.
//!
//! Its window then starts over, and the jump counts as no loss.
//!
//! Relays that forward several programs through one socket, and simple programs, repeat numbers: a
//! repeated number is that of a duplicate only if its datagram, or its first fragment, has the same
//! contents as the last one of its form (short or in fragments): see [`recent`]. A message in one
//! datagram is always whole, and is received whatever happened to others with its number. A message
//! that was given up has fragments that may still arrive, and cannot be told from those of another
//! message with its number: another one in fragments is received only after a second of silence, or
//! if the sender uses this number again and again.
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
mod recent;
mod senders;
mod sequence;
mod sequence_status;
mod window_bits;

use std::net::SocketAddrV4;
use std::time::Duration;

pub use counts::{IntakeCounts, LossReason, SenderStats};
pub use message::{LiveMessage, MessagePayload};

use crate::wire::{self, Datagram, Fragment};
use partial::{FragmentResult, PartialMessage};
use partial_store::PartialStore;
use recent::{Digest, MessageForm, Recall, digest_of};
use senders::SenderTable;
use sequence::DatagramHint;
use sequence_status::SequenceStatus;

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

/// How a message arrives.
#[derive(Clone, Copy)]
struct Arrival {
    form: MessageForm,
    /// `None` if this datagram does not start its message.
    digest: Digest,
    /// Its sender was silent for so long that no older datagram can still arrive.
    after_silence: bool,
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
                let arrival = Arrival {
                    form: MessageForm::Short,
                    digest: digest_of(datagram),
                    after_silence,
                };
                if self.admit(sender, sequence, arrival)
                    && self.count_message(sender, wants(channel))
                {
                    let payload = MessagePayload::Borrowed(payload);
                    deliver(LiveMessage { from, sequence, channel, payload });
                }
            }
            Ok(Datagram::Fragment(fragment)) => {
                let (sender, after_silence) = self.record_datagram(from, datagram.len(), now);
                let arrival = Arrival {
                    form: MessageForm::Long,
                    digest: fragment.channel.and_then(|_| digest_of(datagram)),
                    after_silence,
                };
                let Some(whole) = self.add_fragment(sender, &fragment, arrival, now, wants) else {
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

    /// Records the first datagram of a message; `false` if it is to be ignored.
    #[inline]
    fn admit(&mut self, id: u32, sequence: u32, arrival: Arrival) -> bool {
        let slot = self.senders.slot(id);
        if slot.window.record_next(sequence, arrival.after_silence) {
            slot.recent.add(sequence, arrival.form, arrival.digest);
            slot.sender.sent += 1;
            return true;
        }
        self.admit_out_of_order(id, sequence, arrival)
    }

    #[inline(never)]
    fn admit_out_of_order(&mut self, id: u32, sequence: u32, arrival: Arrival) -> bool {
        let Arrival { form, digest, after_silence } = arrival;
        let slot = self.senders.slot(id);
        let recall = slot.recent.recall((sequence, form), digest, after_silence);
        let is_equal = recall == Recall::Received;
        let is_remembered = is_equal || recall == Recall::Ignored;
        let starts_message = digest.is_some();
        let hint = DatagramHint { starts_message, after_silence, is_remembered, is_equal };
        let status = slot.window.record(sequence, hint);
        match (status, recall) {
            (SequenceStatus::Seen, Recall::Received) => {
                self.counts.duplicates += 1;
                return false;
            }
            (SequenceStatus::Seen, Recall::Ignored) => {
                self.counts.passed_over += 1;
                return false;
            }
            (_, Recall::Other { lost }) => self.count_ignored(id, lost),
            _ => {}
        }
        self.count_admitted(id, status);
        // A 0 is that of a restarted sender even if its message is remembered.
        let is_restart = matches!(status, SequenceStatus::Restart { after: None, .. });
        if is_restart || is_remembered {
            let recent = &mut self.senders.slot(id).recent;
            recent.clear();
            recent.add(sequence, form, digest);
        }
        true
    }

    /// Counts a message with this status, and those that are missing because of it.
    fn count_admitted(&mut self, id: u32, status: SequenceStatus) {
        match status {
            SequenceStatus::New { .. } | SequenceStatus::Stray => {}
            SequenceStatus::Seen => self.counts.reused += 1,
            SequenceStatus::Earlier { .. } => self.counts.late += 1,
            SequenceStatus::Late => {
                self.counts.late += 1;
                self.counts.missing -= 1;
                self.senders.slot(id).sender.missing -= 1;
                return;
            }
            SequenceStatus::Restart { after, .. } => {
                self.give_up_all_of(id, after, LossReason::Restarted);
                self.counts.restarts += 1;
                self.senders.slot(id).sender.restarts += 1;
            }
            SequenceStatus::Mixed { retracted } => {
                self.counts.missing -= self.senders.slot(id).sender.retract(retracted);
                self.counts.mixed += 1;
            }
        }
        let skipped = u64::from(status.skipped());
        self.counts.missing += skipped;
        let slot = self.senders.slot(id);
        self.missing_datagrams += skipped * u64::from(slot.longest);
        slot.sender.missing += skipped;
        slot.sender.sent += skipped + 1;
    }

    /// Counts messages as lost that were ignored, as fragments with their number contradicted each
    /// other.
    fn count_ignored(&mut self, sender: u32, lost: u8) {
        if lost == 0 {
            return;
        }
        let lost = u64::from(lost);
        self.counts.reused += lost;
        *self.counts.incomplete.entry(LossReason::Contradictory).or_default() += lost;
        let sender = &mut self.senders.slot(sender).sender;
        sender.sent += lost;
        sender.incomplete += lost;
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
        arrival: Arrival,
        now: u64,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<PartialMessage> {
        let known = self.store.find(sender, fragment.sequence);
        let slot = self.senders.slot(sender);
        slot.longest = slot.longest.max(fragment.count);
        if known.is_none() && !self.admit(sender, fragment.sequence, arrival) {
            return None;
        }
        // A first fragment may contradict another one.
        let is_first = known.is_none_or(|id| !self.store.get(id).has_channel());
        if is_first && !fragment.channel.is_none_or(wants) {
            if let Some(id) = known {
                self.remove_partial(id);
            }
            let recent = &mut self.senders.slot(sender).recent;
            recent.set_digest(fragment.sequence, arrival.digest);
            recent.filter_out(fragment.sequence);
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
        if is_taken && arrival.digest.is_some() {
            self.senders.slot(sender).recent.set_digest(fragment.sequence, arrival.digest);
        }
        match added {
            FragmentResult::Accepted => self.store.charge(id),
            FragmentResult::Duplicate => self.counts.duplicates += 1,
            FragmentResult::Contradiction => {
                self.give_up(id, LossReason::Contradictory);
                let Arrival { digest, after_silence, .. } = arrival;
                let recent = &mut self.senders.slot(sender).recent;
                let lost = recent.ignore(fragment.sequence, digest, after_silence);
                self.count_ignored(sender, lost);
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
            self.senders.slot(partial.sender).recent.give_up(partial.sequence);
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
        slot.recent.give_up(sequence);
    }
}

#[cfg(test)]
mod tests;
