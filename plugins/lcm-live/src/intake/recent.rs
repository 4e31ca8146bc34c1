//! Remembers the last messages of one sender, and tells by their contents whether a datagram with a
//! number that was used before is repeated or belongs to another message.
//!
//! It does not know which numbers are missing: [`SequenceWindow`](super::sequence::SequenceWindow)
//! does. Numberings far from each other share it.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU32;

/// Messages that are remembered of those whose numbers have the same remainder.
const WAYS: usize = 4;
/// Remainders: of a sender that counts, the last 4096 messages are remembered, in 48 KiB.
const SETS: usize = 1024;
/// Sets that are allocated together.
const PAGE_SETS: usize = 128;
/// So many messages in a row with the number of another one are not those of several programs.
const MIN_REPEATS: u8 = 8;

/// The last messages of one sender; of messages with one number the last one of each form.
#[derive(Debug, Default)]
pub(super) struct RecentMessages([Vec<MessageSet>; SETS / PAGE_SETS]);

/// Messages whose numbers have the same remainder, the last one used first.
type MessageSet = [Option<RecentMessage>; WAYS];

/// A hash of a message in one datagram, or of its first fragment; `None` if it has not arrived.
pub(super) type Digest = Option<NonZeroU32>;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// In one datagram.
    Short,
    /// In fragments.
    Long,
}

/// What is known of the message that a datagram belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recall {
    /// Nothing: it is another one than those before it.
    Other {
        /// Ignored messages with its number that are now known to be lost.
        lost: u8,
    },
    /// It was received, or is unfinished.
    Received,
    /// Its datagrams are ignored.
    Ignored,
}

#[derive(Clone, Copy, Debug)]
struct RecentMessage {
    sequence: u32,
    form: MessageForm,
    state: MessageState,
    /// Messages of its form that had its number before it.
    repeats: u8,
    /// Of these, those that were ignored and are not counted as lost yet.
    ignored: u8,
    digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    /// Received, or unfinished.
    Received,
    /// Its further fragments are ignored.
    FilteredOut,
    /// Some of its fragments may still arrive, which cannot be told from those of another message
    /// with its number.
    GivenUp,
}

impl RecentMessages {
    /// Adds a message with a number that was not used before.
    #[inline]
    pub(super) fn add(&mut self, sequence: u32, form: MessageForm, digest: Digest) {
        let state = MessageState::Received;
        let message = RecentMessage { sequence, form, state, repeats: 0, ignored: 0, digest };
        let set = self.set(sequence);
        let [first, second, third, _] = *set;
        *set = [Some(message), first, second, third];
    }

    /// Recalls the message of a datagram, and adds it if it is another one.
    ///
    /// After a silence, an equal message is another one. A message in fragments is ignored if one
    /// with its number was given up, until a silence or until its sender uses the number again and
    /// again.
    pub(super) fn recall(
        &mut self,
        (sequence, form): (u32, MessageForm),
        digest: Digest,
        after_silence: bool,
    ) -> Recall {
        let is_certain = after_silence || self.is_repetition(sequence);
        let Some(message) = self.find(sequence, form) else {
            self.add(sequence, form, digest);
            return Recall::Other { lost: 0 };
        };
        let is_received = message.state == MessageState::Received;
        let is_given_up = message.state == MessageState::GivenUp;
        let may_be_another = after_silence && digest.is_some();
        // It may be the late first fragment of the lost message as well. Counts if others follow.
        let is_unclear = may_be_another && is_given_up && message.digest.is_none();
        message.ignored = message.ignored.saturating_add(is_unclear.into());
        let is_another = may_be_another && (is_received || is_given_up && !is_unclear);
        let is_equal = !message.replace_digest(digest);
        if is_equal && !is_another {
            return if is_received { Recall::Received } else { Recall::Ignored };
        }
        message.repeats = message.repeats.saturating_add(1);
        if is_given_up && !is_certain {
            message.ignored += 1;
            return Recall::Ignored;
        }
        message.state = MessageState::Received;
        Recall::Other { lost: std::mem::take(&mut message.ignored) }
    }

    /// Records the first fragment because of which a message was given up. If it is that of another
    /// message, that is ignored. Returns how many ignored messages are now known to be lost.
    pub(super) fn ignore(&mut self, sequence: u32, digest: Digest, after_silence: bool) -> u8 {
        let is_certain = after_silence || self.is_repetition(sequence);
        let Some(message) = self.find(sequence, MessageForm::Long) else { return 0 };
        if !message.replace_digest(digest) {
            return 0;
        }
        message.repeats = message.repeats.saturating_add(1);
        message.ignored += 1;
        if is_certain { std::mem::take(&mut message.ignored) } else { 0 }
    }

