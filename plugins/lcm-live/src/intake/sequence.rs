//! Tracks one sender's sequence numbers: which are new, late, repeated or missing, and whether the
//! sender restarted.
//!
//! It knows no messages and keeps no totals: [`RecentMessages`](super::recent::RecentMessages) and
//! [`IntakeCounts`](super::IntakeCounts) do.

use super::numberings::Numberings;
use super::sequence_status::SequenceStatus;
use super::window_bits::{WINDOW, WindowBits};

/// Most numbers that can be lost at once.
const MAX_AHEAD: u32 = 1 << 24;
/// A 0 may be this late; later, its sender has restarted.
const MAX_ZERO_LATE: u32 = 64;
/// A network may repeat a 0 so many numbers later; after more, its sender has restarted.
const MAX_ZERO_REPEAT: u32 = 16;
/// A number up to this one that is repeated next tells that its sender has restarted.
const MAX_AFTER_ZERO: u32 = 4;

/// A sliding window over one sender's sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct SequenceWindow {
    /// `None` until the first number.
    newest: Option<u32>,
    /// Distance from the first number to the newest.
    span: u64,
    seen: WindowBits,
    /// A number far from all others: a network error, or the first number after a restart.
    stray: Option<u32>,
    /// The newest number when a 0 was repeated: by the network, or by a restart.
    newest_at_zero: Option<u32>,
    numberings: Numberings,
}

/// Facts about a datagram besides its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramHint {
    /// It starts a message: only such a datagram can tell that its sender restarted.
    pub(super) starts_message: bool,
    /// The sender was silent for so long that no older datagram can still arrive.
    pub(super) after_silence: bool,
    /// It belongs to a message that is remembered, of which another numbering may have moved the
    /// window away.
    pub(super) is_remembered: bool,
    /// It was received before, by its contents.
    pub(super) is_equal: bool,
}

impl SequenceWindow {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Records a number that follows the newest one; `false` if it does not.
    #[inline]
    pub(super) fn record_next(&mut self, sequence: u32, after_silence: bool) -> bool {
        let is_next = self.newest == Some(sequence.wrapping_sub(1)) && !after_silence;
        // With several numberings, it may have come before the window moved.
        if !is_next || self.numberings.are_mixed() {
            return false;
        }
        self.newest = Some(sequence);
        self.span += 1;
        self.seen.set(sequence);
        true
    }

    /// Records a number and returns what it means.
    pub(super) fn record(&mut self, sequence: u32, hint: DatagramHint) -> SequenceStatus {
        let Some(newest) = self.newest else {
            self.restart(sequence);
            return SequenceStatus::New { skipped: 0 };
        };
        if self.record_next(sequence, hint.after_silence) {
            return SequenceStatus::New { skipped: 0 };
        }
        self.record_out_of_order(sequence, newest, hint)
    }

    fn restart(&mut self, sequence: u32) {
        let numberings = std::mem::take(&mut self.numberings);
        *self = Self { newest: Some(sequence), numberings, ..Self::default() };
        self.seen.set(sequence);
    }

    fn record_out_of_order(
        &mut self,
        sequence: u32,
        newest: u32,
        hint: DatagramHint,
    ) -> SequenceStatus {
        let is_newer = sequence != newest && sequence.wrapping_sub(newest) <= MAX_AHEAD;
        let is_anew = hint.after_silence && is_newer && !hint.is_remembered;
        if is_anew && self.numberings.are_mixed() {
            // What is missing between several numberings has not been counted.
            self.restart(sequence);
            self.numberings = Numberings::default();
            return SequenceStatus::New { skipped: 0 };
        }
        let status = self.place_out_of_order(sequence, newest, hint);
        let is_seen = status == SequenceStatus::Seen;
        if hint.after_silence && !(is_seen && self.numberings.are_mixed()) {
            self.numberings = Numberings::default();
            return status;
        }
        if is_seen {
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
        let is_newer = ahead != 0 && ahead <= MAX_AHEAD;
        if self.repeats_zero(sequence, behind, hint) {
            self.newest_at_zero = Some(newest);
            return SequenceStatus::Seen;
        }
        // The first of them tells; a second one may be its duplicate.
        let is_next = hint.starts_message && (1..=MAX_AFTER_ZERO).contains(&sequence);
        let newest_at_zero = self.newest_at_zero.take_if(|_| is_next);
        if newest_at_zero == Some(newest) && self.seen.has(sequence) {
            self.restart(0);
            self.advance(0, sequence);
            return SequenceStatus::Restart { skipped: sequence - 1, after: Some(0) };
        }
        if !is_newer && self.is_restart(sequence, behind, hint) {
            self.restart(sequence);
            return SequenceStatus::Restart { skipped: 0, after: None };
        }
        if hint.is_remembered {
            return SequenceStatus::Seen;
        }
        if is_newer {
            self.advance(newest, ahead);
            return SequenceStatus::New { skipped: ahead - 1 };
        }
        if behind >= WINDOW {
            return self.record_stray(sequence);
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
        let sequence = newest.wrapping_add(by);
        self.newest = Some(sequence);
        self.span += u64::from(by);
        self.seen.set(sequence);
    }

    /// Whether a 0 may be repeated by the network: unless a repeated 1 to 4 is next, it is.
    fn repeats_zero(&self, sequence: u32, behind: u32, hint: DatagramHint) -> bool {
        let is_first = sequence == 0 && behind != 0 && u64::from(behind) == self.span;
        let is_equal = hint.starts_message && hint.is_equal && !hint.after_silence;
        is_first && is_equal && behind <= MAX_ZERO_REPEAT
    }

    /// Whether a number that is not ahead can only come from a restarted sender.
    fn is_restart(&self, sequence: u32, behind: u32, hint: DatagramHint) -> bool {
        if !hint.starts_message {
            return false;
        }
        let seen = behind < WINDOW && self.seen.has(sequence);
        // A 0 with numbers before it is the counter wrapping around.
        let is_first = sequence == 0 && behind != 0 && u64::from(behind) >= self.span;
        if is_first && (seen || behind > MAX_ZERO_LATE) {
            return true;
        }
        hint.after_silence && !hint.is_remembered
    }

    /// One number far away may be an error; two neighbours are a restart.
    fn record_stray(&mut self, sequence: u32) -> SequenceStatus {
        let Some(stray) = self.stray.replace(sequence) else { return SequenceStatus::Stray };
        let ahead = sequence.wrapping_sub(stray);
        match ahead {
            0 => SequenceStatus::Seen,
            1..=MAX_ZERO_LATE => {
                self.restart(stray);
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

    const SOON: DatagramHint = DatagramHint {
        starts_message: true,
        after_silence: false,
        is_remembered: false,
        is_equal: false,
    };
    const AFTER_SILENCE: DatagramHint = DatagramHint { after_silence: true, ..SOON };
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
        let inner = DatagramHint { starts_message: false, ..AFTER_SILENCE };
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
}
