//! Places: where events were in the stream that a pipeline splits into branches, so that a merge of
//! the branches restores its order.

use arrow_buffer::ScalarBuffer;

use super::Batch;
use crate::column::column;

impl Batch {
    /// The place of each event in the stream that was split, if its branches are merged again.
    pub fn places(&self) -> Option<&[i64]> {
        self.places.as_deref()
    }

    /// Replaces the places.
    ///
    /// # Panics
    ///
    /// If there is not one place per event.
    pub fn with_places(mut self, places: Vec<i64>) -> Self {
        assert_eq!(places.len(), self.len(), "one place per event");
        self.places = Some(column(places));
        self
    }

    /// Gives the events consecutive places from this one.
    pub fn with_places_from(self, first: i64) -> Self {
        let places = (0..self.len() as i64).map(|n| first.saturating_add(n)).collect();
        self.with_places(places)
    }

    /// Gives all events one place.
    pub fn with_one_place(self, place: i64) -> Self {
        let places = vec![place; self.len()];
        self.with_places(places)
    }

    /// Gives events that a stage built anew the places of those they come from.
    ///
    /// Events are recognised by time and sequence number, in order. From the first one that is
    /// not found on, an event has the place of the last one that is not later.
    pub fn with_places_of(mut self, before: &Self) -> Self {
        let Some(places) = before.places.as_ref().filter(|places| !places.is_empty()) else {
            return self;
        };
        if self.places.is_some() {
            return self;
        }
        if self.len() == before.len() {
            self.places = Some(places.clone());
            return self;
        }
        let (mut at, mut found_all) = (0, true);
        let place_of = |row: usize| {
            let is_it = |other: &usize| {
                before.timestamps[*other] == self.timestamps[row]
                    && before.sequences[*other] == self.sequences[row]
            };
            // Looks no further once something was not found: that would be quadratic.
            let found = found_all.then(|| (at..before.len()).find(is_it)).flatten();
            found_all = found.is_some();
            let is_earlier = |at: &usize| before.timestamps[*at] <= self.timestamps[row];
            at = found.unwrap_or_else(|| {
                (at + 1..before.len()).take_while(is_earlier).last().unwrap_or(at)
            });
            places[at]
        };
        self.places = Some(column((0..self.len()).map(place_of).collect()));
        self
    }
}

/// The places of events that are picked from several batches. One without a place was added behind
/// the one before it.
pub(super) fn interleaved(batches: &[Batch], picks: &[(u32, u32)]) -> Option<ScalarBuffer<i64>> {
    if batches.iter().all(|batch| batch.places.is_none()) {
        return None;
    }
    let place = |(batch, row): &(u32, u32)| {
        batches[*batch as usize].places.as_ref().map(|places| places[*row as usize])
    };
    let mut last = picks.iter().find_map(place)?;
    let behind = |pick: &(u32, u32)| {
        last = place(pick).unwrap_or(last);
        last
    };
    Some(picks.iter().map(behind).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ChannelId};

    fn batch(events: &[(i64, i64)]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (time, sequence) in events {
            builder.push_copy(*time, *sequence, ChannelId(0), b"");
        }
        builder.finish()
    }

    fn places(batch: &Batch) -> &[i64] {
        batch.places().unwrap()
    }

    #[test]
    fn places_stay_with_their_events() {
        let placed = batch(&[(5, 0), (3, 1), (4, 2), (4, 3)]).with_places_from(10);
        assert_eq!(places(&placed), [10, 11, 12, 13]);
        assert_eq!(places(&placed.retain(|row| row % 2 == 1)), [11, 13]);
        assert_eq!(places(&placed.slice(1, 2)), [11, 12]);
        assert_eq!(places(&placed.repeated(&[2, 2, 0], |_| true)), [12, 12, 10]);
        assert_eq!(places(&placed.clone().with_timestamps(vec![0; 4]).owned()), [10, 11, 12, 13]);
        assert_eq!(batch(&[(1, 1)]).with_places_of(&batch(&[(1, 1)])).places(), None);
    }

    #[test]
    fn added_events_are_behind_those_before_them() {
        let placed = batch(&[(5, 0), (3, 1)]).with_places_from(10);
        let both = [placed, batch(&[(0, 0)])];
        let picks = [(1, 0), (0, 0), (1, 0), (0, 1), (1, 0)];
        assert_eq!(places(&Batch::interleave(&both, &picks)), [10, 10, 10, 11, 11]);
        assert_eq!(Batch::interleave(&both[1..], &[(0, 0)]).places(), None);
    }

    #[test]
    fn events_built_anew_have_the_places_of_those_they_come_from() {
        let before = batch(&[(5, 0), (3, 1), (4, 2), (4, 3), (9, 4)]).with_places_from(10);
        let anew = |events: &[(i64, i64)]| batch(events).with_places_of(&before);
        assert_eq!(places(&anew(&[(3, 1), (4, 3), (4, 3), (9, 4)])), [11, 13, 13, 14]);
        // As many, with other times.
        assert_eq!(places(&anew(&[(0, 0); 5])), [10, 11, 12, 13, 14]);
        // One that was not there.
        assert_eq!(places(&anew(&[(3, 1), (4, 7), (8, 0), (100, 0)])), [11, 13, 13, 14]);
        assert!(places(&anew(&[])).is_empty());
    }
}
