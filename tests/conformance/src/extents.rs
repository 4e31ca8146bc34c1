//! Extents: where each event of a sample lies, inferred from truncating it at many positions. Reads
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::reading::ReadResult;

/// The result of reading a truncated sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutResult {
    /// How many events of the whole sample it starts with.
    pub(crate) events: usize,
    /// Whether the loss is reported.
    pub(crate) reported: bool,
    /// Whether reading failed, which discards everything.
    pub(crate) failed: bool,
    /// Whether the last byte before the cut is in reported damage.
    pub(crate) ends_damaged: bool,
}

impl CutResult {
    /// The result of reading the first `at` bytes, which starts with so many events of the sample.
    pub(crate) fn of(read: &ReadResult, events: usize, at: usize) -> Self {
        let last = (at as u64).saturating_sub(1);
        Self {
            events,
            reported: read.reports_anything(),
            failed: read.error.is_some(),
            ends_damaged: read.damage.iter().any(|damage| damage.bytes().contains(&last)),
        }
    }
}

/// Results by truncation position.
#[derive(Clone, Debug, Default)]
pub(crate) struct CutResults(BTreeMap<usize, CutResult>);

/// The maximum length of a terminator, such as `\r\n`, after which a file may also end.
const BREAK: usize = 2;

impl CutResults {
    /// Adds a result.
    pub(crate) fn add(&mut self, at: usize, cut: CutResult) {
        self.0.insert(at, cut);
    }

    /// The result at a position, if it was tested.
    pub(crate) fn at(&self, at: usize) -> Option<CutResult> {
        self.0.get(&at).copied()
    }

    /// The last position that yields at most `event` events, and the first that yields more.
    pub(crate) fn around(&self, event: usize) -> Option<(usize, usize)> {
        let (end, _) = self.0.iter().find(|(_, cut)| cut.events > event)?;
        let before = self.0.range(..end).next_back().map_or(0, |(at, _)| *at);
        Some((before, *end))
    }

    /// Finds the first position that yields more than `event` events, by the results of further
    /// truncations.
    pub(crate) fn refine(
        &mut self,
        event: usize,
        mut cut_at: impl FnMut(usize) -> Option<CutResult>,
    ) -> usize {
        let (mut low, mut high) = self.around(event).unwrap_or_default();
        while low + 1 < high {
            let middle = low.midpoint(high);
            let cut = cut_at(middle);
            let gives = cut.is_some_and(|cut| cut.events > event);
            self.0.extend(cut.map(|cut| (middle, cut)));
            (low, high) = if gives { (low, middle) } else { (middle, high) };
        }
        high
    }

    /// A position inside an event or header where truncation is not reported, and the number of
    /// further ones.
    ///
    /// A format may end at other positions than right after an event, but not at several
    /// consecutive ones.
    pub(crate) fn silent(&self, len: usize) -> Option<(usize, usize)> {
        let all = self.0.get(&len)?.events;
        let mut silent = Vec::new();
        let mut run: Vec<usize> = Vec::new();
        for (at, cut) in &self.0 {
            let follows = run.last().is_some_and(|last| last + 1 == *at);
            let is_end = at.checked_sub(1).and_then(|before| self.at(before));
            // The position right after an event starts another run.
            let begins = is_end.is_none_or(|before| before.events < cut.events);
            if !follows || begins || cut.reported {
                run.clear();
            }
            if !cut.reported && cut.events < all && *at > 0 && !begins {
                run.push(*at);
                if run.len() > BREAK {
                    silent.extend(run.first().copied());
                }
            }
        }
        silent.first().map(|first| (*first, silent.len() - 1))
    }

    /// The first truncation after the header that yields less than an earlier one, or that fails
    /// despite complete events before it; with the number of events lost, and the number of further
    /// such positions.
    pub(crate) fn lossy(&self, header: usize) -> Option<(usize, usize, usize)> {
        let mut most = 0;
        let mut given_up = Vec::new();
        for (at, cut) in &self.0 {
            let given = if cut.failed { 0 } else { cut.events };
            if given < most && *at >= header {
                given_up.push((*at, most - given));
            }
            most = most.max(cut.events);
        }
        given_up.first().map(|(at, lost)| (*at, *lost, given_up.len() - 1))
    }

    /// Whether every truncation yields nothing or everything.
    pub(crate) fn gives_nothing(&self, events: usize) -> bool {
        self.0.values().all(|cut| !(1..events).contains(&cut.events))
    }

