//! Keys for streams that were split from one and then shifted in time: how merging them does not
//! depend on where the steps of their source end, even if its times step back.

use super::input::{MergeInput, MergeWait};

/// The time of the stream that was split, as far as it matters to streams that were shifted: it
/// never steps back, and it advances by no more than lies between the shifts and one more, by which
/// all that waits precedes what follows.
///
/// Behind a larger step back, what waits will not be caught up with, so that this counts as the
/// start of another recording.
#[derive(Debug)]
pub(super) struct ShiftedClock {
    /// The least shift.
    least: i128,
    /// The most by which a stream is shifted further than another one.
    spread: i128,
    /// The latest time of this recording, without shifts.
    latest: i64,
    now: i128,
}

impl ShiftedClock {
    pub(super) fn new(shifts: &[i64]) -> Self {
        let least = shifts.iter().copied().min().map_or(0, i128::from);
        let most = shifts.iter().copied().max().map_or(0, i128::from);
        Self { least, spread: most - least, latest: i64::MIN, now: 0 }
    }

    /// Counts what follows as another recording.
    pub(super) fn begin_again(&mut self) {
        self.latest = i64::MIN;
    }

    /// The key that no later event of any stream precedes.
    pub(super) fn now(&self) -> i128 {
        self.now
    }

    fn advance(&mut self, time: i64) {
        let ahead = i128::from(time) - i128::from(self.latest);
        let is_apart = ahead.abs() > self.spread;
        if is_apart || ahead > 0 {
            self.now += if is_apart { self.spread + 1 } else { ahead };
            self.latest = time;
        }
    }

    /// Gives what has come in the last step its keys: for each event, the clock when the stream
    /// that was split was at its place, and the shift. Returns how many are late.
    pub(super) fn give_keys(&mut self, inputs: &mut [MergeInput]) -> u64 {
        let (mut keys, mut late) = (vec![Vec::new(); inputs.len()], 0);
        loop {
            // The next event of each stream.
            let heads = inputs.iter().zip(&keys).enumerate().filter_map(|(n, (input, keys))| {
                let batch = input.batches.get(input.shifted_keys.len())?;
                Some((batch.places()?[keys.len()], n))
            });
            let Some((_, first)) = heads.min() else { return late };
            let (input, keys) = (&mut inputs[first], &mut keys[first]);
            let batch = &input.batches[input.shifted_keys.len()];
            self.advance(batch.timestamps()[keys.len()].saturating_sub(input.shift));
            keys.push(self.now + i128::from(input.shift) - self.least);
            if keys.len() == batch.len() {
                input.shifted_keys.push_back(std::mem::take(keys));
                late += input.count_late(first, MergeWait::ShiftedStep);
            }
        }
    }
}
