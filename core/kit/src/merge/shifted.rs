//! Keys for streams that were split from one and then shifted in time: how merging them does not
//! depend on where the steps of their source end, even if its times step back.

use super::input::MergeInput;

/// The time of the stream that was split, as far as it matters to streams that were shifted: it
/// never steps back, and it advances by no more than lies between the shifts and one more, by which
/// all that waits precedes what follows.
///
/// Behind a larger step back, what waits will not be caught up with, so that this counts as the
/// start of another recording.
#[derive(Debug)]
pub(super) struct ShiftedClock {
    /// The least shift.
    least: i64,
    /// The most by which a stream is shifted further than another one.
    spread: i64,
    /// The latest time of this recording, without shifts.
    latest: i64,
    now: i64,
}

impl ShiftedClock {
    pub(super) fn new(shifts: &[i64]) -> Self {
        let least = shifts.iter().copied().min().unwrap_or(0);
        let most = shifts.iter().copied().max().unwrap_or(0);
        Self { least, spread: most.saturating_sub(least), latest: i64::MIN, now: 0 }
    }

    /// Counts what follows as another recording.
    pub(super) fn begin_again(&mut self) {
        self.latest = i64::MIN;
    }

    /// The key that no later event of any stream precedes.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    fn advance(&mut self, time: i64) {
        let ahead = time.saturating_sub(self.latest);
        let is_apart = ahead > self.spread || ahead < -self.spread;
        if is_apart || ahead > 0 {
            let by = if is_apart { self.spread.saturating_add(1) } else { ahead };
            (self.now, self.latest) = (self.now.saturating_add(by), time);
        }
    }

    /// Gives what has come in the last step its keys: for each event, the clock when the stream
    /// that was split was at its place, and the shift. Returns how many are late.
    pub(super) fn give_keys(&mut self, inputs: &mut [MergeInput]) -> u64 {
        // The batch of each input, and the keys of its first events.
        let mut keyed: Vec<(usize, Vec<i64>)> =
            inputs.iter().map(|input| (input.ready, Vec::new())).collect();
        let mut late = 0;
        loop {
            let heads = inputs.iter().zip(&keyed).enumerate();
            let heads = heads.filter_map(|(n, (input, (batch, keys)))| {
                Some((input.batches.get(*batch)?.places()?[keys.len()], n))
            });
            let Some((_, first)) = heads.min() else { return late };
            let (input, (at, keys)) = (&mut inputs[first], &mut keyed[first]);
            let Some(batch) = input.batches.get_mut(*at) else { return late };
            let time = batch.timestamps()[keys.len()];
            self.advance(time.saturating_sub(input.shift));
            keys.push(self.now.saturating_add(input.shift.saturating_sub(self.least)));
            if keys.len() == batch.len() {
                let keys = std::mem::take(keys);
                *batch = std::mem::take(batch).with_places(keys);
                (*at, input.ready) = (*at + 1, input.ready + 1);
                let keys = input.batches[*at - 1].places().unwrap_or_default();
                late += input.count_late(first, keys);
            }
        }
    }
}
