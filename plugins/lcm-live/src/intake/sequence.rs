//! Tracks one sender's sequence numbers: which are new, late, repeated or missing, and whether the
//! sender restarted; and by the contents of messages whether a repeated number is that of another.
//!
//! It knows no fragments and keeps no totals; [`IntakeCounts`](super::IntakeCounts) does.

use std::num::NonZeroU32;

use super::numberings::Numberings;
use super::repetition::{Repetition, Reuse};
use super::window_bits::WindowBits;

/// How many numbers behind the newest are tracked; a power of two.
pub(super) const WINDOW: u32 = 4096;
/// Most numbers that can be lost at once.
const MAX_AHEAD: u32 = 1 << 24;
/// A 0 may be this late; later, its sender has restarted.
const MAX_ZERO_LATE: u32 = 64;

/// A sliding window over one sender's sequence numbers.
#[derive(Clone, Debug)]
pub(super) struct SequenceWindow {
    /// `None` until the first number.
    newest: Option<u32>,
    /// Distance from the first number to the newest.
    span: u64,
    seen: WindowBits,
    /// Seen numbers whose further fragments are ignored.
    settled: WindowBits,
    /// Of the settled numbers, those whose message was given up: some of its fragments may still
    /// arrive, which cannot be told from those of another message with its number.
    given_up: WindowBits,
    /// A number far from all others: a network error, or the first number after a restart.
    stray: Option<u32>,
    /// What the messages of seen numbers contain.
    digests: Box<[Digest]>,
    stray_digest: Digest,
    is_stray_given_up: bool,
    numberings: Numberings,
    repetition: Repetition,
}

/// A hash of the contents of a message, or of its first fragment; `None` if they are not known.
pub(super) type Digest = Option<NonZeroU32>;

/// What a sequence number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceStatus {
    /// Newer than all others; the `skipped` numbers before it are missing.
    New {
        /// Numbers in between.
        skipped: u32,
    },
    /// Was missing until now.
    Late,
    /// Older than the first number seen; the `skipped` numbers after it are missing.
    Earlier {
        /// Numbers between.
        skipped: u32,
    },
    /// The sender restarted. A new window starts with its first number, and `skipped` numbers after
    /// that are missing.
    Restart {
        /// Numbers between the first and this one.
        skipped: u32,
        /// The first number, if it arrived before this one.
        after: Option<u32>,
    },
    /// Far from all others: not recorded until a neighbour arrives.
    Stray,
    /// Seen before.
    Seen,
    /// Seen before, and its further fragments are ignored.
    Settled,
    /// New, and shows that the sender has several numberings: from now on no number is missing or
    /// late.
    Mixed {
        /// Numbers that were considered missing because of that.
        retracted: u64,
    },
}

impl SequenceStatus {
    /// The numbers that are missing because of it.
    pub(super) fn skipped(self) -> u32 {
        match self {
            Self::New { skipped } | Self::Earlier { skipped } | Self::Restart { skipped, .. } => {
                skipped
            }
            _ => 0,
        }
    }
}

/// Facts about a datagram besides its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramHint {
    /// It starts a message: only such a datagram can tell that its sender restarted.
    pub(super) starts_message: bool,
    /// The sender was silent for so long that no older datagram can still arrive.
    pub(super) after_silence: bool,
}

impl SequenceWindow {
    pub(super) fn new() -> Self {
        Self::with_digests(vec![None; WINDOW as usize].into())
    }

    fn with_digests(digests: Box<[Digest]>) -> Self {
        Self {
            newest: None,
            span: 0,
            seen: WindowBits::default(),
            settled: WindowBits::default(),
            given_up: WindowBits::default(),
            stray: None,
            digests,
            stray_digest: None,
            is_stray_given_up: false,
            numberings: Numberings::default(),
            repetition: Repetition::default(),
        }
    }

    /// Sets what the message of a recorded number contains.
    #[inline]
    pub(super) fn set_digest(&mut self, sequence: u32, digest: Digest) {
        match self.stray {
            Some(stray) if stray == sequence => self.stray_digest = digest,
            _ => self.digests[(sequence % WINDOW) as usize] = digest,
        }
    }