    /// Where each event of a sample of `len` bytes lies; `None` if truncations yield nothing or
    /// everything.
    pub(crate) fn extents(&self, events: usize, len: usize) -> Option<EventExtents> {
        let is_stream =
            self.0.iter().any(|(at, cut)| *at < len && (1..events).contains(&cut.events));
        if !is_stream {
            return None;
        }
        let ends: Option<Vec<(usize, usize)>> =
            (0..events).map(|event| self.around(event)).collect();
        let ends = ends?;
        let is_behind = |(_, end): &(usize, usize)| self.at(*end).is_some_and(|c| c.ends_damaged);
        let behind = ends.iter().copied().filter(is_behind).collect();
        Some(EventExtents { ends, behind, header: 0 })
    }
}

/// The positions of events.
#[derive(Clone, Debug)]
pub(crate) struct EventExtents {
    /// For each event, a position where it is incomplete and one where it is complete.
    ends: Vec<(usize, usize)>,
    /// Those of `ends` that lie behind the event: what follows it has to confirm it.
    behind: BTreeSet<(usize, usize)>,
    /// The number of leading bytes that all events may depend on.
    header: usize,
}

impl EventExtents {
    /// Sets the minimum header length.
    pub(crate) fn with_header(self, header: usize) -> Self {
        Self { header, ..self }
    }

    /// Lets the events of each of these frames end with it, wherever truncation yields them.
    pub(crate) fn in_frames(mut self, frames: &[Range<usize>]) -> Self {
        let end_of = |at: usize| {
            let frame = frames.get(frames.partition_point(|frame| frame.end < at));
            frame.filter(|frame| frame.start < at).map_or(at, |frame| frame.end)
        };
        for (short, end) in &mut self.ends {
            (*short, *end) = (end_of(*short + 1) - 1, end_of(*end));
        }
        self
    }

    /// Whether several events end together, in one frame.
    pub(crate) fn share_frames(&self) -> bool {
        self.ends.windows(2).any(|pair| pair[0].1 == pair[1].1 && pair[0].0 + 1 == pair[0].1)
    }

    /// The end of the first event. A header may lie before it, on which everything depends.
    fn first_end(&self) -> usize {
        self.ends.first().map_or(0, |(_, end)| *end)
    }

    /// The smallest range that is known to contain an event.
    pub(crate) fn outer(&self, event: usize) -> Range<usize> {
        let Some((_, end)) = self.ends.get(event) else { return 0..0 };
        let before = self.ends.get(..event).unwrap_or_default();
        // Events of one frame start with the frame.
        let start = before.iter().rev().find(|(_, before)| before < end);
        start.map_or(0, |(short, _)| short + 1)..*end
    }

    /// The events whose ends and starts are known to the byte, with these. They start where the
    /// event before them ends: what lies between belongs to them.
    pub(crate) fn exact_places(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        (0..self.ends.len()).filter_map(|event| {
            let start = match event.checked_sub(1) {
                None => 0,
                Some(before) => self.exact_end(before)?,
            };
            Some((event, start..self.exact_end(event)?))
        })
    }

    /// A position where an event is complete.
    pub(crate) fn end(&self, event: usize) -> usize {
        self.ends.get(event).map_or(0, |(_, end)| *end)
    }

    /// The end of an event, if it is known to the byte.
    pub(crate) fn exact_end(&self, event: usize) -> Option<usize> {
        let ends = self.ends.get(event).filter(|ends| !self.behind.contains(ends));
        ends.filter(|(short, end)| short + 1 == *end).map(|(_, end)| *end)
    }

    /// The minimum length of an event.
    pub(crate) fn least(&self, event: usize) -> usize {
        let Some((short, _)) = self.ends.get(event) else { return 0 };
        let before = event.checked_sub(1).and_then(|before| self.ends.get(before));
        // A header may precede the first event.
        before.map_or(0, |(_, start)| (short + 1).saturating_sub(*start))
    }

    /// The number of leading events that a change at this position cannot affect. The last one
    /// before it is not counted, because what follows may validate it.
    pub(crate) fn in_front(&self, at: usize) -> usize {
        let before = || self.ends.iter().map(|(_, end)| *end).take_while(|end| *end <= at);
        let last = before().last();
        if at < self.header { 0 } else { before().filter(|end| Some(*end) != last).count() }
    }

    /// The number of events that a change of these bytes can affect.
    pub(crate) fn touched(&self, change: &Range<usize>) -> usize {
        if change.start < self.first_end().max(self.header) {
            return self.ends.len();
        }
        (0..self.ends.len()).filter(|event| self.is_touched(*event, change)).count()
    }

    /// Whether a change of these bytes can affect an event.
    pub(crate) fn is_touched(&self, event: usize, change: &Range<usize>) -> bool {
        is_touched(&self.outer(event), change)
    }

