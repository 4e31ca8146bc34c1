//! Extents: where each event of a sample lies, learned from cutting the sample off at many places. Reads
//! nothing itself.

use std::collections::BTreeMap;
use std::ops::Range;

/// What a sample that is cut off gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// How many events, of those that the whole one gives, it begins with.
    pub(crate) events: usize,
    /// Whether it is told that something is missing.
    pub(crate) told: bool,
    /// Whether it is told by an error, after which nothing is given.
    pub(crate) failed: bool,
}

/// What the cuts that were tried give, by place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(BTreeMap<usize, Cut>);

/// How many places behind an event, one after another, may be a sound end: `\r\n` is two bytes.
const BREAK: usize = 2;

impl Cuts {
    /// Adds what a cut gives.
    pub(crate) fn add(&mut self, at: usize, cut: Cut) {
        self.0.insert(at, cut);
    }

    /// What the cut there gives, if it was tried.
    pub(crate) fn at(&self, at: usize) -> Option<Cut> {
        self.0.get(&at).copied()
    }

    /// The last place known to give at most `event` events, and the first that gives more.
    pub(crate) fn around(&self, event: usize) -> Option<(usize, usize)> {
        let (end, _) = self.0.iter().find(|(_, cut)| cut.events > event)?;
        let before = self.0.range(..end).next_back().map_or(0, |(at, _)| *at);
        Some((before, *end))
    }

    /// A place inside of an event, or of a header, where a cut is not told; with how many more there are.
    ///
    /// A format may end in other places than right behind an event, but not in several one behind another.
    pub(crate) fn silent(&self, len: usize) -> Option<(usize, usize)> {
        let all = self.0.get(&len)?.events;
        let mut silent = Vec::new();
        let mut run: Vec<usize> = Vec::new();
        for (at, cut) in &self.0 {
            let follows = run.last().is_some_and(|last| last + 1 == *at);
            let is_end = at.checked_sub(1).and_then(|before| self.at(before));
            // The place right behind an event begins another run.
            let begins = is_end.is_none_or(|before| before.events < cut.events);
            if !follows || begins || cut.told {
                run.clear();
            }
            if !cut.told && cut.events < all && *at > 0 && !begins {
                run.push(*at);
                if run.len() > BREAK {
                    silent.extend(run.first().copied());
                }
            }
        }
        silent.first().map(|first| (*first, silent.len() - 1))
    }

    /// The first cut behind the header that gives less than one in front of it, or that fails although there
    /// are events in front of it; with how many events it costs, and how many more such cuts there are.
    pub(crate) fn given_up(&self, header: usize) -> Option<(usize, usize, usize)> {
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

    /// Whether no cut gives an event, unless it gives all of them.
    pub(crate) fn gives_nothing(&self, events: usize) -> bool {
        self.0.values().all(|cut| !(1..events).contains(&cut.events))
    }

    /// Where each of the events of a sample of `len` bytes lies; nothing where cutting it off gives
    /// nothing or all.
    pub(crate) fn extents(&self, events: usize, len: usize) -> Option<Extents> {
        let is_stream =
            self.0.iter().any(|(at, cut)| *at < len && (1..events).contains(&cut.events));
        if !is_stream {
            return None;
        }
        let ends: Option<Vec<(usize, usize)>> =
            (0..events).map(|event| self.around(event)).collect();
        Some(Extents { ends: ends?, header: 0 })
    }
}

/// Where events lie.
#[derive(Clone, Debug)]
pub(crate) struct Extents {
    /// For each event, a place where it is not whole yet, and one where it is.
    ends: Vec<(usize, usize)>,
    /// How many bytes at the front all events may depend on.
    header: usize,
}

impl Extents {
    /// The same with a header of at least so many bytes.
    pub(crate) fn with_header(self, header: usize) -> Self {
        Self { header, ..self }
    }

    /// Whether several events share an end: they lie in a frame that is whole or not there.
    pub(crate) fn are_framed_together(&self) -> bool {
        self.ends.windows(2).any(|pair| pair[0].1 == pair[1].1 && pair[0].0 + 1 == pair[0].1)
    }

    /// The end of what lies before and in the first event: a header may be in there, on which all depends.
    fn first_end(&self) -> usize {
        self.ends.first().map_or(0, |(_, end)| *end)
    }