    /// Whether a number that was seen is that of another message than the recorded one, which is
    /// recorded in its place. `contradicts` is whether the recorded one was unfinished until now.
    pub(super) fn reuse(
        &mut self,
        sequence: u32,
        digest: Digest,
        (contradicts, after_silence): (bool, bool),
    ) -> Option<Reuse> {
        let known = match self.stray {
            Some(stray) if stray == sequence => self.stray_digest,
            _ => self.digests[(sequence % WINDOW) as usize],
        };
        if digest.is_none() || known == digest {
            return None;
        }
        self.set_digest(sequence, digest);
        known?;
        self.repetition.record(sequence);
        let is_in_window = self.is_in_window(sequence);
        let is_given_up = match is_in_window {
            true => self.settled.has(sequence) && self.given_up.has(sequence),
            false => self.is_stray_given_up,
        };
        let is_certain = after_silence || self.repetition.is_certain();
        let accepted = !contradicts && (!is_given_up || is_certain);
        if !accepted {
            self.repetition.ignored += 1;
        } else if is_in_window {
            self.settled.clear(sequence);
        } else {
            self.is_stray_given_up = false;
        }
        let lost = if is_certain { std::mem::take(&mut self.repetition.ignored) } else { 0 };
        Some(Reuse { accepted, lost })
    }

    /// Records a number and returns what it means.
    #[inline]
    pub(super) fn record(&mut self, sequence: u32, hint: DatagramHint) -> SequenceStatus {
        let Some(newest) = self.newest else {
            self.restart(sequence);
            return SequenceStatus::New { skipped: 0 };
        };
        let ahead = sequence.wrapping_sub(newest);
        if ahead == 1 && !hint.after_silence {
            self.newest = Some(sequence);
            self.span += 1;
            self.seen.set(sequence);
            self.settled.clear(sequence);
            return SequenceStatus::New { skipped: 0 };
        }
        self.record_out_of_order(sequence, newest, hint)
    }

    /// Ignores further fragments of this number: they are [`SequenceStatus::Settled`].
    pub(super) fn settle(&mut self, sequence: u32) {
        if self.is_in_window(sequence) && self.seen.has(sequence) {
            self.settled.set(sequence);
            self.given_up.clear(sequence);
        }
    }

    /// Ignores further fragments of this number, and other messages with it until it is certain
    /// that they are others.
    pub(super) fn give_up(&mut self, sequence: u32) {
        self.settle(sequence);
        if self.is_in_window(sequence) {
            self.given_up.set(sequence);
        } else if self.stray == Some(sequence) {
            self.is_stray_given_up = true;
        }
    }

    fn is_in_window(&self, sequence: u32) -> bool {
        self.newest.is_some_and(|newest| newest.wrapping_sub(sequence) < WINDOW)
    }

    fn restart(&mut self, sequence: u32) {
        let numberings = std::mem::take(&mut self.numberings);
        let mut digests = std::mem::take(&mut self.digests);
        digests.fill(None);
        *self = Self { newest: Some(sequence), numberings, ..Self::with_digests(digests) };
        self.seen.set(sequence);
    }

    /// Restarts with a number that was recorded as far from all others.
    fn restart_from_stray(&mut self, stray: u32) {
        let (digest, is_given_up) = (self.stray_digest, self.is_stray_given_up);
        self.restart(stray);
        self.set_digest(stray, digest);
        if is_given_up {
            self.give_up(stray);
        }
    }

    #[inline(never)]
    fn record_out_of_order(
        &mut self,
        sequence: u32,
        newest: u32,
        hint: DatagramHint,
    ) -> SequenceStatus {
        let is_newer = sequence != newest && sequence.wrapping_sub(newest) <= MAX_AHEAD;
        if hint.after_silence && is_newer && self.numberings.are_mixed() {
            // What is missing between several numberings has not been counted.
            self.restart(sequence);
            self.numberings = Numberings::default();
            return SequenceStatus::New { skipped: 0 };
        }
        let status = self.place_out_of_order(sequence, newest, hint);
        let is_known = matches!(status, SequenceStatus::Seen | SequenceStatus::Settled);
        if hint.after_silence && !(is_known && self.numberings.are_mixed()) {
            self.numberings = Numberings::default();
            return status;
        }
        if is_known {
            return status;
        }
        if self.numberings.are_mixed() {
            return SequenceStatus::New { skipped: 0 };
        }
        self.numberings.jump(newest, sequence, self.newest == Some(sequence), status);
        if self.numberings.are_mixed() {
            // This number is not counted as missing yet, or as late.
            let retracted = self.numberings.skipped() - u64::from(status.skipped());
            return SequenceStatus::Mixed { retracted };
        }
        if status == SequenceStatus::Late {
            self.numberings.fill(sequence);
        }
        status
    }