    /// A selection of event ends, known to the byte if possible: the first ones, and some others.
    pub(crate) fn some_ends(&self) -> Vec<usize> {
        const FIRST: usize = 4;
        const OTHERS: usize = 4;
        let exact: Vec<usize> =
            (0..self.ends.len()).filter_map(|event| self.exact_end(event)).collect();
        let ends = match exact.is_empty() {
            true => self.ends.iter().map(|(_, end)| *end).collect(),
            false => exact,
        };
        let (first, others) = ends.split_at(ends.len().min(FIRST));
        let step = others.len().div_ceil(OTHERS).max(1);
        first.iter().chain(others.iter().step_by(step)).copied().collect()
    }
}

fn is_touched(event: &Range<usize>, change: &Range<usize>) -> bool {
    match change.is_empty() {
        true => event.start < change.start && change.start < event.end,
        false => event.start < change.end && change.start < event.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results for a log with these event ends, with `silent` positions that report nothing.
    fn cuts(ends: &[usize], silent: &[usize]) -> CutResults {
        let len = ends.last().copied().unwrap_or(0);
        let mut cuts = CutResults::default();
        for at in 0..=len {
            let events = ends.iter().filter(|end| **end <= at).count();
            let told = !(at == 0 || ends.contains(&at) || silent.contains(&at));
            cuts.add(at, CutResult { events, reported: told, failed: false, ends_damaged: false });
        }
        cuts
    }

    #[test]
    fn events_lie_between_the_ends_of_their_neighbours() {
        let extents = cuts(&[10, 25, 30], &[]).extents(3, 30).unwrap();
        assert_eq!((extents.outer(0), extents.outer(1), extents.outer(2)), (0..10, 10..25, 25..30));
        assert_eq!((extents.least(0), extents.least(1), extents.least(2)), (0, 15, 5));
        assert_eq!((extents.touched(&(12..13)), extents.touched(&(24..26))), (1, 2));
        assert_eq!((extents.touched(&(3..4)), extents.touched(&(20..20))), (3, 1));
    }

    #[test]
    fn the_end_of_an_event_that_what_follows_has_to_confirm_is_not_known() {
        let mut cuts = cuts(&[10, 25, 30], &[]);
        let confirmed = CutResult { events: 1, reported: true, failed: false, ends_damaged: true };
        cuts.add(10, confirmed);
        let extents = cuts.extents(3, 30).unwrap();
        assert_eq!([0, 1, 2].map(|event| extents.exact_end(event)), [None, Some(25), Some(30)]);
        assert_eq!(extents.exact_places().collect::<Vec<_>>(), [(2, 25..30)]);
    }

    #[test]
    fn silent_cuts_in_a_header_are_found_and_line_breaks_are_allowed() {
        assert_eq!(cuts(&[10, 30, 50], &[]).silent(50), None);
        assert_eq!(cuts(&[10, 30, 50], &[11, 12, 31]).silent(50), None);
        assert_eq!(cuts(&[10, 30, 50], &[31, 32, 33, 34]).silent(50), Some((31, 1)));
        assert_eq!(cuts(&[10, 30, 50], &[1, 2, 3, 4]).silent(50), Some((1, 1)));
        assert_eq!(cuts(&[10, 30, 50], &[15, 20, 40]).silent(50), None);
    }

    #[test]
    fn a_cut_that_gives_less_than_one_before_it_is_noticed() {
        let mut cuts = cuts(&[10, 30, 50], &[]);
        assert_eq!(cuts.lossy(0), None);
        cuts.add(35, CutResult { events: 1, reported: true, failed: false, ends_damaged: false });
        cuts.add(40, CutResult { events: 2, reported: true, failed: true, ends_damaged: false });
        assert_eq!((cuts.lossy(0), cuts.lossy(36)), (Some((35, 1, 1)), Some((40, 2, 0))));
    }

    #[test]
    fn what_a_change_cannot_touch_is_in_front_but_for_the_last() {
        let extents = cuts(&[10, 25, 30], &[]).extents(3, 30).unwrap();
        assert_eq!([9, 10, 25, 29, 30].map(|at| extents.in_front(at)), [0, 0, 1, 1, 2]);
        assert_eq!(extents.with_header(28).in_front(27), 0);
    }

    #[test]
    fn events_of_a_frame_end_with_it() {
        let extents =
            cuts(&[10, 25, 30, 40], &[]).extents(4, 40).unwrap().in_frames(&[0..10, 12..32]);
        assert!(extents.share_frames());
        assert_eq!((extents.outer(0), extents.outer(1), extents.outer(2)), (0..10, 10..32, 10..32));
        assert_eq!((extents.outer(3), extents.touched(&(13..14))), (32..40, 2));
    }

    #[test]
    fn what_gives_all_or_nothing_has_no_extents() {
        assert!(cuts(&[40], &[]).extents(1, 40).is_none());
        let frame = cuts(&[20, 20, 40], &[]).extents(3, 40).unwrap();
        assert!(frame.share_frames());
        assert_eq!(frame.outer(1), 0..20);
    }
}