    /// Sets the contents of the first fragment of a message.
    pub(super) fn set_digest(&mut self, sequence: u32, digest: Digest) {
        if let Some(message) = self.find(sequence, MessageForm::Long) {
            message.digest = digest;
        }
    }

    /// Ignores the further fragments of a message.
    pub(super) fn filter_out(&mut self, sequence: u32) {
        self.set_state(sequence, MessageState::FilteredOut);
    }

    /// Ignores the further fragments of a message, and for some time other messages in fragments
    /// with its number.
    pub(super) fn give_up(&mut self, sequence: u32) {
        self.set_state(sequence, MessageState::GivenUp);
    }

    fn set_state(&mut self, sequence: u32, state: MessageState) {
        // Many later messages may have replaced it.
        if self.find(sequence, MessageForm::Long).is_none() {
            self.add(sequence, MessageForm::Long, None);
        }
        if let Some(message) = self.find(sequence, MessageForm::Long) {
            message.state = state;
        }
    }

    /// Forgets all messages.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(Vec::clear);
    }

    /// Whether another message with this number shows that its sender uses it again and again.
    fn is_repetition(&mut self, sequence: u32) -> bool {
        let messages = self.set(sequence).iter().flatten();
        let repeats = messages.filter(|message| message.sequence == sequence).map(|m| m.repeats);
        repeats.fold(1, u8::saturating_add) >= MIN_REPEATS
    }

    /// Makes a message the last one of its set.
    fn find(&mut self, sequence: u32, form: MessageForm) -> Option<&mut RecentMessage> {
        let set = self.set(sequence);
        let is_meant =
            |message: &RecentMessage| (message.sequence, message.form) == (sequence, form);
        let at = set.iter().position(|message| message.as_ref().is_some_and(is_meant))?;
        set[..=at].rotate_right(1);
        set[0].as_mut()
    }

    #[inline]
    fn set(&mut self, sequence: u32) -> &mut MessageSet {
        let index = sequence as usize % SETS;
        let page = &mut self.0[index / PAGE_SETS];
        if page.is_empty() {
            page.resize(PAGE_SETS, MessageSet::default());
        }
        &mut page[index % PAGE_SETS]
    }
}

impl RecentMessage {
    /// Sets the contents, if known; `true` if others were known.
    fn replace_digest(&mut self, digest: Digest) -> bool {
        let before = self.digest;
        self.digest = digest.or(before);
        before.is_some() && self.digest != before
    }
}

/// The hash of a datagram.
#[inline]
pub(super) fn digest_of(datagram: &[u8]) -> Digest {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(datagram);
    Some(NonZeroU32::new(hasher.finish() as u32).unwrap_or(NonZeroU32::MIN))
}

#[cfg(test)]
mod tests {
    use MessageForm::{Long, Short};

    use super::*;

    const OTHER: Recall = Recall::Other { lost: 0 };

    fn digest(contents: u32) -> Digest {
        digest_of(&contents.to_be_bytes())
    }

    #[test]
    fn of_a_sender_that_counts_the_last_4096_messages_are_remembered() {
        let mut recent = RecentMessages::default();
        let first = u32::MAX - 2000;
        for number in 0..5000 {
            recent.add(first.wrapping_add(number), Short, digest(number));
        }
        for number in 0..5000 {
            let is_remembered = recent.find(first.wrapping_add(number), Short).is_some();
            assert_eq!(is_remembered, number >= 5000 - 4096, "{number}");
        }
        assert_eq!(size_of::<MessageSet>() * SETS, 48 << 10);
    }

    #[test]
    fn a_number_that_is_used_again_and_again_is_remembered_among_many_others() {
        let mut recent = RecentMessages::default();
        for number in 0..50_000 {
            recent.add(number, Short, digest(number));
            if number % 500 == 0 {
                assert_eq!(recent.recall((1 << 20, Short), digest(number), false), OTHER);
                let repeats = recent.find(1 << 20, Short).map(|message| message.repeats);
                assert_eq!(repeats, u8::try_from(number / 500).ok());
            }
        }
    }

