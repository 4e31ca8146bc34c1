//! Notices that the messages of one sender have several numberings, as those of a relay that
//! forwards several programs through one socket: their numbers jump to and fro between places far
//! from each other.
//!
//! Numberings close to each other need no notice: the same numbers with other contents come soon.

use super::sequence_status::SequenceStatus;

/// A jump of at most so many numbers may be a loss or a late message.
const MAX_NEAR: u32 = 64;
/// Places that are remembered.
const PLACES: usize = 8;
/// A restart with late messages around it returns to a place less often.
const MIN_RETURNS: u8 = 3;
/// Late messages may come between current ones, but not so many.
const MIN_LATE_RETURNS: u8 = 16;

/// The places to which the numbers of one sender have jumped.
#[derive(Clone, Debug, Default)]
pub(super) struct Numberings {
    places: [Option<Place>; PLACES],
    /// The place to replace next.
    oldest: usize,
    are_mixed: bool,
}

/// A place other than the current one.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The last number there.
    last: u32,
    /// Jumps that continued there, after other numbers in between.
    returns: u8,
    /// Numbers that are considered missing because of these jumps.
    skipped: u64,
    /// The newest number at the last jump, if that was to an older number.
    newest: Option<u32>,
}

impl Numberings {
    /// Whether there are several numberings.
    pub(super) fn are_mixed(&self) -> bool {
        self.are_mixed
    }

    /// Numbers that are considered missing because of jumps to and fro.
    pub(super) fn skipped(&self) -> u64 {
        let places = self.places.iter().flatten().filter(|place| place.returns > 0);
        places.map(|place| place.skipped).sum()
    }

    /// Records that the number `to` came where `newest` was the newest one, and what it means.
    /// `moved` is whether `to` is the newest one now.
    pub(super) fn jump(&mut self, newest: u32, to: u32, moved: bool, status: SequenceStatus) {
        if to.wrapping_sub(newest).min(newest.wrapping_sub(to)) <= MAX_NEAR {
            return;
        }
        let (last, stayed) = if moved { (newest, None) } else { (to, Some(newest)) };
        let skipped = u64::from(status.skipped());
        let mut places = self.places.iter_mut().flatten();
        let Some(place) =
            places.find(|place| (1..=MAX_NEAR).contains(&to.wrapping_sub(place.last)))
        else {
            self.places[self.oldest] = Some(Place { last, returns: 0, skipped, newest: stayed });
            self.oldest = (self.oldest + 1) % PLACES;
            return;
        };
        // Several late messages in a row are one return, and those of a slow path are none.
        let fills_gap = status == SequenceStatus::Late && place.skipped == 0;
        let is_return = place.newest != Some(newest) && !fills_gap;
        place.returns = place.returns.saturating_add(u8::from(is_return));
        (place.last, place.newest) = (last, stayed);
        place.skipped += skipped;
        let min_returns = match status {
            SequenceStatus::Late => MIN_LATE_RETURNS,
            _ => MIN_RETURNS,
        };
        self.are_mixed |= place.returns >= min_returns;
    }

    /// Records that a missing number came late.
    pub(super) fn fill(&mut self, sequence: u32) {
        let mut places = self.places.iter_mut().flatten();
        if let Some(place) = places.find(|place| place.last == sequence) {
            place.skipped = place.skipped.saturating_sub(1);
        }
    }
}
