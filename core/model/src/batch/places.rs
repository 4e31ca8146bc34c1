//! Places: where events were in the stream that a pipeline splits into branches, so that a merge of
//! the branches restores its order.

use arrow_buffer::ScalarBuffer;

use super::Batch;
use crate::column::{column, vector};

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
        let mut places = vector(self.len());
        places.extend((0..self.len() as i64).map(|n| first.saturating_add(n)));
        self.with_places(places)
    }

    /// Gives all events one place.
    pub fn with_one_place(self, place: i64) -> Self {
        let places = vec![place; self.len()];
        self.with_places(places)
    }

    /// Removes the places.
    pub fn without_places(mut self) -> Self {
        self.places = None;
        self
    }

    /// Gives what a stage made of this batch its places, where the stage has built events anew.
    ///
    /// If some batches have places, the others were added: before the next one, or behind the last.
    /// Otherwise events are those of this batch if they are as many. If not, they are recognised by
    /// time and sequence number, in order; from the first one that is not found on, an event has
    /// the place of the last one that is not later.
    pub fn give_places(&self, made: Vec<Self>) -> Vec<Self> {
        let Some(places) = self.places.as_ref().filter(|places| !places.is_empty()) else {
            return made;
        };
        if made.iter().any(|batch| batch.places.is_some()) {
            return with_added(made);
        }
        let mut finder = PlaceFinder { of: self, places, at: 0, found_all: true };
        let is_each = made.iter().map(Self::len).sum::<usize>() == self.len();
        let (mut first, mut placed) = (0, Vec::with_capacity(made.len()));
        for batch in made {
            let places = match is_each {
                true => places[first..first + batch.len()].to_vec(),
                false => (0..batch.len()).map(|row| finder.place(&batch, row)).collect(),
            };
            first += batch.len();
            placed.push(batch.with_places(places));
        }
        placed
    }
}

/// Gives batches without places that of the next one's first event, or of the last one's last.
fn with_added(mut made: Vec<Batch>) -> Vec<Batch> {
    let give = |batch: &mut Batch, place: Option<i64>| {
        if let (None, Some(place)) = (&batch.places, place) {
            *batch = std::mem::take(batch).with_one_place(place);
        }
    };
    let mut next = None;
    for batch in made.iter_mut().rev() {
        next = batch.places().and_then(|places| places.first().copied()).or(next);
        give(batch, next);
    }
    let mut last = None;
    for batch in &mut made {
        last = batch.places().and_then(|places| places.last().copied()).or(last);
        give(batch, last);
    }
    made
}

/// Finds the places of events that were built anew, in order.
struct PlaceFinder<'b> {
    of: &'b Batch,
    places: &'b [i64],
    at: usize,
    found_all: bool,
}

impl PlaceFinder<'_> {
    fn place(&mut self, batch: &Batch, row: usize) -> i64 {
        let (of, time) = (self.of, batch.timestamps[row]);
        let is_it = |other: &usize| {
            of.timestamps[*other] == time && of.sequences[*other] == batch.sequences[row]
        };
        // Looks no further once something was not found: that would be quadratic.
        let found = self.found_all.then(|| (self.at..of.len()).find(is_it)).flatten();
        self.found_all = found.is_some();
        let is_earlier = |at: &usize| of.timestamps[*at] <= time;
        let later = || (self.at + 1..of.len()).take_while(is_earlier).last();
        self.at = found.or_else(later).unwrap_or(self.at);
        self.places[self.at]
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
        assert_eq!(placed.without_places().places(), None);
        let made = batch(&[(1, 1)]).give_places(vec![batch(&[(1, 1)])]);
        assert_eq!(made[0].places(), None);
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
        let anew = |made: &[&[(i64, i64)]]| -> Vec<i64> {
            let made = before.give_places(made.iter().map(|events| batch(events)).collect());
            made.iter().flat_map(|batch| places(batch).to_vec()).collect()
        };
        assert_eq!(anew(&[&[(3, 1), (4, 3)], &[(4, 3), (9, 4)]]), [11, 13, 13, 14]);
        // As many, with other times.
        assert_eq!(anew(&[&[(0, 0); 3], &[], &[(0, 0); 2]]), [10, 11, 12, 13, 14]);
        // One that was not there.
        assert_eq!(anew(&[&[(3, 1), (4, 7), (8, 0), (100, 0)]]), [11, 13, 13, 14]);
        assert!(anew(&[&[]]).is_empty());
    }

    #[test]
    fn batches_added_to_those_of_a_stage_are_before_or_behind_them() {
        let before = batch(&[(5, 0), (5, 0)]).with_places_from(10);
        let added = || batch(&[(5, 0), (5, 0)]);
        let made = vec![added(), added(), before.slice(0, 1), added(), before.slice(1, 1), added()];
        let made = before.give_places(made);
        let made: Vec<i64> = made.iter().flat_map(|batch| places(batch).to_vec()).collect();
        assert_eq!(made, [10, 10, 10, 10, 10, 11, 11, 11, 11, 11]);
    }
}