    #[test]
    fn of_messages_with_one_number_the_last_one_of_each_form_is_remembered() {
        let mut recent = RecentMessages::default();
        let mut recall = |form, contents| recent.recall((7, form), digest(contents), false);
        for (form, contents) in [(Short, 1), (Long, 2), (Short, 3), (Long, 4), (Short, 1)] {
            assert_eq!(recall(form, contents), OTHER);
            assert_eq!(recall(form, contents), Recall::Received);
        }
        assert_eq!(recall(Long, 4), Recall::Received);
    }

    #[test]
    fn fragments_after_the_first_belong_to_the_last_message_with_their_number() {
        let mut recent = RecentMessages::default();
        assert_eq!(recent.recall((7, Short), digest(1), false), OTHER);
        assert_eq!(recent.recall((7, Long), None, false), OTHER);
        assert_eq!(recent.recall((7, Long), None, false), Recall::Received);
        // The first one, late.
        assert_eq!(recent.recall((7, Long), digest(2), false), Recall::Received);
        assert_eq!(recent.recall((7, Long), digest(3), false), OTHER);
    }

    #[test]
    fn after_a_silence_an_equal_message_is_another_one() {
        let mut recent = RecentMessages::default();
        recent.add(7, Short, digest(1));
        assert_eq!(recent.recall((7, Short), digest(1), false), Recall::Received);
        assert_eq!(recent.recall((7, Short), digest(1), true), OTHER);
        recent.add(8, Long, digest(1));
        assert_eq!(recent.recall((8, Long), None, true), Recall::Received);
    }

    #[test]
    fn datagrams_of_a_message_that_is_filtered_out_are_ignored() {
        let mut recent = RecentMessages::default();
        recent.add(7, Long, digest(1));
        recent.filter_out(7);
        assert_eq!(recent.recall((7, Long), None, false), Recall::Ignored);
        assert_eq!(recent.recall((7, Long), digest(1), true), Recall::Ignored);
        assert_eq!(recent.recall((7, Long), digest(2), false), OTHER);
        assert_eq!(recent.recall((7, Long), None, false), Recall::Received);
    }

    #[test]
    fn other_messages_are_ignored_after_one_was_given_up_until_they_are_many() {
        let mut recent = RecentMessages::default();
        // It need not be remembered.
        recent.give_up(7);
        assert_eq!(recent.recall((7, Long), digest(0), false), Recall::Ignored);
        assert_eq!(recent.ignore(7, digest(1), false), 0);
        for contents in 2..8 {
            assert_eq!(recent.recall((7, Long), digest(contents), false), Recall::Ignored);
            assert_eq!(recent.recall((7, Long), digest(contents), false), Recall::Ignored);
        }
        assert_eq!(recent.recall((7, Long), digest(8), false), Recall::Other { lost: 7 });
        assert_eq!(recent.recall((7, Long), digest(9), false), OTHER);
        recent.give_up(7);
        assert_eq!(recent.ignore(7, digest(10), false), 1);
        assert_eq!(recent.recall((7, Long), digest(11), false), OTHER);
    }

    #[test]
    fn messages_in_one_datagram_also_show_that_a_number_is_used_again_and_again() {
        let mut recent = RecentMessages::default();
        for contents in 0..8 {
            assert_eq!(recent.recall((7, Short), digest(contents), false), OTHER);
        }
        recent.add(7, Long, digest(0));
        recent.give_up(7);
        assert_eq!(recent.recall((7, Long), digest(1), false), OTHER);
    }

    #[test]
    fn a_silence_ends_what_a_message_that_was_given_up_costs() {
        let mut recent = RecentMessages::default();
        recent.add(7, Long, digest(0));
        recent.give_up(7);
        assert_eq!(recent.recall((7, Long), digest(1), false), Recall::Ignored);
        assert_eq!(recent.recall((7, Long), digest(2), true), Recall::Other { lost: 1 });
        // A message that begins like the one before it is another one, too.
        recent.give_up(7);
        assert_eq!(recent.recall((7, Long), digest(2), false), Recall::Ignored);
        assert_eq!(recent.recall((7, Long), digest(2), true), OTHER);
        // One after a message whose first fragment was lost is counted once others show it.
        recent.give_up(8);
        assert_eq!(recent.recall((8, Long), digest(3), true), Recall::Ignored);
        assert_eq!(recent.recall((8, Long), digest(4), true), Recall::Other { lost: 1 });
    }
}
