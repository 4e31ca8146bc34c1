//! What one sender's sequence numbers say: what is new, what came late or twice, what never came, and
//! whether the sender began anew.
//!
//! It knows nothing of fragments and counts nothing; the totals are with [`Counts`](super::Counts).

/// How far behind the newest number another one is still known; a power of two.
const WINDOW: u32 = 4096;
const WORDS: usize = WINDOW as usize / 64;
/// More numbers than this are not lost at once.
const MAX_AHEAD: u32 = 1 << 24;
/// The number 0 may be this late and still be late; beyond, its sender began anew.
const ZERO_LATE: u32 = 64;

/// The window over one sender's sequence numbers.
#[derive(Clone, Debug)]
pub(super) struct Books {
    /// `None` until the first number.
    newest: Option<u32>,
    /// How far the first number lies behind the newest.
    span: u64,
    seen: Bits,
    /// Of those seen, those whose further fragments are passed over.
    settled: Bits,
    /// A number far from all others: an error of the network, or the beginning of new books.
    stray: Option<u32>,
}

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Newer than all others; the `skipped` numbers before it are missing.
    New {
        /// Numbers between.
        skipped: u32,
    },
    /// It was missing until now.
    Late,
    /// Older than the first one seen; the `skipped` numbers behind it are missing.
    Earlier {
        /// Numbers between.
        skipped: u32,
    },
    /// The sender began anew; its books do, with the first number of which these are `skipped` ones behind.
    Restart {
        /// Numbers between the first and this one.
        skipped: u32,
        /// The first number, if it came before this one.
        after: Option<u32>,
    },
    /// Far from all others: it is in no books, until a neighbour of it comes.
    Stray,
    /// It came before.
    Seen,
    /// It came before, and no more of it is wanted.
    Settled,
}

/// What is known of a datagram besides its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// A message begins with it: only such a datagram can come from a sender that began anew.
    pub(super) begins: bool,
    /// Nothing was heard of the sender for so long that nothing old is on the way any more.
    pub(super) after_silence: bool,
}

impl Books {
    pub(super) fn new() -> Self {
        Self { newest: None, span: 0, seen: Bits::default(), settled: Bits::default(), stray: None }
    }

    /// Enters a number and says what it is.
    #[inline]
    pub(super) fn note(&mut self, sequence: u32, hint: Hint) -> Note {
        let Some(newest) = self.newest else {
            self.begin(sequence);
            return Note::New { skipped: 0 };
        };
        let ahead = sequence.wrapping_sub(newest);
        if ahead == 1 {
            self.newest = Some(sequence);
            self.span += 1;
            self.seen.set(sequence);
            self.settled.clear(sequence);
            return Note::New { skipped: 0 };
        }
        self.note_out_of_order(sequence, newest, hint)
    }

    /// No more is wanted of this number: its further fragments are [`Note::Settled`].
    pub(super) fn settle(&mut self, sequence: u32) {
        if self.is_in_window(sequence) && self.seen.has(sequence) {
            self.settled.set(sequence);
        }
    }

    fn is_in_window(&self, sequence: u32) -> bool {
        self.newest.is_some_and(|newest| newest.wrapping_sub(sequence) < WINDOW)
    }

    fn begin(&mut self, sequence: u32) {
        *self = Self { newest: Some(sequence), ..Self::new() };
        self.seen.set(sequence);
    }

    #[inline(never)]
    fn note_out_of_order(&mut self, sequence: u32, newest: u32, hint: Hint) -> Note {
        let (ahead, behind) = (sequence.wrapping_sub(newest), newest.wrapping_sub(sequence));
        if ahead != 0 && ahead <= MAX_AHEAD {
            self.advance(newest, ahead);
            return Note::New { skipped: ahead - 1 };
        }
        if self.is_new_beginning(sequence, behind, hint) {
            self.begin(sequence);
            return Note::Restart { skipped: 0, after: None };
        }
        if behind >= WINDOW {
            return self.note_stray(sequence);
        }
        if self.settled.has(sequence) {
            return Note::Settled;
        }
        if self.seen.has(sequence) {
            return Note::Seen;
        }
        self.seen.set(sequence);
        if u64::from(behind) < self.span {
            return Note::Late;
        }
        let skipped = u64::from(behind) - self.span - 1;
        self.span = u64::from(behind);
        // Both lie within the window.
        Note::Earlier { skipped: u32::try_from(skipped).unwrap_or(WINDOW) }
    }