    fn place_out_of_order(
        &mut self,
        sequence: u32,
        newest: u32,
        hint: DatagramHint,
    ) -> SequenceStatus {
        let (ahead, behind) = (sequence.wrapping_sub(newest), newest.wrapping_sub(sequence));
        if ahead != 0 && ahead <= MAX_AHEAD {
            self.advance(newest, ahead);
            return SequenceStatus::New { skipped: ahead - 1 };
        }
        if self.is_restart(sequence, behind, hint) {
            self.restart(sequence);
            return SequenceStatus::Restart { skipped: 0, after: None };
        }
        if behind >= WINDOW {
            return self.record_stray(sequence);
        }
        if self.settled.has(sequence) {
            return SequenceStatus::Settled;
        }
        if self.seen.has(sequence) {
            return SequenceStatus::Seen;
        }
        self.seen.set(sequence);
        if u64::from(behind) < self.span {
            return SequenceStatus::Late;
        }
        let skipped = u64::from(behind) - self.span - 1;
        self.span = u64::from(behind);
        // Both are in the window.
        SequenceStatus::Earlier { skipped: u32::try_from(skipped).unwrap_or(WINDOW) }
    }

    fn advance(&mut self, newest: u32, by: u32) {
        // Their bits belonged to numbers that leave the window.
        self.seen.clear_after(newest, by);
        self.settled.clear_after(newest, by);
        let sequence = newest.wrapping_add(by);
        self.newest = Some(sequence);
        self.span += u64::from(by);
        self.seen.set(sequence);
    }

    /// Whether a number that is not ahead can only come from a restarted sender.
    fn is_restart(&self, sequence: u32, behind: u32, hint: DatagramHint) -> bool {
        if !hint.starts_message {
            return false;
        }
        let in_window = behind < WINDOW;
        let seen = in_window && self.seen.has(sequence);
        // A 0 with numbers before it is the counter wrapping around.
        let is_first = sequence == 0 && behind != 0 && u64::from(behind) >= self.span;
        if is_first && (seen || behind > MAX_ZERO_LATE) {
            return true;
        }
        hint.after_silence && !(in_window && self.settled.has(sequence))
    }

