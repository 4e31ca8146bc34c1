//! A set of the numbers of a [`SequenceWindow`](super::sequence::SequenceWindow).

/// How many numbers behind the newest are tracked; a power of two.
pub(super) const WINDOW: u32 = 4096;
const WORDS: usize = WINDOW as usize / 64;

/// One bit per number of the window.
#[derive(Clone, Debug)]
pub(super) struct WindowBits([u64; WORDS]);

impl Default for WindowBits {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl WindowBits {
    #[inline]
    pub(super) fn set(&mut self, sequence: u32) {
        let (word, bit) = bit_position(sequence);
        self.0[word] |= bit;
    }

    /// Clears the `count` numbers after this one, a word at a time where possible.
    pub(super) fn clear_after(&mut self, sequence: u32, count: u32) {
        if count >= WINDOW {
            *self = Self::default();
            return;
        }
        let (mut next, mut left) = (sequence.wrapping_add(1), count);
        while left > 0 {
            let (word, bit) = bit_position(next);
            let here = (64 - next % 64).min(left);
            self.0[word] &= !(u64::MAX >> (64 - here) << bit.trailing_zeros());
            next = next.wrapping_add(here);
            left -= here;
        }
    }

    #[inline]
    pub(super) fn has(&self, sequence: u32) -> bool {
        let (word, bit) = bit_position(sequence);
        self.0[word] & bit != 0
    }
}

#[inline]
fn bit_position(sequence: u32) -> (usize, u64) {
    ((sequence % WINDOW / 64) as usize, 1 << (sequence % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_clears_what_it_passes_and_nothing_else() {
        for (first, jump) in [(0, 1), (3, 60), (63, 64), (60, 200), (4000, 4095), (9, 4096)] {
            let mut bits = WindowBits([u64::MAX; WORDS]);
            bits.clear_after(first, jump);
            let cleared = (0..WINDOW).filter(|ahead| !bits.has(first + 1 + ahead));
            assert!(cleared.eq(0..jump), "{first} {jump}");
        }
    }
}