    fn advance(&mut self, newest: u32, by: u32) {
        // Their places were those of numbers that leave the window.
        self.seen.clear_after(newest, by);
        self.settled.clear_after(newest, by);
        let sequence = newest.wrapping_add(by);
        self.newest = Some(sequence);
        self.span += u64::from(by);
        self.seen.set(sequence);
    }

    /// Whether a number that is not ahead can only come from a sender that counts from the beginning again.
    fn is_new_beginning(&self, sequence: u32, behind: u32, hint: Hint) -> bool {
        if !hint.begins {
            return false;
        }
        let in_window = behind < WINDOW;
        let seen = in_window && self.seen.has(sequence);
        // A 0 with numbers before it is where the count went round.
        let is_first = sequence == 0 && behind != 0 && u64::from(behind) >= self.span;
        if is_first && (seen || behind > ZERO_LATE) {
            return true;
        }
        let repeated = seen && !self.settled.has(sequence);
        hint.after_silence && (repeated || !in_window)
    }

    /// One number far away may be an error; a second one next to it is not.
    fn note_stray(&mut self, sequence: u32) -> Note {
        let Some(stray) = self.stray.replace(sequence) else { return Note::Stray };
        let ahead = sequence.wrapping_sub(stray);
        match ahead {
            0 => Note::Seen,
            1..=ZERO_LATE => {
                self.begin(stray);
                self.advance(stray, ahead);
                Note::Restart { skipped: ahead - 1, after: Some(stray) }
            }
            _ => Note::Stray,
        }
    }
}

/// One bit for every number of the window.
#[derive(Clone, Debug)]
struct Bits([u64; WORDS]);

impl Default for Bits {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl Bits {
    #[inline]
    fn set(&mut self, sequence: u32) {
        let (word, bit) = place(sequence);
        self.0[word] |= bit;
    }

    #[inline]
    fn clear(&mut self, sequence: u32) {
        let (word, bit) = place(sequence);
        self.0[word] &= !bit;
    }

    /// Clears `count` numbers after this one, a word at a time where it can.
    fn clear_after(&mut self, sequence: u32, count: u32) {
        if count >= WINDOW {
            *self = Self::default();
            return;
        }
        let (mut next, mut left) = (sequence.wrapping_add(1), count);
        while left > 0 {
            let (word, bit) = place(next);
            let here = (64 - next % 64).min(left);
            self.0[word] &= !(u64::MAX >> (64 - here) << bit.trailing_zeros());
            next = next.wrapping_add(here);
            left -= here;
        }
    }