    /// The bytes that an event cannot lie outside of.
    pub(crate) fn outer(&self, event: usize) -> Range<usize> {
        let Some((_, end)) = self.ends.get(event) else { return 0..0 };
        let before = self.ends.get(..event).unwrap_or_default();
        // Events of one frame begin where it does.
        let start = before.iter().rev().find(|(_, before)| before < end);
        start.map_or(0, |(short, _)| short + 1)..*end
    }

    /// How many bytes an event has at least.
    pub(crate) fn least(&self, event: usize) -> usize {
        let Some((short, _)) = self.ends.get(event) else { return 0 };
        let before = event.checked_sub(1).and_then(|before| self.ends.get(before));
        // Before the first one there may be a header.
        before.map_or(0, |(_, start)| (short + 1).saturating_sub(*start))
    }

    /// How many events at the front a change behind this place cannot touch. The last one before it is not
    /// counted: it may only be believed for what follows.
    pub(crate) fn in_front(&self, at: usize) -> usize {
        let before = || self.ends.iter().map(|(_, end)| *end).take_while(|end| *end <= at);
        let last = before().last();
        if at < self.header { 0 } else { before().filter(|end| Some(*end) != last).count() }
    }

    /// How many events a change of these bytes can touch.
    pub(crate) fn touched(&self, change: &Range<usize>) -> usize {
        if change.start < self.first_end().max(self.header) {
            return self.ends.len();
        }
        (0..self.ends.len()).filter(|event| is_touched(&self.outer(*event), change)).count()
    }

    /// Whether an event ends there, or a line break before.
    pub(crate) fn is_near_end(&self, at: usize) -> bool {
        at == 0 || self.ends.iter().any(|(_, end)| (*end..=end + BREAK).contains(&at))
    }

    /// Some of the places where events end.
    pub(crate) fn some_ends(&self, most: usize) -> Vec<usize> {
        let step = self.ends.len().div_ceil(most.max(1)).max(1);
        self.ends.iter().step_by(step).map(|(_, end)| *end).collect()
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

    /// Cuts of a log whose events end at these places, with `silent` places that are not told.
    fn cuts(ends: &[usize], silent: &[usize]) -> Cuts {
        let len = ends.last().copied().unwrap_or(0);
        let mut cuts = Cuts::default();
        for at in 0..=len {
            let events = ends.iter().filter(|end| **end <= at).count();
            let told = !(at == 0 || ends.contains(&at) || silent.contains(&at));
            cuts.add(at, Cut { events, told, failed: false });
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
    fn a_cut_header_that_is_not_told_is_noticed_and_a_line_break_is_not() {
        assert_eq!(cuts(&[10, 30, 50], &[]).silent(50), None);
        assert_eq!(cuts(&[10, 30, 50], &[11, 12, 31]).silent(50), None);
        assert_eq!(cuts(&[10, 30, 50], &[31, 32, 33, 34]).silent(50), Some((31, 1)));
        assert_eq!(cuts(&[10, 30, 50], &[1, 2, 3, 4]).silent(50), Some((1, 1)));
        assert_eq!(cuts(&[10, 30, 50], &[15, 20, 40]).silent(50), None);
    }

    #[test]
    fn a_cut_that_gives_less_than_one_before_it_is_noticed() {
        let mut cuts = cuts(&[10, 30, 50], &[]);
        assert_eq!(cuts.given_up(0), None);
        cuts.add(35, Cut { events: 1, told: true, failed: false });
        cuts.add(40, Cut { events: 2, told: true, failed: true });
        assert_eq!((cuts.given_up(0), cuts.given_up(36)), (Some((35, 1, 1)), Some((40, 2, 0))));
    }

    #[test]
    fn what_a_change_cannot_touch_is_in_front_but_for_the_last() {
        let extents = cuts(&[10, 25, 30], &[]).extents(3, 30).unwrap();
        assert_eq!([9, 10, 25, 29, 30].map(|at| extents.in_front(at)), [0, 0, 1, 1, 2]);
        assert_eq!(extents.with_header(28).in_front(27), 0);
    }

    #[test]
    fn what_gives_all_or_nothing_has_no_extents() {
        assert!(cuts(&[40], &[]).extents(1, 40).is_none());
        let frame = cuts(&[20, 20, 40], &[]).extents(3, 40).unwrap();
        assert!(frame.are_framed_together());
        assert_eq!(frame.outer(1), 0..20);
    }
}