    /// One number far away may be an error; two neighbours are a restart.
    fn record_stray(&mut self, sequence: u32) -> SequenceStatus {
        let Some(stray) = self.stray.replace(sequence) else { return SequenceStatus::Stray };
        let ahead = sequence.wrapping_sub(stray);
        self.is_stray_given_up &= ahead <= MAX_ZERO_LATE;
        match ahead {
            0 => SequenceStatus::Seen,
            1..=MAX_ZERO_LATE => {
                self.restart_from_stray(stray);
                self.advance(stray, ahead);
                SequenceStatus::Restart { skipped: ahead - 1, after: Some(stray) }
            }
            _ => SequenceStatus::Stray,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: DatagramHint = DatagramHint { starts_message: true, after_silence: false };
    const AFTER_SILENCE: DatagramHint = DatagramHint { starts_message: true, after_silence: true };
    const RESTART: SequenceStatus = SequenceStatus::Restart { skipped: 0, after: None };

    fn window(numbers: impl IntoIterator<Item = u32>) -> SequenceWindow {
        let mut window = SequenceWindow::new();
        for number in numbers {
            window.record(number, SOON);
        }
        window
    }

    #[test]
    fn the_first_number_starts_the_window() {
        assert_eq!(SequenceWindow::new().record(77, SOON), SequenceStatus::New { skipped: 0 });
        assert_eq!(window([77]).record(78, SOON), SequenceStatus::New { skipped: 0 });
    }

    #[test]
    fn a_gap_is_missing_until_what_is_late_comes() {
        let mut window = window([7]);
        assert_eq!(window.record(10, SOON), SequenceStatus::New { skipped: 2 });
        assert_eq!(window.record(9, SOON), SequenceStatus::Late);
        assert_eq!(window.record(9, SOON), SequenceStatus::Seen);
        assert_eq!(window.record(11, SOON), SequenceStatus::New { skipped: 0 });
    }

    #[test]
    fn numbers_go_round() {
        let mut window = window([u32::MAX - 1]);
        assert_eq!(window.record(1, SOON), SequenceStatus::New { skipped: 2 });
        assert_eq!(window.record(0, SOON), SequenceStatus::Late);
        assert_eq!(window.record(0, SOON), SequenceStatus::Seen);
        assert_eq!(window.record(u32::MAX, SOON), SequenceStatus::Late);
    }

    #[test]
    fn numbers_before_the_first_move_the_beginning() {
        let mut window = window([100]);
        assert_eq!(window.record(97, SOON), SequenceStatus::Earlier { skipped: 2 });
        assert_eq!(window.record(98, SOON), SequenceStatus::Late);
        assert_eq!(window.record(97, SOON), SequenceStatus::Seen);
    }

    #[test]
    fn the_window_forgets_what_lies_far_behind() {
        let mut all = window(0..10_000);
        assert_eq!(all.record(9_999 - 4095, SOON), SequenceStatus::Seen);
        assert_eq!(all.record(9_999 - 4096, SOON), SequenceStatus::Stray);
        let mut gap = window([5, 5 + 4095]);
        assert_eq!(gap.record(6, SOON), SequenceStatus::Late);
        assert_eq!(gap.record(5, SOON), SequenceStatus::Seen);
        let mut wide = window((5..4101).chain([4100 + 5000]));
        assert_eq!(wide.record(4100 + 5000 - 4095, SOON), SequenceStatus::Late);
    }

    #[test]
    fn a_zero_that_came_before_is_a_restart() {
        assert_eq!(window([0, 1, 2]).record(0, SOON), RESTART);
        assert_eq!(window([500, 501]).record(0, SOON), RESTART);
        assert_eq!(window(0..10_000).record(0, SOON), RESTART);
    }

    #[test]
    fn a_zero_that_nothing_came_after_is_a_repeated_one() {
        assert_eq!(window([0]).record(0, SOON), SequenceStatus::Seen);
    }

    #[test]
    fn a_zero_a_little_late_is_late() {
        assert_eq!(window([1, 2]).record(0, SOON), SequenceStatus::Earlier { skipped: 0 });
    }

    #[test]
    fn what_is_not_the_beginning_of_a_message_is_no_restart() {
        let inner = DatagramHint { starts_message: false, after_silence: true };
        assert_eq!(window([0, 1, 2]).record(0, inner), SequenceStatus::Seen);
        assert_eq!(window([0, 1, 2]).record(1, inner), SequenceStatus::Seen);
    }

    #[test]
    fn a_repeated_number_after_silence_is_a_restart() {
        let mut window = window(5..9);
        assert_eq!(window.record(6, SOON), SequenceStatus::Seen);
        assert_eq!(window.record(6, AFTER_SILENCE), RESTART);
        assert_eq!(window.record(7, SOON), SequenceStatus::New { skipped: 0 });
    }

    #[test]
    fn one_number_far_away_does_not_change_the_window() {
        for far in [20_000, 1_000_000u32.wrapping_add(1 << 25), u32::MAX] {
            let mut window = window([1_000_000]);
            assert_eq!(window.record(far, SOON), SequenceStatus::Stray);
            assert_eq!(window.record(far, SOON), SequenceStatus::Seen);
            assert_eq!(window.record(1_000_001, SOON), SequenceStatus::New { skipped: 0 });
        }
    }

    #[test]
    fn two_neighbours_far_away_are_a_restart() {
        let mut window = window([1_000_000, 1]);
        assert_eq!(window.record(3, SOON), SequenceStatus::Restart { skipped: 1, after: Some(1) });
        assert_eq!(window.record(2, SOON), SequenceStatus::Late);
        assert_eq!(window.record(1, SOON), SequenceStatus::Seen);
    }

    #[test]
    fn far_away_after_silence_is_a_restart_at_once() {
        assert_eq!(window([1_000_000]).record(3, AFTER_SILENCE), RESTART);
    }

    #[test]
    fn a_missing_or_earlier_number_after_silence_is_a_restart() {
        for number in [5000 - 3000, 5001] {
            let mut window = window([5000, 5002]);
            assert_eq!(window.record(number, AFTER_SILENCE), RESTART);
            assert_eq!(window.record(number + 1, SOON), SequenceStatus::New { skipped: 0 });
        }
    }

    #[test]
    fn the_largest_jump_is_missing_and_a_larger_one_is_not() {
        let most = MAX_AHEAD;
        assert_eq!(window([9]).record(9 + most, SOON), SequenceStatus::New { skipped: most - 1 });
        assert_eq!(window([9]).record(10 + most, SOON), SequenceStatus::Stray);
    }

    #[test]
    fn what_is_settled_is_forgotten_when_it_leaves_the_window() {
        for jump in [1, 7] {
            let mut window = window([1, 2]);
            window.settle(2);
            let last = 2 + WINDOW - jump;
            for number in 3..=last {
                window.record(number, SOON);
            }
            window.record(last + jump, SOON);
            assert_eq!(window.record(2 + WINDOW, SOON), SequenceStatus::Seen);
        }
    }

    #[test]
    fn settled_numbers_are_distinguished_from_duplicates() {
        let mut window = window([1, 2, 3]);
        window.settle(2);
        window.settle(9);
        assert_eq!(window.record(2, SOON), SequenceStatus::Settled);
        assert_eq!(window.record(3, SOON), SequenceStatus::Seen);
        assert_eq!(window.record(9, SOON), SequenceStatus::New { skipped: 5 });
        assert_eq!(window.record(9, SOON), SequenceStatus::Seen);
    }
}