    #[inline]
    fn has(&self, sequence: u32) -> bool {
        let (word, bit) = place(sequence);
        self.0[word] & bit != 0
    }
}

#[inline]
fn place(sequence: u32) -> (usize, u64) {
    ((sequence % WINDOW / 64) as usize, 1 << (sequence % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Hint = Hint { begins: true, after_silence: false };
    const AFTER_SILENCE: Hint = Hint { begins: true, after_silence: true };
    const RESTART: Note = Note::Restart { skipped: 0, after: None };

    fn books(numbers: impl IntoIterator<Item = u32>) -> Books {
        let mut books = Books::new();
        for number in numbers {
            books.note(number, SOON);
        }
        books
    }

    #[test]
    fn the_first_number_is_where_the_books_begin() {
        assert_eq!(Books::new().note(77, SOON), Note::New { skipped: 0 });
        assert_eq!(books([77]).note(78, SOON), Note::New { skipped: 0 });
    }

    #[test]
    fn a_gap_is_missing_until_what_is_late_comes() {
        let mut books = books([7]);
        assert_eq!(books.note(10, SOON), Note::New { skipped: 2 });
        assert_eq!(books.note(9, SOON), Note::Late);
        assert_eq!(books.note(9, SOON), Note::Seen);
        assert_eq!(books.note(11, SOON), Note::New { skipped: 0 });
    }

    #[test]
    fn numbers_go_round() {
        let mut books = books([u32::MAX - 1]);
        assert_eq!(books.note(1, SOON), Note::New { skipped: 2 });
        assert_eq!(books.note(0, SOON), Note::Late);
        assert_eq!(books.note(0, SOON), Note::Seen);
        assert_eq!(books.note(u32::MAX, SOON), Note::Late);
    }

    #[test]
    fn numbers_before_the_first_move_the_beginning() {
        let mut books = books([100]);
        assert_eq!(books.note(97, SOON), Note::Earlier { skipped: 2 });
        assert_eq!(books.note(98, SOON), Note::Late);
        assert_eq!(books.note(97, SOON), Note::Seen);
    }

    #[test]
    fn the_window_forgets_what_lies_far_behind() {
        let mut all = books(0..10_000);
        assert_eq!(all.note(9_999 - 4095, SOON), Note::Seen);
        assert_eq!(all.note(9_999 - 4096, SOON), Note::Stray);
        let mut gap = books([5, 5 + 4095]);
        assert_eq!(gap.note(6, SOON), Note::Late);
        assert_eq!(gap.note(5, SOON), Note::Seen);
        let mut wide = books((5..4101).chain([4100 + 5000]));
        assert_eq!(wide.note(4100 + 5000 - 4095, SOON), Note::Late);
    }

    #[test]
    fn a_zero_that_came_before_is_a_restart() {
        assert_eq!(books([0, 1, 2]).note(0, SOON), RESTART);
        assert_eq!(books([500, 501]).note(0, SOON), RESTART);
        assert_eq!(books(0..10_000).note(0, SOON), RESTART);
    }

    #[test]
    fn a_zero_that_nothing_came_after_is_a_repeated_one() {
        assert_eq!(books([0]).note(0, SOON), Note::Seen);
    }

    #[test]
    fn a_zero_a_little_late_is_late() {
        assert_eq!(books([1, 2]).note(0, SOON), Note::Earlier { skipped: 0 });
    }

    #[test]
    fn what_is_not_the_beginning_of_a_message_is_no_restart() {
        let inner = Hint { begins: false, after_silence: true };
        assert_eq!(books([0, 1, 2]).note(0, inner), Note::Seen);
        assert_eq!(books([0, 1, 2]).note(1, inner), Note::Seen);
    }

    #[test]
    fn a_repeated_number_after_silence_is_a_restart() {
        let mut books = books(5..9);
        assert_eq!(books.note(6, SOON), Note::Seen);
        assert_eq!(books.note(6, AFTER_SILENCE), RESTART);
        assert_eq!(books.note(7, SOON), Note::New { skipped: 0 });
    }

    #[test]
    fn one_number_far_away_does_not_touch_the_books() {
        for far in [20_000, 1_000_000u32.wrapping_add(1 << 25), u32::MAX] {
            let mut books = books([1_000_000]);
            assert_eq!(books.note(far, SOON), Note::Stray);
            assert_eq!(books.note(far, SOON), Note::Seen);
            assert_eq!(books.note(1_000_001, SOON), Note::New { skipped: 0 });
        }
    }

    #[test]
    fn two_neighbours_far_away_are_a_restart() {
        let mut books = books([1_000_000, 1]);
        assert_eq!(books.note(3, SOON), Note::Restart { skipped: 1, after: Some(1) });
        assert_eq!(books.note(2, SOON), Note::Late);
        assert_eq!(books.note(1, SOON), Note::Seen);
    }

    #[test]
    fn far_away_after_silence_is_a_restart_at_once() {
        assert_eq!(books([1_000_000]).note(3, AFTER_SILENCE), RESTART);
    }

    #[test]
    fn the_largest_jump_is_missing_and_a_larger_one_is_not() {
        let most = MAX_AHEAD;
        assert_eq!(books([9]).note(9 + most, SOON), Note::New { skipped: most - 1 });
        assert_eq!(books([9]).note(10 + most, SOON), Note::Stray);
    }

    #[test]
    fn what_is_settled_is_forgotten_when_it_leaves_the_window() {
        for jump in [1, 7] {
            let mut books = books([1, 2]);
            books.settle(2);
            let last = 2 + WINDOW - jump;
            for number in 3..=last {
                books.note(number, SOON);
            }
            books.note(last + jump, SOON);
            assert_eq!(books.note(2 + WINDOW, SOON), Note::Seen);
        }
    }

    #[test]
    fn a_jump_clears_what_it_passes_and_nothing_else() {
        for (first, jump) in [(0, 1), (3, 60), (63, 64), (60, 200), (4000, 4095), (9, 4096)] {
            let mut bits = Bits([u64::MAX; WORDS]);
            bits.clear_after(first, jump);
            let cleared = (0..WINDOW).filter(|ahead| !bits.has(first + 1 + ahead));
            assert!(cleared.eq(0..jump), "{first} {jump}");
        }
    }

    #[test]
    fn what_is_settled_is_told_from_what_came_twice() {
        let mut books = books([1, 2, 3]);
        books.settle(2);
        books.settle(9);
        assert_eq!(books.note(2, SOON), Note::Settled);
        assert_eq!(books.note(3, SOON), Note::Seen);
        assert_eq!(books.note(9, SOON), Note::New { skipped: 5 });
        assert_eq!(books.note(9, SOON), Note::Seen);
    }
}
